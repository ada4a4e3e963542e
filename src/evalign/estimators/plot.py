"""Plot the effect of a decision rule. Needs matplotlib."""

from importlib import import_module
from typing import Any

import numpy as np
import torch

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, FBeta, Metric
from evalign.core.text import installing
from evalign.estimators.out_of_fold import Method

MAX_CLASSES = 30  # those that change most


def plot(
    results: dict[str, Any], metric: Metric, classes: list[Any], method: Method, ax: Any
) -> Any:
    """Draw `cv_results_` on matplotlib's Axes, new ones by default, and return them."""
    if ax is None:
        try:
            pyplot = import_module("matplotlib.pyplot")
        except ImportError as error:
            text = "plot needs matplotlib, which is not installed."
            raise ImportError(f"{text} {installing('.[plot]')}") from error
        ax = pyplot.figure().add_subplot()
    if "thresholds" in results:
        return _thresholds(results, metric, classes, method, ax)
    return _classes(results, metric, classes, ax)


def _thresholds(
    results: dict[str, Any], metric: Metric, classes: list[Any], method: Method, ax: Any
) -> Any:
    """The metric against the threshold, with its spread over folds, the rule and argmax."""
    thresholds, scores = results["thresholds"], results["threshold_scores"]
    defined = np.isfinite(scores).any(0)
    thresholds, scores = thresholds[defined], scores[:, defined]
    mean, spread = np.nanmean(scores, 0), np.nanstd(scores, 0)
    ax.plot(thresholds, mean, label="mean over folds")
    ax.fill_between(
        thresholds, mean - spread, mean + spread, alpha=0.2, label="± standard deviation"
    )
    own = 0.5 if method == "predict_proba" else 0.0
    shown = [(results["threshold"], "rule", "-", "black"), (own, "argmax", ":", "white")]
    for place, name, style, inside in shown:
        height = np.interp(place, thresholds, mean)
        ax.axvline(place, linestyle=style, color="black", linewidth=1)
        label = f"{name}: {place:.3g}"
        ax.plot([place], [height], "o", color="black", markerfacecolor=inside, label=label)
    for place in results["fold_thresholds"]:
        ax.axvline(place, ymax=0.04, color="gray", linewidth=1)
    # A name with two dollars is not a formula.
    ax.set_xlabel(f"threshold on {method} of {classes[1]}", parse_math=False)
    ax.set_ylabel(metric.name if metric.greater_is_better else f"−{metric.name}")
    ax.legend()
    return ax


def _classes(results: dict[str, Any], metric: Metric, classes: list[Any], ax: Any) -> Any:
    """The gain of each class."""
    of_class = metric if isinstance(metric, ClassMetric) else FBeta(beta=1)
    before, after = (
        _per_class(of_class, results[key]) for key in ("argmax_confusion", "confusion")
    )
    gain = np.nan_to_num(after - before)
    shown = np.sort(np.argsort(-np.abs(gain), kind="stable")[:MAX_CLASSES])
    names = [str(classes[k]) for k in shown]
    colors = ["tab:blue" if gain[k] >= 0 else "tab:red" for k in shown]
    ax.barh(np.arange(len(shown)), gain[shown], color=colors)
    ax.set_yticks(np.arange(len(shown)), names, parse_math=False)
    ax.invert_yaxis()
    ax.axvline(0, color="black", linewidth=1)
    ax.set_xlabel(f"{type(of_class).__name__} of the class: the rule minus argmax")
    return ax


def _per_class(metric: ClassMetric, matrices: np.ndarray) -> np.ndarray:
    matrix = torch.from_numpy(matrices)
    if matrix.ndim == 3:  # of several labels, each has two classes
        return np.array([metric.score(Confusion.from_matrix(m))[1].item() for m in matrix])
    return metric.score(Confusion.from_matrix(matrix)).numpy()
