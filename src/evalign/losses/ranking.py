"""Losses for the area under the ROC curve, binary problems only."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.checks import check_temperature, require, thresholds_tensor
from evalign.core.numerics import safe_ratio, sum_dtype
from evalign.core.rows import Task
from evalign.losses.base import Loss
from evalign.losses.temperature import fill_temperature, register_temperature


class AUROCLoss(Loss):
    """1 − area under the soft ROC curve (BtG): soft TPR over soft FPR at the given thresholds.

    The curve runs from (0, 0) to (1, 1) and is integrated by the trapezoid rule. A batch of one
    class has no curve; its loss is 0.

    Args:
        thresholds: where the curve is evaluated, each in (0, 1).
        temperature: sharpness of the step, as in `MetricLoss`.
        heaviside: the step, as in `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).
    """

    temperature: Tensor
    thresholds: Tensor

    def __init__(
        self,
        *,
        thresholds: Sequence[float] | Tensor = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        temperature: float = 0.2,
        heaviside: membership.Heaviside = "linear",
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        register_temperature(self, temperature, heaviside)
        self.heaviside: membership.Heaviside = heaviside
        ascending_fpr = thresholds_tensor("AUROCLoss", "thresholds", thresholds).reshape(-1)
        ascending_fpr = ascending_fpr.sort(descending=True).values
        self.register_buffer("thresholds", ascending_fpr, persistent=False)

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        fill_temperature(self, temperature)

    def value(self, batch: Batch) -> Tensor:
        check_temperature("AUROCLoss", self.temperature, validate=self.validate)
        batch = batch.as_binary("AUROCLoss")
        soft = membership.binary(
            batch.logits,
            threshold=self.thresholds,
            temperature=self.temperature,
            heaviside=self.heaviside,
        )
        positive = batch.weight * batch.target
        negative = batch.weight * (1 - batch.target)
        tpr = safe_ratio((positive * soft).sum(-1), positive.sum())
        fpr = safe_ratio((negative * soft).sum(-1), negative.sum())
        zero, one = tpr.new_zeros(1), tpr.new_ones(1)
        area = torch.trapezoid(torch.cat([zero, tpr, one]), torch.cat([zero, fpr, one]))
        one_class = (positive.sum() == 0) | (negative.sum() == 0)
        return torch.where(one_class, torch.zeros_like(area), 1 - area)


class WMWLoss(Loss):
    """Smooth Wilcoxon–Mann–Whitney statistic (Yan et al. 2003).

    Mean over pairs of a positive i and a negative j of max(γ − (x_i − x_j), 0)^p with x = σ(z).
    It compares every row with every other: time and memory grow with the square of the batch.

    Args:
        gamma: margin by which a positive should outrank a negative, in (0, 1].
        p: power of the shortfall, above 1; Yan et al. use 2 and 3.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).
    """

    def __init__(
        self,
        *,
        gamma: float = 0.3,
        p: float = 2.0,
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        require(0 < gamma <= 1, "WMWLoss", "gamma", "lie in (0, 1]", gamma)
        require(1 < p < math.inf, "WMWLoss", "p", "be finite and above 1", p)
        self.gamma = gamma
        self.p = p

    def value(self, batch: Batch) -> Tensor:
        batch = batch.as_binary("WMWLoss")
        x = batch.logits.sigmoid()
        shortfall = (self.gamma - (x.unsqueeze(1) - x)).clamp(min=0) ** self.p
        positive = _shares(batch.weight * batch.target)
        negative = _shares(batch.weight * (1 - batch.target))
        return (positive.unsqueeze(1) * negative * shortfall).sum()  # 0 without pairs


def _shares(weight: Tensor) -> Tensor:
    """Of the sum, which may be large: that of pairs, its square, would overflow in float32."""
    wide = weight.to(sum_dtype(weight))
    return safe_ratio(wide, wide.sum()).to(weight.dtype)
