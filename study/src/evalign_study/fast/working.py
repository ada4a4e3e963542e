"""Train units of runs in several processes, within a time, and hand over each record as it comes.

Processes of one GPU take turns, unless an MPS server lets their kernels run at the same time.
"""

import multiprocessing
import os
import queue
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from evalign_study.records.journal import Record

Unit = Sequence[Any]


def work(
    units: Sequence[Unit],
    train: Callable[[Unit], Any],
    keep: Callable[[Record], None],
    *,
    processes: int = 1,
    seconds: float | None = None,
) -> list[str]:
    """Train the units in their order; return what went wrong.

    Args:
        units: what is trained together.
        train: from a unit to its records, one after the other; a function of a module.
        keep: takes each record, in this process.
        processes: how many units are trained at a time; 1 is this process itself.
        seconds: when the time is up, processes are ended, and what they were training is lost. A
            unit that would not be ready by the time its like took is not begun. One process alone
            stops between records.
    """
    end = None if seconds is None else time.monotonic() + seconds
    if processes == 1:
        return _here(units, train, keep, end)
    context = multiprocessing.get_context("spawn")
    wanted, found = context.Queue(), context.Queue()
    workers = [
        context.Process(target=_worker, args=(train, wanted, found, processes), daemon=True)
        for _ in range(min(processes, len(units)))
    ]
    for worker in workers:
        worker.start()
    errors: list[str] = []
    took: dict[Any, float] = {}
    waiting = list(units)

    def give() -> None:
        """Hand out the next unit that can be ready in time, or the sign that there is none."""
        while waiting:
            unit = waiting.pop(0)
            left = float("inf") if end is None else end - time.monotonic()
            if took.get(_like(unit), 0.0) < left:
                wanted.put(unit)
                return
        wanted.put(None)

    for _ in workers:
        give()
    open_workers = len(workers)
    while open_workers:
        left = 5.0 if end is None else min(5.0, end - time.monotonic())
        if left <= 0:
            break
        try:
            kind, value = found.get(timeout=left)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                errors.append("All processes have died.")
                break
            continue
        if kind == "record":
            keep(value)
        elif kind == "ready":
            like, duration = value
            took[like] = max(duration, took.get(like, 0.0))
            give()
        elif kind == "error":
            errors.append(value)
            give()
        else:
            open_workers -= 1
    while True:  # what came in the last moment
        try:
            kind, value = found.get(timeout=0.2)
        except queue.Empty:
            break
        if kind == "record":
            keep(value)
    # Only now: one that is ended while it writes leaves a queue that cannot be read.
    for worker in workers:
        worker.terminate()
    return errors


def _here(
    units: Sequence[Unit],
    train: Callable[[Unit], Any],
    keep: Callable[[Record], None],
    end: float | None,
) -> list[str]:
    errors = []
    for unit in units:
        try:
            for record in train(unit):
                keep(record)
                if end is not None and time.monotonic() > end:
                    return errors
        except Exception:
            errors.append(f"{unit[0]}\n{traceback.format_exc()}")
    return errors


def _worker(train: Callable[[Unit], Any], wanted: Any, found: Any, processes: int) -> None:
    """Train what is wanted until there is nothing more."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    while (unit := wanted.get()) is not None:
        start = time.monotonic()
        try:
            for record in train(unit):
                found.put(("record", record))
            found.put(("ready", (_like(unit), time.monotonic() - start)))
        except Exception:
            found.put(("error", f"{unit[0]}\n{traceback.format_exc()}"))
    found.put(("end", None))


def _like(unit: Unit) -> Any:
    """What units that take about as long have in common."""
    run = unit[0]
    about = ("dataset", "network", "batch_size", "rate", "reading")
    return *(getattr(run, name, None) for name in about), len(unit)
