"""All warnings about data.

Estimators and the command line share them. Those about test rows, which an estimator does not know,
come from the command line only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalign.core.input_warnings import warn
from evalign.core.text import counted, listed

SHARED = 0.05  # share of the rows; fewer rows in common change a score little
FEW_ROWS = "Classes with few"
FEW_TO_LEARN, FEW_TO_JUDGE = 5, 10  # rows of a class in training, and in any other part


class DataWarning(UserWarning):
    """Suspicious data, which are used as they are."""


def warn_of_left_out(left_out: dict[str, str]) -> None:
    """Warn about columns that are left out: ids, constants, empty columns and free text."""
    if left_out:
        found = ", ".join([f"{name!r} ({why})" for name, why in left_out.items()][:8])
        more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
        warn(f"Columns are left out: {found}{more}.", DataWarning)


def warn_of_unseen(columns: Sequence[str]) -> None:
    """Warn about categories that training did not have, in these columns."""
    if columns:
        text = f"Rows have categories that training did not have, in {listed(columns, 3)}."
        warn(f"{text} They count as rare.", DataWarning)


def warn_of_few(part: str, names: Sequence[str] | np.ndarray, codes: np.ndarray) -> None:
    """Warn about classes with few rows in a part of the data, given the class code of each row."""
    few, outcome = FEW_TO_JUDGE, "judged roughly"
    if part == "training":
        few, outcome = FEW_TO_LEARN, "hard to learn"
    counts = zip(names, np.bincount(codes, minlength=len(names)), strict=True)
    scarce = [f"{name}: {count}" for name, count in counts if count < few]
    if scarce:
        warn(f"{FEW_ROWS} {part} rows ({listed(scarce, 3)}) are {outcome}.", DataWarning)


def warn_of_shared(training: np.ndarray, test: np.ndarray) -> None:
    """Warn about test rows that are also training rows, given a hash of each row."""
    shared = np.isin(test, training)
    distinct = 2 * len(np.unique(test)) > len(test)  # rows of few values are equal by chance
    if distinct and shared.mean() >= SHARED:
        what = f"{counted(int(shared.sum()), 'test row')} are also training rows"
        cure = "Remove them from one of the two, or the scores are too good."
        warn(f"{what}, label included. {cure}", DataWarning)


def warn_of_perfect(table: Any, names: Sequence[str]) -> None:
    """Warn if every test row is labelled right: a column may leak the label.

    Args:
        table: a frame with the columns "label" and "model_prediction".
        names: the classes; there is no warning if one of them has few rows.
    """
    counts = table["label"].value_counts()
    enough = len(counts) == len(names) and counts.min() >= FEW_TO_JUDGE
    if enough and table["model_prediction"].equals(table["label"]):
        text = "Every test row is labelled right. If that is too good to be true, look for a column"
        warn(f"{text} that gives the label away, and drop it.", DataWarning)
