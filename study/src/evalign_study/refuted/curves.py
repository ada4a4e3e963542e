"""Losses of a part of a curve: the partial area under the ROC curve, recall at a precision."""

from typing import Any

import torch
from torch import Tensor

from evalign import Confusion
from evalign.core.arrays import safe_ratio
from evalign.losses import AveragePrecisionLoss, curves
from evalign.membership import soft_sets
from evalign.membership.soft_sets import Step


class PartialAUCLoss(AveragePrecisionLoss):
    """1 − the area under the soft ROC curve left of FPR = `max_fpr`, divided by `max_fpr`.

    Where the area is 0 it has no slope, and the gradient is that of the whole area.

    Args:
        max_fpr: the bound on false positives, in (0, 1].
        settings: arguments of `AveragePrecisionLoss`.
    """

    def __init__(self, max_fpr: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.max_fpr = max_fpr

    def score(self, curve: Confusion) -> Tensor:
        area, whole = partial_area(curve, self.max_fpr), partial_area(curve, 1.0)
        slope = torch.where(area != 0, area, whole)
        return area.detach() + (slope - slope.detach())


class RecallAtPrecisionLoss(AveragePrecisionLoss):
    """1 − the largest recall whose precision is at least a bound, of soft counts.

    Few rows have a slope at the best threshold alone, so every positive counts by a soft step of
    the best precision at which it can be found. Where no threshold has a better precision than the
    lowest, which all rows exceed, the gradient is that of the average precision.

    Args:
        precision: the bound, in (0, 1).
        temperature: sharpness of the step at that bound.
        settings: arguments of `AveragePrecisionLoss`.
    """

    def __init__(self, precision: float, *, temperature: float = 0.2, **settings: Any) -> None:
        super().__init__(**settings)
        self.precision = precision
        self.temperature = temperature

    def score(self, curve: Confusion) -> Tensor:
        step = soft_sets.step("linear", self.temperature)
        score = recall_at_precision(curve, self.precision, step)
        whole = curves.average_precision(curve)
        return score + torch.where(is_useless(curve), whole - whole.detach(), 0)


def partial_area(curve: Confusion, max_fpr: float) -> Tensor:
    """Return the area of each class under the ROC curve up to FPR = max_fpr, divided by max_fpr.

    The curve begins at (0, 0). Its points are joined by lines, which are cut at the bound.
    """
    start = torch.zeros_like(curve.actual)
    tpr = torch.cat([start, safe_ratio(curve.tp, curve.actual)], -1)
    fpr = torch.cat([start, safe_ratio(curve.fp, curve.negatives)], -1)
    width = torch.diff(fpr.clamp(max=max_fpr))
    inside = safe_ratio(width, torch.diff(fpr))  # the share of a line left of the bound
    low = tpr[..., :-1]
    high = low + inside * torch.diff(tpr)
    return (width * (low + high) / 2).sum(-1) / max_fpr


def recall_at_precision(curve: Confusion, precision: float, step: Step) -> Tensor:
    """Return the share of each class that can be found at a precision, by H(best, precision).

    The best precision at a threshold is the largest at it or below, where the row is found too.
    With a hard step this is the largest recall whose precision is above the bound, and rows at the
    bound itself count half.
    """
    found = safe_ratio(curve.tp, curve.predicted)
    best = found.flip(-1).cummax(-1).values.flip(-1)
    counted = step(best, torch.full_like(best, precision))
    gained = torch.diff(curve.tp, prepend=torch.zeros_like(curve.actual))
    return safe_ratio((gained * counted).sum(-1), curve.actual.squeeze(-1))


def is_useless(curve: Confusion) -> Tensor:
    """Return whether no threshold has a better precision than the lowest one."""
    precision = safe_ratio(curve.tp, curve.predicted)
    return precision[..., :-1].amax(-1) <= precision[..., -1]
