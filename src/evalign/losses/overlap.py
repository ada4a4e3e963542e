"""Losses of the overlap between prediction and truth: Dice, sigmoidF1, Lovász."""

import math
from typing import Unpack

import torch
from torch import Tensor

from evalign.aggregation import Ranks
from evalign.core.arrays import safe_ratio, sum_dtype
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.losses.base import Loss, RowSettings, RunningLoss, zero_if_empty
from evalign.membership.batch import Batch, Sums


class DiceLoss(RunningLoss):
    """1 − 2 Σ p g / (Σ p² + Σ g²) (Milletari et al. 2016), sums over all rows of the batch.

    Binary problems score the positive class, others the mean over classes that have any mass.

    Args:
        ranks: whose rows are summed, see `MetricLoss`.
    """

    def __init__(self, *, ranks: Ranks = "all", **rows: Unpack[RowSettings]) -> None:
        super().__init__(None, ranks, **rows)

    def sums_from_batch(self, batch: Batch) -> Sums:
        z, g, w = batch.per_class()
        p = batch.probabilities().view_as(z)
        # Sums of squares stand in the places of the predicted and the actual mass.
        sums = ((w * x).sum(0) for x in (p * g, p**2, g**2, torch.ones_like(g)))
        return (Confusion(*sums, multilabel=True),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        (c,) = self.of_all_ranks(sums)
        mass = c.predicted + c.actual
        loss = 1 - _mean_where(safe_ratio(2 * c.tp, mass), mass != 0)
        return zero_if_empty(loss, c.total.sum())


class SigmoidF1Loss(Loss):
    """1 − F1 of counts smoothed by S = σ(β (z + η)) (Bénédict et al. 2022), mean over classes.

    Each class has a sigmoid of its own; binary problems score the positive class.

    Args:
        beta: steepness of the sigmoid, positive.
        eta: its offset.
    """

    def __init__(self, *, beta: float = 1.0, eta: float = 0.0, **rows: Unpack[RowSettings]) -> None:
        super().__init__(**rows)
        require(0 < beta < math.inf, "SigmoidF1Loss", "beta", "be positive and finite", beta)
        require(math.isfinite(eta), "SigmoidF1Loss", "eta", "be finite", eta)
        self.beta = beta
        self.eta = eta

    def value(self, batch: Batch) -> Tensor:
        z, y, w = batch.per_class()
        s = (self.beta * (z + self.eta)).sigmoid()
        tp = (w * s * y).sum(0)
        mass = (w * (s + y)).sum(0)  # 2 tp + fp + fn
        loss = 1 - _mean_where(safe_ratio(2 * tp, mass), mass != 0)
        return zero_if_empty(loss, batch.weight.sum())


class LovaszSoftmaxLoss(Loss):
    """Lovász extension of the Jaccard loss (Berman et al. 2018), mean over the classes present.

    For each class the errors |g − p| are sorted, and each weighs what adding its row to the
    mispredicted set costs in Jaccard index. Binary problems score the positive class.
    """

    def value(self, batch: Batch) -> Tensor:
        z, g, w = batch.per_class()
        p = batch.probabilities().view_as(z)
        # One class after the other in memory: sorting and cumulating run along the rows of a class.
        errors, order = (g - p).abs().T.contiguous().sort(-1, descending=True)
        # The cost of one row is a small difference of large sums, which takes float64.
        dtype = sum_dtype(errors)
        hit, miss = ((w * x).T.contiguous().gather(-1, order) for x in (g, 1 - g))
        actual = hit.sum(-1, keepdim=True, dtype=dtype)
        intersection = actual - hit.cumsum(-1, dtype=dtype)
        union = actual + miss.cumsum(-1, dtype=dtype)
        jaccard = 1 - safe_ratio(intersection, union, fill=1.0)
        step = torch.diff(jaccard, dim=-1, prepend=torch.zeros_like(actual))
        of_class = (errors * step).sum(-1)
        actual = actual.squeeze(-1)
        present = actual != 0 if batch.task == "multiclass" else torch.ones_like(actual) > 0
        return zero_if_empty(_mean_where(of_class, present), batch.weight.sum())


def _mean_where(score: Tensor, counted: Tensor) -> Tensor:
    return safe_ratio(torch.where(counted, score, 0).sum(), counted.sum())
