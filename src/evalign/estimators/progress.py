"""The progress of a fit: on a terminal a line that changes, in a log a line per minute."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MINUTE = 60.0  # seconds between the passing lines of a log
Tell = Callable[..., None]  # takes a line, which with passing=True may be replaced by the next


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    Passing lines change on a terminal (with rich), and in a log come once a minute.
    """
    if not verbose:
        yield lambda text, *, passing=False: None
        return
    printed = -math.inf

    def to_log(text: str, *, passing: bool = False) -> None:
        nonlocal printed
        if not passing or time.monotonic() - printed >= MINUTE:
            print(text, file=sys.stderr, flush=True)
            printed = time.monotonic()

    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        yield to_log
        return
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        yield to_log
        return
    with console.status("") as status:

        def to_terminal(text: str, *, passing: bool = False) -> None:
            status.update(Text(text))  # the name of a candidate is not markup
            if not passing:
                console.print(text, soft_wrap=True)

        yield to_terminal


def epoch_line(title: str, metric: str, epochs: int, record: dict[str, Any]) -> str:
    """The record of an epoch in words; a star marks the best so far."""
    temperature = record["temperature"]
    cooled = "" if temperature is None else f"temperature {temperature:.3g}  "
    score = f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ''}"
    loss = f"loss {record['validation_loss']:.4f}"
    return f"{title}: epoch {record['epoch']}/{epochs}  {cooled}{loss}  {score}"
