"""The progress of a training: a bar on a terminal, a line per epoch elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EpochRecord = dict[str, Any]


@contextmanager
def progress(title: str, metric: str, epochs: int) -> Iterator[Callable[[EpochRecord], None]]:
    """Give a function to call with the record of each epoch.

    It shows a bar on standard error. Where that is not a terminal, or rich is not installed, it
    prints a line instead: a log has no use for a bar.
    """
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _lines(title, metric, epochs)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, metric, epochs)
        return
    with Progress(console=console) as bar:  # its last columns are the share and the time left
        task = bar.add_task(title, total=epochs)

        def show(record: EpochRecord) -> None:
            text = f"{title}: {_text(record, metric)}"
            bar.update(task, completed=record["epoch"], description=text)

        yield show
        bar.update(task, completed=epochs)  # the training may have ended early


def _lines(title: str, metric: str, epochs: int) -> Callable[[EpochRecord], None]:
    start, first = time.perf_counter(), 0

    def show(record: EpochRecord) -> None:
        nonlocal first
        first = first or record["epoch"]  # a resumed run starts later
        each = (time.perf_counter() - start) / (record["epoch"] - first + 1)
        left = each * (epochs - record["epoch"])
        text = f"{title}: epoch {record['epoch']}/{epochs}  {_text(record, metric)}"
        print(f"{text}  at most {left:.0f} s left", file=sys.stderr, flush=True)

    return show


def _text(record: EpochRecord, metric: str) -> str:
    heat = record["temperature"]
    parts = [
        *([] if heat is None else [f"temperature {heat:.3g}"]),
        f"loss {record['validation_loss']:.4f}",
        f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ' '}",
    ]
    return "  ".join(parts)
