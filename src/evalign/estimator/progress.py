"""The progress of a training: a bar on a terminal, a line a minute elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

EpochRecord = dict[str, Any]
MINUTE = 60.0  # seconds between the lines of a log
MARGIN = 1.5  # by which later epochs may be slower than those seen: a machine has other work too


class TimeLeft:
    """A bound on the time that a training still takes. It is set once, and only ever falls.

    Args:
        epochs: the most there may be.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs, self.start, self.end, self.first = epochs, time.monotonic(), math.inf, 0

    def said(self, epoch: int) -> str:
        """What is said of it after an epoch."""
        now = time.monotonic()
        self.first = self.first or epoch  # a resumed run starts later
        needed = (now - self.start) / (epoch - self.first + 1) * (self.epochs - epoch)
        self.end = min(self.end, now + MARGIN * needed)
        if now + needed > self.end + 1:  # what takes no time is never late
            return "slower than expected"
        return f"at most {max(0.0, self.end - now):.0f} s left"


def terminal() -> Any:
    """A console of rich on standard error; None without rich, or where that is not a terminal."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else None


@contextmanager
def progress(title: str, metric: str, epochs: int) -> Iterator[Callable[[EpochRecord], None]]:
    """Give a function to call with the record of each epoch.

    It shows a bar on standard error. Where that is not a terminal, or rich is not installed, it
    prints a line now and then instead: a log has no use for a bar.
    """
    left, console = TimeLeft(epochs), terminal()
    if console is None:
        with closing(_Lines(title, metric, left)) as lines:
            yield lines
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    # The name of a metric is not markup.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=epochs)

        def show(record: EpochRecord) -> None:
            said = left.said(record["epoch"])
            text = f"{title}: {_text(record, metric)}  {said}"
            bar.update(task, completed=record["epoch"], description=text)

        yield show
        bar.update(task, completed=epochs)  # the training may have ended early


class _Lines:
    """Prints the first epoch, then one a minute, and the last."""

    def __init__(self, title: str, metric: str, left: TimeLeft) -> None:
        self.title, self.metric, self.left = title, metric, left
        self.printed, self.waiting = -math.inf, ""

    def __call__(self, record: EpochRecord) -> None:
        epoch, said = record["epoch"], self.left.said(record["epoch"])
        text = f"{self.title}: epoch {epoch}/{self.left.epochs}  {_text(record, self.metric)}"
        self.waiting = f"{text}  {said}"
        if time.monotonic() - self.printed >= MINUTE:
            self.close()

    def close(self) -> None:
        if self.waiting:
            print(self.waiting, file=sys.stderr, flush=True)
            self.printed, self.waiting = time.monotonic(), ""


def _text(record: EpochRecord, metric: str) -> str:
    heat = record["temperature"]
    parts = [
        *([] if heat is None else [f"temperature {heat:.3g}"]),
        f"loss {record['validation_loss']:.4f}",
        f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ' '}",
    ]
    return "  ".join(parts)
