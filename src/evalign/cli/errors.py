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
