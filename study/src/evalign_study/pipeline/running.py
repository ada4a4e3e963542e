"""Run a table: train what is not recorded, stage by stage."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from evalign_study.data import card
from evalign_study.data.sources import fetch
from evalign_study.pipeline.execute import ExecutionError, execute
from evalign_study.pipeline.table import StudyTable
from evalign_study.records.made import Record
from evalign_study.records.results import SUFFIX, Results, recorded
from evalign_study.records.run import Run
from evalign_study.trainers.choice import Trainer, trainer_of

# Called as progress(phase, done, total, seconds_left).
Progress = Callable[[str, int, int, float], None]


def run(
    table: StudyTable,
    folder: Path,
    *,
    jobs: int = 1,
    backend: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Train what is not recorded.

    Args:
        table: a table or a part of one.
        folder: the folder of the records, with a file for each table. A run recorded in any of them
            is not trained again.
        jobs: the number of units of work at a time.
        backend: None, or "dask" for the cluster of the current `dask.distributed.Client`.
        progress: called after every unit.

    Raises:
        ExecutionError: if units failed; at the end, when all others are recorded.
    """
    own = Results(folder / f"{table.name}{SUFFIX}")
    known = recorded(folder)
    for stage in list(table.stages(known)):
        for dataset in {run.dataset for run in stage if run.key not in known}:
            # First, so that a missing data set is an error now and a download happens once.
            fetch(card(dataset))
    failures: list[ExecutionError] = []
    for number, stage in enumerate(table.stages(known), 1):
        for trainer, runs in _by_trainer(stage, known).items():
            tell = progress and partial(progress, f"{table.name}, stage {number}, {trainer.name}")
            how = {"known": known.keys(), "jobs": jobs, "backend": backend, "progress": tell}
            try:
                execute(trainer.units(runs), trainer.train, own, **how)
            except ExecutionError as error:
                failures.append(error)
        known.update({record["key"]: record for record in own.records()})
    if failures:
        failed = [text for error in failures for text in error.failed]
        raise ExecutionError(failed, sum(error.total for error in failures))


def _by_trainer(stage: list[Run], known: dict[str, Record]) -> dict[Trainer, list[Run]]:
    """Group by trainer the runs of all data sets that have an unrecorded run.

    Recorded runs of such a data set are included, as units must be the same as before an
    interruption.
    """
    wanted = {run.dataset for run in stage if run.key not in known}
    found: dict[Trainer, list[Run]] = {}
    for run in stage:
        if run.dataset in wanted:
            found.setdefault(trainer_of(run), []).append(run)
    return found
