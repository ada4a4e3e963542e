"""Labels as an estimator is given them: one per row or, if multilabel, 0 and 1 of shape (N, L)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.text import counted
from evalign.tables.values import gaps_of_objects

SHOWN = 5  # labels in a text


def label_array(owner: str, y: Any) -> np.ndarray:
    """Labels as a dense array. Refuse a list or a set of labels in each row."""
    if sparse.issparse(y):
        return y.toarray()
    refuse_masked(owner, "y", y)
    try:
        array = np.asarray(y)
        if isinstance(y, list | tuple) and array.dtype.kind in "US":
            objects = np.array(y, dtype=object)  # numpy would make text of numbers beside text
            array = array if all(isinstance(label, str) for label in objects.flat) else objects
        rows = array.flat if array.dtype == object else ()
        nested = any(isinstance(row, list | tuple | set) for row in rows)
    except ValueError:  # lists of different lengths
        array, nested = np.zeros(0), True
    allowed = "hold one label per row or, if multilabel, 0 and 1 of shape (N, L)"
    cure = "MultiLabelBinarizer().fit_transform(y) of scikit-learn makes 0 and 1 of lists."
    require(not nested, owner, "y", allowed, "several labels in a row", cure)
    return array


def refuse_gaps(owner: str, labels: np.ndarray) -> None:
    """Refuse labels of which some are missing."""
    gaps = int(gaps_of_objects(labels.ravel()).sum()) if labels.dtype.kind in "OfM" else 0
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


def present(y: np.ndarray) -> np.ndarray:
    """The classes, or the numbers of the labels, that some row has."""
    return np.unique(y) if y.ndim == 1 else np.flatnonzero(y.any(0))
