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

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from evalign.core.checks import (
    check_ignored,
    complaint,
    require,
    traced,
    values_readable,
    within_checked,
)
from evalign.core.input_warnings import warn_of_layout, warn_of_one_hot, warn_of_probabilities
from evalign.core.numerics import upcast
from evalign.core.values import (
    check_finite,
    check_indices,
    check_labels,
    check_sums,
    check_weights,
    signed,
)

Task = Literal["binary", "multiclass", "multilabel"]


class GivenRows(NamedTuple):
    """Checked rows in their original layout: nothing copied, ignored rows not yet marked.

    | task       | logits      | target                          | weight     |
    | ---------- | ----------- | ------------------------------- | ---------- |
    | binary     | (N, ...)    | (N, ...) probability of class 1 | (N, ...)   |
    | multiclass | (N, C, ...) | (N, ...) indices or (N, C, ...) | (N, ...)   |
    | multilabel | (N, L, ...) | (N, L, ...)                     | (N, ...)   |

    A weight of None is 1 for every row.
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
    """Check the rows and infer the task. Errors name the `owner`.

    Args:
        owner: the function or class that errors name.
        logits: in any of the shapes above.
        target: in the matching shape.
        task: None infers it.
        sample_weight: one weight per row or per example.
        ignore_index: the target of rows that do not count; 0 and 1 among class indices only.
        class_dim: the dimension of the classes; None is 1, with a warning if it is ambiguous.
        look: warn about likely mistakes.
    """
    declared = task is not None
    if class_dim is not None:
        logits, target = _classes_second(logits, target, class_dim)
    if task is None:
        task = infer_task(logits, target)
    else:
        check_task(owner, task)
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
        if look and task == "multiclass":
            warn_of_probabilities(owner, logits)
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
        if not (target * target == target).all():  # to pick out what counts takes ten times as long
            check_labels(owner, target[target != ignore_index], declared)
        if rows.task == "multiclass":
            check_sums(owner, target.movedim(1, -1), ignore_index)
    if rows.weight is not None:
        check_weights(owner, rows.weight)
    if within_checked():
        check_finite(owner, rows.logits)


def check_task(owner: str, task: str | None) -> None:
    allowed = 'be "binary", "multiclass", "multilabel" or None (inferred from the shapes)'
    require(task in (None, *get_args(Task)), owner, "task", allowed, repr(task))


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
        logits = (
            logits[:, 0] if logits.shape[1] == 1 else upcast(logits[:, 1]) - upcast(logits[:, 0])
        )
    given = tuple(target.shape)
    if target.ndim == logits.ndim + 1 and target.shape[1] == 1:
        target = target.squeeze(1)
    allowed = f"have the shape of the binary logits, {tuple(logits.shape)}"
    require(target.shape == logits.shape, owner, "target", allowed, given)
    return logits, target


def _check_classes(owner: str, logits: Tensor, target: Tensor, task: Task) -> None:
    """Check that the target holds class indices, or a value per class."""
    shape = logits.shape
    rows = shape[:1] + shape[2:]
    if len(shape) < 2 or (task == "multiclass" and shape[1] < 2):
        allowed = "have shape (N, C) or (N, C, ...), with at least 2 classes if multiclass"
        raise ValueError(complaint(owner, "logits", allowed, tuple(shape)))
    if target.shape == shape:
        if task == "multiclass" and not target.is_floating_point():
            allowed = f"be class indices of shape {tuple(rows)}, or float with a value per class"
            cure = "For multilabel pass target.bool(); for one-hot rows pass target.argmax(1)."
            got = f"{target.dtype} of shape {tuple(shape)}"
            raise TypeError(complaint(owner, "target", allowed, got, cure))
        return
    if task == "multilabel" or target.shape != rows:
        allowed = f"have the shape of logits, {tuple(shape)}"
        if task == "multiclass":
            allowed = (
                f"have shape {tuple(rows)} (class indices) or {tuple(shape)} (a value per class)"
            )
        cure = "If the classes come last, pass class_dim=-1." if len(shape) > 2 else ""
        raise ValueError(complaint(owner, "target", allowed, tuple(target.shape), cure))
    if target.is_floating_point():
        allowed, cure = "hold integer class indices", "Use target.long()."
        raise TypeError(complaint(owner, "target", allowed, target.dtype, cure))


def per_row(owner: str, argument: str, values: Tensor, shape: torch.Size) -> Tensor:
    """Expand weights to one per row; they may be given per row or per example."""
    given = tuple(values.shape)
    if values.ndim == len(shape) + 1 and values.shape[1] == 1:
        values = values.squeeze(1)
    if values.shape == shape:
        return values
    if values.shape == shape[:1]:
        return values.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    allowed = f"have shape {tuple(shape[:1])}"
    if len(shape) > 1:
        allowed += f" or {tuple(shape)}"
    raise ValueError(complaint(owner, argument, allowed, given))


def check_types(owner: str, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> None:
    given = {"logits": logits, "target": target, "sample_weight": sample_weight}
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name != "sample_weight"):
            got, cure = type(value).__name__, "Use torch.as_tensor(...) or output.logits."
            raise TypeError(complaint(owner, name, "be a torch.Tensor", got, cure))
    if not logits.is_floating_point():
        allowed = "be floating point, not labels"
        cure = "Pass the network's raw outputs; labels belong in Confusion.from_predictions."
        raise TypeError(complaint(owner, "logits", allowed, logits.dtype, cure))
    allowed = "have shape (N,), (N, 1), (N, C) or (N, C, ...)"
    require(logits.ndim > 0, owner, "logits", allowed, "a scalar")
