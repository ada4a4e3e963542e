"""The numbers of a report, ready for JSON."""

from typing import Any

import numpy as np

from evalign.core.metrics import FBeta, Precision, Recall, resolve
from evalign.core.resampling import bootstrap, interval
from evalign.report.contents import Contents, TriedModels

OTHERS = ["accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef"]
OTHERS_OF_TWO = ["f1", "precision", "recall"]


def scores(contents: Contents) -> dict[str, Any]:
    """The metric of each method with its 95% interval, the differences, and the classes one by one.

    Returns:
        - "metric", "greater_is_better", "rows" (their number), "groups" (their number, or None),
          "test" (false for rows that the models have seen);
        - "methods": for each "key" ("aligned", and with a baseline its name, "cross_entropy", by
          the same kind of rule, and "cross_entropy_argmax"), "name", "value", "low", "high";
        - "differences": "against" a key, "value", "low", "high" of the aligned model's metric minus
          the other's (for a cost, a negative one favours the aligned model), and "verdict", a
          sentence;
        - "per_class": "class", "rows" (their weight) and, for each model, under its key,
          "predicted", "precision", "recall", "f1";
        - "others": {metric: {key: value}};
        - "tried", where models were: "rows", "gain" and "left_out" of `TriedModels`, and "verdict",
          a sentence.
    """
    metric, predictions = contents.resolved, _methods(contents)
    names = _names(contents)
    confusions = {
        key: contents.hard(predicted, matrix=metric.needs_matrix)
        for key, predicted in predictions.items()
    }
    values = {key: metric(c).item() for key, c in confusions.items()}
    resampled = bootstrap(
        metric,
        contents.y,
        list(predictions.values()),
        classes=len(contents.classes),
        weight=contents.weight,
        groups=contents.groups,
        seed=contents.seed,
    )
    drawn = dict(zip(predictions, resampled, strict=True))

    def entry(value: float, draws: np.ndarray) -> dict[str, float]:
        low, high = interval(draws)
        return {"value": value, "low": low, "high": high}

    differences = []
    for key in list(predictions)[1:]:
        value = values["aligned"] - values[key]
        difference = entry(value, drawn["aligned"] - drawn[key])
        if contents.seen:
            verdict = f"Against {names[key]}: no verdict, as the models have seen these rows."
        else:
            verdict = _verdict(difference, names["aligned"], names[key], metric.greater_is_better)
        differences.append({"against": key, **difference, "verdict": verdict})

    others = OTHERS + (OTHERS_OF_TWO if len(contents.classes) == 2 else [])
    tried = {} if contents.tried is None else {"tried": _tried(contents.tried)}
    return tried | {
        "metric": contents.metric,
        "greater_is_better": metric.greater_is_better,
        "rows": len(contents.y),
        "groups": None if contents.groups is None else len(np.unique(contents.groups)),
        "test": not contents.seen,
        "methods": [
            {"key": key, "name": names[key], **entry(values[key], drawn[key])}
            for key in predictions
        ],
        "differences": differences,
        "per_class": _per_class(contents),
        "others": {
            name: {key: resolve(name)(c).item() for key, c in confusions.items()}
            for name in others
            if name != contents.metric
        },
    }


def number(value: float) -> str:
    """Write three decimals, or four digits of a large number, with a minus sign, not a hyphen.

    Examples:
        >>> number(0.12345), number(-1234.5)
        ('0.123', '−1234')
    """
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
    return text.replace("-0.000", "0.000").replace("-", "−")


def _methods(contents: Contents) -> dict[str, np.ndarray]:
    methods = {"aligned": contents.aligned.predicted}
    if contents.baseline is not None:
        name = contents.baseline.name
        methods[name] = contents.baseline.predicted
        methods[f"{name}_argmax"] = contents.baseline.probabilities.argmax(1)
    return methods


def _names(contents: Contents) -> dict[str, str]:
    names = {"aligned": contents.aligned.label}
    if contents.baseline is not None:
        name, label = contents.baseline.name, contents.baseline.label
        names |= {name: label, f"{name}_argmax": f"{label} with argmax"}
    return names


def _verdict(
    difference: dict[str, float], aligned: str, other: str, greater_is_better: bool
) -> str:
    value, low, high = (difference[k] for k in ("value", "low", "high"))
    if low <= 0 <= high:
        interval = f"95% interval {number(low)} to {number(high)}"
        return (
            f"Against {other}: no clear difference, the interval contains 0 "
            f"({number(value)}, {interval})."
        )
    better = aligned if (low > 0) == greater_is_better else other
    ends = sorted([abs(low), abs(high)])
    # An end close to 0 gets more digits: "0.000" would say that it is 0.
    low, high = (number(end) if end >= 0.0005 else f"{end:.1g}" for end in ends)
    by = f"{better} is better by {number(abs(value))}"
    return f"Against {other}: {by} (95% interval {low} to {high})."


def _tried(tried: TriedModels) -> dict[str, Any]:
    name, against = tried.rows[-1]["candidate"], f"{tried.gain['against']} with argmax"
    verdict = _verdict(tried.gain, name, against, greater_is_better=True)
    return {
        "rows": tried.rows,
        "gain": tried.gain,
        "left_out": tried.left_out,
        "verdict": f"On the training rows, each by models that have not seen it. {verdict}",
    }


def _per_class(contents: Contents) -> list[dict[str, Any]]:
    keys = contents.keys
    confusions = [contents.hard(model.predicted, matrix=False) for model in contents.models]
    table = [
        {"class": name, "rows": rows}
        for name, rows in zip(contents.classes, confusions[0].actual.tolist(), strict=True)
    ]
    for key, c in zip(keys, confusions, strict=True):
        columns = {
            "predicted": c.predicted,
            "precision": Precision(average=None)(c),
            "recall": Recall(average=None)(c),
            "f1": FBeta(average=None)(c),
        }
        for code, row in enumerate(table):
            row[key] = {name: column[code].item() for name, column in columns.items()}
    return table
