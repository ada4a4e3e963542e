"""Bring checked rows to one form, and take means over them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.core.arrays import safe_ratio
from evalign.core.checks import require
from evalign.core.summed import Summed
from evalign.core.task import Task
from evalign.membership.checks import signed
from evalign.membership.numerics import upcast
from evalign.membership.rows import GivenRows, as_rows


@dataclass(frozen=True, eq=False)
class Mean(Summed):
    """A weighted mean as its two sums."""

    sum: Tensor
    mass: Tensor

    def value(self) -> Tensor:
        return safe_ratio(self.sum, self.mass)


Sums = tuple[Any, ...]  # of `Mean`s and `Confusion`s


@dataclass(frozen=True)
class Batch:
    """R rows with all other dimensions flattened. Ignored rows (or labels) have weight 0, target 0.

    | task       | logits | target                                | weight |
    | ---------- | ------ | ------------------------------------- | ------ |
    | binary     | (R,)   | (R,) probability of class 1           | (R,)   |
    | multiclass | (R, C) | (R,) indices or (R, C) probabilities  | (R,)   |
    | multilabel | (R, L) | (R, L) probability of each label      | (R, L) |

    Logits, weights and probabilities are float32 or float64; `given` holds those of a multiclass
    problem in their original precision. The rows of an image follow each other; without further
    dimensions each row is an image. `pixels` is that of `GivenRows`.
    """

    task: Task
    given: Tensor
    target: Tensor
    weight: Tensor
    images: int = 1
    pixels: bool = False

    @classmethod
    def of(cls, rows: GivenRows) -> "Batch":
        """Flatten checked rows, the classes last, and mark those that are ignored."""
        task, logits, target = rows.task, rows.logits, signed(rows.target)
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if task == "binary":
            logits = logits.to(dtype)
        else:
            logits = logits.movedim(1, -1)
            target = target if rows.indices else target.movedim(1, -1)
            logits = logits if task == "multiclass" else logits.to(dtype)
        ignored = target == rows.ignore_index
        target = target.masked_fill(ignored, 0)
        target = target.long() if rows.indices else target.to(dtype)
        if task == "multiclass" and not rows.indices:
            ignored = ignored.any(-1)
        weight = (~ignored).to(dtype)
        if rows.weight is not None:
            given = rows.weight.to(dtype)
            if task == "multilabel":  # of each row, or of each label
                labels = given.ndim == rows.logits.ndim
                given = given.movedim(1, -1) if labels else given.unsqueeze(-1)
            weight = weight * given

        # Whatever the logits of a row without weight are: 0 · NaN would be NaN.
        empty = weight == 0
        logits = logits.masked_fill(empty.unsqueeze(-1) if task == "multiclass" else empty, 0)
        width = () if task == "binary" else logits.shape[-1:]
        target = target.reshape(-1, *(() if rows.indices else width))
        weight = weight.reshape(-1, *(width if task == "multilabel" else ()))
        given = logits.reshape(-1, *width)
        return cls(task, given, target, weight, len(logits), rows.pixels)

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
        got = f"{self.num_classes} {'classes' if self.task == 'multiclass' else 'labels'}"
        cure = "Reduce the problem to one class against the rest."
        require(got == "2 classes", owner, "logits", "hold a binary problem", got, cure)
        z = self.logits
        target = self.target[:, 1] if self.target.ndim == 2 else self.target.to(z.dtype)
        return replace(self, task="binary", given=z[:, 1] - z[:, 0], target=target)

    def per_class(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, target and weight of each class; a binary problem is its positive class.

        All are (rows, classes), but for the weight of exclusive classes, which is (rows, 1).
        """
        z, y, weight = self.logits, self.target, self.weight
        if self.task == "multilabel":
            return z, y, weight
        if self.task == "multiclass":
            return z, self.target_probabilities(), weight.unsqueeze(1)
        return z.unsqueeze(1), y.unsqueeze(1), weight.unsqueeze(1)

    def probabilities(self) -> Tensor:
        """Softmax of classes or sigmoid of labels, in the shape of the logits."""
        return self.logits.softmax(-1) if self.task == "multiclass" else self.logits.sigmoid()

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

        The class weights do not enter the divisor (SurF eq. 15). An infinite x without a share
        counts as 0: 0·∞ would be NaN.
        """
        factor = None if class_weight is None else class_weight.to(x)
        share = self.weight.unsqueeze(-1)
        if self.task == "multiclass" and self.target.ndim == 1:
            x = x.gather(1, self.target.unsqueeze(1))
            factor = None if factor is None else factor[self.target].unsqueeze(1)
        else:
            share = share * self.target_probabilities()
            if factor is not None and self.task == "multilabel" and factor.ndim == 1:
                factor = factor.unsqueeze(-1)
        share = share if factor is None else share * factor
        loss_of_class = loss(x.masked_fill((share == 0) & x.isinf(), 0))
        return Mean((share * loss_of_class).sum(), self.weight.sum())


def as_batch(owner: str, logits: Tensor, target: Tensor, **settings: Any) -> Batch:
    """Check the rows and bring them to one form; the settings are those of `as_rows`."""
    return Batch.of(as_rows(owner, logits, target, **settings))
