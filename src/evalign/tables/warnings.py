"""All warnings about data. They are the same for the command line and for the estimators."""

import warnings
from collections.abc import Sequence

import numpy as np

from evalign.core.text import counted
from evalign.tables.kinds import LEFT_OUT

STAND_INS = (-99, -999, -9999, -99999)
NAMED = 3  # names or classes in a text; a number says how many more there are


class DataWarning(UserWarning):
    """The data are used as they are, but deserve a look."""


def warn_of_left_out(kinds: dict[str, str]) -> None:
    """Warn of columns from which nothing is learnt: ids, constants, empty ones and free text."""
    if kinds:
        found = [f"{name!r} ({LEFT_OUT[kind]})" for name, kind in kinds.items()]
        cure = " To learn from an id or from text, declare it a category."
        needed = {"id", "text"} & set(kinds.values())
        _warn(f"Columns are left out: {_first(found, 8)}.{cure if needed else ''}")


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
        found = _first([repr(name) for name in columns])
        _warn(f"Rows have categories that training did not have, in {found}. They count as rare.")


def warn_of_shared(number: int, one: str, other: str) -> None:
    """Warn of rows that two parts of the data share, which makes the scores too good."""
    if number:
        cure = "Remove them from one of the two, or the scores are too good."
        _warn(f"{counted(number, f'{other} row')} are {one} rows too, label included. {cure}")


def warn_of_few(part: str, names: Sequence[str], counts: Sequence[int], few: int) -> None:
    """Warn of classes with fewer rows than `few` in a part of the data."""
    scarce = [f"{name!r}: {n}" for name, n in zip(names, counts, strict=True) if n < few]
    if scarce:
        outcome = "hard to learn" if part == "training" else "judged roughly"
        _warn(f"Classes with few {part} rows ({_first(scarce)}) are {outcome}.")


def warn_of_perfect() -> None:
    """Warn that every test row is labelled right: a column may give the label away."""
    cure = "look for a column that gives the label away, and drop it"
    _warn(f"Every test row is labelled right. If that is too good to be true, {cure}.")


def _first(texts: Sequence[str], most: int = NAMED) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _warn(text: str) -> None:
    warnings.warn(text, DataWarning, stacklevel=4)
