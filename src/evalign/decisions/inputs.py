"""Read scores, labels, weights and groups, in the forms of `fit_decision`, into rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evalign.core import checks, stairs
from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.input_warnings import ENOUGH_ROWS, rows_of_probabilities, warn, warn_of_layout
from evalign.core.task import Task
from evalign.core.values import (
    array_of,
    check_indices,
    check_weights,
    marks_no_class,
    per_row,
    refuse,
    signed,
)
from evalign.decisions.blocks import by_columns, map_blocks
from evalign.decisions.classes import is_text
from evalign.decisions.formula import log_odds

if TYPE_CHECKING:
    from evalign.core.stairs import Array

    Values = Array | list[Any]
    Groups = Array | Sequence[int] | Sequence[str]

# Replaces a probability of 0, whose logarithm would be infinite. It is half the float32 epsilon:
# rounding the other probabilities to float32 hides anything smaller.
FLOOR = 2.0**-24
# Tolerance for probabilities outside of 0 to 1 and for sums of rows other than 1: values may be
# bfloat16 or rounded to two digits.
FROM_ONE = 0.02

MOST_SHOWN = 8  # numbers of a row in an error
ONE_ROW = "A single row has shape (1, C)."


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of rows, (R, C) in float64, and their original form.

    Rows are logits with maximum 0, or log-odds (R, L) if multilabel, and lie column by column.
    `shape` is what they had before they were flattened, and `container` what they came in.
    """

    rows: np.ndarray
    shape: tuple[int, ...]
    class_dim: int
    multilabel: bool
    container: Any

    def shaped(self, values: np.ndarray) -> np.ndarray:
        """Values (R,) in the shape of the rows, or (R, C) in the shape of the scores."""
        shaped = values.reshape(*self.shape, *values.shape[1:])
        return np.moveaxis(shaped, -1, self.class_dim) if values.ndim == 2 else shaped

    def in_original_form(self, values: np.ndarray) -> Any:
        """The same as a tensor where the scores were one, on its device; otherwise an array."""
        return stairs.in_form_of(self.shaped(values), self.container)


def as_scores(
    owner: str,
    logits: "Values | None",
    probabilities: "Values | None",
    y: np.ndarray | None,
    task: Task | None,
    class_dim: int | None,
    ignore_index: int | None,
    classes: Sequence[Any] | np.ndarray | None,
    positive: int = 1,
) -> Scores:
    """Check logits or probabilities, whichever are given, and flatten them into rows.

    Without a task, scores are multilabel if they have several columns and the shape of `y`.
    Probabilities in place of logits are an error, or a warning if there is one for each label.
    Scores that `y` ignores may hold anything. One column for two classes is of the `positive` one.
    """
    require(
        (logits is None) != (probabilities is None),
        owner,
        "logits or probabilities=",
        "be given, one of the two",
        "neither" if logits is None else "both",
    )
    name = "logits" if probabilities is None else "probabilities"
    container: Any = logits if probabilities is None else probabilities
    container = with_columns_of(container, classes)
    values = array_of(owner, name, container)
    shape = values.shape
    shape_of_labels = None if y is None else y.shape
    if class_dim is None:
        if shape_of_labels is not None and (task is None or shape != shape_of_labels):
            warn_of_layout(owner, shape, shape_of_labels)
        class_dim = 1
    if values.ndim < 2:
        allowed = "have shape (N, L) or (B, L, ...), with a column for each label"
        require(task != "multilabel" and values.ndim == 1, owner, name, allowed, shape, ONE_ROW)
        values = values[:, None]
        class_dim = 1
    require(
        -values.ndim <= class_dim < values.ndim,
        owner,
        "class_dim",
        f"be a dimension of {name} of shape {shape}",
        class_dim,
    )
    values = np.moveaxis(values, class_dim, -1)
    shape_of_rows = values.shape[:-1]
    columns = values.shape[-1]
    flat = by_columns(values.reshape(-1, columns))
    multilabel = task == "multilabel" or (task is None and shape == shape_of_labels and columns > 1)
    if y is not None:
        ignored = signed(y) == ignore_index
        if y.ndim == values.ndim:
            ignored = np.moveaxis(ignored, class_dim, -1)
        cells = flat.shape if multilabel else (len(flat), 1)
        if ignored.size == cells[0] * cells[1] and ignored.any():  # else `as_labels` complains
            np.copyto(flat, 1 / columns, where=ignored.reshape(cells))
    if probabilities is None:
        sound = np.isfinite(flat).all(1)
        allowed = "be finite"
        cure = "The network has diverged, or masks a class: use -1e4 there."
    else:
        sound = _are_probabilities(flat, multilabel)
        allowed = f"lie from 0 to 1 and sum to 1 in each row, to within {FROM_ONE}"
        cure = 'Pass logits positionally. One probability for each label is task="multilabel".'
    if not sound.all():
        first = int(sound.argmin())
        shown = ", ".join(f"{value:g}" for value in flat[first, :MOST_SHOWN].tolist())
        place = ", ".join(map(str, np.unravel_index(first, shape_of_rows)))
        raise ValueError(complaint(owner, name, allowed, f"[{shown}] in row {place}", cure))
    if name == "logits":
        _refuse_probabilities(owner, flat, multilabel)
        rows = _log_odds(flat, multilabel)
    else:
        rows = _logits_of_probabilities(flat, multilabel)
    if columns == 1 and not multilabel and positive == 0:
        rows = np.asfortranarray(rows[:, ::-1])
    return Scores(rows, shape_of_rows, class_dim, multilabel, container)


