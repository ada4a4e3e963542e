"""Errors and warnings that the person at the terminal can act on."""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """Bad input. It is reported in one line, and the exit code is 2."""


@contextmanager
def refused(kind: type[ValueError] = ValueError) -> Iterator[None]:
    """Report an error of the library as bad input: it is about what the user gave."""
    try:
        yield
    except kind as error:
        raise UsageError(str(error)) from error


def listed(names: list[str], most: int = 8) -> str:
    """Write names as part of a sentence: the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
