"""Scores, labels, weights and groups in every accepted form, brought to rows.

| logits or probabilities        | y                   | labels of the rule |
| ------------------------------ | ------------------- | ------------------ |
| (N,) or (N, 1), two classes    | (N,) or (N, 1)      | (N,)               |
| (N, C)                         | (N,)                | (N,)               |
| (B, C, ...)                    | (B, ...)            | (B, ...)           |
| (B, ..., C), `class_dim=-1`    | (B, ...)            | (B, ...)           |
| (N, L) or (B, L, ...)          | the same shape, 0/1 | the same shape     |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import (
    OWN_GROUP,
    check_ignored,
    complaint,
    native,
    numbers,
    refuse_masked,
    require,
)
from evalign.core.input_warnings import (
    ENOUGH_ROWS,
    LIKE_ONE,
    rows_of_probabilities,
    warn,
    warn_of_layout,
)
from evalign.core.numerics import with_mean_one
from evalign.core.rows import Task, check_indices, per_row, signed
from evalign.core.weights import check_weights, weight_tensor

# A probability of 0 becomes this one, since its logarithm has to be finite. It is half of what
# float32 adds to 1: next to a probability that went through float32 nothing smaller is known.
FLOOR = 2.0**-24
# How far a row of probabilities may be from 1: they may be bfloat16 or rounded to two digits.
FROM_ONE = 0.02
# How far outside of 0 to 1 a probability may lie, in roundings of its dtype.
ROUNDINGS_OUTSIDE = 4

Values = Tensor | np.ndarray | list[Any]
Groups = Tensor | np.ndarray | Sequence[int] | Sequence[str]


@dataclass(frozen=True)
class Scores:
    """Scores of rows, and the form that they came in.

    Args:
        rows: (R, C), float64: logits whose largest is 0; log-odds (R, L) if multilabel.
        shape: the dimensions of the rows before they were flattened.
        class_dim: the dimension of the classes.
        multilabel: whether every column is a label of its own.
        as_tensor: whether they came as a tensor. Otherwise the rule returns numpy arrays.
    """

    rows: Tensor
    shape: tuple[int, ...]
    class_dim: int
    multilabel: bool
    as_tensor: bool

    def per_row(self, values: Tensor) -> Any:
        """Return values (R,) in the shape of the rows."""
        return self._returned(values.reshape(self.shape))

    def per_class(self, values: Tensor) -> Any:
        """Return values (R, C) in the shape of the scores."""
        return self._returned(values.reshape(*self.shape, -1).movedim(-1, self.class_dim))

    def _returned(self, values: Tensor) -> Any:
        return values if self.as_tensor else values.cpu().numpy()


def as_scores(
    owner: str,
    logits: Values | None,
    probabilities: Values | None,
    y: Tensor | None = None,
    *,
    task: Task | None,
    class_dim: int | None,
) -> Scores:
    """Check logits or probabilities, one of which is given, and flatten them.

    Columns are labels with `task="multilabel"`, or where `y` has the shape of scores of several
    columns: a matter of shapes alone, which never changes with the values.
    """
    one = (logits is None) != (probabilities is None)
    got = "neither" if logits is None else "both"
    require(one, owner, "logits or probabilities=", "be given, one of the two", got)
    name, given = ("logits", logits) if probabilities is None else ("probabilities", probabilities)
    values = tensor_of(owner, name, given)
    values = rounded(values) if name == "probabilities" else values.double()
    require(values.ndim > 0 and values.numel() > 0, owner, name, "hold rows", tuple(values.shape))
    shape, of_labels = tuple(values.shape), None if y is None else tuple(y.shape)
    if class_dim is None:
        if of_labels is not None and (task is None or shape != of_labels):
            warn_of_layout(owner, shape, of_labels)
        class_dim = 1
    if values.ndim == 1:
        values, class_dim = values.unsqueeze(1), 1
    ok = -values.ndim <= class_dim < values.ndim
    allowed = f"be one of the {values.ndim} dimensions of {name}"
    require(ok, owner, "class_dim", allowed, class_dim, "It is 1, or -1 where classes come last.")
    values = values.movedim(class_dim, -1)
    columns = values.shape[-1]
    multilabel = task == "multilabel" or (task is None and shape == of_labels and columns > 1)
    if multilabel:
        allowed = "have shape (N, L) or (B, L, ...), with a column for each label"
        require(len(shape) > 1, owner, name, allowed, shape)
    to_rows = _log_odds if name == "probabilities" else _differences
    rows = to_rows(owner, values.reshape(-1, columns), multilabel)
    return Scores(rows, tuple(values.shape[:-1]), class_dim, multilabel, isinstance(given, Tensor))


def tensor_of(owner: str, name: str, values: Any) -> Tensor:
    """A tensor without a graph, of a tensor, an array, a list or a column of a frame."""
    if isinstance(values, Tensor):
        return values.detach()
    refuse_masked(owner, name, values)
    try:
        array = native(np.asarray(values))  # a copy: torch warns of arrays that are read-only
        if array.dtype.kind in "biuf":
            return torch.from_numpy(array)
    except ValueError:  # a ragged list
        pass
    allowed, got = "be a tensor, an array or a list of numbers", type(values).__name__
    cure = "As class indices: np.unique(y, return_inverse=True)[1]." if name == "y" else ""
    raise TypeError(complaint(owner, name, allowed, got, cure))


def rounded(probabilities: Tensor) -> Tensor:
    """Probabilities in float64, where those outside of 0 to 1 by rounding are moved inside."""
    values = probabilities.double()
    if not probabilities.is_floating_point():
        return values
    inside = values.clamp(0, 1)
    near = (values - inside).abs() <= ROUNDINGS_OUTSIDE * torch.finfo(probabilities.dtype).eps
    return torch.where(near, inside, values)


def _differences(owner: str, values: Tensor, multilabel: bool) -> Tensor:
    """Logits minus their largest: only differences count, and large logits would overflow."""
    if not values.isfinite().all():
        got = values[~values.isfinite()][:1].tolist()
        cure = "The network has diverged or its input holds such values."
        raise ValueError(complaint(owner, "logits", "be finite", got, cure))
    if look_like_probabilities(values, multilabel):
        warn(f"The logits of {owner} look like probabilities: pass probabilities=.")
    if multilabel:
        return values
    if values.shape[1] == 1:
        values = torch.cat([torch.zeros_like(values), values], 1)
    return values - values.amax(1, keepdim=True)


def look_like_probabilities(values: Tensor, multilabel: bool) -> bool:
    """Whether logits (N, C) are most probably not logits."""
    if values.amin() < 0 or values.amax() > 1 + LIKE_ONE:
        return False
    if multilabel or values.shape[1] == 1:
        return len(values.unique()) >= ENOUGH_ROWS
    return rows_of_probabilities(values)


def _log_odds(owner: str, values: Tensor, multilabel: bool) -> Tensor:
    """log p, or the log-odds of labels, with 0 and 1, as of a forest, at `FLOOR`."""
    cure = "Pass logits positionally."
    wrong = values[~((values >= 0) & (values <= 1))]
    allowed = "lie from 0 to 1"
    require(not len(wrong), owner, "probabilities", allowed, wrong[:1].tolist(), cure)
    if multilabel:
        return values.clamp(min=FLOOR).log() - (1 - values).clamp(min=FLOOR).log()
    if values.shape[1] == 1:
        values = torch.cat([1 - values, values], 1)
    sums = values.sum(1)
    wrong = sums[(sums - 1).abs() > FROM_ONE]
    if len(wrong):
        allowed = f"have rows that sum to 1, to within {FROM_ONE}"
        cure += ' One probability for each of several labels is task="multilabel".'
        got = f"a row that sums to {wrong[0].item():g}"
        raise ValueError(complaint(owner, "probabilities", allowed, got, cure))
    rows = values.clamp(min=FLOOR).log()
    return rows - rows.amax(1, keepdim=True)


def without_floor(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 again where they are no more than the floor that stands for it.

    Otherwise a rule would label all rows with a class that no row has: it would expect few rows of
    it, not none.
    """
    return probabilities.masked_fill(probabilities <= 2 * FLOOR, 0)


