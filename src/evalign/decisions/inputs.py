"""Read scores, labels, weights and groups, in the forms of `fit_decision`, into rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalign.core import checks
from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.input_warnings import ENOUGH_ROWS, rows_of_probabilities, warn, warn_of_layout
from evalign.core.text import listed
from evalign.core.values import check_indices, check_weights, refuse, signed, tensor_of
from evalign.decisions.module import log_odds
from evalign.membership.rows import Task, per_row

# Replaces a probability of 0, whose logarithm would be infinite. It is half the float32 epsilon:
# rounding the other probabilities to float32 hides anything smaller.
FLOOR = 2.0**-24
# Tolerance for probabilities outside of 0 to 1 and for sums of rows other than 1: values may be
# bfloat16 or rounded to two digits.
FROM_ONE = 0.02

MOST_SHOWN = 8  # numbers of a row in an error
ONE_ROW = "A single row has shape (1, C)."

Values = Tensor | np.ndarray | list[Any]
Groups = Tensor | np.ndarray | Sequence[int] | Sequence[str]


@dataclass(frozen=True)
class Scores:
    """Scores of rows, (R, C) in float64, and their original form.

    Rows are logits with maximum 0, or log-odds (R, L) if multilabel; `shape` is what they had
    before they were flattened. A rule returns numpy arrays unless they were given `as_tensor`.
    """

    rows: Tensor
    shape: tuple[int, ...]
    class_dim: int
    multilabel: bool
    as_tensor: bool

    def in_original_form(self, values: Tensor) -> Any:
        """Values (R,) in the shape of the rows, or (R, C) in the shape of the scores."""
        shaped = values.reshape(*self.shape, *values.shape[1:])
        shaped = shaped.movedim(-1, self.class_dim) if values.ndim == 2 else shaped
        return shaped if self.as_tensor else shaped.cpu().numpy()


def as_scores(
    owner: str,
    logits: Values | None,
    probabilities: Values | None,
    y: Tensor | None,
    task: Task | None,
    class_dim: int | None,
    ignore_index: int | None,
    classes: Sequence[Any] | np.ndarray | None,
) -> Scores:
    """Check logits or probabilities, whichever are given, and flatten them into rows.

    Without a task, scores are multilabel if they have several columns and the shape of `y`.
    Probabilities in place of logits are an error, or a warning if there is one for each label.
    Scores that `y` ignores may hold anything.
    """
    one = (logits is None) != (probabilities is None)
    got = "neither" if logits is None else "both"
    require(one, owner, "logits or probabilities=", "be given, one of the two", got)
    name = "logits" if probabilities is None else "probabilities"
    given: Any = logits if probabilities is None else probabilities
    if classes is not None and {*getattr(given, "columns", ())} == {*classes}:
        given = given[list(classes)]
    values = tensor_of(owner, name, given).detach().double()
    shape, of_labels = tuple(values.shape), None if y is None else tuple(y.shape)
    if class_dim is None:
        if of_labels is not None and (task is None or shape != of_labels):
            warn_of_layout(owner, shape, of_labels)
        class_dim = 1
    if values.ndim < 2:
        allowed = "have shape (N, L) or (B, L, ...), with a column for each label"
        require(task != "multilabel" and values.ndim == 1, owner, name, allowed, shape, ONE_ROW)
        values, class_dim = values.unsqueeze(1), 1
    allowed = f"be a dimension of {name} of shape {shape}"
    known = -values.ndim <= class_dim < values.ndim
    require(known, owner, "class_dim", allowed, class_dim)
    values = values.movedim(class_dim, -1)
    flat = values.flatten(0, -2)
    multilabel = task == "multilabel" or (task is None and shape == of_labels and flat.shape[1] > 1)
    if y is not None:
        ignored = signed(y.to(flat.device)) == ignore_index
        ignored = ignored.movedim(class_dim, -1) if y.ndim == values.ndim else ignored
        cells = flat if multilabel else flat[:, :1]
        if ignored.numel() == cells.numel():  # otherwise `as_labels` complains
            flat = flat.masked_fill(ignored.reshape(cells.shape), 1 / flat.shape[1])
    if probabilities is None:
        rows, sound = log_odds(flat, multilabel=multilabel), flat.isfinite().all(1)
        allowed, cure = "be finite", "The network has diverged, or masks a class: use -1e4 there."
    else:
        rows, sound = _read_probabilities(flat, multilabel)
        allowed = f"lie from 0 to 1 and sum to 1 in each row, to within {FROM_ONE}"
        cure = 'Pass logits positionally. One probability for each label is task="multilabel".'
    if not sound.all():
        first = int((~sound).nonzero()[0])
        shown = ", ".join(f"{value:g}" for value in flat[first, :MOST_SHOWN].tolist())
        place = ", ".join(map(str, np.unravel_index(first, values.shape[:-1])))
        raise ValueError(complaint(owner, name, allowed, f"[{shown}] in row {place}", cure))
    if name == "logits":
        several = flat.shape[1] > 1 and not multilabel
        # All of enough different numbers lie from 0 to 1, as logits rarely do.
        like = bool(((flat >= 0) & (flat <= 1)).all()) and len(flat.unique()) >= ENOUGH_ROWS
        if rows_of_probabilities(flat) if several else like:
            got = f"rows from 0 to 1{' that sum to 1' if several else ''}"
            cure = "Pass them by name: probabilities=p."
            text = complaint(owner, name, "not be probabilities", got, cure)
            if several:
                raise ValueError(text)
            warn(text)
    return Scores(rows, tuple(values.shape[:-1]), class_dim, multilabel, isinstance(given, Tensor))


def is_text(y: Any) -> bool:
    """Whether labels are strings."""
    if isinstance(y, Tensor):
        return False
    array = np.asarray(y, dtype=None if hasattr(y, "dtype") else object)
    objects = array.dtype.kind == "O"
    return array.dtype.kind == "U" or (objects and all(isinstance(x, str) for x in array.flat))


def codes_of(
    owner: str, y: Any, classes: Sequence[Any] | np.ndarray | None
) -> tuple[np.ndarray, Sequence[Any] | np.ndarray]:
    """Class indices of labels that are text, and the classes: sorted, where none are given."""
    refuse_masked(owner, "y", y)
    labels, place = np.unique(np.asarray(y, dtype=str), return_inverse=True)
    names = labels if classes is None else classes
    index = {name: k for k, name in enumerate(names)}
    unknown = [label for label in labels.tolist() if label not in index]
    allowed = f"hold labels of the classes {listed([*map(str, index)])}"
    require(not unknown, owner, "y", allowed, listed(unknown))
    codes = np.array([index[label] for label in labels.tolist()], dtype=np.int64)
    return codes[place].reshape(np.shape(y)), names


def _read_probabilities(values: Tensor, multilabel: bool) -> tuple[Tensor, Tensor]:
    """Logits of probabilities, with `FLOOR` in place of 0, and which rows are probabilities."""
    sound = ((values >= -FROM_ONE) & (values <= 1 + FROM_ONE)).all(1)
    values = values.clamp(0, 1)
    if multilabel:
        return values.clamp(min=FLOOR).log() - (1 - values).clamp(min=FLOOR).log(), sound
    if values.shape[1] == 1:
        values = torch.cat([1 - values, values], 1)
    sound &= (values.sum(1) - 1).abs() <= FROM_ONE
    return log_odds(values.clamp(min=FLOOR).log(), multilabel=False), sound


def without_floor(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 restored at the floor, so that no rule expects rows of such a class."""
    return probabilities.masked_fill(probabilities <= 2 * FLOOR, 0)


