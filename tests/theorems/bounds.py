"""Bounds of the papers that the library does not need: Lipschitz constants, errors of metrics.

Norms: probabilities and confusion matrices are compared entry by entry (the Chebyshev norm of
EAST Theorem 5.9). Confusion matrices here are scaled to sum to 1 (EAST Definition 5.6).
"""

import math
import sys
from collections.abc import Sequence

from evalign import metrics
from evalign.core.checks import complaint, require
from evalign.core.metrics import ClassMetric, MatrixMetric
from evalign.membership.checks import check_temperature
from evalign.membership.heaviside import OUTER_SHARE
from evalign.theory import confusion_error


def metric_error(
    metric: ClassMetric | MatrixMetric,
    rows: int,
    num_classes: int,
    *,
    rarest: float | None = None,
    failure: float = 0.05,
) -> float:
    """EAST Theorem 5.9: bound on the distance of the metric of `rows` rows to the population's.

    It is L · `confusion_error` with the metric's Lipschitz constant L, and holds with probability
    1 − `failure`. `rarest` is the population's share of its rarest class.
    """
    constant = metric_lipschitz(metric, num_classes, rarest=rarest)
    return constant * confusion_error(rows, num_classes, failure=failure)


def metric_lipschitz(
    metric: ClassMetric | MatrixMetric, num_classes: int, *, rarest: float | None = None
) -> float:
    """Lipschitz constant of a metric over confusion matrices whose classes all have true mass.

    It is the largest L1 norm of the metric's gradient. For one class k with a true share of at
    least π (`rarest`): recall and specificity (d − 1) / π, informedness twice that, F-beta
    (1 + β²)(d − 1) / (β² π), Jaccard 2 (d − 1) / π; their mean over classes keeps the bound. For
    the matrix: accuracy d, balanced accuracy as recall, a cost matrix Σ |cost|, kappa
    5 d / ((d − 1) π). Precision, MCC and the G-mean have none: they jump, or have an infinite
    slope, where a class is never predicted or recalled.
    """
    owner, d = "metric_lipschitz", num_classes
    require(d >= 2, owner, "num_classes", "be at least 2", d)
    share = rarest or math.nan  # 0 and None are refused below
    pooled = isinstance(metric, ClassMetric) and metric.average not in ("binary", "macro")
    match metric:
        case metrics.Accuracy():
            return float(d)
        case metrics.ExpectedCost(cost=cost):
            return float(sum(abs(each) for row in cost for each in row))
        case metrics.BalancedAccuracy() | metrics.Recall() | metrics.Specificity() if not pooled:
            constant = (d - 1) / share
        case metrics.Informedness() | metrics.Jaccard() if not pooled:
            constant = 2 * (d - 1) / share
        case metrics.FBeta(beta=beta) if not pooled:
            smallest = min(beta) if isinstance(beta, Sequence) else beta
            constant = (1 + 1 / smallest**2) * (d - 1) / share
        case metrics.CohenKappa(weights=None):
            constant = 5 * d / ((d - 1) * share)
        case _:
            allowed = "be one of those listed in bounds.metric_lipschitz"
            raise ValueError(complaint(owner, "metric", allowed, metric))
    allowed = "be the true share of the rarest class, in (0, 1/num_classes]"
    require(0 < share <= 1 / d, owner, "rarest", allowed, rarest)
    return constant


def linear_lipschitz(threshold: float, *, delta: float = 0.2) -> float:
    """BtG Theorem 4.1: max{m1, m2, m3}, the steepest slope of BtG eq. 5 in p.

    By BtG Theorem 4.2 it also bounds the entries of the binary soft confusion matrix, scaled to
    sum to 1, as functions of the probabilities.
    """
    require(0 < delta < 0.5, "linear_lipschitz", "delta", "lie between 0 and 0.5", delta)
    return _steepest("linear_lipschitz", threshold, height=delta, inner=0.5, outer=0.5)


def tempered_lipschitz(threshold: float, *, temperature: float = 0.2) -> float:
    """The steepest slope of `heaviside.tempered` in p; at T = 0.2 BtG's constant at δ = 0.2."""
    owner = "tempered_lipschitz"
    inner, outer = _shares(owner, temperature)
    return _steepest(owner, threshold, height=temperature, inner=inner, outer=outer)


def membership_lipschitz(num_classes: int, *, temperature: float = 0.2) -> float:
    r"""MC-Fβ Theorem 5.1 with an explicit constant: Lipschitz constant of the memberships.

    If no probability of a row moves by more than ε, no membership (EAST eq. 5), and so no entry of
    the d × d matrix scaled to sum to 1, moves by more than this times ε.

    The dynamic threshold τ ∈ [1/d, 1/2] moves by at most ε too, so H moves by at most L ε, L being
    the largest |∂H/∂p| + |∂H/∂τ| over the three segments. The L1 norm S of H is at least ½ and
    moves by at most d L ε, so H / S moves by at most (L + d L) ε / ½.
    """
    require(num_classes >= 2, "membership_lipschitz", "num_classes", "be at least 2", num_classes)
    d, t = num_classes, temperature
    inner, outer = _shares("membership_lipschitz", t)
    left = d * t * (1 + outer) / outer
    middle = d * (0.5 - t) * (2 + inner) / inner
    right = 2 * t * (2 + inner) / outer
    return 2 * (1 + d) * max(left, middle, right)


def _shares(owner: str, temperature: float) -> tuple[float, float]:
    """The inner and outer share of `heaviside.tempered` in float64."""
    check_temperature(owner, temperature)
    inner = min(max(2.5 * temperature, sys.float_info.epsilon), 1 - OUTER_SHARE)
    return inner, max(1 - 2.5 * temperature, OUTER_SHARE)


def _steepest(owner: str, threshold: float, *, height: float, inner: float, outer: float) -> float:
    require(0 < threshold < 1, owner, "threshold", "lie between 0 and 1", threshold)
    nearer = min(threshold, 1 - threshold)
    below = threshold - nearer + outer * nearer
    above = 1 - threshold - nearer + outer * nearer
    return max(height / below, (0.5 - height) / (inner * nearer), height / above)
