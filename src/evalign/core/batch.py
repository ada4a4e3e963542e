"""Bring every accepted shape of logits, target and weights to one: rows.

The task follows from shapes and dtypes alone, so that it never changes with the values:

| logits              | target                                 | task                            |
| ------------------- | -------------------------------------- | ------------------------------- |
| (N,) or (N, 1, ...) | integer, bool or float 0/1, same rows  | binary                          |
| (N, C, ...)         | integer or bool (N, ...)               | multiclass                      |
| (N, L, ...)         | bool or float 0/1 (N, L, ...)          | multilabel                      |
| (N, C, ...)         | float (N, C, ...), `task="multiclass"` | multiclass, class probabilities |
| (N, 2, ...)         | as for binary, `task="binary"`         | binary, logit z1 − z0           |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.core.checks import complaint, require, values_readable
from evalign.core.numerics import safe_ratio, upcast

Task = Literal["binary", "multiclass", "multilabel"]


@dataclass(frozen=True)
class Mean:
    """A weighted mean as its two sums, so that the rows may come in parts."""

    sum: Tensor
    mass: Tensor

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.sum + other.sum, self.mass + other.mass)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Mean":
        return Mean(function(self.sum), function(self.mass))

    def tensors(self) -> list[Tensor]:
        """In the order in which `map` takes them."""
        return [self.sum, self.mass]

    def value(self) -> Tensor:
        return safe_ratio(self.sum, self.mass)


Sums = tuple[Any, ...]  # of `Mean`s and `Confusion`s: with +, map and tensors


@dataclass(frozen=True)
class Batch:
    """R rows with all other dimensions flattened. Ignored rows (or labels) have weight 0, target 0.

    | task       | logits | target                                | weight |
    | ---------- | ------ | ------------------------------------- | ------ |
    | binary     | (R,)   | (R,) probability of class 1           | (R,)   |
    | multiclass | (R, C) | (R,) indices or (R, C) probabilities  | (R,)   |
    | multilabel | (R, L) | (R, L) probability of each label      | (R, L) |

    Logits, weights and probabilities are float32 or float64. `given` holds the logits of a
    multiclass problem in their original precision: a kernel does not need a wider copy.
    """

    task: Task
    given: Tensor
    target: Tensor
    weight: Tensor

    @property
    def logits(self) -> Tensor:
        return upcast(self.given)

    @property
    def num_classes(self) -> int:
        return 2 if self.task == "binary" else self.given.shape[1]

    def as_binary(self, owner: str) -> "Batch":
        """Turn two classes into one logit z1 − z0: its sigmoid is the softmax of the pair."""
        if self.task == "binary":
            return self
        if self.task == "multilabel" or self.num_classes != 2:
            got = f"{self.num_classes} {'classes' if self.task == 'multiclass' else 'labels'}"
            cure = "Reduce the problem to one class against the rest."
            raise ValueError(complaint(owner, "logits", "hold a binary problem", got, cure))
        target = self.target[:, 1] if self.target.ndim == 2 else self.target.to(self.logits.dtype)
        return replace(
            self, task="binary", given=self.logits[:, 1] - self.logits[:, 0], target=target
        )

    def log_probabilities(self) -> Tensor:
        """log p of every class: (R, C); a binary problem or label has the classes (0, 1)."""
        if self.task == "multiclass":
            return self.logits.log_softmax(-1)
        return torch.stack([F.logsigmoid(-self.logits), F.logsigmoid(self.logits)], -1)

    def target_probabilities(self) -> Tensor:
        """The target in the shape of `log_probabilities`."""
        if self.task != "multiclass":
            return torch.stack([1 - self.target, self.target], -1)
        if self.target.ndim == 2:
            return self.target
        classes = torch.arange(self.num_classes, device=self.target.device)
        return (self.target.unsqueeze(-1) == classes).to(self.logits.dtype)

    def mean(
        self, x: Tensor, loss: Callable[[Tensor], Tensor], class_weight: Tensor | None = None
    ) -> "Mean":
        """Weighted mean over rows of Σ_y t_y·w_y·L(x_y), x in the shape of `log_probabilities`.

        The class weights do not enter the divisor (SurF eq. 15). An infinite x of a class or row
        that has no share counts as 0: 0·∞ would be NaN.
        """
        factor = x.new_ones(self.num_classes) if class_weight is None else class_weight.to(x)
        if self.task == "multiclass" and self.target.ndim == 1:
            x, share = x.gather(1, self.target.unsqueeze(1)), factor[self.target].unsqueeze(1)
        else:
            factor = factor.unsqueeze(-1) if self.task == "multilabel" else factor
            share = factor * self.target_probabilities()
        share = self.weight.unsqueeze(-1) * share
        loss_of_class = loss(x.masked_fill((share == 0) & x.isinf(), 0))
        return Mean((share * loss_of_class).sum(), self.weight.sum())


def as_batch(
    owner: str,
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    validate: bool = False,
) -> Batch:
    """Check the rows, infer the task and flatten. Errors name the `owner`."""
    check_task(owner, task)
    declared = task is not None
    task = task or _infer_task(logits, target)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    if task != "multiclass":
        logits = logits.to(dtype)
    if task == "binary":
        logits, target = _binary_layout(owner, logits, target)
    else:
        logits, target = _class_layout(owner, logits, target, task)
    target = signed(target)
    shape = logits.shape if task == "binary" else logits.shape[:-1]
    if sample_weight is not None:
        sample_weight = row_weights(owner, sample_weight, shape)
    indices = task == "multiclass" and target.shape == shape
    if values_readable(logits, validate=validate):
        if indices:
            _check_targets(owner, target, logits.shape[-1], ignore_index)
        else:
            _check_labels(owner, target[target != ignore_index], declared)
        if task == "multiclass" and not indices:
            _check_rows_sum_to_one(owner, target, ignore_index)
        if sample_weight is not None:
            check_weights(owner, sample_weight)
        if validate:
            _check_finite(owner, logits)

    ignored = target == ignore_index
    target = target.masked_fill(ignored, 0)
    target = target.long() if indices else target.to(dtype)
    if task == "multiclass" and not indices:
        ignored = ignored.any(-1)
    weight = (~ignored).to(dtype)
    if sample_weight is not None:
        row_weight = sample_weight.to(dtype)
        weight = weight * (row_weight.unsqueeze(-1) if task == "multilabel" else row_weight)

    width = () if task == "binary" else logits.shape[-1:]
    return Batch(
        task,
        logits.reshape(-1, *width),
        target.reshape(-1, *(() if indices else width)),
        weight.reshape(-1, *(width if task == "multilabel" else ())),
    )


def signed(labels: Tensor) -> Tensor:
    """Unsigned labels as int64: torch takes 156 for -100 when it compares them."""
    unsigned = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    return labels.long() if labels.dtype in unsigned else labels


def check_task(owner: str, task: str | None) -> None:
    if task is not None and task not in get_args(Task):
        allowed = 'be "binary", "multiclass", "multilabel" or None (inferred from the shapes)'
        raise ValueError(complaint(owner, "task", allowed, repr(task)))


def _infer_task(logits: Tensor, target: Tensor) -> Task:
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
        logits = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
    given = tuple(target.shape)
    if target.ndim == logits.ndim + 1 and target.shape[1] == 1:
        target = target.squeeze(1)
    allowed = f"have the shape of the binary logits, {tuple(logits.shape)}"
    require(target.shape == logits.shape, owner, "target", allowed, given)
    return logits, target


def _class_layout(owner: str, logits: Tensor, target: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """The class dimension last; the target with it (a value per class) or without (indices)."""
    shape = tuple(logits.shape)
    rows = (*shape[:1], *shape[2:])
    if len(shape) < 2 or (task == "multiclass" and shape[1] < 2):
        allowed = "have shape (N, C) or (N, C, ...), with at least 2 classes if multiclass"
        raise ValueError(complaint(owner, "logits", allowed, shape))
    if tuple(target.shape) == shape:
        if task == "multiclass" and not target.is_floating_point():
            allowed = f"be class indices of shape {rows}, or float with a value per class"
            cure = "For multilabel pass target.bool(); for one-hot rows pass target.argmax(1)."
            got = f"{target.dtype} of shape {shape}"
            raise TypeError(complaint(owner, "target", allowed, got, cure))
        return logits.movedim(1, -1), target.movedim(1, -1)
    if task == "multilabel" or tuple(target.shape) != rows:
        allowed = f"have the shape of logits, {shape}"
        if task == "multiclass":
            allowed = f"have shape {rows} (class indices) or {shape} (a value per class)"
        last = len(shape) > 2 and tuple(target.shape) == shape[:-1]
        cure = "Classes belong in dimension 1: logits.movedim(-1, 1)." if last else ""
        raise ValueError(complaint(owner, "target", allowed, tuple(target.shape), cure))
    if target.is_floating_point():
        allowed, cure = "hold integer class indices", "Use target.long()."
        raise TypeError(complaint(owner, "target", allowed, target.dtype, cure))
    return logits.movedim(1, -1), target


def row_weights(owner: str, weight: Tensor, shape: torch.Size) -> Tensor:
    """One weight per row: as many dimensions as the rows have, or one per example."""
    given = tuple(weight.shape)
    if weight.ndim == len(shape) + 1 and weight.shape[1] == 1:
        weight = weight.squeeze(1)
    if weight.shape == shape:
        return weight
    if weight.shape == shape[:1]:
        return weight.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    allowed = f"have shape {tuple(shape[:1])}"
    if len(shape) > 1:
        allowed += f" or {tuple(shape)}"
    raise ValueError(complaint(owner, "sample_weight", allowed, given))


def check_types(owner: str, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> None:
    given = {"logits": logits, "target": target, "sample_weight": sample_weight}
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name != "sample_weight"):
            got, cure = type(value).__name__, "Use torch.as_tensor(...)."
            raise TypeError(complaint(owner, name, "be a torch.Tensor", got, cure))
    if not logits.is_floating_point():
        cure = "Pass the network's raw outputs; labels belong in Confusion.from_predictions."
        raise TypeError(
            complaint(owner, "logits", "be floating point, not labels", logits.dtype, cure)
        )
    if logits.ndim == 0:
        allowed = "have shape (N,), (N, 1), (N, C) or (N, C, ...)"
        raise ValueError(complaint(owner, "logits", allowed, "a scalar"))


def _check_targets(owner: str, target: Tensor, num_classes: int, ignore_index: int) -> None:
    """Check the targets that are not ignored; usually the smallest and the largest are enough."""
    if not target.numel():
        return
    lowest, highest = map(int, target.aminmax())
    if lowest < 0 or highest >= num_classes:
        check_indices(owner, "target", target[target != ignore_index], num_classes)


def check_indices(
    owner: str,
    argument: str,
    labels: Tensor,
    num_classes: int,
    source: str = "the size of logits' dimension 1",
) -> None:
    """Check that class indices lie in 0 … num_classes − 1, a number that comes from `source`."""
    allowed = f"hold class indices below {num_classes} ({source})"
    wrong = labels[labels >= num_classes]
    if not wrong.numel():
        allowed, wrong = "hold class indices of at least 0", labels[labels < 0]
    if wrong.numel():
        got = wrong[0].item()
        cure = _cure_of_label(got, num_classes) if argument == "target" else ""
        raise ValueError(complaint(owner, argument, allowed, got, cure))


def _cure_of_label(got: float, num_classes: int) -> str:
    if got == num_classes:
        return "Labels count from 0: subtract 1 if yours count from 1."
    if got == -1:
        return "Map labels -1 and 1 to 0 and 1; if -1 marks rows to leave out, ignore_index=-1."
    return f"Did you mean ignore_index={got}?"


def _check_labels(owner: str, labels: Tensor, declared: bool) -> None:
    """Check that labels are 0 or 1, or probabilities if the task was declared."""
    if declared and labels.is_floating_point():
        allowed, cure = "hold probabilities from 0 to 1", ""
        wrong = labels[~((labels >= 0) & (labels <= 1))]
    else:
        allowed = "hold 0 and 1 only"
        wrong = labels[(labels != 0) & (labels != 1)]
        cure = (
            'If these are probabilities, say so: task="multiclass" for a row of class '
            'probabilities per example, task="binary" or "multilabel" for one per label.'
        )
    if wrong.numel():
        got = wrong[0].item()
        if got == -1 or not labels.is_floating_point():
            cure = _cure_of_label(got, 2)
        raise ValueError(complaint(owner, "target", allowed, got, cure))


def _check_rows_sum_to_one(owner: str, target: Tensor, ignore_index: int) -> None:
    sums = target.sum(-1)[~(target == ignore_index).any(-1)].float()
    wrong = sums[(sums - 1).abs() > 0.01]  # bfloat16 probabilities are off by up to 0.004 each
    if wrong.numel():
        allowed = "hold rows of class probabilities that sum to 1"
        raise ValueError(complaint(owner, "target", allowed, f"a row summing to {wrong[0]:g}"))


def check_weights(owner: str, weight: Tensor) -> None:
    wrong = weight[~((weight >= 0) & weight.isfinite())]
    if wrong.numel():
        cure = "A weight of 0 leaves a row out."
        allowed = "be finite and not negative"
        raise ValueError(complaint(owner, "sample_weight", allowed, wrong[0].item(), cure))


def _check_finite(owner: str, logits: Tensor) -> None:
    wrong = logits[~logits.isfinite()]
    if wrong.numel():
        cure = "The network has diverged or its input holds such values."
        raise ValueError(complaint(owner, "logits", "be finite", wrong[0].item(), cure))
