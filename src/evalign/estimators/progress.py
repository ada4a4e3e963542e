"""The progress of a fit: on a terminal a bar, in a log a line per minute."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

MINUTE = 60.0  # seconds between the passing lines of a log
# Takes a line, which with passing=True may be replaced by the next, and left=, the seconds to come.
Tell = Callable[..., None]


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    On a terminal (with rich) a passing line stands before a bar. In a log it comes once a minute.
    """
    if not verbose:
        yield lambda text, *, passing=False, left=None: None
        return
    bar, start, printed = bar_on_terminal(), time.monotonic(), -math.inf

    def tell(text: str, *, passing: bool = False, left: float | None = None) -> None:
        nonlocal printed
        gone, said = time.monotonic() - start, text
        if left is not None:
            said = f"{text}, about {timedelta(seconds=math.ceil(left))} left"
        if bar is not None:
            total = None if left is None else gone + left  # None leaves it as it is
            bar.update(0, refresh=True, description=said, completed=gone, total=total)
        if not passing or (bar is None and gone - printed >= MINUTE):
            print(said if passing else text, file=sys.stderr, flush=True)
            printed = gone

    with bar or nullcontext():
        yield tell


def bar_on_terminal() -> Any:
    """A bar of rich's, before which printed lines are shown; None without a terminal or rich."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        return None
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    text = TextColumn("{task.description}", markup=False)  # a candidate's name is not markup
    bar = Progress(text, BarColumn(), console=console, transient=True)
    bar.add_task("", total=None)
    return bar if console.is_terminal else None


class Remaining:
    """Tells lines with the time left: the guessed seconds that are left, by the pace so far."""

    def __init__(self, tell: Tell, guessed: float) -> None:
        self.tell, self.guessed, self.done, self.start = tell, guessed, 0.0, time.monotonic()

    def __call__(self, text: str, *, passing: bool = False, done: float = 0.0) -> None:
        """Tell a line after further guessed seconds were done."""
        self.done += done
        # As if all had been done before at the guessed pace: a short first task says little.
        pace = (time.monotonic() - self.start + self.guessed) / (self.done + self.guessed)
        self.tell(text, passing=passing, left=pace * max(0.0, self.guessed - self.done))
