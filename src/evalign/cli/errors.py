"""Errors and warnings that the person at the terminal can act on."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What the command line says in the place of the library's words of Python, by their kind.
OWN_WORDS = {
    "small_batches": "Use --recipe aligned.",  # EAST alone sees one at a time
    "collapsed": "A class is very rare among these rows: give more rows of it.",
    "vanished": "Perhaps these columns tell no more: give others, or more rows.",
    "drift": "The epoch with the best metric is kept.",
    "diverged": "Look for such values in the data.",
    "few_to_hold_out": "Give more rows.",
    "class_held_out": "Give rows of it in more groups.",
    "class_not_held_out": "Give more rows of it.",
    "few_to_tune": "Give more rows, or decide by the probabilities (--decision expected).",
    "class_in_one_fold": "Give more rows of them, or merge them with others.",
    "id_of_few": "If it is not one, give more rows.",
    "none": "be left out",
    "what_is_promised": 'Name what is promised: --constraint "recall >= 0.9".',
    "to_promise": "Use --decision tuned: probabilities alone promise nothing.",
    "rule": "The rule",
    "promise": "Give more labelled rows, or a lower --confidence.",
    "ranking": "It ranks over all thresholds: use a metric of labels, such as balanced_accuracy.",
    "costs": 'Give the costs: "expected_cost[[0, 1], [5, 0]]".',
}
# The same of the one recipe without cross-entropy.
OF_EAST: dict[str, str] = dict.fromkeys(
    ("collapsed", "vanished"), "Use --recipe aligned, which keeps a cross-entropy term."
)


class UsageError(ValueError):
    """Bad input. It is reported in one line, and the exit code is 2."""


class DataWarning(UserWarning):
    """A warning, in one line, that the data are used as they are but deserve a look."""


@contextmanager
def refused(
    worded: Callable[[str], str] = str, kind: type[ValueError] = ValueError
) -> Iterator[None]:
    """Turn an error of the library into bad input: it is about what the user gave.

    Options are spoken of as such, and not as arguments of a function. What `worded` makes of the
    text is said, such as `Labels.named`.
    """
    try:
        yield
    except kind as error:
        options = r"^(constraint|confidence|folds) of [\w ]+? must"
        text = re.sub(options, r"--\1 must", str(error))
        text = re.sub(r"^groups of fit_decision must", "--groups must", text)
        text = re.sub(r"^groups of \w+ must", "--group must", text)
        names = "--constraint must bound a metric by a name that `evalign metrics` lists"
        text = re.sub(
            r"^metric of .+'s constraint must be a name of metrics\.names\(\)", names, text
        )
        raise UsageError(worded(text)) from error


def listed(names: list[str], most: int = 8) -> str:
    """Write names as part of a sentence: the first ones, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
