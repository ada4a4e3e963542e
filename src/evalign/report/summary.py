"""The numbers of a report, ready for JSON."""

from dataclasses import replace
from typing import Any

import numpy as np

from evalign.core.metrics import FBeta, Metric, Precision, Recall, resolve
from evalign.core.metrics.averages import ClassMetric
from evalign.core.resampling import bootstrap, interval
from evalign.report.contents import Contents
from evalign.report.words import answer, verdict_of_tried

OTHERS = ["accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef"]
OTHERS_OF_TWO = ["f1", "precision", "recall"]

Predictions = dict[str, np.ndarray]  # the class codes of each method, by its key


def scores(contents: Contents) -> dict[str, Any]:
    """The metric of each method with its 95% interval, the differences, and per-class scores.

    The result holds:

    - "metric", "greater_is_better", "rows" (their number), "groups" (their number, or None),
      "test" (false for rows that the models have seen);
    - "answer": "verdict" ("helped", "did not help" or "cannot tell"), a "sentence" that says
      so, and "next", sentences on what to do;
    - "methods": for each "key" ("aligned" by its rule and "aligned_argmax"; with a baseline
      also its name, "cross_entropy", and "cross_entropy_argmax"), "name", "value", "low",
      "high" and "same_as", an earlier key with the same labels;
    - "differences": "against" a key, "value", "low", "high" of the aligned model's metric minus
      the other's (for a cost, a negative one favours the aligned model) and, with scarce classes,
      "without_scarce", "value", "low" and "high" without them;
    - "constant": the "class" that is best for all rows alike, on these very rows, its "value" and
      the "difference" of the aligned model to it; None if none keeps to the constraint;
    - "per_class": "class", "rows" (their weight) and, for each model, under its key,
      "predicted", "precision", "recall", "f1";
    - "scarce": the "classes" with few rows, {class: rows}, and the "values" of the metric
      without them, {key: value}, or None if there are none, or fewer than two others;
    - "others": {metric: {key: value}};
    - "tried", if there were candidates: "rows", "gain" and "left_out" of `TriedModels`, and
      "verdict", a sentence.
    """
    metric, names, predictions = contents.resolved, {}, {}
    for key, model in zip(contents.keys, contents.models, strict=True):
        names |= {key: model.label, f"{key}_argmax": f"{model.label} with argmax"}
        predictions |= {key: model.predicted, f"{key}_argmax": model.probabilities.argmax(1)}
    every = np.full(len(contents.y), True)
    values = _values(contents, metric, predictions, every)
    resampled = _resampled(contents, metric, predictions, every)
    scarce, without, resampled_without = _scarce(contents, predictions)

    def entry(value: float, draws: np.ndarray) -> dict[str, Any]:
        low, high = interval(draws)
        return {"value": value, "low": low, "high": high}

    def lead(values: dict[str, float], drawn: dict[str, np.ndarray], key: str) -> dict[str, Any]:
        return entry(values["aligned"] - values[key], drawn["aligned"] - drawn[key])

    methods = [
        {"key": key, "name": name, **entry(values[key], resampled[key])}
        | {"same_as": _same(predictions, key)}
        for key, name in names.items()
    ]
    differences = []
    for method in methods[1:]:
        key = str(method["key"])
        difference = lead(values, resampled, key)
        if any(scarce.values()):  # a class without rows is in no resample
            unknown = dict.fromkeys(("value", "low", "high"))
            found = unknown if without is None else lead(without, resampled_without, key)
            difference["without_scarce"] = found
        differences.append({"against": key, **difference})

    constant = None
    if same := _best_constant(contents, metric):
        value, labels = values["aligned"] - same["value"], {"constant": same.pop("labels")}
        draws = resampled["aligned"] - _resampled(contents, metric, labels, every)["constant"]
        constant = same | {"difference": entry(value, draws)}
    others = OTHERS + (OTHERS_OF_TWO if len(contents.classes) == 2 else [])
    tried = {}
    if contents.tried is not None:
        text = verdict_of_tried(contents.tried, contents.constrained)
        tried["tried"] = vars(contents.tried) | {"verdict": text}
    return tried | {
        "answer": answer(contents, methods, {x["against"]: x for x in differences}, constant),
        "metric": contents.metric,
        "greater_is_better": metric.greater_is_better,
        "rows": len(contents.y),
        "groups": None if contents.groups is None else len(np.unique(contents.groups)),
        "test": not contents.seen,
        "methods": methods,
        "differences": differences,
        "constant": constant,
        "per_class": _per_class(contents),
        "scarce": {"classes": scarce, "values": without},
        "others": {
            name: _values(contents, resolve(name), predictions, every)
            for name in others
            if name != contents.metric
        },
    }


