"""What the figures plot: counts over thresholds, and calibration."""

from typing import Any, NamedTuple

import numpy as np

from evalign.report.contents import Contents, Scored

# Classes in the figures, at most.
SHOWN = 30
# Thresholds of one class, and of all classes together, at most.
THRESHOLDS = 300
ALL_THRESHOLDS = 4_000
BINS = 12


def shown_classes(contents: Contents, most: int = SHOWN) -> np.ndarray:
    """The codes of the classes to show: all, or those with the most errors."""
    c = contents.hard(contents.aligned.predicted, matrix=False)
    errors = c.fn + c.fp
    return np.sort(np.argsort(-errors, kind="stable")[:most])


def precision_recall(contents: Contents) -> list[dict[str, Any]]:
    """For each class with true rows, the counts at thresholds on its probability.

    Of two classes, only the second is taken. "at" is the threshold that predicts the class about as
    often as the rule. "rule" holds the rule's own counts, which with more than two classes need not
    be those of any threshold.
    """
    codes = shown_classes(contents) if len(contents.classes) > 2 else np.array([1])
    codes = codes[np.isin(codes, contents.y)]
    points = min(THRESHOLDS, ALL_THRESHOLDS // max(1, len(codes)))
    return [
        {
            "name": contents.classes[code],
            "rows": int((contents.y == code).sum()),
            "actual": float(contents.weights[contents.y == code].sum()),
            "total": float(contents.weights.sum()),
            "models": [_thresholds(contents, model, code, points) for model in contents.models],
        }
        for code in codes.tolist()
    ]


def _thresholds(contents: Contents, model: Scored, code: int, points: int) -> dict[str, Any]:
    """Counts if the class is predicted from each threshold on its probability."""
    weight, said = contents.weights, model.predicted == code
    true = weight * (contents.y == code)
    rule = {"tp": float(true[said].sum()), "predicted": float(weight[said].sum())}

    order = np.argsort(model.probabilities[:, code], kind="stable")[::-1]
    score = model.probabilities[order, code]
    tp, predicted = true[order].cumsum(), weight[order].cumsum()
    cuts = np.flatnonzero(np.diff(score, append=-1.0))  # the last of each run of equal scores
    cuts = cuts[predicted[cuts] > 0]
    at = np.abs(predicted[cuts] - rule["predicted"]).argmin()
    if len(cuts) > points:
        # Even in recall, and even in the logarithm of the rows, for detail where a rare class is
        # decided.
        recall = np.searchsorted(tp[cuts], np.linspace(0, tp[-1], points // 2))
        rows = np.geomspace(predicted[cuts[0]], predicted[cuts[-1]], points // 2 - 1)
        kept = np.concatenate([recall, np.searchsorted(predicted[cuts], rows), [at]])
        kept = np.unique(kept.clip(max=len(cuts) - 1))
        at, cuts = np.searchsorted(kept, at), cuts[kept]
    up = cuts[::-1]
    return {
        "threshold": score[up].tolist(),
        "tp": _compact(tp[up]),
        "predicted": _compact(predicted[up]),
        "at": len(up) - 1 - int(at),
        "rule": rule,
    }


class Reliability(NamedTuple):
    """Per bin: the mean probability, the observed frequency, and the number of rows."""

    probability: np.ndarray
    frequency: np.ndarray
    rows: np.ndarray


def reliability(contents: Contents, model: Scored) -> Reliability:
    """Compare probability and frequency in bins of nearly equal size.

    The probability is that of class 1 of two, or that of the most probable of more classes.
    """
    probabilities, y = model.probabilities, contents.y
    if len(contents.classes) == 2:
        probability, right = probabilities[:, 1], y == 1
    else:
        probability, right = probabilities.max(1), probabilities.argmax(1) == y
    inner = np.linspace(0, 1, BINS + 1)[1:-1]
    # Equal probabilities stay in one bin.
    bins = np.searchsorted(np.quantile(probability, inner), probability, side="right")
    rows = np.bincount(bins, minlength=BINS)
    weight, said, found = (
        np.bincount(bins, contents.weights * x, BINS) for x in (1, probability, right)
    )
    full = weight > 0
    return Reliability(said[full] / weight[full], found[full] / weight[full], rows[full])


def _compact(mass: np.ndarray) -> list[float]:
    """Round to nine digits, which keeps counts exact."""
    return [float(f"{x:.9g}") for x in mass]
