"""Labels: the y of an estimator, and the classes of a label column (`Labels`).

The y of an estimator holds one label per row or, if multilabel, 0 and 1 of shape (N, L).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from evalign.core import stairs
from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.errors import InputError
from evalign.core.text import counted, listed, nearest
from evalign.tables.values import level_text

SHOWN = 5  # labels in a text


def label_array(owner: str, y: Any) -> np.ndarray:
    """Labels as a dense array. Refuse a list or a set of labels in each row."""
    y = stairs.as_numpy(y)
    if sparse.issparse(y):
        return y.toarray()
    refuse_masked(owner, "y", y)
    try:
        array = np.asarray(y)
        rows = array.flat if array.dtype == object else ()
        nested = any(isinstance(row, list | tuple | set) for row in rows)
    except ValueError:  # lists of different lengths
        array, nested = np.zeros(0), True
    allowed = "hold one label per row or, if multilabel, 0 and 1 of shape (N, L)"
    cure = "MultiLabelBinarizer().fit_transform(y) of scikit-learn makes 0 and 1 of lists."
    require(not nested, owner, "y", allowed, "several labels in a row", cure)
    return array


def refuse_gaps(owner: str, labels: np.ndarray) -> None:
    """Refuse labels of which some are missing: None, NaN, or pandas' NA, which equals nothing."""
    cells = labels.flat if labels.dtype.kind in "OfM" else ()
    gaps = sum(x is None or type(x).__name__ == "NAType" or bool(x != x) for x in cells)
    cure = "Remove rows without one, or label them."
    require(not gaps, owner, "y", "hold a label in every row", f"gaps in {counted(gaps)}", cure)


def alike(owner: str, labels: np.ndarray) -> np.ndarray:
    """Labels of one type, one per row. Nullable numbers of pandas become numbers of numpy."""
    allowed, cure = "hold numbers, strings or booleans", "Make strings of them."
    require(labels.dtype.kind not in "mM", owner, "y", allowed, "dates or durations", cure)
    refuse_gaps(owner, labels)
    if labels.dtype != object:
        return labels
    kinds = {type(label) for label in labels.flat}
    got = ", ".join(sorted(kind.__name__ for kind in kinds))
    require(len(kinds) <= 1, owner, "y", "hold labels of one type", got)
    whole = all(issubclass(kind, int | np.integer | np.bool_) for kind in kinds)
    return np.array(labels.tolist()) if whole else labels


def indicators(owner: str, y: Any) -> np.ndarray:
    """Multilabel: 0 and 1 of shape (N, L), int64."""
    given = label_array(owner, y)
    require(given.ndim == 2, owner, "y", "have shape (N, L), with a column per label", given.shape)
    try:
        values = given.astype(np.float64)
    except (TypeError, ValueError):  # text, or a gap of pandas
        values = np.full(given.shape, np.nan)
    wrong = ~((values == 0) | (values == 1))
    if wrong.any():
        allowed = "hold 0 and 1 only, as it has a column per label"
        cure = "Map others to them, as in (y > 0).astype(int), and leave out rows with gaps."
        odd = [cell for cell in given[wrong].flat if str(cell) not in "01"]
        raise ValueError(complaint(owner, "y", allowed, odd[0], cure))
    return values.astype(np.int64)


def label_names(y: Any) -> list[str] | None:
    """The names of the labels of a frame, if they are texts that differ."""
    names: list[Any] = list(getattr(y, "columns", ()))
    texts = len(names) > 1 and all(isinstance(name, str) for name in names)
    return names if texts and len(set(names)) == len(names) else None


def check_names(owner: str, given: Sequence[Any] | None, known: Sequence[Any] | None) -> None:
    """Refuse a frame of labels whose columns are not those of `fit`, in their order."""
    if given is not None and known is not None:
        allowed = f"have the columns of fit in their order, {known[:SHOWN]}"
        require(given == known, owner, "y", allowed, given[:SHOWN])


