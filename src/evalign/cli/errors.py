"""Errors and warnings that the person at the terminal can put right."""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """Bad input. It is told in one line, and the exit code is 2."""


class DataWarning(UserWarning):
    """A warning that the data are used as they are, but deserve a look. It is told in one line."""


@contextmanager
def refused() -> Iterator[None]:
    """Within it, a ValueError of the library is about what the user gave, and is bad input."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def listed(names: list[str], most: int = 8) -> str:
    """Write names as a part of a sentence; of many, the first ones and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
