"""Metrics by name: scikit-learn's scorer names, and names in their style for the rest."""

import difflib
import json
import re
from typing import cast

from evalign.core.checks import complaint
from evalign.core.metrics.base import Average, ClassMetric, MatrixMetric
from evalign.core.metrics.matrix import (
    Accuracy,
    BalancedAccuracy,
    CohenKappa,
    ExpectedCost,
    GMean,
    MatthewsCorrcoef,
)
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

_CLASS_METRICS: dict[str, type[ClassMetric]] = {
    metric.stem: metric
    for metric in (
        Precision,
        Recall,
        Specificity,
        NegativePredictiveValue,
        Jaccard,
        Informedness,
        Markedness,
        FowlkesMallows,
    )
}
_MATRIX_METRICS: dict[str, type[MatrixMetric]] = {
    "accuracy": Accuracy,
    "balanced_accuracy": BalancedAccuracy,
    "matthews_corrcoef": MatthewsCorrcoef,
    "cohen_kappa": CohenKappa,
    "g_mean": GMean,
}
_ELSEWHERE = {
    "expected_cost": 'Give the costs: "expected_cost[[0, 1], [5, 0]]" or ExpectedCost(cost).',
    "mcc": 'Use "matthews_corrcoef".',
    "fowlkes_mallows_score": 'That is a clustering index; the metric is "fowlkes_mallows".',
    "roc_auc": "It ranks over all thresholds: use evalign.losses.AUROCLoss.",
}


def names() -> list[str]:
    """All names that `resolve` knows; F-beta takes any other β too, as in "f0.25_macro"."""
    bases = [*_CLASS_METRICS, "f1", "f2", "f0.5"]
    averages = ["", "_macro", "_micro", "_weighted"]
    return sorted([*_MATRIX_METRICS, *(base + average for base in bases for average in averages)])


def resolve(
    name: str, *, zero_division: float = 0.0, owner: str = "metrics.resolve"
) -> ClassMetric | MatrixMetric:
    """The metric of a scikit-learn scorer name, or of a name in the same style.

    Args:
        name: one of `names()`, an F-beta with another β, or "expected_cost" with its matrix.
        zero_division: the score where the metric is undefined, see `ClassMetric`.
        owner: whose argument an error should speak of.

    Examples:
        >>> resolve("f2_macro")
        FBeta(average='macro', labels=None, zero_division=0.0, beta=2.0)
        >>> resolve("expected_cost[[0, 1], [5, 0]]").cost
        ((0.0, 1.0), (5.0, 0.0))
    """
    if name in _MATRIX_METRICS:
        return _MATRIX_METRICS[name](zero_division=zero_division)
    if costs := re.fullmatch(r"expected_cost(\[\[.*\]\])", name):
        return ExpectedCost(json.loads(costs[1]), zero_division=zero_division)
    parts = re.fullmatch(r"(.+?)(?:_(macro|micro|weighted))?", name)
    base, average = cast(tuple[str, Average], parts.groups("binary") if parts else ("", "binary"))
    if base in _CLASS_METRICS:
        return _CLASS_METRICS[base](average=average, zero_division=zero_division)
    if beta := re.fullmatch(r"f(\d+(?:\.\d+)?)", base):
        return FBeta(beta=float(beta[1]), average=average, zero_division=zero_division)
    raise ValueError(
        complaint(owner, "metric", "be a name of metrics.names()", repr(name), _cure(name))
    )


def _cure(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name.endswith("_samples"):
        return f'A mean over rows is no function of the matrix; use "{name[:-8]}_macro".'
    nearest = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    return f'Did you mean "{nearest[0]}"?' if nearest else ""
