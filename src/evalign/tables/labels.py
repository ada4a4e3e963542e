"""Labels as they are given: one a row, or many a row as 0 and 1 of shape (N, L)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.text import counted
from evalign.tables.values import gaps_of_objects

SHOWN = 5  # labels in a text


def label_array(owner: str, y: Any) -> np.ndarray:
    """Labels as an array, dense. Refuse a list or a set of labels in each row.

    In a list of strings and numbers these stay what they are. Strings of variable width (numpy's
    StringDType), which scikit-learn does not know, become objects.
    """
    if sparse.issparse(y):
        return y.toarray()
    refuse_masked(owner, "y", y)
    try:
        array, got = np.asarray(y), ""
        if isinstance(y, list | tuple) and array.dtype.kind in "US":
            objects = np.array(y, dtype=object)
            array = array if all(isinstance(label, str) for label in objects.flat) else objects
    except ValueError:
        array, got = np.zeros(0), "lists of different lengths"
    if array.dtype == object:
        kinds = {type(row).__name__ for row in array.flat if isinstance(row, list | tuple | set)}
        got = f"a {min(kinds)} in a row" if kinds else ""
    allowed = "hold a label per row, or 0 and 1 of shape (N, L) for several labels a row"
    cure = "MultiLabelBinarizer().fit_transform(y) of scikit-learn makes 0 and 1 of lists."
    require(not got, owner, "y", allowed, got, cure)
    return array


def refuse_gaps(owner: str, labels: np.ndarray) -> None:
    """Refuse labels of which some are missing."""
    gaps = int(gaps_of_objects(labels.ravel()).sum()) if labels.dtype.kind in "OfM" else 0
    cure = "Remove rows without one, or label them."
    require(not gaps, owner, "y", "hold a label in every row", f"gaps in {counted(gaps)}", cure)


def alike(owner: str, labels: np.ndarray) -> np.ndarray:
    """Labels of one type, one a row; nullable numbers of pandas are numbers of numpy again."""
    allowed, cure = "hold numbers, strings or truth values", "Make strings of them."
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
    """Many labels a row: 0 and 1 of shape (N, L), int64."""
    given = label_array(owner, y)
    require(given.ndim == 2, owner, "y", "have shape (N, L), with a column per label", given.shape)
    if given.dtype == object or given.dtype.kind in "US":
        values = np.array([_number(cell) for cell in given.ravel()]).reshape(given.shape)
    else:
        values = given.astype(np.float64)
    wrong = ~((values == 0) | (values == 1))
    if wrong.any():
        got, cure = given[wrong][0], "A column of other classes needs a classifier of its own."
        if (values[wrong] == -1).all():
            cure = "Map -1 to 0, as in (y > 0).astype(int)."
        elif not isinstance(got, str) and np.isnan(values[wrong][0]):
            cure = "Leave out the rows whose labels are not all known."
        allowed = "hold 0 and 1 only, as it has a column per label"
        raise ValueError(complaint(owner, "y", allowed, got, cure))
    return values.astype(np.int64)


def _number(cell: Any) -> float:
    """A cell as a number; NaN for text, and for a gap of pandas."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan


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


def present(y: np.ndarray) -> np.ndarray:
    """The classes, or the numbers of the labels, that some row has."""
    return np.unique(y) if y.ndim == 1 else np.flatnonzero(y.any(0))
