"""Bad input: one line on the terminal, and exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager

from evalign.core.errors import InputError


class UsageError(InputError):
    """Bad input to a command."""


@contextmanager
def refused(*kinds: type[Exception], where: str = "") -> Iterator[None]:
    """Report errors of the library, ValueErrors and other `kinds`, as bad input."""
    try:
        yield
    except (ValueError, *kinds) as error:
        raise UsageError(f"{where}{error}") from error
