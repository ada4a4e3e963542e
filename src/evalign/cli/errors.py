"""Errors and warnings that the person at the terminal can act on."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """Bad input. It is reported in one line, and the exit code is 2."""


class DataWarning(UserWarning):
    """A warning, in one line, that the data are used as they are but deserve a look."""


@contextmanager
def refused(worded: Callable[[str], str] = str) -> Iterator[None]:
    """Turn a ValueError of the library into bad input: it is about what the user gave.

    Options are spoken of as such, and not as arguments of a function. What `worded` makes of the
    text is said, such as `Labels.named`.
    """
    try:
        yield
    except ValueError as error:
        text = re.sub(r"^constraint of \w+( \w+)? must", "--constraint must", str(error))
        text = re.sub(r"^groups of compare must", "--group must", text)
        text = re.sub(r"^folds of compare must", "--folds must", text)
        names = "--constraint must bound a metric by a name that `evalign metrics` lists"
        text = re.sub(
            r"^metric of .+'s constraint must be a name of metrics\.names\(\)", names, text
        )
        raise UsageError(worded(text)) from error


def counted(number: int, thing: str = "row") -> str:
    """Write a number of things.

    Examples:
        >>> counted(1), counted(2)
        ('1 row', '2 rows')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: list[str], most: int = 8) -> str:
    """Write names as part of a sentence: the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
