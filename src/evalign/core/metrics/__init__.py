"""Metrics of a Confusion, one code for soft and hard, and the names they go by.

A metric is any function of a Confusion that returns a scalar tensor. Those here are small frozen
objects that carry their settings and, for training, two facts: `greater_is_better` (a cost is its
own loss, every other metric becomes 1 − metric) and `needs_matrix` (whether it wants the d × d
matrix, or the O(classes) sums are enough). A function without these attributes is maximised.
"""

from evalign.core.metrics.base import ClassMetric, MatrixMetric, MetricFunction, Minimize
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
    FowlkesMallows,
    Informedness,
    Jaccard,
    Markedness,
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
    "FowlkesMallows",
    "GMean",
    "Informedness",
    "Jaccard",
    "Markedness",
    "MatrixMetric",
    "MatthewsCorrcoef",
    "MetricFunction",
    "Minimize",
    "NegativePredictiveValue",
    "Precision",
    "Recall",
    "Specificity",
    "names",
    "resolve",
]
