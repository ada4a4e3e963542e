"""Train many units of work on one machine or on a cluster, and skip those already recorded."""

import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from joblib import Parallel, delayed, parallel_config

from evalign_study.records.made import Record
from evalign_study.records.results import Results
from evalign_study.trainers.choice import Unit

Train = Callable[[Unit], Iterable[Record]]
Progress = Callable[[int, int, float], None]


class ExecutionError(RuntimeError):
    """The error for units that failed; the records of the others are kept.

    Args:
        failed: the units that failed, and their errors.
        total: the number of all units.
    """

    def __init__(self, failed: Sequence[str], total: int) -> None:
        text = f"{len(failed)} of {total} units failed; run again to try them once more."
        super().__init__("\n\n".join([text, *failed]))
        self.failed, self.total = failed, total


def execute(
    units: Iterable[Unit],
    train: Train,
    results: Results,
    *,
    known: Collection[str] = (),
    jobs: int = 1,
    backend: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Train the units that are not wholly recorded.

    A unit is trained as a whole and recorded in one write. Its runs share random numbers, so that a
    part of it would have other results. If a run was recorded before, that first record is kept.

    Args:
        units: the lists of runs that train together.
        train: the function from a unit to its records; defined in a module, so that other processes
            can import it.
        results: the file of the records; written by this process, not by those that train.
        known: keys of runs that are recorded elsewhere.
        jobs: the number of units trained at a time.
        backend: None for processes of this machine, "dask" for the cluster of the
            `dask.distributed.Client` in use.
        progress: called as progress(done, total, seconds_left), in runs, after every unit.

    Raises:
        ExecutionError: at the end, if units failed.
    """
    elsewhere = {*known} - results.keys
    planned, todo = elsewhere | results.keys, []
    for unit in units:
        keys = {run.key for run in unit}
        if not keys <= planned:
            planned |= keys
            todo.append(unit)
    done, total, start, failed = 0, sum(map(len, todo)), time.perf_counter(), []
    where = parallel_config(backend=backend, n_jobs=jobs) if backend else nullcontext()
    with where:
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
        attempts: Any = parallel(delayed(_attempt)(train, unit) for unit in todo)
        for unit, records, error in attempts:
            results.append([record for record in records if record["key"] not in elsewhere])
            if error:
                failed.append(f"{unit[0]} and {len(unit) - 1} more: {error}")
            done += len(unit)
            if progress is not None:
                left = (time.perf_counter() - start) / done * (total - done)
                progress(done, total, left)
    if failed:
        raise ExecutionError(failed, len(todo))


def _attempt(train: Train, unit: Unit) -> tuple[Unit, list[Record], str]:
    """Train a unit; return its records, or the error that stopped it."""
    try:
        return unit, list(train(unit)), ""
    except Exception:
        return unit, [], traceback.format_exc()