def _best_constant(contents: Contents, metric: Metric) -> dict[str, Any] | None:
    """The "class" that is best for all rows alike, with its "labels" and their "value"."""
    each = {
        name: np.full_like(contents.y, code)
        for code, name in enumerate(contents.classes)
        if not contents.constrained or contents.keeps(np.full_like(contents.y, code))
    }
    if not each:
        return None
    values = _values(contents, metric, each, np.full(len(contents.y), True))
    sign = 1 if metric.greater_is_better else -1
    best = max(values, key=lambda name: np.nan_to_num(sign * values[name], nan=-np.inf))
    return {"class": best, "value": values[best], "labels": each[best]}


def _same(predictions: Predictions, key: str) -> str | None:
    """The first of the earlier methods with the same labels."""
    before = list(predictions)[: list(predictions).index(key)]
    same = (one for one in before if np.array_equal(predictions[one], predictions[key]))
    return next(same, None)


def _values(
    contents: Contents, metric: Metric, predictions: Predictions, rows: np.ndarray
) -> dict[str, float]:
    """The metric of each method on some of the rows."""
    return {
        key: metric(contents.hard(predicted, matrix=metric.needs_matrix, rows=rows)).item()
        for key, predicted in predictions.items()
    }


def _resampled(
    contents: Contents, metric: Metric, predictions: Predictions, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """The metric of each method on each resample of some of the rows."""
    weight, groups = (x if x is None else x[rows] for x in (contents.weight, contents.groups))
    values = bootstrap(
        metric,
        contents.y[rows],
        [predicted[rows] for predicted in predictions.values()],
        classes=len(contents.classes),
        weight=weight,
        groups=groups,
        seed=contents.seed,
    )
    return dict(zip(predictions, values, strict=True))


def _scarce(
    contents: Contents, predictions: Predictions
) -> tuple[dict[str, int], dict[str, float] | None, dict[str, np.ndarray]]:
    """The classes with few rows; the metric of the rows of the others, and on their resamples.

    An average over classes is then taken over the others, like scikit-learn's `labels`; it needs at
    least two of them.
    """
    scarce, metric = contents.scarce, contents.resolved
    kept = np.setdiff1d(np.arange(len(contents.classes)), scarce)
    counts = np.bincount(contents.y, minlength=len(contents.classes))
    classes = {contents.classes[code]: int(counts[code]) for code in scarce}
    of_classes = isinstance(metric, ClassMetric)
    if not len(scarce) or len(kept) < (2 if of_classes else 1):
        return classes, None, {}
    if of_classes:
        metric = replace(metric, labels=tuple(kept.tolist()))
    rows = np.isin(contents.y, kept)
    values = _values(contents, metric, predictions, rows)
    return classes, values, _resampled(contents, metric, predictions, rows)


def _per_class(contents: Contents) -> list[dict[str, Any]]:
    confusions = [contents.hard(model.predicted, matrix=False) for model in contents.models]
    table = [
        {"class": name, "rows": rows}
        for name, rows in zip(contents.classes, confusions[0].actual.tolist(), strict=True)
    ]
    for key, c in zip(contents.keys, confusions, strict=True):
        columns = {
            "predicted": c.predicted,
            "precision": Precision(average=None)(c),
            "recall": Recall(average=None)(c),
            "f1": FBeta(average=None)(c),
        }
        for code, row in enumerate(table):
            row[key] = {name: column[code].item() for name, column in columns.items()}
    return table
