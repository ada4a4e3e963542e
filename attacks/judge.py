"""What a case is, and how it is judged."""

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

SECONDS = 180  # after which a case hangs, also on a busy machine
MEMORY = 2 << 20  # kilobytes by which a case may raise the peak


class Case(NamedTuple):
    """A hostile act. `act` returns why it did not hold, or None."""

    name: str
    act: Callable[[], str | None]


Attack = Callable[[Any], Iterator[Case]]


class Hang(BaseException):
    """A case took too long."""


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(case: Case) -> str | None:
    """Why the case did not hold, or None."""
    before = peak()
    try:
        with limited():
            why = case.act()
    except Hang:
        return f"no answer after {SECONDS} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    grown = peak() - before
    if why is None and grown > MEMORY:
        return f"it took {grown >> 10:,} MB"
    return why


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def one_sentence(error: BaseException) -> str | None:
    """Why an error is not a clear line, or None."""
    text = str(error)
    if not text or "\n" in text or "Traceback" in text or len(text) > 1000:
        return f"not one clear line: {type(error).__name__}: {text[:200]!r}"
    return None
