"""The coefficients of metrics that are averages of quotients of a class's sums, for kernels.

`core.metrics` is the reference, of their slopes too.
"""

from typing import NamedTuple

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
