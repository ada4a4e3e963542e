"""What the classes of scores are called: by `classes`, by the columns of a frame, or by labels.

Scores come with columns, and a rule knows its classes in the order of those columns.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalign.core import stairs
from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.positive import known_positive, place_of_positive
from evalign.core.task import Task
from evalign.core.text import listed
from evalign.core.values import array_of

CODED = -100  # the code of a label to ignore, once labels are codes
MOST_SHOWN = 8  # classes in an error


@dataclass(frozen=True)
class NamedColumns:
    """The classes in the order of the columns, and in that of a metric; None if unknown.

    Labels are codes already where they are places among the classes.
    """

    names: list[Any] | None = None
    order: list[Any] | None = None


def named_columns(
    owner: str,
    scores: Any,
    y: Any,
    classes: Sequence[Any] | np.ndarray | None,
    pos_label: Any,
    ignore_index: int,
    class_dim: int | None,
) -> NamedColumns:
    """Find the classes of the columns of scores, where one column stands for two."""
    columns = _number_of_columns(scores, class_dim)
    number = max(2, columns)
    order = None if classes is None else class_names(owner, classes, number)
    known = order
    if known is None and y is not None and scores is not None:
        order = ordered_categories(y)
        known = _classes_of_labels(y, number, pos_label, ignore_index, order)
        if known is None:
            known = _integer_names(scores, y, ignore_index)
        if order is not None:
            order = [label for label in order if known is None or label in known]
    if known is not None:
        if columns == 1:
            _check_positive_is_known(owner, known, pos_label, explicit=classes is not None)
            _check_name_of_column(owner, scores, known, place_of_positive(known, pos_label, order))
        else:
            known = _in_order_of_columns(owner, scores, known, explicit=classes is not None)
    return NamedColumns(known, order)


def is_multilabel(scores: Any, y: Any, task: Task | None) -> bool:
    """Whether labels are 0 and 1 in the shape of scores with several columns."""
    if task is not None or y is None:
        return task == "multilabel"
    shape = _shape(scores)
    return len(shape) > 1 and shape[1] > 1 and _shape(y) == shape


def codes_of(
    owner: str, y: Any, classes: Sequence[Any] | np.ndarray | None, ignore_index: int
) -> np.ndarray | None:
    """The place of each label among the classes, `CODED` for labels to ignore.

    None where labels are places already: without classes, or integers where classes are text.
    """
    if is_text(y):
        refuse_masked(owner, "y", y)
        values = np.asarray(y, dtype=object)
        names = [] if classes is None else list(classes)
        unknown = sorted({*values.ravel().tolist()} - {*names})
        _refuse_unknown(owner, unknown, names)
        place = {name: k for k, name in enumerate(names)}
        codes = np.array([place[label] for label in values.ravel().tolist()], dtype=np.int64)
        return codes.reshape(values.shape)
    if classes is None or any(isinstance(name, str) for name in classes):
        return None
    values = array_of(owner, "y", y)
    names = np.asarray(list(classes))
    ignored = values == ignore_index
    require(
        ignore_index not in names.tolist(),
        owner,
        "ignore_index",
        f"be none of the classes {names.tolist()[:MOST_SHOWN]}",
        ignore_index,
    )
    unknown = np.setdiff1d(values[~ignored], names).tolist()
    _refuse_unknown(owner, unknown, names.tolist())
    by_value = np.argsort(names)
    place = np.searchsorted(names, np.where(ignored, names[0], values), sorter=by_value)
    return np.where(ignored, CODED, by_value[place])


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of an array, a tensor, a frame or a list; () for what has none."""
    with suppress(ValueError, TypeError):  # a ragged list, which is refused when it is read
        return tuple(getattr(values, "shape", None) or np.shape(values))
    return ()


def _number_of_columns(scores: Any, class_dim: int | None) -> int:
    """How many columns the scores have; 1 for one number in each row."""
    shape = _shape(scores)
    place = 1 if class_dim is None else class_dim
    return shape[place] if len(shape) > 1 and -len(shape) <= place < len(shape) else 1


def _refuse_unknown(owner: str, unknown: list[Any], names: list[Any]) -> None:
    shown = [*map(str, names)]
    allowed = f"hold labels of the classes {listed(shown)}"
    cure = "Name all classes in classes=, in the order of the columns of the scores."
    require(not unknown, owner, "y", allowed, listed([*map(str, unknown)]), cure)


def is_text(y: Any) -> bool:
    """Whether labels are strings."""
    if stairs.is_tensor(y):
        return False
    array = np.asarray(y, dtype=None if hasattr(y, "dtype") else object)
    objects = array.dtype.kind == "O"
    return array.dtype.kind == "U" or (objects and all(isinstance(x, str) for x in array.flat))


def is_truth(y: Any) -> bool:
    """Whether labels are False and True."""
    return y is not None and np.asarray(stairs.as_numpy(y)).dtype.kind == "b"


