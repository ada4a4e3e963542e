"""Labels of the target column, and their codes."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import types

from evalign.cli.cells import as_numbers, as_text
from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.cli.files import is_parquet
from evalign.cli.truths import respelled, spelling
from evalign.core.text import counted, nearest

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet's formula may begin
CLASSES = 20  # more numbers than this that hardly repeat are taken for a quantity


@dataclass(frozen=True)
class Labels:
    """The classes in the order of their codes. If there are two, the last one is positive.

    Args:
        column: the target's name.
        values: all strings, or all numbers.
    """

    column: str
    values: tuple[str | float, ...]

    @classmethod
    def of(cls, table: pa.Table, column: str, positive: str | None, source: object) -> "Labels":
        """The labels of a table, sorted (as numbers if all are numbers), with `positive` last."""
        texts = _complete(table, column, source)
        counts = texts.value_counts()
        if len(counts) == 1:
            got = f"Got {counts.index[0]!r} alone, in {counted(len(texts))}."
            cure = "Add rows of another class, or name another column with --target."
            allowed = "must hold two classes or more"
            raise UsageError(f"Column {column!r} of {source} {allowed}. {got} {cure}")
        _, wrong = as_numbers(table[column])
        if len(counts) > CLASSES and 2 * len(counts) > len(texts) and not wrong.any():
            got = f"Got {len(counts)} different numbers, a quantity."
            cure = "Make classes of it, such as ranges."
            raise UsageError(f"Column {column!r} of {source} must hold classes. {got} {cure}")
        single = sorted(str(text) for text, count in counts.items() if count == 1)
        if single:
            got = f"Got one row of {listed(single, 3)}."
            cure = "Add rows, merge the class with another, or remove its row."
            allowed = "must hold two rows or more of each class"
            raise UsageError(f"Column {column!r} of {source} {allowed}. {got} {cure}")
        values: list[Any] = [*_sorted(list(counts.index))]
        if types.is_floating(table[column].type):  # as text, whole numbers have lost their ".0"
            values = [float(value) for value in values]
        broken = [value for value in values if isinstance(value, float) and value % 1]
        if broken:
            cure = "Number the classes 0, 1, 2 and so on, or name them in words."
            allowed = "must hold classes, whole numbers or text"
            raise UsageError(f"Column {column!r} of {source} {allowed}. Got {broken[0]}. {cure}")
        _warn_of_alike(f"column {column!r} of {source}", list(counts.index))
        if positive is not None:
            names = [str(value) for value in values]
            got = f"Got {positive!r}; the classes are {listed(names)}."
            if len(values) != 2:
                allowed = f"be left out, as {column!r} has {len(values)} classes, not two"
                raise UsageError(f"--positive must {allowed}. {got}")
            if positive not in names:
                cure = nearest(positive, names)
                raise UsageError(f"--positive must be a class of {column!r}. {got} {cure}".rstrip())
            values.sort(key=lambda value: str(value) == positive)
        return cls(column, tuple(values))

    def extended(self, names: list[str]) -> "Labels":
        """These labels and others, of which the table has no row."""
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
    def positive(self) -> str | float | None:
        """The positive class of two."""
        return self.values[-1] if len(self.values) == 2 else None

    @property
    def written(self) -> list[str]:
        """The columns that a prediction adds to a table."""
        return ["prediction", *(f"probability_{name}" for name in self.names)]

    @property
    def type(self) -> pa.DataType:
        return pa.array(self.values).type

    def encode(
        self, table: pa.Table, source: object, column: str | None = None, first_row: int = 1
    ) -> np.ndarray:
        """The code of each row's label, in the target or another column."""
        column = column or self.column
        texts = _complete(table, column, source, first_row)
        if isinstance(self.values[0], str):
            if pair := spelling(pa.array(self.values)):
                texts = respelled(pa.array(texts), pair).to_pandas()
            codes = pd.Index(self.values).get_indexer(pd.Index(texts))
        else:
            # As text, 0.1 is the same in four bytes and in eight.
            numbers, _ = as_numbers(as_text(table[column]))
            codes = pd.Index(self.values, dtype=float).get_indexer(pd.Index(numbers))
        if (codes < 0).any():
            new = sorted(set(texts[codes < 0]))
            known = f"It knows {listed(self.names)}. Write them alike, or remove the rows."
            text = f"labels that training never saw: {listed(new, 3)}. {known}"
            raise UsageError(f"Column {column!r} of {source} holds {text}")
        return codes

    def decode(self, codes: np.ndarray) -> pa.Array:
        """The labels of codes, as they are in the training data."""
        return pa.array(self.values).take(pa.array(codes))


def warn_of_formulas(out: Path, labels: Labels) -> None:
    """Warn of names that a spreadsheet takes for formulas. Labels come back as they went in."""
    odd = [name for name in labels.values if isinstance(name, str) and name[:1] in FORMULA]
    if odd and not is_parquet(out):
        text = f"Some labels in {out} begin as formulas do ({listed(odd, 3)})"
        cure = "Do not open it in a spreadsheet unless you trust them."
        warnings.warn(f"{text}, and are written as they are. {cure}", DataWarning, stacklevel=2)


def _warn_of_alike(what: str, texts: list[str]) -> None:
    """Warn of labels that only blanks, capitals or the digits of a number tell apart."""
    numbers, wrong = as_numbers(pa.chunked_array([pa.array(texts)]))
    alike: dict[object, list[str]] = {}
    for text, number, other in zip(texts, numbers.tolist(), wrong, strict=True):
        alike.setdefault(text.strip().casefold() if other else number, []).append(text)
    first = next((found for found in alike.values() if len(found) > 1), None)
    if first is not None:
        told = f"Some labels of {what} differ in blanks, capitals or digits alone"
        cure = "If they are one class, write them alike."
        text = f"{told}: {listed(sorted(first), 3)}. {cure}"
        warnings.warn(text, DataWarning, stacklevel=3)


def _complete(table: pa.Table, column: str, source: object, first_row: int = 1) -> pd.Series:
    texts = as_text(table[column]).to_pandas()
    missing = np.flatnonzero(texts.isna())
    if len(missing):
        others = f" and {counted(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
        which = f"row {first_row + missing[0]}{others}"
        cure = "Fill it in, or remove the row (NA, None and the like are not labels)."
        raise UsageError(f"Column {column!r} of {source} has no label in {which}. {cure}")
    return texts


def _sorted(texts: list[str]) -> list[str] | list[float]:
    """Sort the labels, as numbers where that loses nothing: "007" stays text."""
    numbers, wrong = as_numbers(pa.chunked_array([pa.array(texts)]))
    if wrong.any():
        return sorted(texts)
    pairs = sorted(zip(numbers.tolist(), texts, strict=True))
    for kind in (int, float):
        if all(str(kind(number)) == text for number, text in pairs):
            return [kind(number) for number, _ in pairs]
    return sorted(texts)
