"""Many units of work, on the cores of one machine or on a cluster; what is recorded is done."""

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from joblib import Parallel, delayed, parallel_config

from evalign_study.records.results import Record, Results
from evalign_study.records.run import Run

Unit = Sequence[Run]  # runs that are trained together
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
    jobs: int = 1,
    backend: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Train what is not yet recorded.

    Args:
        units: lists of runs; each is trained once, and not if it is already recorded.
        train: from a unit to its records; a function of a module, so that processes can find it.
        results: where the records go; written by this process, not by those that train.
        jobs: units at a time.
        backend: None for processes of this machine, "dask" for the cluster of the
            `dask.distributed.Client` in use.
        progress: called as progress(done, total, seconds_left), in runs, after every unit.

    Raises:
        ExecutionError: at the end, if units failed.
    """
    known, todo = set(results.keys), []
    for unit in units:
        new = {run.key: run for run in unit if run.key not in known}
        known |= new.keys()
        todo += [list(new.values())] if new else []
    done, total, start, failed = 0, sum(map(len, todo)), time.perf_counter(), []
    where = parallel_config(backend=backend, n_jobs=jobs) if backend else nullcontext()
    with where:
        parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
        attempts: Any = parallel(delayed(_attempt)(train, unit) for unit in todo)
        for unit, records, error in attempts:
            for record in records:
                results.append(record)
            if error:
                failed.append(f"{unit[0]} and {len(unit) - 1} more: {error}")
            done += len(unit)
            if progress is not None:
                left = (time.perf_counter() - start) / done * (total - done)
                progress(done, total, left)
    if failed:
        raise ExecutionError(failed, len(todo))


def _attempt(train: Train, unit: Unit) -> tuple[Unit, list[Record], str]:
    """The unit, its records, and the error that kept it from having some."""
    try:
        return unit, list(train(unit)), ""
    except Exception:
        return unit, [], traceback.format_exc()
