"""Resolve a metric given as a name (as of scikit-learn's scorers), an object or a function."""

import json
import re
from contextlib import suppress
from typing import Any

from evalign.core.checks import complaint, require
from evalign.core.metrics import matrix, per_class
from evalign.core.metrics.averages import Average, ClassMetric
from evalign.core.metrics.base import Metric, MetricFunction
from evalign.core.metrics.function import FunctionMetric
from evalign.core.text import nearest

_ENDS: dict[str, Average] = {
    "": "binary",
    "_macro": "macro",
    "_micro": "micro",
    "_weighted": "weighted",
}


def with_averages(metric: type[ClassMetric], **settings: Any) -> dict[str, ClassMetric]:
    """The metric by its name, with each average."""
    made = [metric(average=average, **settings) for average in _ENDS.values()]
    return {each.name: each for each in made}


_OF_CLASSES = [
    with_averages(per_class.Precision),
    with_averages(per_class.Recall),
    with_averages(per_class.Specificity),
    with_averages(per_class.NegativePredictiveValue),
    *(with_averages(per_class.FBeta, beta=beta) for beta in (0.5, 1.0, 2.0)),
    with_averages(per_class.Jaccard),
    with_averages(per_class.Informedness),
]
_OF_MATRIX = [
    matrix.Accuracy(),
    matrix.BalancedAccuracy(),
    matrix.MatthewsCorrcoef(),
    *(matrix.CohenKappa(weights=weights) for weights in (None, "linear", "quadratic")),
    matrix.GMean(),
]
_NAMED: dict[str, Metric] = {
    **{each.name: each for each in _OF_MATRIX},
    **{name: each for averages in _OF_CLASSES for name, each in averages.items()},
}


def names() -> list[str]:
    """All names that `resolve` knows. F-beta takes any other β too, as in "f0.25_macro"."""
    return sorted(_NAMED)


def resolve(metric: str | MetricFunction, *, owner: str = "metrics.resolve") -> Metric:
    """Make a `Metric` of a name, a metric or a function. Its value is a number, never a vector.

    Args:
        metric: one of `names()`, which are scikit-learn's scorer names and names in their style, an
            F-beta with another β, or "expected_cost" with its matrix; a metric; or any function of
            a `Confusion` that returns one number, see `FunctionMetric`.
        owner: the name that errors give as the owner of the argument.

    Examples:
        >>> resolve("f2_macro")
        FBeta(zero_division=0.0, average='macro', labels=None, beta=2.0)
        >>> resolve("expected_cost[[0, 1], [5, 0]]").greater_is_better
        False
        >>> resolve(lambda c: c.matrix[0, 1] / c.total).needs_matrix
        True
    """
    if isinstance(metric, str):
        return _by_name(metric, owner)
    if not isinstance(metric, Metric):
        return FunctionMetric(metric, owner)
    is_vector = isinstance(metric, ClassMetric) and metric.average is None
    cure = 'Use average="macro".'
    require(not is_vector, owner, "metric", "be one number", "average=None", cure)
    return metric


def _by_name(name: str, owner: str) -> Metric:
    if name in _NAMED:
        return _NAMED[name]
    if beta := re.fullmatch(r"f(\d+(?:\.\d+)?)(|_macro|_micro|_weighted)", name):
        return per_class.FBeta(beta=float(beta[1]), average=_ENDS[beta[2]])
    if name.startswith("expected_cost["):
        with suppress(json.JSONDecodeError, RecursionError):
            costs = json.loads(name.removeprefix("expected_cost"))
            return matrix.ExpectedCost(costs)
    known = [*names(), "expected_cost[[0, 1], [5, 0]]"]
    cure = nearest(name, known) or "`evalign metrics` lists them."
    raise ValueError(complaint(owner, "metric", "be a name of metrics.names()", repr(name), cure))
