"""What an ensemble prints while it is fitted."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from evalign.estimator.epoch_progress import MINUTE, terminal


class Tell(Protocol):
    """Take a line about what was done; a `passing` one may be replaced by the next."""

    def __call__(self, text: str, *, passing: bool = False) -> None: ...


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    Passing lines are shown on a terminal, and in a log after a minute without a line.
    """
    console, printed = terminal() if verbose else None, time.monotonic()

    def to_log(text: str, *, passing: bool = False) -> None:
        nonlocal printed
        if verbose and (not passing or time.monotonic() - printed >= MINUTE):
            print(text, file=sys.stderr, flush=True)
            printed = time.monotonic()

    if console is None:
        yield to_log
        return
    from rich.text import Text

    with console.status("") as status:

        def to_terminal(text: str, *, passing: bool = False) -> None:
            status.update(Text(text))  # the name of a candidate is not markup
            if not passing:
                console.print(text, soft_wrap=True)

        yield to_terminal
