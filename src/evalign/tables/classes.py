"""The classes of a label column, in an order of their own: `Labels`. Needs pandas."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evalign.core.text import counted, listed, nearest
from evalign.tables.files import TableError
from evalign.tables.values import level_text


@dataclass(frozen=True)
class Labels:
    """The classes in the order of their codes. Of two, the last one is positive.

    Args:
        column: name of the label column.
        values: all strings, or all whole numbers.
    """

    column: str
    values: tuple[str | int, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame, column: str, positive: str | None, source: object) -> "Labels":
        """The classes of a table, sorted (as numbers if all are numbers), with `positive` last."""
        what = f"Column {column!r} of {source}"
        names, counts = np.unique(_texts(frame[column], what), return_counts=True)
        values: list[Any] = [*_sorted(names.tolist())]
        if len(names) == 1:
            raise TableError(f"{what} must hold two classes or more. Got {names[0]!r} alone.")
        if counts.min() == 1:
            allowed = "two rows or more of each class"
            cure = "Merge rare classes, or make ranges of numbers."
            got = f"Got one row of {listed(names[counts == 1].tolist(), 3)}"
            raise TableError(f"{what} must hold {allowed}. {got}. {cure}")
        if positive is not None:
            if len(values) != 2 or positive not in names:
                allowed, cure = f"be one of two classes of {column!r}", nearest(positive, names)
                got = f"Got {positive!r}; the classes are {listed(names.tolist(), 3)}."
                raise TableError(f"--positive must {allowed}. {got} {cure}".rstrip())
            values.sort(key=lambda value: str(value) == positive)
        return cls(column, tuple(values))

    def extended(self, names: list[str]) -> "Labels":
        """These classes and others, of which the table has no row."""
        new = [name for name in names if name not in self.names]
        return replace(self, values=tuple(_sorted([*self.names, *new]))) if new else self

    @property
    def names(self) -> list[str]:
        return [str(value) for value in self.values]

    @property
    def array(self) -> np.ndarray:
        """The classes as estimators take them."""
        return np.array(self.values)

    @property
    def positive(self) -> str | int | None:
        """The positive class of two."""
        return self.values[-1] if len(self.values) == 2 else None

    @property
    def written(self) -> list[str]:
        """The columns that a prediction adds to a table."""
        return ["prediction", *(f"probability_{name}" for name in self.names)]

    def encode(self, frame: pd.DataFrame, source: object, column: str | None = None) -> np.ndarray:
        """The code of each row's label, in the label column or another one."""
        what = f"Column {column or self.column!r} of {source}"
        texts = _texts(frame[column or self.column], what)
        codes = pd.Index(self.names).get_indexer(pd.Index(texts))
        if (codes < 0).any():
            new = listed(sorted(set(texts[codes < 0])), 3)
            known = f"It knows {listed(self.names)}. Write them alike, or remove the rows."
            raise TableError(f"{what} holds labels that training never saw: {new}. {known}")
        return codes

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The labels of codes."""
        return self.array[codes]


def _texts(column: Any, what: str) -> np.ndarray:
    """Labels as text. Refuse a row without one."""
    missing = np.flatnonzero(column.isna())
    if len(missing):
        others = f" and {counted(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
        which = f"row {missing[0] + 1}{others}"
        cure = "Fill it in, or remove the row (NA, None and the like are gaps)."
        raise TableError(f"{what} has no label in {which}. {cure}")
    return np.array([level_text(value) for value in column.tolist()], dtype=object)


def _sorted(texts: list[str]) -> Sequence[str | int]:
    """Sort classes, as numbers where that loses nothing: "007" stays text."""
    try:
        numbers = sorted(int(text) for text in texts)
    except ValueError:
        return sorted(texts)
    return numbers if {str(number) for number in numbers} == set(texts) else sorted(texts)
