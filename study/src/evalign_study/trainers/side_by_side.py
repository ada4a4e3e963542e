"""Trainings of images side by side on one GPU: threads of one process, each with its own stream.

Kernels of one process run at the same time, those of several take turns. A step is one CUDA graph,
so that a thread needs Python for little, and leaves it to the others.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from evalign_study.records.made import Record
from evalign_study.records.run import Run


class Training(Protocol):
    """A training, an epoch at a time."""

    @property
    def finished(self) -> bool: ...

    def epoch(self) -> None: ...

    def record(self, assessors: Executor) -> Record: ...


def train_side_by_side(
    begin: Callable[[Run], Training],
    runs: Iterable[Run],
    keep: Callable[[Sequence[Record]], None],
    *,
    side: int,
    seconds: float,
    assessors: Executor,
) -> list[Run]:
    """Train networks for images, several at a time, until the time is up.

    Dropout would draw from the generator that all threads share: runs have none.

    Args:
        begin: makes the training of a run.
        runs: the most wanted first.
        keep: called with each record as it comes, by this thread.
        side: how many train at a time.
        seconds: no epoch begins after them. What is not finished then is lost, and what would not
            be, by the time that others took, is not begun.
        assessors: choose the decisions, which takes a core for some seconds; processes, so that
            the threads that train do not wait for it.

    Returns:
        The runs that are not finished.

    Raises:
        ExceptionGroup: at the end, if trainings failed.
    """
    turns, clock = _Turns(), _Clock(side, time.monotonic() + seconds)
    unfinished: list[Run] = []
    errors: list[Exception] = []
    with ThreadPoolExecutor(side, initializer=_own_stream) as threads:
        futures = {threads.submit(_train, begin, run, turns, clock, assessors): run for run in runs}
        try:
            for future in as_completed(futures):
                if isinstance(error := future.exception(), Exception):
                    error.add_note(f"in {futures[future]}")
                    errors.append(error)
                elif record := future.result():
                    keep([record])
                else:
                    unfinished.append(futures[future])
        finally:  # what nobody keeps is not trained on
            clock.end = -math.inf
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(futures)} trainings failed", errors)
    return unfinished


def _own_stream() -> None:
    """Give this thread a stream of its own."""
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream())


def _train(
    begin: Callable[[Run], Training],
    run: Run,
    turns: "_Turns",
    clock: "_Clock",
    assessors: Executor,
) -> Record | None:
    """Train a run; None if the time is up, or would be before it ends."""
    with turns.alone():
        start = time.monotonic()
        if start + clock.expected > clock.end:
            return None
        training = begin(run)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        clock.begun += 1
    try:
        while not training.finished:
            with turns.together():
                if time.monotonic() > clock.end:
                    return None
                training.epoch()
    finally:  # one that fails is no longer beside the others
        clock.took.append(time.monotonic() - start)
    return training.record(assessors)


@dataclass
class _Clock:
    """When the time is up, and how long trainings take.

    Args:
        side: how many train at a time.
        end: when the time is up.
        begun: how many were set up.
        took: the seconds of those of them that have ended, well or not.
    """

    side: int
    end: float
    begun: int = 0
    took: list[float] = field(default_factory=list)

    @property
    def expected(self) -> float:
        """The seconds that one more would take, which beside fewer others are fewer."""
        others = self.begun - len(self.took)
        return max(self.took, default=0.0) * (others + 1) / self.side


class _Turns:
    """Many threads may train, or one may set up; who wants to set up comes first.

    Compiling and capturing a step takes some seconds alone, and several times as long beside
    trainings. And it seeds the generator that all threads share.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._training = self._waiting = 0
        self._setting_up = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until nobody trains or sets up, and let nobody begin."""
        with self._free:
            self._waiting += 1
            self._free.wait_for(lambda: not self._training and not self._setting_up)
            self._waiting -= 1
            self._setting_up = True
        try:
            yield
        finally:
            with self._free:
                self._setting_up = False
                self._free.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Wait until nobody sets up or wants to."""
        with self._free:
            self._free.wait_for(lambda: not self._setting_up and not self._waiting)
            self._training += 1
        try:
            yield
        finally:
            with self._free:
                self._training -= 1
                self._free.notify_all()
