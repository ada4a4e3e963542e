"""Losses over all thresholds: average precision, partial area, recall at a precision."""

import torch
from torch import Tensor

from evalign.aggregation import MoreRows, Ranks, Statistics
from evalign.core import curves, membership
from evalign.core.batch import Batch, Sums
from evalign.core.checks import check_temperature, require
from evalign.core.rows import Task
from evalign.losses.base import AdditiveLoss, zero_if_empty
from evalign.losses.temperature import fill_temperature, register_temperature

MOST = 100_000  # thresholds: a step of 0.0002 in asinh(z)


class AveragePrecisionLoss(AdditiveLoss):
    """1 − average precision of soft counts at many thresholds.

    Binary problems score the positive class, others the mean over classes, each against the rest,
    or over labels. A class without rows, or without other rows, is left out.

    Args:
        thresholds: how many there are, at least 2; they are evenly spaced in asinh(z) between
            −10 and 10. More of them make a sharper step.
        statistics: "running" takes the gradient at a moving average of the counts, "batch" at those
            of the batch alone, see `MetricLoss`. A batch rarely holds enough positives.
        momentum: the weight of the new batch in that average, in (0, 1].
        ranks: whose rows are summed, see `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).

    Examples:
        >>> import torch
        >>> loss = AveragePrecisionLoss()
        >>> loss(torch.tensor([2.0, 1.0, -1.0, -2.0]), torch.tensor([1, 1, 0, 0])).item()
        0.0
    """

    def __init__(
        self,
        *,
        thresholds: int = 101,
        statistics: Statistics = "running",
        momentum: float = 0.1,
        ranks: Ranks = "all",
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        self.thresholds = _number("AveragePrecisionLoss", thresholds)
        self.statistics: Statistics = statistics
        self.momentum = momentum
        self.more_rows = MoreRows(statistics, momentum, ranks, "AveragePrecisionLoss")

    @property
    def ranks(self) -> Ranks:
        return self.more_rows.over_ranks.ranks

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (curves.soft_counts(batch, self.thresholds),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        batch, curve = self.more_rows(*sums)
        score = curves.average_precision(curve)
        return zero_if_empty(1 - curves.mean_over_classes(score, curve), batch.total.sum())


class PartialAUCLoss(AdditiveLoss):
    """1 − the area under the soft ROC curve where it matters: few false positives, high recall.

    The area lies left of FPR = `max_fpr` and above TPR = `min_tpr`, and is divided by the largest
    that it can be, `max_fpr` · (1 − `min_tpr`). It is what the positives beyond the easiest share
    `min_tpr` win against the hardest share `max_fpr` of the negatives. With bounds of 1 and 0 it is
    the whole area. Classes and labels are averaged as by `AveragePrecisionLoss`.

    Where the curve does not reach `min_tpr` in time, the area is 0 and has no slope. The gradient
    is then that of the area without that bound, or if that is 0 too, of the whole area.

    Args:
        max_fpr: the bound on false positives, in (0, 1].
        min_tpr: the bound on recall, in [0, 1).
        thresholds: how many there are, see `AveragePrecisionLoss`.
        statistics: "running" or "batch", see `AveragePrecisionLoss`.
        momentum: the weight of the new batch in the running average, in (0, 1].
        ranks: whose rows are summed, see `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).
    """

    def __init__(
        self,
        max_fpr: float,
        min_tpr: float = 0.0,
        *,
        thresholds: int = 101,
        statistics: Statistics = "running",
        momentum: float = 0.1,
        ranks: Ranks = "all",
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        inside = isinstance(max_fpr, int | float) and 0 < max_fpr <= 1
        require(inside, "PartialAUCLoss", "max_fpr", "lie in (0, 1]", repr(max_fpr))
        inside = isinstance(min_tpr, int | float) and 0 <= min_tpr < 1
        require(inside, "PartialAUCLoss", "min_tpr", "lie in [0, 1)", repr(min_tpr))
        self.max_fpr = max_fpr
        self.min_tpr = min_tpr
        self.thresholds = _number("PartialAUCLoss", thresholds)
        self.statistics: Statistics = statistics
        self.momentum = momentum
        self.more_rows = MoreRows(statistics, momentum, ranks, "PartialAUCLoss")

    @property
    def ranks(self) -> Ranks:
        return self.more_rows.over_ranks.ranks

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (curves.soft_counts(batch, self.thresholds),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        batch, curve = self.more_rows(*sums)
        bounds = (self.max_fpr, self.min_tpr), (self.max_fpr, 0.0), (1.0, 0.0)
        area, left, whole = (curves.partial_area(curve, *each) for each in bounds)
        slope = torch.where(area != 0, area, torch.where(left != 0, left, whole))
        score = area.detach() + (slope - slope.detach())
        return zero_if_empty(1 - curves.mean_over_classes(score, curve), batch.total.sum())


class RecallAtPrecisionLoss(AdditiveLoss):
    """1 − the largest recall whose precision is at least a bound, of soft counts.

    At the best threshold alone few rows have a slope, so every positive counts by a soft step of
    the precision that it can be had at. At temperature 0 the loss is the metric, in which a
    precision that equals the bound counts half. Where no threshold has a better precision than the
    lowest, which all rows are above, the gradient is that of the average precision. Classes and
    labels are averaged as by `AveragePrecisionLoss`.

    Args:
        precision: the bound, in (0, 1).
        temperature: sharpness of the step at that bound, in (0, 0.4], see `MetricLoss`.
        thresholds: how many there are, see `AveragePrecisionLoss`.
        statistics: "running" or "batch", see `AveragePrecisionLoss`.
        momentum: the weight of the new batch in the running average, in (0, 1].
        ranks: whose rows are summed, see `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).
    """

    temperature: Tensor

    def __init__(
        self,
        precision: float,
        *,
        temperature: float = 0.2,
        thresholds: int = 101,
        statistics: Statistics = "running",
        momentum: float = 0.1,
        ranks: Ranks = "all",
        task: Task | None = None,
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        inside = isinstance(precision, int | float) and 0 < precision < 1
        require(inside, "RecallAtPrecisionLoss", "precision", "lie in (0, 1)", repr(precision))
        self.precision = precision
        register_temperature(self, temperature, "linear")
        self.thresholds = _number("RecallAtPrecisionLoss", thresholds)
        self.statistics: Statistics = statistics
        self.momentum = momentum
        self.more_rows = MoreRows(statistics, momentum, ranks, "RecallAtPrecisionLoss")

    @property
    def ranks(self) -> Ranks:
        return self.more_rows.over_ranks.ranks

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        fill_temperature(self, temperature)

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (curves.soft_counts(batch, self.thresholds),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        check_temperature("RecallAtPrecisionLoss", self.temperature, validate=self.validate)
        batch, curve = self.more_rows(*sums)
        step = membership.step("linear", self.temperature)
        score = curves.recall_at_precision(curve, self.precision, step)
        whole = curves.average_precision(curve)
        score = score + torch.where(curves.is_useless(curve), whole - whole.detach(), 0)
        return zero_if_empty(1 - curves.mean_over_classes(score, curve), batch.total.sum())


def _number(owner: str, thresholds: int) -> int:
    ok = isinstance(thresholds, int) and 2 <= thresholds <= MOST
    require(ok, owner, "thresholds", f"be an integer from 2 to {MOST:,}", repr(thresholds))
    return thresholds
