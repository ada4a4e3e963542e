"""Metrics with a closed form, whose slopes need no autograd: by a kernel of a GPU, or `slopes`.

Most metrics are averages over classes of quotients of linear functions of a class's sums: the
kernel has their coefficients. `core.metrics` is the reference.

Slopes are with respect to the true positives and the predicted mass; no others reach the logits.
The memberships of a row sum to its weight, so a constant added to the slopes of all predicted
masses changes nothing: the slope through their sum is left out.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.core.metrics.matrix import Accuracy, BalancedAccuracy, CohenKappa, MatthewsCorrcoef
from evalign.core.metrics.per_class import (
    FBeta,
    Informedness,
    Jaccard,
    Markedness,
    NegativePredictiveValue,
    Precision,
    Recall,
    Specificity,
)


class Ratio(NamedTuple):
    """A quotient: of a·tp + b·tn, by the sum of the other five with their factors."""

    tp: float = 0.0
    tn: float = 0.0
    by_tp: float = 0.0
    by_predicted: float = 0.0
    by_actual: float = 0.0
    by_negatives: float = 0.0
    by_rejected: float = 0.0


class Closed(NamedTuple):
    """A metric in closed form.

    Args:
        kind: "ratio", or "matthews" or "kappa", which are functions of all classes together.
        average: how the scores of the classes become one: "binary", "macro", "micro", "weighted",
            or "present", the mean over the classes that have true rows.
        first, second: the score of a class is the first quotient, or the sum of both minus 1.
        zero_division: the score where it is undefined; NaN leaves the class out.
    """

    kind: str
    average: str = "macro"
    first: Ratio = Ratio()
    second: Ratio | None = None
    zero_division: float = 0.0


_PRECISION, _RECALL = Ratio(tp=1, by_predicted=1), Ratio(tp=1, by_actual=1)
_SPECIFICITY, _NPV = Ratio(tn=1, by_negatives=1), Ratio(tn=1, by_rejected=1)
_JACCARD = Ratio(tp=1, by_tp=-1, by_predicted=1, by_actual=1)
_RATIOS: dict[type, tuple[Ratio, Ratio | None]] = {
    Precision: (_PRECISION, None),
    Recall: (_RECALL, None),
    Specificity: (_SPECIFICITY, None),
    NegativePredictiveValue: (_NPV, None),
    Jaccard: (_JACCARD, None),
    Informedness: (_RECALL, _SPECIFICITY),
    Markedness: (_PRECISION, _NPV),
}


_KNOWN = {*_RATIOS, Accuracy, BalancedAccuracy, MatthewsCorrcoef, CohenKappa, FBeta}


def closed_form(metric: Metric) -> Closed | None:
    """The closed form of a metric, or None if it has none."""
    kind = type(metric)
    if kind not in _KNOWN:  # a user's subclass may score otherwise
        return None
    if isinstance(metric, Accuracy):
        return Closed("ratio", "micro", _RECALL, zero_division=metric.zero_division)
    if isinstance(metric, BalancedAccuracy):
        return Closed("ratio", "present", _RECALL, zero_division=metric.zero_division)
    if isinstance(metric, MatthewsCorrcoef):
        return Closed("matthews", zero_division=metric.zero_division)
    if isinstance(metric, CohenKappa) and metric.weights is None:
        return Closed("kappa", zero_division=metric.zero_division)
    if isinstance(metric, FBeta) and isinstance(metric.beta, int | float):
        square = float(metric.beta) ** 2
        first, second = Ratio(tp=1 + square, by_predicted=1, by_actual=square), None
    elif kind in _RATIOS:
        first, second = _RATIOS[kind]
    else:  # weights between classes, or a beta of each class
        return None
    average, labels = getattr(metric, "average", None), getattr(metric, "labels", None)
    if average is None or labels is not None:
        return None
    return Closed("ratio", average, first, second, getattr(metric, "zero_division", 0.0))


def slopes(form: Closed, c: Confusion) -> tuple[Tensor, Tensor]:
    """The slopes by tp and predicted of every class, up to a factor that all of them share.

    Every class has rows, labelled ones and others.
    """
    tp, predicted, actual, total = c.tp, c.predicted, c.actual, c.total
    if form.kind != "ratio":  # in shares; 1 by tp
        t, p = actual / total, predicted / total
        right, chance, variance = tp.sum() / total, t @ p, 1 - p @ p
        if form.kind == "matthews":  # (right − chance) / √variance
            return torch.ones_like(t), (right - chance) / variance * p - t
        return torch.ones_like(t), (right - 1) / (1 - chance) * t  # (right − 1) / (1 − chance)
    weight = actual if form.average == "weighted" else torch.ones_like(tp)
    if form.average == "binary":
        weight = (torch.arange(len(tp), device=tp.device) == 1).to(tp)
    if form.average == "micro":
        total = total.expand_as(tp).sum()
        tp, predicted, actual = (x.sum().expand_as(x) for x in (tp, predicted, actual))
    by_tp, by_predicted = 0.0, 0.0
    for q in (form.first, form.second):
        if q is not None:  # linear in the four sums: tn = total − actual − predicted + tp
            over = q.tp + q.tn, -q.tn, -q.tn, q.tn
            under = q.by_tp, q.by_predicted - q.by_rejected, q.by_actual - q.by_negatives
            under = *under, q.by_negatives + q.by_rejected
            above, below = (
                sum(k * x for k, x in zip(each, (tp, predicted, actual, total), strict=True) if k)
                for each in (over, under)
            )
            score = above / below
            by_tp = by_tp + (over[0] - under[0] * score) / below
            by_predicted = by_predicted + (over[1] - under[1] * score) / below
    return weight * by_tp, weight * by_predicted