@dataclass(frozen=True)
class Labels:
    """The classes of a label column, in the order of their codes. Of two, the last is positive.

    Args:
        column: name of the label column.
        values: all strings, or all whole numbers.
        chosen: whether a person chose the order, which then is that of ordinal classes and costs.
    """

    column: str
    values: tuple[str | int, ...]
    chosen: bool = False

    @classmethod
    def of(
        cls,
        frame: Any,
        column: str,
        positive: str | None,
        source: object,
        classes: Sequence[str] | None = None,
    ) -> "Labels":
        """The classes of a table, sorted (as numbers if all are numbers), with `positive` last.

        `classes` are all of them in an order of their own; some may have no rows.
        """
        what = f"Column {column!r} of {source}"
        names, counts = np.unique(_texts(frame[column], what), return_counts=True)
        values: list[Any] = [*_sorted(names.tolist())]
        if classes is not None:
            values = [*_as_numbers(classes)]
            unnamed = sorted({*names.tolist()} - {*classes})
            if unnamed or len({*classes}) < len(classes):
                got = f"Got {listed(list(classes))}. The column holds {listed(names.tolist())}"
                raise InputError(f"--classes must name every class of {column!r} once. {got}.")
            if positive is not None and len(classes) == 2 and classes[-1] != positive:
                allowed = "be the last of two --classes"
                raise InputError(f"--positive must {allowed}. Got {positive!r}.")
        if len(names) == 1:
            raise InputError(f"{what} must hold two classes or more. Got {names[0]!r} alone.")
        if counts.min() == 1:
            allowed = "two rows or more of each class"
            cure = "Merge rare classes, or make ranges of numbers."
            got = f"Got one row of {listed(names[counts == 1].tolist(), 3)}"
            raise InputError(f"{what} must hold {allowed}. {got}. {cure}")
        if positive is not None:
            if len(values) != 2 or positive not in names:
                allowed = f"be one of two classes of {column!r}"
                cure = "" if positive in names else nearest(positive, names)
                got = f"Got {positive!r}; the classes are {listed(names.tolist(), 3)}."
                raise InputError(f"--positive must {allowed}. {got} {cure}".rstrip())
            values.sort(key=lambda value: str(value) == positive)  # the others keep their order
        return cls(column, tuple(values), classes is not None or positive is not None)

    @property
    def names(self) -> list[str]:
        return [str(value) for value in self.values]

    @property
    def array(self) -> np.ndarray:
        """The classes as estimators take them."""
        return np.array(self.values)

    @property
    def order(self) -> list[str | int] | None:
        """The classes in the order that a person chose; None if nobody did."""
        return list(self.values) if self.chosen else None

    @property
    def columns(self) -> list[str | int]:
        """The classes in the order of the columns of `predict_proba`."""
        return sorted(self.values)  # type: ignore[type-var]

    @property
    def positive(self) -> str | int | None:
        """The positive class of two."""
        return self.values[-1] if len(self.values) == 2 else None

    def encode(self, frame: Any, source: object, column: str | None = None) -> np.ndarray:
        """The code of each row's label, in the label column or another one."""
        what = f"Column {column or self.column!r} of {source}"
        texts = _texts(frame[column or self.column], what)
        place = {name: code for code, name in enumerate(self.names)}
        codes = np.array([place.get(text, -1) for text in texts])
        if (codes < 0).any():
            new = listed(sorted(set(texts[codes < 0])), 3)
            known = f"It knows {listed(self.names)}. Write them alike, or remove the rows."
            raise InputError(f"{what} holds labels that training never saw: {new}. {known}")
        return codes


def _texts(column: Any, what: str) -> np.ndarray:
    """Labels as text. Refuse a row without one."""
    missing = np.flatnonzero(column.isna())
    if len(missing):
        which = f"{counted(len(missing))}, the first of them row {missing[0] + 1}"
        cure = "Fill them in, or remove these rows (NA, None and the like are gaps)."
        raise InputError(f"{what} has no label in {which}. {cure}")
    return np.array([level_text(value) for value in column.tolist()], dtype=object)


def _as_numbers(texts: Sequence[str]) -> Sequence[str | int]:
    """Classes in their order, as numbers where that loses nothing."""
    by_text = {str(value): value for value in _sorted(list(texts))}
    return [by_text[text] for text in texts]


def _sorted(texts: list[str]) -> Sequence[str | int]:
    """Sort classes, as numbers where that loses nothing: "007" stays text."""
    try:
        numbers = sorted(int(text) for text in texts)
    except ValueError:
        return sorted(texts)
    return numbers if {str(number) for number in numbers} == set(texts) else sorted(texts)
