"""Summarise the scores of repeated folds: means, corrected tests, a verdict in plain words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from evalign.core.checks import require
from evalign.core.estimates import UNBOUNDED, Estimate, estimate

PLAIN, TUNED = "cross-entropy (argmax)", "cross-entropy (tuned)"
CHANCE = 0.05  # a difference with a smaller p-value is beyond chance
MIN_VALUES = 5  # with fewer folds, no difference is called beyond chance


class FoldScore(NamedTuple):
    """The metric of one method on one held-out fold, and the seconds of its training."""

    method: str
    seed: int
    fold: int
    score: float
    seconds: float


class Row(NamedTuple):
    """A method in the summary.

    `difference` is the method's score minus the rival's, fold by fold. Its p-value is adjusted by
    Holm's method for all differences to the rival. It is None for the rival itself.
    """

    method: str
    score: Estimate
    difference: Estimate | None
    seconds: float


def summarize(
    records: Sequence[FoldScore],
    *,
    greater_is_better: bool = True,
    against: str = PLAIN,
    bounds: tuple[float, float] = UNBOUNDED,
) -> list[Row]:
    """A row per method, best mean first, with its difference to the method `against`.

    The intervals of the scores stay within the bounds of the metric.
    """
    scores: dict[str, dict[tuple[int, int], float]] = {}
    seconds: dict[str, list[float]] = {}
    for method, seed, fold, score, took in records:
        scores.setdefault(method, {})[seed, fold] = score
        seconds.setdefault(method, []).append(took)
    splits = {(record.seed, record.fold) for record in records}
    odd = {record.method for record in records if not math.isfinite(record.score)}
    odd |= {method for method, each in scores.items() if each.keys() != splits}
    allowed = "hold a finite score of each method for every fold"
    require(not odd, "summarize", "records", allowed, f"others for {', '.join(sorted(odd))}")
    require(against in scores, "summarize", "against", f"be one of {list(scores)}", repr(against))
    folds = len({record.fold for record in records})
    require(folds > 1, "summarize", "records", "be of two folds at least", folds)
    rivals = [method for method in scores if method != against]
    differences = [
        estimate([scores[method][split] - score for split, score in scores[against].items()], folds)
        for method in rivals
    ]
    adjusted = holm(np.array([difference.p for difference in differences]))
    of_method = {
        method: difference._replace(p=p)
        for method, difference, p in zip(rivals, differences, adjusted.tolist(), strict=True)
    }
    rows = [
        Row(
            method,
            estimate(list(values.values()), folds, bounds),
            of_method.get(method),
            float(np.mean(seconds[method])),
        )
        for method, values in scores.items()
    ]
    sign = -1 if greater_is_better else 1
    return sorted(rows, key=lambda row: sign * row.score.value)


def verdict(
    records: Sequence[FoldScore], *, metric: str, greater_is_better: bool = True
) -> list[str]:
    """Say in plain words which method is best, and whether it beats cross-entropy beyond chance."""
    rows = summarize(records, greater_is_better=greater_is_better)
    best = rows[0]
    level = [row.method for row in rows if math.isclose(row.score.value, best.score.value)]
    if PLAIN in level:
        if len(level) > 1:
            return [f"No method has a better mean {metric} than plain cross-entropy."]
        return [f"Plain cross-entropy wins: no other method has a better mean {metric}."]
    sentences = [f"{best.method} has the best mean {metric}."]
    values = sum(record.method == PLAIN for record in records)
    if values < MIN_VALUES:
        return [*sentences, f"{values} folds are too few to tell whether that is more than chance."]
    beyond = {}
    for rival in (PLAIN, TUNED):
        if rival == best.method or all(row.method != rival for row in rows):
            continue
        against = summarize(records, greater_is_better=greater_is_better, against=rival)
        difference = against[0].difference
        assert difference is not None
        beyond[rival] = difference.p < CHANCE
        word = "is beyond chance" if beyond[rival] else "may be chance"
        p = "p < 0.001" if difference.p < 0.001 else f"p = {difference.p:.2g}"
        sentences.append(f"Its difference to {rival}, {difference.value:+.3g}, {word} ({p}).")
    sign = 1 if greater_is_better else -1
    better = [
        row.method
        for row in rows
        if row.difference and sign * row.difference.value > 0 and row.difference.p < CHANCE
    ]
    if not better:
        sentences.append("No method is shown to beat plain cross-entropy on these rows.")
    elif not beyond[PLAIN]:
        sentences.append(f"Shown to beat plain cross-entropy: {', '.join(better)}.")
    elif best.method == TUNED:
        sentences.append("A tuned decision is all that cross-entropy needs on these rows.")
    elif not beyond.get(TUNED, True):
        sentences.append("Cross-entropy with a tuned decision may be just as good on these rows.")
    return sentences


def least_shown(records: Sequence[FoldScore]) -> float:
    """The smallest difference to plain cross-entropy that these folds can show.

    It is for a method whose difference has the median error of all, at the level that Holm's method
    requires of the smallest p-value.
    """
    differences = [row.difference for row in summarize(records) if row.difference is not None]
    allowed = f"hold another method than {PLAIN!r}"
    require(bool(differences), "least_shown", "records", allowed, "none")
    freedom = sum(record.method == PLAIN for record in records) - 1
    reach = float(np.median([difference.high - difference.value for difference in differences]))
    level = CHANCE / len(differences)
    ratio = stats.t.ppf(1 - level / 2, freedom) / stats.t.ppf(0.975, freedom)
    return reach * float(ratio)


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust m p-values for their number: the smallest is multiplied by m, the next by m − 1."""
    order = p.argsort()
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]).clip(max=1)
    return adjusted
