"""All warnings about data, the same by every door.

An estimator does not know the test rows, so the warnings about them (`warn_of_shared`,
`warn_of_seen`, `warn_of_perfect`) come from the command line alone. So does `warn_of_few`: an
estimator is often given a fold of a table, in which a class is smaller than in the table.
"""

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evalign.core.text import counted, listed
from evalign.tables.kinds import LEFT_OUT

STAND_INS = (-99, -999, -9999, -99999)
SHARED = 0.05  # share of the rows; fewer rows in common change a score little
FEW = {"training": 5}  # rows of a class
FEW_TO_JUDGE = 10  # rows of a class in any other part


class DataWarning(UserWarning):
    """The data are used as they are, but deserve a look."""


def warn_of_left_out(kinds: dict[str, str]) -> None:
    """Warn of columns from which nothing is learnt: ids, constants, empty ones and free text."""
    if kinds:
        found = ", ".join([f"{name!r} ({LEFT_OUT[kind]})" for name, kind in kinds.items()][:8])
        more = f" and {len(kinds) - 8} more" if len(kinds) > 8 else ""
        cure = "Name formats by --dates or --decimal, or declare text a category."
        _warn(f"Columns are left out: {found}{more}. {cure if 'text' in kinds.values() else ''}")


def warn_of_stand_in(name: str, values: np.ndarray) -> None:
    """Warn of a number such as -999 in several rows, far below all others."""
    present = values[~np.isnan(values)]
    least = present.min()
    others, rows = present[present > least], int((present == least).sum())
    if least not in STAND_INS or rows < 2 or not len(others) or others.min() <= least / 2:
        return
    if others.min() >= 0 or others.min() - least > np.ptp(others):
        got = f"holds {least:g} in {counted(rows)}, and no other number near it"
        _warn(f"Column {name!r} {got}. If it stands for a gap, make it one (--missing {least:g}).")


def warn_of_unseen(columns: Sequence[str]) -> None:
    """Warn of categories that training did not have, in these columns."""
    if columns:
        found = listed(columns, 3)
        _warn(f"Rows have categories that training did not have, in {found}. They count as rare.")


def warn_of_few(part: str, names: Sequence[object], codes: np.ndarray) -> None:
    """Warn of classes with few rows in a part of the data, given the class code of each row."""
    few = FEW.get(part, FEW_TO_JUDGE)
    counts = dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
    scarce = [name for name, count in counts.items() if count < few]
    if scarce:
        found = ", ".join(f"{name!r}: {counts[name]}" for name in scarce[:3])
        more = f" and {len(scarce) - 3} more" if len(scarce) > 3 else ""
        outcome = "hard to learn" if part == "training" else "judged roughly"
        _warn(f"Classes with few {part} rows ({found}{more}) are {outcome}.")


def warn_of_shared(hashes: dict[str, np.ndarray]) -> None:
    """Warn of rows that two parts of the data share, given a hash of each row of each part."""
    for (one, known), (other, new) in combinations(hashes.items(), 2):
        shared = np.isin(new, known)
        distinct = 2 * len(np.unique(new)) > len(new)  # rows of a few values are alike by chance
        if distinct and shared.mean() >= SHARED:
            what = f"{counted(int(shared.sum()), f'{other} row')} are {one} rows too"
            cure = "Remove them from one of the two, or the scores are too good."
            _warn(f"{what}, label included. {cure}")


def warn_of_seen(source: object) -> None:
    """Warn of test rows in a file that the model was trained or selected on."""
    text = f"The run was trained or selected on {source}, so the scores are too good."
    _warn(f"{text} Give rows that it has not seen.")


def warn_of_perfect(table: Any, names: Sequence[str]) -> None:
    """Warn if every test row is labelled right: a column may leak the label.

    Args:
        table: a frame with the columns "label" and "model_prediction".
        names: the classes; nothing is said if one of them has few rows.
    """
    counts = table["label"].value_counts()
    enough = len(counts) == len(names) and counts.min() >= FEW_TO_JUDGE
    if enough and table["model_prediction"].equals(table["label"]):
        cure = "look for a column that gives the label away, and drop it"
        _warn(f"Every test row is labelled right. If that is too good to be true, {cure}.")


def _warn(text: str) -> None:
    warnings.warn(text.rstrip(), DataWarning, stacklevel=4)
