"""Check logits, targets and weights, and infer the task.

The task follows from shapes and dtypes alone, never from values:

| logits              | target                                 | task                            |
| ------------------- | -------------------------------------- | ------------------------------- |
| (N,) or (N, 1, ...) | integer, bool or float 0/1, same rows  | binary                          |
| (N, C, ...)         | integer or bool (N, ...)               | multiclass                      |
| (N, L, ...)         | bool or float 0/1 (N, L, ...)          | multilabel                      |
| (N, C, ...)         | float (N, C, ...), `task="multiclass"` | multiclass, class probabilities |
| (N, 2, ...)         | as for binary, `task="binary"`         | binary, logit z1 − z0           |

With `class_dim=-1` the classes or labels come last, as in tokens (B, T, C).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalign.core.checks import check_ignored, complaint, require, within_checked
from evalign.core.input_warnings import rows_of_probabilities, warn_of_layout, warn_of_one_hot
from evalign.core.task import Task, check_task
from evalign.core.values import check_indices, check_weights, per_row, refuse
from evalign.membership.checks import (
    check_kind,
    check_labels,
    check_sums,
    signed,
    traced,
    values_readable,
)
from evalign.membership.numerics import upcast


class GivenRows(NamedTuple):
    """Checked rows in their original layout: nothing copied, ignored rows not yet marked.

    Logits and target of a binary task are (N, ...). The weight is (N, ...); None is 1 for every
    row.
    """

    task: Task
    logits: Tensor
    target: Tensor
    weight: Tensor | None
    ignore_index: int

    @property
    def shape(self) -> torch.Size:
        """The dimensions of the rows, (N, ...)."""
        shape = self.logits.shape
        return shape if self.task == "binary" else shape[:1] + shape[2:]

    @property
    def pixels(self) -> bool:
        """Whether rows are pixels of an image or voxels of a volume, with exclusive classes."""
        return self.task != "multilabel" and len(self.shape) > 2

    @property
    def indices(self) -> bool:
        """Whether the target holds class indices."""
        return self.task == "multiclass" and self.target.ndim < self.logits.ndim

    def images(self) -> "list[GivenRows]":
        """The rows of each image."""
        logits, target = self.logits.split(1), self.target.split(1)
        weights = [None] * len(logits) if self.weight is None else self.weight.split(1)
        each = zip(logits, target, weights, strict=True)
        return [self._replace(logits=z, target=y, weight=w) for z, y, w in each]


def as_rows(
    owner: str,
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    class_dim: int | None = None,
    look: bool = True,
) -> GivenRows:
    """Check rows of the shapes above, with a weight per row or per example, and infer the task.

    Errors name the `owner`. A `class_dim` of None is 1, with a warning if it is ambiguous. `look`
    looks for likely mistakes.
    """
    check_types(owner, logits, target, sample_weight)
    check_task(owner, task)
    declared = task is not None
    if class_dim is not None:
        logits, target = _classes_second(logits, target, class_dim)
    task = task or infer_task(logits, target)
    if task == "binary":
        logits, target = _binary_layout(owner, logits, target)
    else:
        _check_classes(owner, logits, target, task)
    if task == "multilabel" or target.is_floating_point():
        check_ignored(owner, ignore_index)
    rows = GivenRows(task, logits, target, None, ignore_index)
    if sample_weight is not None:
        rows = rows._replace(weight=per_row(owner, "sample_weight", sample_weight, rows.shape))
    unsaid = class_dim is None and task != "binary" and (rows.indices or not declared)
    if look and unsaid and not traced():
        warn_of_layout(owner, tuple(logits.shape), tuple(target.shape))
    if values_readable(logits):
        _check_values(owner, rows, declared)
        if task == "multiclass" and (look or within_checked()):
            likely = rows_of_probabilities(logits.detach().movedim(1, -1).flatten(0, -2))
            got = "rows that look like probabilities: none is negative, and each sums to 1"
            cure = "Leave it out, or pass probabilities.log()."
            require(not likely, owner, "logits", "be those before the softmax", got, cure)
        if look and task == "multilabel" and not declared:
            warn_of_one_hot(owner, target)
    return rows


def _classes_second(logits: Tensor, target: Tensor, class_dim: int) -> tuple[Tensor, Tensor]:
    """Move the classes to dimension 1, in the target too if it has a value per class."""
    if logits.ndim < 3:  # (N, C): the classes are in the last dimension and in dimension 1
        return logits, target
    moved = logits.movedim(class_dim, 1)
    each = target.ndim == logits.ndim and target.shape[class_dim] in (1, logits.shape[class_dim])
    return moved, target.movedim(class_dim, 1) if each else target


def _check_values(owner: str, rows: GivenRows, declared: bool) -> None:
    target, ignore_index = signed(rows.target), rows.ignore_index
    if rows.indices:
        classes = rows.logits.shape[1]
        if target.numel() and (target.amin() < 0 or target.amax() >= classes):
            check_indices(owner, "target", target[target != ignore_index], classes)
    else:
        y = target if target.is_floating_point() else target.float()
        if torch.addcmul(y, y, y, value=-1).abs_().sum() != 0:  # picking out what counts is slow
            check_labels(owner, target[target != ignore_index], declared)
        if rows.task == "multiclass":
            check_sums(owner, target.movedim(1, -1), ignore_index)
    if rows.weight is not None:
        check_weights(owner, rows.weight)
    if within_checked():
        check_finite(owner, rows)


def check_finite(owner: str, rows: GivenRows) -> None:
    """Check the logits of rows that count, for padded ones may hold anything."""
    logits, counts = rows.logits, signed(rows.target) != rows.ignore_index
    for mask in (counts, rows.weight):
        if mask is not None:
            ignored = (mask == 0) if mask.ndim == logits.ndim else (mask == 0).unsqueeze(1)
            logits = logits.masked_fill(ignored, 0)
    cure = "The network has diverged or its input holds such values."
    refuse(~logits.isfinite(), logits, owner, "logits", "be finite", cure)


def infer_task(logits: Tensor, target: Tensor) -> Task:
    """Infer the task of logits with the classes in dimension 1."""
    if logits.ndim == 1 or logits.shape[1] == 1:
        return "binary"
    if target.shape == logits.shape and (target.is_floating_point() or target.dtype == torch.bool):
        return "multilabel"
    return "multiclass"


def _binary_layout(owner: str, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and target of one shape, without a class dimension."""
    if logits.ndim > 1:
        allowed = "have shape (N,), (N, 1, ...) or (N, 2, ...) for a binary task"
        cure = 'Labels that do not exclude each other are task="multilabel".'
        require(logits.shape[1] in (1, 2), owner, "logits", allowed, tuple(logits.shape), cure)
        two = logits.shape[1] == 2
        logits = upcast(logits[:, 1]) - upcast(logits[:, 0]) if two else logits[:, 0]
    given = tuple(target.shape)
    if target.ndim == logits.ndim + 1 and target.shape[1] == 1:
        target = target.squeeze(1)
    allowed = f"have the shape of the binary logits, {tuple(logits.shape)}"
    require(target.shape == logits.shape, owner, "target", allowed, given)
    return logits, target


