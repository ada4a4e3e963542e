"""Rows of scores, labels and weights in every accepted form, brought to one.

| logits or probabilities        | y                   | labels of the rule |
| ------------------------------ | ------------------- | ------------------ |
| (N,) or (N, 1), two classes    | (N,) or (N, 1)      | (N,)               |
| (N, C)                         | (N,)                | (N,)               |
| (B, C, ...)                    | (B, ...)            | (B, ...)           |
| (B, ..., C), `class_dim=-1`    | (B, ...)            | (B, ...)           |
| (N, L) or (B, L, ...), a label | the same shape, 0/1 | the same shape     |
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
from evalign.core.rows import (
    Task,
    check_indices,
    per_row,
    signed,
    tensor_inside,
)
from evalign.core.weights import check_weights, weight_tensor

# A probability of 0 becomes this one, since its logarithm has to be finite. It is half of what
# float32 adds to 1, so next to a probability that went through float32 nothing smaller is known.
FLOOR = 2.0**-24
# How far a row of probabilities may be from 1: they may be bfloat16 or rounded to two digits.
FROM_ONE = 0.02
# How far from 0 to 1 a probability may lie, in roundings of the numbers that it came in.
ROUNDED = 4

Values = Tensor | np.ndarray | list[Any]
Groups = Tensor | np.ndarray | Sequence[int] | Sequence[str]


@dataclass(frozen=True)
class Scores:
    """Scores of rows, and the form that they came in.

    Args:
        rows: (R, C), float64: logits whose largest is 0; of a multilabel problem, log-odds (R, L).
        shape: the dimensions of the rows before they were flattened.
        class_dim: where the classes were among them.
        as_tensor: whether they came as a tensor. All else gets numpy arrays back.
    """

    rows: Tensor
    shape: tuple[int, ...]
    class_dim: int
    as_tensor: bool

    def per_row(self, values: Tensor) -> Any:
        """Give values (R,) back in the shape of the rows."""
        return self._given(values.reshape(self.shape))

    def per_class(self, values: Tensor) -> Any:
        """Give values (R, C) back in the shape of the rows, with the classes where they were."""
        return self._given(values.reshape(*self.shape, -1).movedim(-1, self.class_dim))

    def _given(self, values: Tensor) -> Any:
        return values if self.as_tensor else values.cpu().numpy()


def as_scores(
    owner: str,
    logits: Values | None,
    probabilities: Values | None,
    *,
    multilabel: bool,
    class_dim: int,
    read: bool = True,
) -> Scores:
    """Check logits or probabilities, one of which is given, and flatten them.

    Here and below, unless values are `read`, only shapes are checked: a device need not be waited
    for.
    """
    one = (logits is None) != (probabilities is None)
    got = "neither" if logits is None else "both"
    require(one, owner, "logits or probabilities=", "be given, one of the two", got)
    name, given = ("logits", logits) if probabilities is None else ("probabilities", probabilities)
    values = tensor_of(owner, name, given)
    values = rounded(values) if name == "probabilities" else values.double()
    allowed = "have shape (N, C), (B, C, ...), or (N,) or (N, 1) for two classes"
    if multilabel:
        allowed = "have shape (N, L) or (B, L, ...), with a column for each label"
    ok = values.ndim >= 1 + multilabel and values.numel() > 0
    require(ok, owner, name, f"{allowed}, with at least one row", tuple(values.shape))
    if values.ndim == 1:
        values, class_dim = values.unsqueeze(1), 1
    ok = -values.ndim <= class_dim < values.ndim
    allowed = f"be one of the {values.ndim} dimensions of {name}"
    require(ok, owner, "class_dim", allowed, class_dim, "It is 1, or -1 where classes come last.")
    values = values.movedim(class_dim, -1)
    shape, values = tuple(values.shape[:-1]), values.reshape(-1, values.shape[-1])
    if name == "probabilities":
        rows = _of_probabilities(owner, values, multilabel, read)
    else:
        rows = _of_logits(owner, values, multilabel, read)
    return Scores(rows, shape, class_dim, isinstance(given, Tensor))


def tensor_of(owner: str, name: str, values: Any) -> Tensor:
    """A tensor without a graph of a tensor, an array, a list or a column of a frame."""
    if isinstance(values, Tensor):
        return values.detach()
    refuse_masked(owner, name, values)
    try:
        array = native(np.asarray(values))  # a copy: torch warns of arrays not to be written to
        if array.dtype.kind not in "biuf":
            raise TypeError
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # strings, None, ragged lists
        cure = tensor_inside(values)
        cure = "As class indices: np.unique(y, return_inverse=True)[1]." if name == "y" else cure
        got = type(values).__name__
        text = complaint(owner, name, "be a tensor, an array or a list of numbers", got, cure)
        raise TypeError(text) from None


def rounded(probabilities: Tensor) -> Tensor:
    """Probabilities, float64. Those outside of 0 to 1 by no more than rounding are moved there."""
    values = probabilities.double()
    if not probabilities.is_floating_point():
        return values
    inside = values.clamp(0, 1)
    near = (values - inside).abs() <= ROUNDED * torch.finfo(probabilities.dtype).eps
    return torch.where(near, inside, values)


def _of_logits(owner: str, values: Tensor, multilabel: bool, read: bool) -> Tensor:
    cure = "The network has diverged or its input holds such values."
    if read and not values.isfinite().all():
        got = values[~values.isfinite()][:1].tolist()
        raise ValueError(complaint(owner, "logits", "be finite", got, cure))
    if read and look_like_probabilities(values, multilabel):
        warn(f"The logits of {owner} look like probabilities: pass probabilities=.")
    if multilabel:
        return values
    if values.shape[1] == 1:
        values = torch.cat([torch.zeros_like(values), values], 1)
    # Only differences of logits count, and large logits would overflow.
    return values - values.amax(1, keepdim=True)


def look_like_probabilities(values: Tensor, multilabel: bool) -> bool:
    """Whether logits (N, C) are most probably not logits."""
    if values.amin() < 0 or values.amax() > 1 + LIKE_ONE:
        return False
    if multilabel or values.shape[1] == 1:
        return len(values.unique()) >= ENOUGH_ROWS
    return rows_of_probabilities(values)


def _of_probabilities(owner: str, values: Tensor, multilabel: bool, read: bool) -> Tensor:
    """log p, or the log-odds of labels; zeros and ones, as of a forest, are taken at `FLOOR`."""
    cure = "Pass logits positionally."
    if read:
        wrong = values[~((values >= 0) & (values <= 1))]
        allowed = "lie from 0 to 1"
        require(not len(wrong), owner, "probabilities", allowed, wrong[:1].tolist(), cure)
    else:  # what is wrong stays visible, as NaN
        values = torch.where((values >= 0) & (values <= 1), values, torch.nan)
    if multilabel:
        return values.clamp(min=FLOOR).log() - (1 - values).clamp(min=FLOOR).log()
    if values.shape[1] == 1:
        values = torch.cat([1 - values, values], 1)
    sums = values.sum(1)
    wrong = sums[(sums - 1).abs() > FROM_ONE] if read else sums[:0]
    if len(wrong):
        allowed = f"have rows that sum to 1, to within {FROM_ONE}"
        cure += ' One probability for each of several labels is task="multilabel".'
        got = f"a row that sums to {wrong[0].item():g}"
        raise ValueError(complaint(owner, "probabilities", allowed, got, cure))
    if not read:
        values = torch.where((sums - 1).abs().unsqueeze(1) > FROM_ONE, torch.nan, values)
    rows = values.clamp(min=FLOOR).log()
    return rows - rows.amax(1, keepdim=True)


def without_floor(probabilities: Tensor) -> Tensor:
    """Probabilities with 0 again where they are no more than the floor that stands for it.

    Else a rule would label all rows with a class that no row has: it expects few of them, not none.
    """
    return probabilities.masked_fill(probabilities <= 2 * FLOOR, 0)


def layout(
    owner: str,
    task: Task | None,
    scores: Values | None,
    y: Values | None,
    class_dim: int | None,
) -> tuple[int, bool]:
    """The dimension of the classes, and whether every one of them is a label of its own.

    Labels are where `y` has the shape of scores of several columns. That is a matter of shapes
    alone, and so never changes with the values. Shapes that may mean something else are warned of.
    """
    shape, of_labels = _shape(scores), _shape(y)
    if class_dim is None:
        if y is not None and (task is None or shape != of_labels):
            warn_of_layout(owner, shape, of_labels)
        class_dim = 1
    if task is not None or y is None:
        return class_dim, task == "multilabel"
    return class_dim, shape == of_labels and len(shape) > 1 and shape[class_dim] > 1


def _shape(values: Any) -> tuple[int, ...]:
    try:
        return tuple(values.shape) if isinstance(values, Tensor) else np.shape(values)
    except ValueError:  # a ragged list, which `tensor_of` refuses
        return ()


def as_labels(
    owner: str,
    y: Values,
    scores: Scores,
    *,
    multilabel: bool,
    ignore_index: int,
    read: bool = True,
) -> tuple[Tensor, Tensor]:
    """Labels, (R,) or of a multilabel problem (R, L), and which of them are not ignored."""
    cure = f"Leave them out by ignore_index: y.astype(int).filled({ignore_index})."
    refuse_masked(owner, "y", y, cure)
    given = signed(tensor_of(owner, "y", y).to(scores.rows.device))
    classes, shape, labels = scores.rows.shape[1], scores.shape, given
    if multilabel:
        check_ignored(owner, ignore_index)
        if given.ndim == len(shape) + 1:
            labels = given.movedim(scores.class_dim, -1)
        allowed = "have the shape of the scores, with a 0 or 1 for each label"
        shape = (*shape, classes)
    else:
        if given.ndim == len(shape) + 1 and given.shape[scores.class_dim] == 1:
            labels = given.squeeze(scores.class_dim)
        allowed = f"have shape {shape}"
    cure = ""
    if given.ndim == len(scores.shape) and given.ndim > 1 and not multilabel:
        cure = "The classes of the scores are in dimension 1, unless you pass class_dim=-1."
    require(tuple(labels.shape) == shape, owner, "y", allowed, tuple(given.shape), cure)
    labels = labels.reshape(-1, classes) if multilabel else labels.flatten()
    seen = labels != ignore_index
    labels = labels.masked_fill(~seen, 0)
    whole = labels.long()
    if not read:  # what is not a whole number is not a class
        return torch.where(whole == labels, whole, -1), seen
    wrong = labels[whole != labels]
    if multilabel:
        wrong = labels[(labels != 0) & (labels != 1)]
        cure = f"Positions to leave out hold ignore_index, {ignore_index}."
        require(not len(wrong), owner, "y", "hold 0 and 1 only", wrong[:1].tolist(), cure)
    require(not len(wrong), owner, "y", "hold class indices", wrong[:1].tolist())
    if not multilabel:
        check_indices(owner, "y", whole, classes)
    return whole, seen


def as_weights(
    owner: str, sample_weight: Values | None, scores: Scores, *, read: bool = True
) -> Tensor:
    """Weights (R,), of a row each or of an example each, as they were given."""
    if sample_weight is None:
        return scores.rows.new_ones(len(scores.rows))
    weight = weight_tensor(owner, sample_weight).detach().to(scores.rows)
    if read:
        check_weights(owner, weight)
    return per_row(owner, "sample_weight", weight, torch.Size(scores.shape)).flatten()


def group_values(
    owner: str, groups: Groups, shape: tuple[int, ...], argument: str = "groups"
) -> np.ndarray:
    """The group of each row, an integer or a string, as they were given."""
    refuse_masked(owner, argument, groups, OWN_GROUP)
    given = groups.detach().cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    strings = given.dtype.kind in "OT" and all(isinstance(each, str) for each in given.flat)
    allowed, ok = "be integers or strings", strings or given.dtype.kind in "iubU"
    require(ok, owner, argument, allowed, given.dtype, OWN_GROUP)
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

    Only their ratios count, but the priors of `calibrate` are for counts of rows.
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