def ordered_categories(y: Any) -> list[Any] | None:
    """The categories of an ordered column of pandas, or of an Enum of polars; else None."""
    dtype = getattr(y, "dtype", None)
    ordered = getattr(dtype, "ordered", None) or type(dtype).__name__ == "Enum"
    categories = getattr(dtype, "categories", None)
    return plain_labels(categories) if ordered and categories is not None else None


def plain_labels(classes: Any) -> list[Any]:
    """Classes as Python values."""
    values = np.asarray(classes, dtype=object).ravel().tolist()
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _classes_of_labels(
    y: Any, number: int, pos_label: Any, ignore_index: int, order: list[Any] | None
) -> list[Any] | None:
    """The classes that labels name, sorted as scikit-learn sorts its columns.

    None for integers, which are places unless something says that they are not.
    """
    if is_text(y):
        labels = sorted({*np.asarray(y, dtype=object).ravel().tolist()})
        return sorted(order) if order and len(labels) != number == len(order) else labels
    values = np.asarray(stairs.as_numpy(y))
    if values.dtype.kind == "b":
        return [False, True] if number == 2 else None
    if values.dtype.kind not in "iuf" or not values.size:
        return None
    places = number != 2 or (values.min() >= 0 and values.max() <= 1)
    if order is None and places:  # without a search of all labels, of which images have many
        return None
    labels = sorted({*np.unique(values).tolist()} - {ignore_index})
    if order is not None:
        return sorted(order) if len(labels) != number == len(order) else labels
    return labels if len(labels) == 2 and (labels == [-1, 1] or pos_label in labels) else None


def _integer_names(scores: Any, y: Any, ignore_index: int) -> list[Any] | None:
    """The names of a frame's columns as integers, if all labels are among them."""
    columns = _columns(scores)
    with suppress(ValueError, TypeError):
        names = [int(name) for name in columns]
        plain = [str(name) for name in names] == [str(name) for name in columns]
        labels = {*np.asarray(stairs.as_numpy(y)).ravel().tolist()} - {ignore_index}
        if names and plain and names != list(range(len(names))) and labels <= {*names}:
            return sorted(names)
    return None


def _columns(scores: Any) -> list[Any]:
    """The names of the columns of a frame; none for anything else."""
    return list(getattr(scores, "columns", ()))


def _in_order_of_columns(owner: str, scores: Any, known: list[Any], *, explicit: bool) -> list[Any]:
    """The classes in the order of the columns of a frame that are named after them."""
    columns = [str(name) for name in _columns(scores)]
    by_name = {str(label): label for label in known}
    if {*columns} == {*by_name} and len(columns) == len(known):
        return [by_name[name] for name in columns]
    if not explicit and {*by_name} < {*columns}:  # no row is of the others
        return [by_name.get(name, name) for name in columns]
    numbered = columns == [str(place) for place in range(len(columns))]
    if numbered or not {*columns} & {*by_name}:
        return known
    allowed = f"have columns named after the classes {listed([*by_name], MOST_SHOWN)}"
    cure = "Rename them, or pass an array, whose columns are in the order of the classes."
    got = listed(columns, MOST_SHOWN)
    raise ValueError(complaint(owner, "logits or probabilities", allowed, got, cure))


def _check_positive_is_known(
    owner: str, known: list[Any], pos_label: Any, *, explicit: bool
) -> None:
    """Refuse one column of scores where nothing says which of two classes it is of."""
    if explicit or pos_label is not None or len(known) != 2 or known_positive(known) is not None:
        return
    first, second = known
    allowed = "say which class the one column of scores is of"
    cure = f"Pass pos_label={second!r} or pos_label={first!r}."
    got = f"labels {first!r} and {second!r} without it"
    raise ValueError(complaint(owner, "pos_label", allowed, got, cure))


def _check_name_of_column(owner: str, scores: Any, known: list[Any], place: int) -> None:
    """Refuse one column that has the name of the other class than the positive one."""
    (name,) = _columns(scores) or [getattr(scores, "name", None)]
    others = [str(label) for label in known if label != known[place]]
    if str(name) not in others:
        return
    allowed = f"be those of the positive class, {known[place]!r}, in one column"
    cure = f"Pass pos_label={name!r} if that is the positive class."
    got = f"a column called {name!r}"
    raise ValueError(complaint(owner, "logits or probabilities", allowed, got, cure))


def class_names(owner: str, names: Any, number: int) -> list[str | float]:
    """Unique class names as Python strings and numbers, which JSON can hold."""
    plain = plain_labels(names)
    cure = "Name others by str(name)."
    if len(plain) != number:
        cure = "Pass classes=, in the order of the columns of the scores."
    require(
        all(map(_is_name, plain)) and len(set(plain)) == len(plain) == number,
        owner,
        "classes",
        f"hold a name for each of the {number} classes, each once: strings or finite numbers",
        names,
        cure,
    )
    return plain


def _is_name(value: Any) -> bool:
    """Whether JSON can hold a value, and every language compare it."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
