"""The progress of a fit: on a terminal a line that changes, in a log a line per minute."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MINUTE = 60.0  # seconds between the passing lines of a log
# Takes a line, which with passing=True may be replaced by the next, and left=, the seconds to come.
Tell = Callable[..., None]


@contextmanager
def narrated(verbose: int) -> Iterator[Tell]:
    """Give a function that prints lines on standard error, or does nothing.

    On a terminal (with rich) passing lines change, before a bar that moves with the clock. In a log
    they come once a minute.
    """
    if not verbose:
        yield lambda text, *, passing=False, left=None: None
        return
    printed = -math.inf

    def to_log(text: str, *, passing: bool = False, left: float | None = None) -> None:
        nonlocal printed
        if not passing or time.monotonic() - printed >= MINUTE:
            said = ", ".join([text, *in_words(left)]) if passing else text
            print(said, file=sys.stderr, flush=True)
            printed = time.monotonic()

    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        yield to_log
        return
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        yield to_log
        return
    start = end = time.monotonic()

    class Clock(Progress):
        """A bar from the start to the estimated end, drawn anew by a thread of rich's."""

        def get_renderables(self) -> Any:
            now = time.monotonic()
            for task in self.tasks:
                task.completed, task.total = now - start, max(now, end) - start or None
                task.fields["left"] = "".join(in_words(end - now if end > now else None))
            return super().get_renderables()

    # The name of a candidate is not markup.
    said, left = (
        TextColumn(f"{{task.{x}}}", markup=False) for x in ("description", "fields[left]")
    )
    with Clock(said, BarColumn(), left, console=console, transient=True) as bar:
        shown = bar.add_task("", total=None, left="")

        def to_terminal(text: str, *, passing: bool = False, left: float | None = None) -> None:
            nonlocal end
            end = end if left is None else time.monotonic() + left
            bar.update(shown, description=text)
            if not passing:
                console.print(text, soft_wrap=True)

        yield to_terminal


def in_words(left: float | None) -> list[str]:
    """The time that is left, rounded up; empty if it is unknown.

    Examples:
        >>> in_words(12.3), in_words(200), in_words(None)
        (['about 13 s left'], ['about 4 min left'], [])
    """
    if left is None:
        return []
    few = left < 100
    return [f"about {math.ceil(left if few else left / 60)} {'s' if few else 'min'} left"]


class Remaining:
    """Tells lines with the time that tasks will take, of which there are guesses in seconds.

    The time of the task at hand is told as `own`; for the later ones it is the guess, by the pace
    so far.
    """

    def __init__(self, tell: Tell, guesses: list[float]) -> None:
        self.tell, self.guesses, self.start, self.begun = tell, guesses, time.monotonic(), 0

    def begin(self, text: str) -> None:
        self.begun += 1
        self(text, passing=True, own=self.guesses[self.begun - 1])

    def __call__(self, text: str, *, passing: bool = False, own: float = 0.0) -> None:
        done, later = sum(self.guesses[: self.begun - 1]), sum(self.guesses[self.begun :])
        everything = done + later + self.guesses[self.begun - 1]
        # As if all had been done before at the guessed pace: a short first task says little.
        pace = (time.monotonic() - self.start + everything) / (done + everything)
        self.tell(text, passing=passing, left=own + pace * later)


def epoch_line(title: str, metric: str, epochs: int, record: dict[str, Any]) -> str:
    """The record of an epoch in words; a star marks the best so far."""
    temperature = record["temperature"]
    cooled = "" if temperature is None else f"temperature {temperature:.3g}  "
    score = f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ''}"
    loss = f"loss {record['validation_loss']:.4f}"
    return f"{title}: epoch {record['epoch']}/{epochs}  {cooled}{loss}  {score}"