def with_columns_of(scores: Any, classes: Sequence[Any] | np.ndarray | None) -> Any:
    """The columns of a frame in the order of the classes, if they are named after them."""
    by_name = {str(name): name for name in getattr(scores, "columns", ())}
    if classes is None or {*by_name} != {str(label) for label in classes}:
        return scores
    return scores[[by_name[str(label)] for label in classes]]


def _refuse_probabilities(owner: str, flat: np.ndarray, multilabel: bool) -> None:
    """Refuse rows of probabilities in place of logits, and warn of single numbers like them."""
    several = flat.shape[1] > 1 and not multilabel
    if several:
        like = rows_of_probabilities(flat)
    else:
        # All of enough different numbers lie from 0 to 1, as logits rarely do.
        like = bool(((flat >= 0) & (flat <= 1)).all()) and len(np.unique(flat)) >= ENOUGH_ROWS
    if not like:
        return
    text = complaint(
        owner,
        "logits",
        "not be probabilities",
        f"rows from 0 to 1{' that sum to 1' if several else ''}",
        "Pass them by name: probabilities=p.",
    )
    if several:
        raise ValueError(text)
    warn(text)


def _log_odds(logits: np.ndarray, multilabel: bool) -> np.ndarray:
    """Rows of logits with maximum 0, in their place unless one logit stands for two."""
    if multilabel:
        return logits
    rows = np.empty((len(logits), 2), order="F") if logits.shape[1] == 1 else logits
    return map_blocks(lambda part: log_odds(part, multilabel=False), logits, rows)


def _are_probabilities(values: np.ndarray, multilabel: bool) -> np.ndarray:
    """Which rows are probabilities."""
    sound = np.all((values >= -FROM_ONE) & (values <= 1 + FROM_ONE), axis=1)
    if multilabel or values.shape[1] == 1:
        return sound
    return sound & (np.abs(values.clip(0, 1).sum(1) - 1) <= FROM_ONE)


def _logits_of_probabilities(values: np.ndarray, multilabel: bool) -> np.ndarray:
    """Logits of probabilities, with `FLOOR` in place of 0."""
    values = values.clip(0, 1)
    if multilabel:
        return np.log(np.maximum(values, FLOOR)) - np.log(np.maximum(1 - values, FLOOR))
    if values.shape[1] == 1:
        values = np.concatenate([1 - values, values], 1)
    return log_odds(np.log(np.maximum(values, FLOOR)), multilabel=False)


