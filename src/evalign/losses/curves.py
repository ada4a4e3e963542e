"""ROC and precision-recall curves of soft counts, and the areas under them.

A curve is a multilabel `Confusion` with an extra dimension: `tp` and `predicted` have the shape
(classes, thresholds), from the highest threshold to the lowest, `actual` and `total` (classes, 1).
"""

import torch
from torch import Tensor

from evalign.core.arrays import safe_ratio, sum_dtype
from evalign.core.confusion import Confusion
from evalign.membership.batch import Batch
from evalign.membership.soft_sets import Step

REACH = 10.0  # largest threshold in asinh(z), a logit of 11,013; rows beyond it are tied
FAR = 1e6  # logits are clamped here, so that their differences stay finite


def log_odds(batch: Batch) -> Tensor:
    """The logit of each class against the rest: log p / (1 − p), of shape (rows, classes)."""
    z, _, _ = batch.per_class()
    z = z.to(sum_dtype(z)).clamp(-FAR, FAR)
    if batch.task != "multiclass":
        return z
    # For the largest p, 1 − p would cancel, so the other classes are summed instead.
    largest = z.argmax(-1, keepdim=True) == torch.arange(z.shape[-1], device=z.device)
    log_p = z.log_softmax(-1).masked_fill(largest, -1.0)
    others = z.masked_fill(largest, -3 * FAR).logsumexp(-1, keepdim=True)
    return torch.where(largest, z - others, log_p - (-log_p.expm1()).log())


def soft_counts(batch: Batch, thresholds: int) -> Confusion:
    """Counts at thresholds τ evenly spaced in u = asinh(z).

    This scale is linear for small logits and logarithmic for large ones, so thresholds are dense
    where logits are. A row counts fully at thresholds τ ≤ u, and in part at the next one above,
    H = 1 − (τ − u) / width, so that it always has a gradient.

    Each row adds mass at two neighbouring thresholds only; a cumulative sum does the rest. The cost
    does not grow with the number of thresholds.
    """
    _, y, weight = batch.per_class()
    u = log_odds(batch).asinh().clamp(-REACH, REACH).T
    place = (REACH - u) * ((thresholds - 1) / (2 * REACH))
    above = place.detach().nan_to_num().long().clamp(max=thresholds - 2)
    below = place - above  # the share at the lower threshold of the two
    mass = weight.expand_as(y).T.to(u)

    def cumulated(mass: Tensor) -> Tensor:
        none = mass.new_zeros(len(mass), thresholds)
        at = none.scatter_add(1, above, mass * (1 - below)).scatter_add(1, above + 1, mass * below)
        return at.cumsum(-1)

    actual, total = (x.sum(-1, keepdim=True) for x in (mass * y.T, mass))
    return Confusion(cumulated(mass * y.T), cumulated(mass), actual, total, multilabel=True)


def soft_counts_at(batch: Batch, thresholds: Tensor, step: Step) -> Confusion:
    """Counts at the given probability thresholds, from high to low, with a step H(p, τ)."""
    z, y, weight = batch.per_class()
    p = batch.probabilities().view_as(z)
    soft = step(p, thresholds.to(p).view(-1, 1, 1))
    mass = weight.expand_as(y).to(sum_dtype(p))
    tp, predicted = ((x * soft).sum(1).T for x in (mass * y, mass))
    actual, total = (x.sum(0).unsqueeze(1) for x in (mass * y, mass))
    return Confusion(tp, predicted, actual, total, multilabel=True)


def area_under_roc(curve: Confusion) -> Tensor:
    """The area of each class under the ROC curve from (0, 0) to (1, 1), by the trapezoid rule."""
    start = torch.zeros_like(curve.actual)
    tpr = torch.cat([start, safe_ratio(curve.tp, curve.actual), start + 1], -1)
    fpr = torch.cat([start, safe_ratio(curve.fp, curve.negatives), start + 1], -1)
    return torch.trapezoid(tpr, fpr)


def average_precision(curve: Confusion) -> Tensor:
    """Σ_k (recall_k − recall_{k−1}) · precision_k of each class, as in scikit-learn."""
    precision = safe_ratio(curve.tp, curve.predicted)
    gained = torch.diff(curve.tp, prepend=torch.zeros_like(curve.actual))
    return safe_ratio((gained * precision).sum(-1), curve.actual.squeeze(-1))