def as_labels(owner: str, y: Tensor, scores: Scores, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Labels, (R,) or (R, L), and which of them are not ignored."""
    labels = signed(y.to(scores.rows.device))
    classes, shape = scores.rows.shape[1], scores.shape
    if scores.multilabel:
        check_ignored(owner, ignore_index)
        shape = (*shape, classes)
        if labels.ndim == len(shape):
            labels = labels.movedim(scores.class_dim, -1)
    elif labels.ndim == len(shape) + 1 and labels.shape[scores.class_dim] == 1:
        labels = labels.squeeze(scores.class_dim)
    allowed, cure = f"have shape {shape}", ""
    if scores.multilabel:
        allowed = "have the shape of the scores, with a 0 or 1 for each label"
    elif y.ndim == len(shape) > 1:
        cure = "The classes of the scores are in dimension 1, unless you pass class_dim=-1."
    require(tuple(labels.shape) == shape, owner, "y", allowed, tuple(y.shape), cure)
    labels = labels.reshape(-1, classes) if scores.multilabel else labels.flatten()
    seen = labels != ignore_index
    labels = labels.masked_fill(~seen, 0)
    whole = labels.long()
    if scores.multilabel:
        wrong = labels[(labels != 0) & (labels != 1)]
        cure = f"Positions to leave out hold ignore_index, {ignore_index}."
        require(not len(wrong), owner, "y", "hold 0 and 1 only", wrong[:1].tolist(), cure)
    else:
        wrong = labels[whole != labels]
        require(not len(wrong), owner, "y", "hold class indices", wrong[:1].tolist())
        check_indices(owner, "y", whole, classes)
    return whole, seen


def as_weights(owner: str, sample_weight: Values | None, scores: Scores) -> Tensor:
    """Weights of the rows (R,), or (R, L) if multilabel."""
    rows = scores.rows
    weight = rows.new_ones(len(rows))
    if sample_weight is not None:
        weight = weight_tensor(owner, sample_weight).detach().to(rows)
        check_weights(owner, weight)
        weight = per_row(owner, "sample_weight", weight, torch.Size(scores.shape)).flatten()
    return weight.unsqueeze(1).expand_as(rows) if scores.multilabel else weight


def group_values(
    owner: str, groups: Groups, shape: tuple[int, ...], argument: str = "groups"
) -> np.ndarray:
    """The group of each row, an integer or a string, as it was given."""
    refuse_masked(owner, argument, groups, OWN_GROUP)
    given = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    strings = given.dtype == object and all(isinstance(each, str) for each in given.flat)
    ok = strings or given.dtype.kind in "iubU"
    require(ok, owner, argument, "be integers or strings", given.dtype, OWN_GROUP)
    allowed = f"be one for each row, {shape}"
    require(given.shape == shape, owner, argument, allowed, given.shape)
    return given


def as_groups(owner: str, groups: Groups, scores: Scores, counted: Tensor) -> Tensor:
    """The number of the group of each row (R,), for any integers or strings."""
    given = group_values(owner, groups, scores.shape)
    codes = torch.from_numpy(np.unique(given, return_inverse=True)[1].reshape(-1))
    codes = codes.to(scores.rows.device)
    number = len(codes[counted].unique())
    require(number > 1, owner, "groups", "name two groups at least", number)
    return codes


def as_counts(owner: str, weight: Tensor) -> Tensor:
    """Weights as counts of rows: 1 on average where they are not 0, as without weights.

    Only their ratios matter, but the priors of `calibration` are for counts of rows.
    """
    allowed = "leave at least one row that is not ignored and whose weight is not 0"
    require(bool((weight > 0).any()), owner, "y and sample_weight", allowed, "none")
    return with_mean_one(weight)


def class_vector(owner: str, name: str, values: Any, classes: int) -> Tensor:
    """A finite number for each of the classes."""
    vector = numbers(values)
    ok = vector.shape == (classes,) and bool(vector.isfinite().all())
    allowed = f"hold a finite number for each of the {classes} classes"
    require(ok, owner, name, allowed, repr(values))
    return vector