def without_floor(probabilities: np.ndarray) -> np.ndarray:
    """Probabilities with 0 restored at the floor, so that no rule expects rows of such a class."""
    return np.where(probabilities <= 2 * FLOOR, 0, probabilities)


def as_labels(
    owner: str, y: np.ndarray, scores: Scores, ignore_index: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels, (R,) or (R, L), and whether each counts: not those to ignore."""
    labels = signed(y)
    columns = scores.rows.shape[1]
    shape = scores.shape
    if scores.multilabel:
        checks.check_ignored(owner, ignore_index)
        shape = (*shape, columns)
        if labels.ndim == len(shape):
            labels = np.moveaxis(labels, scores.class_dim, -1)
    elif labels.ndim == len(shape) + 1 and labels.shape[scores.class_dim] == 1:
        labels = labels.squeeze(scores.class_dim)
    form = "have the shape of the scores" if scores.multilabel else f"have shape {shape}"
    cure = "Where classes come last, pass class_dim=-1."
    require(labels.shape == shape, owner, "y", form, y.shape, cure)
    labels = labels.reshape(-1, columns) if scores.multilabel else labels.ravel()
    counts = labels != ignore_index
    labels = np.where(counts, labels, 0)
    with np.errstate(invalid="ignore"):  # NaN and infinite labels are refused below
        whole = labels.astype(np.int64)
    refuse(whole != labels, labels, owner, "y", "hold integers")
    if scores.multilabel:
        check_indices(owner, "y", whole, 2, "1 where a row has the label")
    else:
        _check_places(owner, whole[counts], columns)
        check_indices(owner, "y", whole, columns, "the columns of the scores")
    return whole, counts


def _check_places(owner: str, labels: np.ndarray, columns: int) -> None:
    """Refuse labels that are no places among the columns, but may be the names of classes."""
    inside = (labels >= 0) & (labels < columns)
    if inside.all():
        return
    known = np.unique(labels)
    if len(known) != columns and marks_no_class(labels[~inside], labels[inside]):
        return  # `check_indices` says how to leave out the rows
    named = known[:MOST_SHOWN].tolist() if len(known) == columns else "[...]"
    allowed = f"hold class indices from 0 to {columns - 1} (the columns of the scores)"
    cure = f"Name other labels in the order of the columns: classes={named}."
    raise ValueError(complaint(owner, "y", allowed, labels[~inside][0], cure))


def as_weights(owner: str, sample_weight: "Values | None", scores: Scores) -> np.ndarray:
    """Weights of the rows (R,), or (R, L) if multilabel."""
    rows = scores.rows
    weight = np.ones(len(rows))
    if sample_weight is not None:
        weight = array_of(owner, "sample_weight", sample_weight).astype(np.float64)
        check_weights(owner, weight)
        weight = per_row(owner, "sample_weight", weight, scores.shape).ravel()
    return np.broadcast_to(weight[:, None], rows.shape) if scores.multilabel else weight


def group_values(
    owner: str, groups: "Groups", shape: tuple[int, ...], argument: str = "groups"
) -> np.ndarray:
    """The group of each row as given, integers or strings."""
    refuse_masked(owner, argument, groups)
    values = np.asarray(stairs.as_numpy(groups))
    require(
        is_text(values) or values.dtype.kind in "iub",
        owner,
        argument,
        "be integers or strings",
        values.dtype,
        "Give rows that lack one a group of their own.",
    )
    require(values.shape == shape, owner, argument, f"be one for each row, {shape}", values.shape)
    return values


def class_vector(owner: str, name: str, values: Any, classes: int) -> np.ndarray:
    """A finite number for each of the classes."""
    vector = checks.numbers(values)
    ok = vector.shape == (classes,) and bool(np.isfinite(vector).all())
    allowed = f"hold a finite number for each of the {classes} classes"
    require(ok, owner, name, allowed, repr(values))
    return vector
