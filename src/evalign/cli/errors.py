"""Errors and warnings that the person at the terminal can act on."""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """Bad input. It is reported in one line, and the exit code is 2."""


@contextmanager
def refused(*kinds: type[Exception], where: str = "") -> Iterator[None]:
    """Report an error of the library as bad input: a ValueError, and others that are named."""
    try:
        yield
    except (ValueError, *kinds) as error:
        raise UsageError(f"{where}{error}") from error
