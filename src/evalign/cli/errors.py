"""Errors and warnings that the person at the terminal can act on."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ALIGNED = "`evalign fit --recipe aligned`"
# What the library advises in words of Python, and what the command line has in its place.
ADVICE = {
    r'Use [\w= ]+, or MetricLoss\(\.\.\., statistics="running"\)': f"Use {ALIGNED}",
    r'has, AlignedLoss \(recipe="aligned"\)': f"has ({ALIGNED})",
    r"give it time \(patience\), .* or a lower learning rate": "give more rows of it",
    r'Use a higher temperature, .* AlignedLoss \(recipe="aligned"\),': f"Use {ALIGNED},",
    r"Lower its temperature .* or train on this metric": "The epoch with the best metric is kept",
    r"Lower the learning rate, set clip_norm, or look": "Look",
    r"Give validation_data, or more": "Give more",
    r"Give more rows, or validation_data": "Give more rows",
    r"Give validation_data, or another random_state": "Give another --seed",
    r'\(decision "expected"\)': "(--decision expected)",
    r"The rule of \w+ does not promise": "The rule does not promise",
    r"or a lower confidence": "or a lower --confidence",
    r"use evalign\.losses\.\w+\.": "use a metric of labels, such as balanced_accuracy.",
    r" or ExpectedCost\(cost\)": "",
}


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


def in_options(text: str) -> str:
    """Advice of the library with options in the place of arguments."""
    for advised, cure in ADVICE.items():
        text = re.sub(advised, cure, text)
    return text


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
