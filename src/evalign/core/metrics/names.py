"""Make a `Metric` of what a user gives: a name (as of scikit-learn's scorers), object, function."""

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
OTHER_WORDS = {
    "acc": "accuracy",
    "mcc": "matthews_corrcoef",
    "sensitivity": "recall",
    "tpr": "recall",
    "true_positive_rate": "recall",
    "tnr": "specificity",
    "true_negative_rate": "specificity",
    "ppv": "precision",
    "iou": "jaccard",
    "intersection_over_union": "jaccard",
    "miou": "jaccard_macro",
    "dice": "f1",
    "dice_coefficient": "f1",
    "dsc": "f1",
    "mdice": "f1_macro",
    "fbeta": "f2",
    "f_beta": "f2",
    "youden": "informedness",
    "bacc": "balanced_accuracy",
    "macc": "balanced_accuracy",
    "accuracy_macro": "balanced_accuracy",
    "macro_accuracy": "balanced_accuracy",
    "acc_macro": "balanced_accuracy",
    "class_accuracy_macro": "balanced_accuracy",
    "kappa": "cohen_kappa",
    "linear_kappa": "cohen_kappa_linear",
    "linear_weighted_kappa": "cohen_kappa_linear",
    "quadratic_kappa": "cohen_kappa_quadratic",
    "quadratic_weighted_kappa": "cohen_kappa_quadratic",
    "qwk": "cohen_kappa_quadratic",
    "negative_predictive_value": "npv",
    "matthews": "matthews_corrcoef",
}
LONGEST = 200  # characters of a name that an error shows
_NO_METRIC = "It is not a function of the confusion matrix."
_WEIGHTED_KAPPA = 'Name its weights: "cohen_kappa_linear" or "cohen_kappa_quadratic".'
_RANKING = "It ranks over all thresholds: use a metric of labels, such as balanced_accuracy"
_ROC = f"{_RANKING}, or train with evalign.losses.AUROCLoss."
_PRECISIONS = f"{_RANKING}, or train with evalign.losses.AveragePrecisionLoss."
_COSTS = 'Give the costs: "expected_cost[[0, 1], [5, 0]]".'
_ELSEWHERE = {
    "expected_cost": _COSTS,
    "weighted_kappa": _WEIGHTED_KAPPA,
    "weighted_cohen_kappa": _WEIGHTED_KAPPA,
    "kappa_weighted": _WEIGHTED_KAPPA,
    "cohen_kappa_weighted": _WEIGHTED_KAPPA,
    "roc_auc": _ROC,
    "auc_pr": _PRECISIONS,
    "aucpr": _PRECISIONS,
    "auprc": _PRECISIONS,
    "pr_auc": _PRECISIONS,
    "auc": _ROC,  # behind those that begin with it
    "auroc": _ROC,
    "average_precision": _PRECISIONS,
    "top_k_accuracy": _NO_METRIC,
    "log_loss": _NO_METRIC,
    "neg_log_loss": _NO_METRIC,
    "cross_entropy": _NO_METRIC,
}


def names() -> list[str]:
    """All names that `resolve` knows; F-beta takes any other β too, as in "f0.25_macro"."""
    bases = [*_CLASS_METRICS, "f1", "f2", "f0.5"]
    averages = ["", "_macro", "_micro", "_weighted"]
    return sorted([*_MATRIX_METRICS, *(base + average for base in bases for average in averages)])


def resolve(
    metric: str | MetricFunction,
    *,
    zero_division: float | None = None,
    owner: str = "metrics.resolve",
) -> Metric:
    """Make a `Metric` of a name, a metric or a function; it is one number, never a vector.

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
    shown = name if len(name) <= LONGEST else name[:LONGEST] + "…"
    allowed = "be a name of metrics.names()"
    raise ValueError(complaint(owner, "metric", allowed, repr(shown), _cure(shown)))


def split(name: str) -> tuple[str, Average]:
    base, _, average = name.rpartition("_")
    return (base, average) if average in ("macro", "micro", "weighted") else (name, "binary")


def _cure(name: str) -> str:
    plain = re.sub(r"[\s-]+", "_", name.lower()).removesuffix("_score")
    for start, cure in _ELSEWHERE.items():
        if plain.startswith(start):
            return cure
    if plain.startswith("mean_"):
        plain = f"{plain.removeprefix('mean_')}_macro"
    base, average = split(plain)
    if plain in OTHER_WORDS:
        plain = OTHER_WORDS[plain]
    elif base in OTHER_WORDS:
        plain = f"{OTHER_WORDS[base]}_{average}"
    words = {frozenset(known.split("_")): known for known in names()}  # "macro_f1" is "f1_macro"
    same = words.get(frozenset(plain.split("_")))
    close = [same] if same else difflib.get_close_matches(plain, names(), n=1)
    return f'Did you mean "{close[0]}"?' if close else ""