def _check_classes(owner: str, logits: Tensor, target: Tensor, task: Task) -> None:
    """Check that the target holds class indices, or a value per class."""
    shape, given, several = tuple(logits.shape), tuple(target.shape), task == "multiclass"
    rows, each = shape[:1] + shape[2:], given == shape
    if len(shape) < 2 or (several and shape[1] < 2):
        allowed = "have shape (N, C) or (N, C, ...), with at least 2 classes if multiclass"
        raise ValueError(complaint(owner, "logits", allowed, shape))
    if not (each or (several and given == rows)):
        of_classes = f"have shape {rows} (class indices) or {shape} (a value per class)"
        allowed = of_classes if several else f"have the shape of logits, {shape}"
        cure = "If the classes come last, pass class_dim=-1." if len(shape) > 2 else ""
        raise ValueError(complaint(owner, "target", allowed, given, cure))
    if several and target.is_floating_point() and not each:
        allowed, cure = "hold integer class indices", "Use target.long()."
        raise TypeError(complaint(owner, "target", allowed, target.dtype, cure))
    if several and each and not target.is_floating_point():
        allowed = f"be class indices of shape {rows}, or float with a value per class"
        cure = "For multilabel pass target.bool(); for one-hot rows pass target.argmax(1)."
        got = f"{target.dtype} of shape {shape}"
        raise TypeError(complaint(owner, "target", allowed, got, cure))


def check_types(owner: str, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> None:
    weights = {} if sample_weight is None else {"sample_weight": sample_weight}
    for name, value in {"logits": logits, "target": target, **weights}.items():
        if not isinstance(value, Tensor):
            got, cure = type(value).__name__, "Use torch.as_tensor(...) or output.logits."
            raise TypeError(complaint(owner, name, "be a torch.Tensor", got, cure))
        check_kind(owner, name, value)
    if not logits.is_floating_point():
        allowed = "be floating point, not labels"
        cure = "Pass the network's raw outputs; labels belong in Confusion.from_predictions."
        raise TypeError(complaint(owner, "logits", allowed, logits.dtype, cure))
    allowed = "have shape (N,), (N, 1), (N, C) or (N, C, ...)"
    require(logits.ndim > 0, owner, "logits", allowed, "a scalar")
