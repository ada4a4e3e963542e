"""What an ensemble prints while it is fitted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from evalign.estimators.progress import MinuteLog, terminal


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
