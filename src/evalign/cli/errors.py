"""What the person at the terminal can put right."""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """Bad input: told in one line, exit code 2."""


class DataWarning(UserWarning):
    """The data is used as it is, but deserves a look: told in one line."""


@contextmanager
def refused() -> Iterator[None]:
    """Within it, a ValueError of the library speaks of an argument that the user gave."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def listed(names: list[str], most: int = 8) -> str:
    """Names for a sentence, not all of them where they are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
