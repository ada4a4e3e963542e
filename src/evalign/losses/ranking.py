"""Losses for the area under the ROC curve, as published."""

import math
from collections.abc import Sequence

from torch import Tensor

from evalign.aggregation import Ranks, TrainingSums
from evalign.core import curves, membership
from evalign.core.batch import Batch, Sums
from evalign.core.checks import check_temperature, require, thresholds_tensor
from evalign.core.numerics import safe_ratio, sum_dtype
from evalign.core.rows import Task
from evalign.losses.base import AdditiveLoss, Loss, zero_if_empty
from evalign.losses.temperature import fill_temperature, register_temperature


class AUROCLoss(AdditiveLoss):
    """1 − area under the soft ROC curve (BtG): soft TPR over soft FPR at the given thresholds.

    The curve runs from (0, 0) to (1, 1) and is integrated by the trapezoid rule. Of several classes
    each is held against the rest, of many labels each against its absence, and the loss is their
    mean. A class without rows, or without other rows, has no curve and is left out; if none has
    one, the loss is 0.

    Args:
        thresholds: where the curve is evaluated, each in (0, 1).
        temperature: sharpness of the step, as in `MetricLoss`.
        heaviside: the step, as in `MetricLoss`.
        momentum: as in `MetricLoss`.
        ranks: whose rows are summed, see `MetricLoss`.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`).
    """

    temperature: Tensor
    thresholds: Tensor

    def __init__(
        self,
        *,
        thresholds: Sequence[float] | Tensor = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        temperature: float = 0.2,
        heaviside: membership.Heaviside = "linear",
        momentum: float | None = None,
        ranks: Ranks = "all",
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
        register_temperature(self, temperature, heaviside)
        self.heaviside: membership.Heaviside = heaviside
        ascending_fpr = thresholds_tensor("AUROCLoss", "thresholds", thresholds).reshape(-1)
        ascending_fpr = ascending_fpr.sort(descending=True).values
        self.register_buffer("thresholds", ascending_fpr, persistent=False)
        self.momentum = momentum
        self.training_sums = TrainingSums(momentum, ranks, "AUROCLoss")

    @property
    def ranks(self) -> Ranks:
        return self.training_sums.over_ranks.ranks

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        fill_temperature(self, temperature)

    def sums_from_batch(self, batch: Batch) -> Sums:
        check_temperature("AUROCLoss", self.temperature)
        return (
            curves.soft_counts_at(
                batch, self.thresholds, membership.step(self.heaviside, self.temperature)
            ),
        )

    def loss_from_sums(self, sums: Sums) -> Tensor:
        batch, curve = self.training_sums(*sums)
        area = curves.whole_area(curve)
        return zero_if_empty(1 - curves.mean_over_classes(area, curve), batch.total.sum())


class WMWLoss(Loss):
    """Smooth Wilcoxon–Mann–Whitney statistic (Yan et al. 2003).

    Mean over pairs of a positive i and a negative j of max(γ − (x_i − x_j), 0)^p with x = σ(z).
    It compares every row with every other: time and memory grow with the square of the batch.

    Args:
        gamma: margin by which a positive should outrank a negative, in (0, 1].
        p: power of the shortfall, above 1; Yan et al. use 2 and 3.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`).
    """

    def __init__(
        self,
        *,
        gamma: float = 0.3,
        p: float = 2.0,
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
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