def as_labels(owner: str, y: Tensor, scores: Scores, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Labels, (R,) or (R, L), and a factor for their weights: 0 for labels to ignore."""
    labels = signed(y.to(scores.rows.device))
    columns, shape, form = scores.rows.shape[1], scores.shape, f"have shape {scores.shape}"
    classes, source = columns, "the columns of the scores"
    if scores.multilabel:
        checks.check_ignored(owner, ignore_index)
        shape, form = (*shape, columns), "have the shape of the scores"
        classes, source = 2, "1 where a row has the label"
        labels = labels.movedim(scores.class_dim, -1) if labels.ndim == len(shape) else labels
    elif labels.ndim == len(shape) + 1 and labels.shape[scores.class_dim] == 1:
        labels = labels.squeeze(scores.class_dim)
    cure = "Where classes come last, pass class_dim=-1."
    require(tuple(labels.shape) == shape, owner, "y", form, tuple(y.shape), cure)
    labels = labels.reshape(-1, columns) if scores.multilabel else labels.flatten()
    seen = labels != ignore_index
    labels = labels.masked_fill(~seen, 0)
    whole = labels.long()
    refuse(whole != labels, labels, owner, "y", "hold integers")
    check_indices(owner, "y", whole, classes, source)
    return whole, seen.double()


def as_weights(owner: str, sample_weight: Values | None, scores: Scores) -> Tensor:
    """Weights of the rows (R,), or (R, L) if multilabel."""
    rows = scores.rows
    weight = rows.new_ones(len(rows))
    if sample_weight is not None:
        weight = tensor_of(owner, "sample_weight", sample_weight).detach().to(rows)
        check_weights(owner, weight)
        weight = per_row(owner, "sample_weight", weight, torch.Size(scores.shape)).flatten()
    return weight.unsqueeze(1).expand_as(rows) if scores.multilabel else weight


def group_values(
    owner: str, groups: Groups, shape: tuple[int, ...], argument: str = "groups"
) -> np.ndarray:
    """The group of each row as given, integers or strings."""
    refuse_masked(owner, argument, groups)
    given = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    ok = is_text(given) or given.dtype.kind in "iub"
    cure = "Give rows that lack one a group of their own."
    require(ok, owner, argument, "be integers or strings", given.dtype, cure)
    allowed = f"be one for each row, {shape}"
    require(given.shape == shape, owner, argument, allowed, given.shape)
    return given


def class_vector(owner: str, name: str, values: Any, classes: int) -> Tensor:
    """A finite number for each of the classes."""
    vector = checks.numbers(values)
    ok = vector.shape == (classes,) and bool(vector.isfinite().all())
    allowed = f"hold a finite number for each of the {classes} classes"
    require(ok, owner, name, allowed, repr(values))
    return vector
