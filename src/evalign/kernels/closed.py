"""Metrics with a closed form: their value and slopes by the sums, without a graph.

Most metrics are averages over classes of quotients of linear functions of a class's sums. Their
coefficients serve numpy on the CPU and one kernel on a GPU. Other metrics are differentiated by
autograd. `core.metrics` is the reference.

Slopes are with respect to the true positives and the predicted mass; no others reach the logits.
The memberships of a row sum to its weight, so a constant added to the slopes of all predicted
masses changes nothing: the slope through their sum is left out.
"""

from typing import Any, NamedTuple

import numpy as np

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
from evalign.core.numerics import ZERO

Array = np.ndarray[Any, Any]
NOISE = 8 * np.finfo(float).eps  # what rounding makes of a difference of sums, over the total


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


class Sums(NamedTuple):
    """The sums of exclusive classes, as arrays: a torch operation on ten numbers takes longer."""

    tp: Array
    predicted: Array
    actual: Array
    total: float
    rows: float  # of positive weight

    @property
    def negatives(self) -> Array:
        return self.total - self.actual

    @property
    def fp(self) -> Array:
        return self.predicted - self.tp

    @property
    def fn(self) -> Array:
        return self.fp[::-1] if self._two else self.actual - self.tp

    @property
    def tn(self) -> Array:
        return self.tp[::-1] if self._two else self.negatives - self.fp

    @property
    def rejected(self) -> Array:
        return self.predicted[::-1] if self._two else self.predicted.sum() - self.predicted

    @property
    def _two(self) -> bool:
        """Whether there are two classes: the sums of the other one keep more digits."""
        return len(self.tp) == 2


def value_and_slopes(form: Closed, c: Sums) -> tuple[float, Array]:
    """The metric, NaN where no class has a score, and its slopes (2, C) by tp and predicted."""
    if form.kind == "matthews":
        return _matthews(form, c)
    if form.kind == "kappa":
        return _kappa(form, c)
    if form.average == "binary":
        score, slopes, _ = _score(form, c)
        return score[1], slopes * [0, 1]
    counted = _counted(form, c)
    if form.average == "micro":
        total = counted.sum() * c.total
        counted = (counted != 0).astype(float)
        tp, predicted, actual = (np.array([counted @ x]) for x in c[:3])
        score, slopes, _ = _score(form, _Pooled(tp, predicted, actual, total, c.rows))
        return score[0], counted * slopes
    score, slopes, undefined = _score(form, c)
    if form.zero_division not in (0, 1):
        counted, score = np.where(undefined, 0, counted), np.where(undefined, 0, score)
    weight = counted
    if form.average == "weighted":
        support = counted * c.actual
        weight = counted if support.sum() == 0 else support
    mass = weight.sum()
    if mass < ZERO:
        return form.zero_division, np.zeros_like(slopes)
    return weight @ score / mass, weight / mass * slopes


class _Pooled(Sums):
    """The sums of several classes, each against the rest."""

    @property
    def rejected(self) -> Array:
        return self.total - self.predicted


def _counted(form: Closed, c: Sums) -> Array:
    """How much each class counts, as in `core.metrics.ClassMetric`."""
    if form.average == "present":
        return (c.actual != 0).astype(float)
    rows = c.predicted * (c.rows / c.total if c.total >= ZERO else 0)
    return np.where(c.actual != 0, 1, np.minimum(rows, 1))


def _score(form: Closed, c: Sums) -> tuple[Array, Array, Array]:
    """The scores of the classes, their slopes (2, C), and where they are undefined."""
    score, slopes, undefined = _quotient(form.first, c)
    if form.second is not None:
        other, other_slopes, either = _quotient(form.second, c)
        score, slopes, undefined = score + other - 1, slopes + other_slopes, undefined | either
    return np.where(undefined, form.zero_division, score), slopes * ~undefined, undefined


def _quotient(ratio: Ratio, c: Sums) -> tuple[Array, Array, Array]:
    over, by_predicted = ratio.tp * c.tp, ratio.by_predicted - ratio.by_rejected
    under = ratio.by_tp * c.tp + ratio.by_predicted * c.predicted + ratio.by_actual * c.actual
    if ratio.tn:
        rejected = np.where(c.rejected <= NOISE * c.total, 0, c.rejected)
        under = under + ratio.by_negatives * c.negatives + ratio.by_rejected * rejected
        over = over + ratio.tn * np.clip(c.tn, 0, under)
    undefined = under < ZERO
    under = np.where(undefined, 1, under)
    score = over / under
    of_tp = (ratio.tp + ratio.tn - ratio.by_tp * score) / under
    return score, np.stack([of_tp, (-ratio.tn - by_predicted * score) / under]), undefined


def _matthews(form: Closed, c: Sums) -> tuple[float, Array]:
    share = 1 / c.total if c.total >= ZERO else 0
    fp, fn = c.fp, np.clip(c.fn, 0, c.rejected)
    tn = np.clip(c.tn, 0, c.rejected)
    covariance = (share * c.tp * (share * tn) - share * fp * (share * fn)).sum()
    variance_true = (share * c.actual * (share * c.negatives)).sum()
    variance_predicted = (share * c.predicted * (share * c.rejected)).sum()
    if variance_true <= NOISE or variance_predicted <= NOISE:
        return form.zero_division, np.zeros((2, len(c.tp)))
    root = np.sqrt(variance_true * variance_predicted)
    score = covariance / root
    # The covariance is Σ tp/total − Σ actual·predicted/total², and twice the variance is
    # Σ predicted (1 − predicted) in shares.
    predicted, actual = share * c.predicted, share * c.actual
    of_predicted = share * (predicted * (score / variance_predicted) - actual / root)
    return score, np.stack([np.full_like(c.tp, share / root), of_predicted])


def _kappa(form: Closed, c: Sums) -> tuple[float, Array]:
    share = 1 / c.total if c.total >= ZERO else 0
    observed = share * (c.predicted - c.tp).sum()
    expected = (share * c.actual * (share * c.rejected)).sum()
    if expected <= NOISE:
        return form.zero_division, np.zeros((2, len(c.tp)))
    of_predicted = -observed / expected**2 * share * (share * c.actual)
    slopes = np.stack([np.full_like(c.tp, share / expected), of_predicted])
    return (expected - observed) / expected, slopes
