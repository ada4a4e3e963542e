"""A summary of the scores of repeated folds: means, corrected tests, a verdict in plain words.

Scores of overlapping training sets are not independent; the corrected variance of Nadeau and
Bengio, "Inference for the Generalization Error" (Machine Learning 52, 2003), takes that into
account, here for repeated folds as in Bouckaert and Frank, "Evaluating the Replicability of
Significance Tests for Comparing Learning Algorithms" (PAKDD 2004).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from evalign.core.checks import require

PLAIN, TUNED = "cross-entropy (argmax)", "cross-entropy (tuned)"
CHANCE = 0.05  # a difference with a smaller p-value is beyond chance
FEW = 5  # values; with fewer, no difference is called beyond chance
SPREAD = 1e-9  # of a mean; less is rounding
UNBOUNDED = (-math.inf, math.inf)


class FoldScore(NamedTuple):
    """The metric of one method on one held-out fold, and what its training took."""

    method: str
    seed: int
    fold: int
    score: float
    seconds: float


class Estimate(NamedTuple):
    """A mean over folds, its 95% interval, and the p-value of the hypothesis that it is 0."""

    value: float
    low: float
    high: float
    p: float


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
    """A row per method, the best mean first; differences are to the method `against`.

    The intervals of the scores stay within the bounds of the metric.
    """
    scores: dict[str, dict[tuple[int, int], float]] = {}
    seconds: dict[str, list[float]] = {}
    for method, seed, fold, score, took in records:
        scores.setdefault(method, {})[seed, fold] = score
        seconds.setdefault(method, []).append(took)
    require(against in scores, "summarize", "against", f"be one of {list(scores)}", repr(against))
    folds = len({record.fold for record in records})
    rivals = [method for method in scores if method != against]
    differences = [
        estimate([scores[method][split] - score for split, score in scores[against].items()], folds)
        for method in rivals
    ]
    adjusted = _holm(np.array([difference.p for difference in differences]))
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


def estimate(
    values: Sequence[float], folds: int, bounds: tuple[float, float] = UNBOUNDED
) -> Estimate:
    """The mean of a repeated cross-validation, with Nadeau and Bengio's corrected variance.

    For n = folds · repetitions values with sample variance s², the variance of the mean is
    (1/n + n_test/n_train) · s², where n_test/n_train = 1/(folds - 1). The test is Student's t with
    n - 1 degrees of freedom. The plain s²/n ignores that training sets overlap, and finds
    differences everywhere. Values that are all equal say nothing about their spread: p is then 1.

    Within bounds, the interval is symmetric on the scale of the logit, log((m - a)/(b - m)), where
    by the delta method the error is (b - a)/((m - a)(b - m)) times that of the mean m.

    Examples:
        >>> mean, low, high, p = estimate([0.02, 0.03, 0.01, 0.04, 0.05], folds=5)
        >>> f"{mean:.3f} in [{low:.3f}, {high:.3f}], p = {p:.3f}"
        '0.030 in [0.001, 0.059], p = 0.047'
    """
    n = len(values)
    mean = float(np.mean(values))
    error = math.sqrt((1 / n + 1 / (folds - 1)) * float(np.var(values, ddof=1)))
    if error <= SPREAD * abs(mean):
        return Estimate(mean, mean, mean, 1.0)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    least, most = bounds
    if not (math.isfinite(most - least) and least < mean < most):
        return Estimate(mean, mean - reach, mean + reach, p)
    share = (mean - least) / (most - least)
    reach /= (most - least) * share * (1 - share)
    low, high = (least + (most - least) * float(expit(logit(share) + by)) for by in (-reach, reach))
    return Estimate(mean, low, high, p)


def verdict(
    records: Sequence[FoldScore], *, metric: str, greater_is_better: bool = True
) -> list[str]:
    """Say in plain words which method is best, and whether it beats cross-entropy beyond chance."""
    rows = summarize(records, greater_is_better=greater_is_better)
    best = rows[0]
    if best.method == PLAIN:
        return [f"Plain cross-entropy wins: no other method has a better mean {metric}."]
    sentences = [f"{best.method} has the best mean {metric}."]
    values = sum(record.method == PLAIN for record in records)
    if values < FEW:
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
    """The difference to plain cross-entropy from which on one is beyond chance in these folds.

    It is that of a method whose difference has the median error of all, at the level that Holm's
    method asks of the smallest p-value.
    """
    differences = [row.difference for row in summarize(records) if row.difference is not None]
    freedom = sum(record.method == PLAIN for record in records) - 1
    reach = float(np.median([difference.high - difference.value for difference in differences]))
    level = CHANCE / len(differences)
    ratio = stats.t.ppf(1 - level / 2, freedom) / stats.t.ppf(0.975, freedom)
    return reach * float(ratio)


def _holm(p: np.ndarray) -> np.ndarray:
    """Adjust m p-values for their number: the smallest is multiplied by m, the next by m − 1."""
    order = p.argsort()
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]).clip(max=1)
    return adjusted
