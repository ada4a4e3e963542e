"""Resolve a metric given as a name (as of scikit-learn's scorers), an object or a function."""

import difflib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from evalign.core.checks import complaint, require
from evalign.core.metrics.base import (
    Average,
    ClassMetric,
    FunctionMetric,
    MatrixMetric,
    Metric,
    MetricFunction,
)
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
_MATRIX_METRICS: dict[str, Callable[..., MatrixMetric]] = {
    "accuracy": Accuracy,
    "balanced_accuracy": BalancedAccuracy,
    "matthews_corrcoef": MatthewsCorrcoef,
    "cohen_kappa": CohenKappa,
    "cohen_kappa_linear": partial(CohenKappa, weights="linear"),
    "cohen_kappa_quadratic": partial(CohenKappa, weights="quadratic"),
    "g_mean": GMean,
}
SYNONYMS = {
    "dice": "f1",
    "iou": "jaccard",
    "kappa": "cohen_kappa",
    "mcc": "matthews_corrcoef",
    "mean_iou": "jaccard_macro",
    "sensitivity": "recall",
    "tnr": "specificity",
    "tpr": "recall",
    "true_negative_rate": "specificity",
    "true_positive_rate": "recall",
}
AVERAGES = ("", "_macro", "_micro", "_weighted")
RANKING = ("auc", "auroc", "roc_auc", "auprc", "pr_auc", "average_precision")


def names() -> list[str]:
    """All names that `resolve` knows. F-beta takes any other β too, as in "f0.25_macro"."""
    bases = [*_CLASS_METRICS, "f1", "f2", "f0.5"]
    return sorted([*_MATRIX_METRICS, *(base + average for base in bases for average in AVERAGES)])


def resolve(
    metric: str | MetricFunction,
    *,
    zero_division: float | None = None,
    owner: str = "metrics.resolve",
) -> Metric:
    """Make a `Metric` of a name, a metric or a function. Its value is a number, never a vector.

    Args:
        metric: one of `names()`, which are scikit-learn's scorer names and names in their style, an
            F-beta with another β, or "expected_cost" with its matrix; a metric; or any function of
            a `Confusion` that returns a scalar tensor, see `FunctionMetric`.
        zero_division: the score where a metric given by name is undefined, see `ClassMetric`; None
            for 0.
        owner: the name that errors give as the owner of the argument.

    Examples:
        >>> resolve("f2_macro")
        FBeta(average='macro', labels=None, zero_division=0.0, beta=2.0)
        >>> resolve("expected_cost[[0, 1], [5, 0]]").greater_is_better
        False
        >>> resolve(lambda c: c.matrix[0, 1] / c.total).needs_matrix
        True
    """
    if isinstance(metric, str):
        return _named(metric, zero_division or 0.0, owner)
    allowed, cure = "be None unless metric is a name", "Set it on the metric itself."
    require(zero_division is None, owner, "zero_division", allowed, zero_division, cure)
    if not isinstance(metric, Metric):
        return FunctionMetric(metric, owner)
    is_vector = isinstance(metric, ClassMetric) and metric.average is None
    cure = 'Use average="macro".'
    require(not is_vector, owner, "metric", "be one number", "average=None", cure)
    return metric


def _named(name: str, zero_division: float, owner: str) -> Metric:
    if name in _MATRIX_METRICS:
        return _MATRIX_METRICS[name](zero_division=zero_division)
    costs = None
    if cost := re.fullmatch(r"expected_cost(\[[^][]*(\[[^][]*\][^][]*)*\])", name):  # no deeper
        with suppress(ValueError):  # it is not JSON, or a number has thousands of digits
            costs = json.loads(cost[1])
        if costs is not None:
            return ExpectedCost(costs, zero_division=zero_division)
    base, average = split(name)
    if base in _CLASS_METRICS:
        return _CLASS_METRICS[base](average=average, zero_division=zero_division)
    if beta := re.fullmatch(r"f(\d+(?:\.\d+)?)", base):
        return FBeta(beta=float(beta[1]), average=average, zero_division=zero_division)
    allowed = "be a name of metrics.names()"
    raise ValueError(complaint(owner, "metric", allowed, repr(name), _cure(name)))


def split(name: str) -> tuple[str, Average]:
    """The name without its average, and the average: "binary" if the name has none."""
    base, _, average = name.rpartition("_")
    return (base, average) if average in ("macro", "micro", "weighted") else (name, "binary")


def _cure(name: str) -> str:
    """The nearest known name, its words in any order: "macro_f1" is "f1_macro"."""
    plain = re.sub(r"[\s-]+", "_", name.lower()).removesuffix("_score")
    if plain in RANKING:
        return "It ranks over all thresholds: use a metric of labels, such as balanced_accuracy."
    known = {_sorted_words(each): each for each in names()}
    known["expected_cost"] = "expected_cost[[0, 1], [5, 0]]"
    for end in AVERAGES:
        known |= {_sorted_words(other + end): one + end for other, one in SYNONYMS.items()}
    close = difflib.get_close_matches(_sorted_words(plain), known, n=1)
    return f'Did you mean "{known[close[0]]}"?' if close else ""


def _sorted_words(name: str) -> str:
    return "_".join(sorted(name.split("_")))
