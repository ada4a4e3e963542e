"""What an ensemble says while it is fitted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Tell(Protocol):
    """Take a line on what was done; one that is `passing` is gone with the next."""

    def __call__(self, text: str, *, passing: bool = False) -> None: ...


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    Passing ones are shown on a terminal alone: a log has no use for them.
    """
    if not verbose:
        yield _nothing
        return
    try:
        from rich.console import Console
    except ImportError:
        yield _line
        return
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        yield _line
        return
    with console.status("") as status:

        def show(text: str, *, passing: bool = False) -> None:
            status.update(text)
            if not passing:
                console.print(text, soft_wrap=True)

        yield show


def _nothing(text: str, *, passing: bool = False) -> None:
    pass


def _line(text: str, *, passing: bool = False) -> None:
    if not passing:
        print(text, file=sys.stderr, flush=True)
