"""Losses of a ranking: area under the ROC curve, average precision, Wilcoxon–Mann–Whitney."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from evalign.aggregation import Ranks
from evalign.core.arrays import safe_ratio, sum_dtype
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.losses import curves
from evalign.losses.base import Loss, RowSettings, RunningLoss, SteppedLoss, zero_if_empty
from evalign.membership import soft_sets
from evalign.membership.batch import Batch, Sums
from evalign.membership.checks import check_temperature, thresholds_tensor

MOST_THRESHOLDS = 100_000  # a step of 0.0002 in asinh(z)


class CurveLoss(RunningLoss):
    """1 − the score of a curve of soft counts, one class against the rest.

    Binary problems score the positive class, others the mean over classes or labels. A class
    without rows, or without other rows, has no curve and is left out; if none has one, the loss
    is 0.
    """

    @abstractmethod
    def curve(self, batch: Batch) -> Confusion:
        """The soft counts at each threshold (`losses.curves`)."""

    @abstractmethod
    def score(self, curve: Confusion) -> Tensor:
        """The score of each class."""

    def sums_from_batch(self, batch: Batch) -> Sums:
        two = batch.task == "multiclass" and batch.num_classes == 2  # one curve, of class 1
        return (self.curve(batch.as_binary(type(self).__name__) if two else batch),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        (batch,) = self.of_all_ranks(sums)
        curve = self.over_batches(batch)
        absent = ((curve.actual <= 0) | (curve.negatives <= 0)).squeeze(-1)  # NaN stays visible
        total = self.score(curve).masked_fill(absent, 0).sum()
        loss = 1 - safe_ratio(total, (~absent).sum(), fill=1.0)
        return zero_if_empty(loss, batch.total.sum())


class AUROCLoss(CurveLoss, SteppedLoss):
    """1 − area under the soft ROC curve (BtG): soft TPR over soft FPR at the given thresholds.

    The curve runs from (0, 0) to (1, 1) and is integrated by the trapezoid rule. Several classes
    are each held against the rest and averaged; those without a curve are left out (`CurveLoss`).

    Args:
        thresholds: where the curve is evaluated, each in (0, 1).
        temperature: sharpness of the step, as in `MetricLoss`.
        heaviside: the step, as in `MetricLoss`.
        momentum: as in `MetricLoss`.
        ranks: whose rows are summed, see `MetricLoss`.
    """

    thresholds: Tensor

    def __init__(
        self,
        *,
        thresholds: Sequence[float] | Tensor = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        temperature: float = 0.2,
        heaviside: soft_sets.Heaviside = "linear",
        momentum: float | None = None,
        ranks: Ranks = "all",
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(momentum, ranks, **rows)
        self.set_step(heaviside, temperature)
        ascending_fpr = thresholds_tensor("AUROCLoss", "thresholds", thresholds).reshape(-1)
        ascending_fpr = ascending_fpr.sort(descending=True).values
        self.register_buffer("thresholds", ascending_fpr, persistent=False)

    def curve(self, batch: Batch) -> Confusion:
        check_temperature("AUROCLoss", self.temperature)
        step = soft_sets.step(self.heaviside, self.temperature)
        return curves.soft_counts_at(batch, self.thresholds, step)

    def score(self, curve: Confusion) -> Tensor:
        return curves.area_under_roc(curve)


class AveragePrecisionLoss(CurveLoss):
    """1 − average precision of soft counts at many thresholds, see `CurveLoss`.

    Args:
        thresholds: how many, at least 2, evenly spaced in asinh(z) between −10 and 10. More of
            them make a sharper step.
        momentum: weight of the new batch in a moving average of the counts, at which the gradient
            is taken; None is the batch alone, which rarely holds enough positives.
        ranks: whose rows are summed, see `MetricLoss`.
    """

    def __init__(
        self,
        *,
        thresholds: int = 101,
        momentum: float | None = 0.1,
        ranks: Ranks = "all",
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(momentum, ranks, **rows)
        ok = isinstance(thresholds, int) and 2 <= thresholds <= MOST_THRESHOLDS
        allowed = f"be an integer from 2 to {MOST_THRESHOLDS:,}"
        require(ok, "AveragePrecisionLoss", "thresholds", allowed, repr(thresholds))
        self.thresholds = thresholds

    def curve(self, batch: Batch) -> Confusion:
        return curves.soft_counts(batch, self.thresholds)

    def score(self, curve: Confusion) -> Tensor:
        return curves.average_precision(curve)


class WMWLoss(Loss):
    """Smooth Wilcoxon–Mann–Whitney statistic (Yan et al. 2003).

    Mean over pairs of a positive i and a negative j of max(γ − (x_i − x_j), 0)^p with x = σ(z).
    It compares every row with every other: time and memory grow with the square of the batch.

    Args:
        gamma: margin by which a positive should outrank a negative, in (0, 1].
        p: power of the shortfall, above 1; Yan et al. use 2 and 3.
    """

    def __init__(self, *, gamma: float = 0.3, p: float = 2.0, **rows: Unpack[RowSettings]) -> None:
        super().__init__(**rows)
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
    """Weights divided by their sum: the sum over pairs, its square, would overflow in float32."""
    wide = weight.to(sum_dtype(weight))
    return safe_ratio(wide, wide.sum()).to(weight.dtype)
