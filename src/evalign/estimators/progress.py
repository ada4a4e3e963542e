"""The progress of training: on a terminal a bar or a passing line, in a log a line per minute."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

EpochRecord = dict[str, Any]
MINUTE = 60.0  # seconds between the lines of a log


def terminal() -> Any:
    """A console of rich on standard error; None without rich or without a terminal."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else None


class MinuteLog:
    """Print lines on standard error; passing ones only after a minute without a line."""

    def __init__(self, printed: float = -math.inf) -> None:
        self.printed = printed

    def __call__(self, text: str, *, passing: bool = False) -> None:
        if not passing or time.monotonic() - self.printed >= MINUTE:
            print(text, file=sys.stderr, flush=True)
            self.printed = time.monotonic()


@contextmanager
def progress(title: str, metric: str, epochs: int) -> Iterator[Callable[[EpochRecord], None]]:
    """Give a function to call with the record of each epoch."""
    console = terminal()
    if console is None:
        log = MinuteLog()

        def line(record: EpochRecord) -> None:
            text = f"{title}: epoch {record['epoch']}/{epochs}  {_text(record, metric)}"
            log(text, passing=True)

        yield line
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    text = TextColumn("{task.description}", markup=False)  # the name of a metric is not markup
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=epochs)

        def show(record: EpochRecord) -> None:
            text = f"{title}: {_text(record, metric)}"
            bar.update(task, completed=record["epoch"], description=text)

        yield show
        bar.update(task, completed=epochs)  # training may have stopped early


def _text(record: EpochRecord, metric: str) -> str:
    temperature = record["temperature"]
    parts = [
        *([] if temperature is None else [f"temperature {temperature:.3g}"]),
        f"loss {record['validation_loss']:.4f}",
        f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ' '}",
    ]
    return "  ".join(parts)


class Tell(Protocol):
    """Take a line about what was done; a `passing` one may be replaced by the next."""

    def __call__(self, text: str, *, passing: bool = False) -> None: ...


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    Passing lines are shown on a terminal, and in a log after a minute without a line.
    """
    console = terminal() if verbose else None
    if console is None:
        yield MinuteLog(time.monotonic()) if verbose else lambda text, *, passing=False: None
        return
    from rich.text import Text

    with console.status("") as status:

        def to_terminal(text: str, *, passing: bool = False) -> None:
            status.update(Text(text))  # the name of a candidate is not markup
            if not passing:
                console.print(text, soft_wrap=True)

        yield to_terminal
