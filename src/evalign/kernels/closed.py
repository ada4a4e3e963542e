"""Metrics with a closed form, whose slopes need no autograd: by a kernel of a GPU, or `slopes`.

Most are averages over classes of quotients of a class's sums: the kernel has their coefficients.
`core.metrics` is the reference.

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
from evalign.core.metrics.per_class import FBeta, Jaccard, Precision, Recall


class Ratio(NamedTuple):
    """A quotient: tp times a factor, by the sum of the other three with theirs."""

    tp: float = 1.0
    by_tp: float = 0.0
    by_predicted: float = 0.0
    by_actual: float = 0.0


class Closed(NamedTuple):
    """A metric in closed form.

    Args:
        kind: "ratio", or "matthews" or "kappa", which are functions of all classes together.
        average: how the scores of the classes become one: "binary", "macro", "micro", "weighted",
            or "present", the mean over the classes that have true rows.
        ratio: the score of a class.
        zero_division: the score where it is undefined; NaN leaves the class out.
    """

    kind: str
    average: str = "macro"
    ratio: Ratio = Ratio()
    zero_division: float = 0.0


_RECALL = Ratio(by_actual=1)
_RATIOS: dict[type, Ratio] = {
    Precision: Ratio(by_predicted=1),
    Recall: _RECALL,
    Jaccard: Ratio(by_tp=-1, by_predicted=1, by_actual=1),
}


def closed_form(metric: Metric) -> Closed | None:
    """The closed form of a metric, or None if it has none."""
    kind = type(metric)  # a user's subclass may score otherwise
    zero = getattr(metric, "zero_division", 0.0)
    if kind is Accuracy:
        return Closed("ratio", "micro", _RECALL, zero)
    if kind is BalancedAccuracy:
        return Closed("ratio", "present", _RECALL, zero)
    if kind is MatthewsCorrcoef:
        return Closed("matthews", zero_division=zero)
    if kind is CohenKappa and getattr(metric, "weights", None) is None:
        return Closed("kappa", zero_division=zero)
    ratio, beta = _RATIOS.get(kind), getattr(metric, "beta", None)
    if kind is FBeta and isinstance(beta, int | float):
        ratio = Ratio(1 + beta**2, by_predicted=1, by_actual=beta**2)
    average, labels = getattr(metric, "average", None), getattr(metric, "labels", None)
    if ratio is None or average is None or labels is not None:
        return None
    return Closed("ratio", average, ratio, zero)


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
        tp, predicted, actual = (x.sum().expand_as(x) for x in (tp, predicted, actual))
    over, *under = form.ratio
    below = sum(k * x for k, x in zip(under, (tp, predicted, actual), strict=True) if k)
    score = over * tp / below
    by_tp, by_predicted = over - under[0] * score, -under[1] * score
    return weight * by_tp / below, weight * by_predicted / below
