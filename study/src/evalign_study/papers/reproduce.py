"""A table of a paper, run again: plan, train what is not recorded, write down what was found."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from evalign_study.data import card
from evalign_study.data.sources import fetch
from evalign_study.papers import plan as planning
from evalign_study.papers.evidence import Evidence
from evalign_study.papers.plan import QUICK_TRIALS, Plan
from evalign_study.papers.render import write
from evalign_study.papers.tables import table
from evalign_study.records.execute import ExecutionError, execute
from evalign_study.records.results import Record, Results
from evalign_study.records.run import Run

# Called as progress(phase, done, total, seconds_left).
Progress = Callable[[str, int, int, float], None]


def reproduce(
    name: str,
    *,
    out: Path,
    results: Path,
    datasets: Sequence[str] | None = None,
    trials: int | None = None,
    quick: bool = False,
    jobs: int = 1,
    backend: str | None = None,
    progress: Progress | None = None,
) -> Evidence:
    """Run a table and write it down.

    Args:
        name: one of `tables.names()`.
        out: the folder for Markdown, HTML and CSV.
        results: the folder of the records, NAME.jsonl for each table; what any of them holds is
            not run again.
        datasets: some of the table's, by name; all without.
        trials: seeds of each setting; the table's own number without.
        quick: a small slice, to see that it runs. Its numbers mean nothing, and all of it goes to
            the folder "quick" of `out`.
        jobs: units of work at a time.
        backend: None, or "dask" for the cluster of the current `dask.distributed.Client`.
        progress: told of what is done.

    Raises:
        ExecutionError: at the end, when all else is written down, if units failed.
    """
    plan = planned(name, datasets=datasets, trials=trials, quick=quick)
    if quick:
        out = results = out / "quick"
    own = Results(results / f"{name}.jsonl")
    known = recorded(results)
    grid = [of for cell in plan.cells() for of in plan.grid(cell).values()]
    asked = [*grid, *plan.all_runs(known)]
    for dataset in {of.dataset for of in asked if of.key not in known}:
        fetch(card(dataset))  # what is absent is told now, and downloaded once
    failures: list[ExecutionError] = []

    def run(phase: str, runs: Iterable[Run]) -> None:
        todo = [run for run in runs if run.key not in known]
        for kind, (units, train) in plan.work(todo).items():

            def tell(done: int, total: int, left: float, kind: str = kind) -> None:
                if progress is not None:
                    progress(f"{name}, {phase} of {kind}", done, total, left)

            try:
                execute(units, train, own, jobs=jobs, backend=backend, progress=tell)
            except ExecutionError as error:
                failures.append(error)
        known.update({record["key"]: record for record in own.records()})

    run("grid", grid)
    run("trials", plan.all_runs(known))
    evidence = Evidence(plan, known.values())
    write(evidence, out)
    if failures:
        failed = [text for error in failures for text in error.failed]
        raise ExecutionError(failed, sum(error.total for error in failures))
    return evidence


def planned(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    trials: int | None = None,
    quick: bool = False,
) -> Plan:
    """The runs of a table, or of a part of it."""
    whole = table(name)
    part = planning.on(whole, datasets)
    if quick:
        return Plan(planning.quick(part, smallest=not datasets), trials or QUICK_TRIALS, True)
    return Plan(part, trials or whole.trials)


def recorded(folder: Path) -> dict[str, Record]:
    """The records of all tables by key: some have runs in common."""
    files = sorted(folder.glob("*.jsonl"))
    return {record["key"]: record for file in files for record in Results(file).records()}
