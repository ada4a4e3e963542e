"""Many units of work, on the cores of one machine or on a cluster; what is recorded is done."""

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
    """Some units failed; the records of the others are kept.

    Args:
        failed: which, and how.
        total: how many there were.
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

    A unit is trained whole, and recorded at once: its runs share random numbers, so that with other
    company they would have other results. Of a run that was recorded before, the first record is
    kept.

    Args:
        units: lists of runs that train together.
        train: from a unit to its records; a function of a module, so that processes can find it.
        results: where the records go; written by this process, not by those that train.
        known: keys of runs that are recorded elsewhere.
        jobs: units at a time.
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
    """Train a unit: its records, or the error that kept it from having some."""
    try:
        return unit, list(train(unit)), ""
    except Exception:
        return unit, [], traceback.format_exc()
