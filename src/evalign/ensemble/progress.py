"""What an ensemble says while it is fitted."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from evalign.estimator.progress import MINUTE, terminal


class Tell(Protocol):
    """Take a line on what was done; one that is `passing` is gone with the next."""

    def __call__(self, text: str, *, passing: bool = False) -> None: ...


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    Passing ones are shown on a terminal, and in a log after a minute without a line.
    """
    if not verbose:
        yield _nothing
        return
    console = terminal()
    if console is None:
        yield _Lines()
        return
    from rich.text import Text

    with console.status("") as status:

        def show(text: str, *, passing: bool = False) -> None:
            status.update(Text(text))  # the name of a candidate is not markup
            if not passing:
                console.print(text, soft_wrap=True)

        yield show


def _nothing(text: str, *, passing: bool = False) -> None:
    pass


class _Lines:
    """Prints what was done, and what passes if nothing was printed for a minute."""

    def __init__(self) -> None:
        self.printed = time.monotonic()

    def __call__(self, text: str, *, passing: bool = False) -> None:
        if not passing or time.monotonic() - self.printed >= MINUTE:
            print(text, file=sys.stderr, flush=True)
            self.printed = time.monotonic()
