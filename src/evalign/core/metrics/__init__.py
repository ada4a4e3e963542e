"""Metrics of a Confusion, soft or hard, and their names.

A `Metric` is a function of a Confusion that returns one number. Those here are small frozen
objects that carry their settings. `resolve` makes one from a name or a user's function.
"""

from evalign.core.metrics.averages import ClassMetric
from evalign.core.metrics.base import MatrixMetric, Metric, MetricFunction
from evalign.core.metrics.function import Minimize
from evalign.core.metrics.matrix import (
    Accuracy,
    BalancedAccuracy,
    CohenKappa,
    ExpectedCost,
    GMean,
    MatthewsCorrcoef,
)
from evalign.core.metrics.names import names, resolve
from evalign.core.metrics.per_class import (
    FBeta,
    Informedness,
    Jaccard,
    NegativePredictiveValue,
    Precision,
    Recall,
    Specificity,
)

__all__ = [
    "Accuracy",
    "BalancedAccuracy",
    "ClassMetric",
    "CohenKappa",
    "ExpectedCost",
    "FBeta",
    "GMean",
    "Informedness",
    "Jaccard",
    "MatrixMetric",
    "MatthewsCorrcoef",
    "Metric",
    "MetricFunction",
    "Minimize",
    "NegativePredictiveValue",
    "Precision",
    "Recall",
    "Specificity",
    "names",
    "resolve",
]
