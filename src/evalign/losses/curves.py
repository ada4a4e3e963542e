"""Average precision as a loss."""

from torch import Tensor

from evalign.aggregation import Ranks, TrainingSums
from evalign.core import curves
from evalign.core.batch import Batch, Sums
from evalign.core.checks import require
from evalign.core.rows import Task
from evalign.losses.base import AdditiveLoss, zero_if_empty

MOST_THRESHOLDS = 100_000  # a step of 0.0002 in asinh(z)


class AveragePrecisionLoss(AdditiveLoss):
    """1 − average precision of soft counts at many thresholds.

    Binary problems score the positive class, others the mean over classes, each against the rest,
    or over labels. A class without rows, or without other rows, is left out.

    Args:
        thresholds: how many there are, at least 2; they are evenly spaced in asinh(z) between
            −10 and 10. More of them make a sharper step.
        momentum: the weight of the new batch in a moving average of the counts, at which the
            gradient is taken; None is the batch alone, which rarely holds enough positives.
        ranks: whose rows are summed, see `MetricLoss`.

    `task`, `ignore_index` and `class_dim` are those of every loss (`Loss`).

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
        momentum: float | None = 0.1,
        ranks: Ranks = "all",
        task: Task | None = None,
        ignore_index: int = -100,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, class_dim=class_dim)
        ok = isinstance(thresholds, int) and 2 <= thresholds <= MOST_THRESHOLDS
        allowed = f"be an integer from 2 to {MOST_THRESHOLDS:,}"
        require(ok, "AveragePrecisionLoss", "thresholds", allowed, repr(thresholds))
        self.thresholds = thresholds
        self.momentum = momentum
        self.training_sums = TrainingSums(momentum, ranks, "AveragePrecisionLoss")

    @property
    def ranks(self) -> Ranks:
        return self.training_sums.over_ranks.ranks

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (curves.soft_counts(batch, self.thresholds),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        batch, curve = self.training_sums(*sums)
        score = curves.average_precision(curve)
        return zero_if_empty(1 - curves.mean_over_classes(score, curve), batch.total.sum())
