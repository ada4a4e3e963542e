"""Multilabel problems: a threshold for each label.

An average over labels (macro, weighted) is maximal where each label has the best of all its
thresholds. Any other function of the labels' sums is maximised by coordinate ascent: over all
thresholds of one label, while the others are fixed. For a quotient of sums over labels, such as
micro-averaged F1, the ascent ends at a global optimum.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, FBeta
from evalign.decisions import calibration
from evalign.decisions.blocks import sigmoid
from evalign.decisions.confusions import label_sums
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.threshold import all_cuts, best_cut, threshold_gains
from evalign.decisions.tuned import FOLDS, Fitted, enough, folds

# Rounds over all labels. The ascent ends when a round changes nothing, usually after four.
MOST_ROUNDS = 20
# Thresholds tried for a label where each costs a call of the metric, because it reads the sums of
# all labels. They are spread evenly over all rows and over positive rows.
MOST_CUTS = 2**10
# Weight of the constraint relative to the metric in the Lagrangian.
ODDS = [0.0, *(2.0**k for k in range(-5, 11))]


class LabelCuts(NamedTuple):
    """The thresholds of a label (K,), and true positives and predicted mass above each (2, K)."""

    thresholds: np.ndarray
    above: np.ndarray


def label_score(objective: Objective) -> tuple[Callable[[Confusion], np.ndarray] | None, bool]:
    """The score of one label's sums, and whether they are pooled over labels (micro average).

    None if the objective needs the sums of all labels.
    """
    metric = objective.metric
    if not isinstance(metric, ClassMetric) or metric.labels is not None or objective.constraints:
        return None, False
    if isinstance(metric, FBeta) and not isinstance(metric.beta, int | float):
        return None, False
    if metric.average == "micro":
        return metric.score, True
    means = metric.average in ("macro", "weighted") and not metric.nan_if_undefined
    return metric.score if means else None, False


def thresholds(
    margin: np.ndarray, positive: np.ndarray, weight: np.ndarray, objective: Objective
) -> np.ndarray:
    """The best thresholds on the log-odds (L,) for labels or probabilities (N, L)."""
    score, pooled = label_score(objective)
    most = None if score is not None else MOST_CUTS
    columns = zip(margin.T, positive.T, weight.T, strict=True)
    lines = [_line(*column, most) for column in columns]
    totals = np.stack([(weight * positive).sum(0), weight.sum(0)])
    if score is None or pooled:
        return _climb(lines, totals, objective, score)
    best = []
    for line, total in zip(lines, totals.T, strict=True):
        scores = score(_as_labels(*line.above, *total))
        best.append(line.thresholds[best_cut(line.thresholds, scores)])
    return np.array(best)


def _as_labels(
    tp: np.ndarray, predicted: np.ndarray, actual: np.ndarray, total: np.ndarray
) -> Confusion:
    """Many confusions of one label as the labels of one confusion, to score them all at once."""
    every_actual = np.broadcast_to(actual, tp.shape)
    every_total = np.broadcast_to(total, tp.shape)
    return Confusion(tp, predicted, every_actual, every_total, multilabel=True)


def expected_thresholds(margin: np.ndarray, weight: np.ndarray, objective: Objective) -> Fitted:
    """Find the thresholds for calibrated probabilities."""
    best = thresholds(margin, without_floor(sigmoid(margin)), weight, objective)
    return Fitted(threshold_gains(best), "expected")


def tuned_thresholds(
    margin: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective, own: np.ndarray
) -> Fitted:
    """Find the thresholds for labels y (N, L) with weights (N, L).

    A threshold lies halfway between the best for the labels and the best for the label's calibrated
    probabilities: no rule in `study/benchmarks/multilabel_rules.py` did better. A label that all
    rows have, or none, keeps the network's own threshold, in `own` (L,).
    """
    positive = y.astype(np.float64)
    all_weight = weight

    def learned(weight: np.ndarray) -> np.ndarray:
        a, b = calibration.factor_and_offset(margin, positive, weight)
        z = a * margin + b
        by_probabilities = (thresholds(z, sigmoid(z), all_weight, objective) - b) / a
        by_labels = thresholds(margin, positive, weight, objective)
        actual = (weight * positive).sum(0)
        varies = (actual > 0) & (actual < weight.sum(0))
        return np.where(varies, (by_labels + by_probabilities) / 2, own)

    counts = np.stack([((weight * (y == value)) > 0).sum(0) for value in (0, 1)])
    if objective.constraints or enough(counts):  # constraints are about these labels
        best = thresholds(margin, positive, weight, objective)
        reached = label_sums(margin, positive, weight, best)
    else:
        best = learned(weight)
        reached = np.zeros((4, y.shape[1]))
        fold = np.stack([folds(column) for column in y.T], 1)
        for number in range(FOLDS):
            held_out = weight * (fold == number)
            reached += label_sums(margin, positive, held_out, learned(weight - held_out))
    score = float(objective.scores(reached[None])[0])
    return Fitted(threshold_gains(best), "labels", score)


def _climb(
    lines: list[LabelCuts],
    totals: np.ndarray,
    objective: Objective,
    score_of_sums: Callable[[Confusion], np.ndarray] | None,
) -> np.ndarray:
    """Climb from the model's own thresholds, one label at a time, until no change is better.

    Constraints enter through the Lagrangian, with increasing weight; then only points that meet
    the constraints count.
    """

    def reached(chosen: list[int]) -> np.ndarray:
        """The sums (4, L) at the chosen threshold of each label."""
        above = [line.above[:, k] for line, k in zip(lines, chosen, strict=True)]
        return np.concatenate([np.stack(above, 1), totals])

    def climbed(chosen: list[int], score: Callable[[np.ndarray], np.ndarray]) -> list[int]:
        chosen = list(chosen)
        sums = reached(chosen)
        for _ in range(MOST_ROUNDS):
            before = list(chosen)
            for label, line in enumerate(lines):
                if score_of_sums is not None:
                    of_others = (sums.sum(1) - sums[:, label])[:2, None]
                    tp, predicted = line.above + of_others
                    scores = score_of_sums(_as_labels(tp, predicted, *totals.sum(1)))
                else:
                    along = np.repeat(sums[None], len(line.thresholds), axis=0)
                    along[:, :2, label] = line.above.T
                    scores = score(along)
                if scores.max() > scores[chosen[label]] + ROUNDING:
                    chosen[label] = best_cut(line.thresholds, scores)
                    sums[:2, label] = line.above[:, chosen[label]]
            if chosen == before:
                break
        return chosen

    own = [int(np.abs(line.thresholds).argmin()) for line in lines]

    def best(objective: Objective) -> list[int]:
        chosen = own
        kept = own
        most = -np.inf
        for odds in ODDS if objective.constraints else ():
            share = np.array(odds / (1 + odds))
            chosen = climbed(chosen, lambda sums, share=share: objective.mixed(sums, share))
            score = float(objective.scores(reached(chosen)[None])[0])
            if most == -np.inf or score > most + ROUNDING:
                most = score
                kept = chosen
        return climbed(kept, objective.scores)

    chosen = best(objective)
    objective.check_met(reached(chosen), lambda side: reached(best(side)))
    return np.array([line.thresholds[k] for line, k in zip(lines, chosen, strict=True)])


def _line(
    margin: np.ndarray, positive: np.ndarray, weight: np.ndarray, most: int | None
) -> LabelCuts:
    """The thresholds of one label, at most so many. Rows without weight are left out."""
    counted = weight > 0 if weight.any() else weight == 0
    target = np.stack([positive, np.ones_like(positive)], 1)
    middle, _, cells = all_cuts(margin[counted], target[counted], weight[counted])
    above = cells[..., 1].T
    if most is not None and len(middle) > most:
        share = (1 - above / np.maximum(above[:, :1], 1e-300)).mean(0)
        places = np.searchsorted(share, np.linspace(0, 1, most))
        kept = np.unique(np.minimum(places, len(share) - 1))
        middle = middle[kept]
        above = above[:, kept]
    return LabelCuts(middle, above)
