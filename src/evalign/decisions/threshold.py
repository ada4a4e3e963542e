"""Two classes: the best of all thresholds, scored at once."""

import numpy as np

from evalign.decisions.blocks import sigmoid
from evalign.decisions.objective import ROUNDING, Objective

# Beyond these log-odds the smaller probability underflows (e^-745), and a rule that sees
# probabilities cannot tell rows apart.
SATURATED = 700.0


def all_cuts(
    margin: np.ndarray, target: np.ndarray, weight: np.ndarray, groups: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The thresholds (K,) of all cuts, the rows below each, and the confusion matrix of each.

    Cut k gives label 0 to the k rows with the lowest log-odds. After one sort, cumulative sums of
    the targets (N, 2), labels (N,) or probabilities, give the matrices (K, 2, 2). With groups, they
    are (K, G·2, 2), as the targets of `ScoredRows`. Rows with equal log-odds are never separated. A
    threshold lies midway between its neighbours; outside of all rows, at the default 0 or 1 away
    from the last row, whichever is farther out.
    """
    margin = margin.clip(-SATURATED, SATURATED)
    order = margin.argsort()
    margin = margin[order]
    low = margin[:-1]
    high = margin[1:]
    below_all = np.minimum(margin[:1] - 1, 0)
    above_all = np.maximum(margin[-1:] + 1, 0)
    middle = np.concatenate([below_all, (low + high) / 2, above_all])
    apart = high - low > ROUNDING * (1 + np.abs(low))
    kept = np.flatnonzero(np.concatenate([[True], apart, [True]]))

    # Cells first, cuts last in memory: sums and scores then run along the cuts.
    targets = 2 * groups
    cells = np.zeros((targets, 2, len(kept)))
    below = cells[:, 0]
    above = cells[:, 1]
    ordered = weight[order]
    for y in range(targets):
        of_target = target == y if target.ndim == 1 else target[:, y]
        sums = np.cumsum(ordered * of_target[order])
        below[y, 1:] = sums[kept[1:] - 1]
    np.subtract(below[:, -1:], below, out=above)
    return middle[kept], kept, cells.transpose(2, 0, 1)


def best_threshold(
    margin: np.ndarray, target: np.ndarray, weight: np.ndarray, objective: Objective
) -> float:
    """The best threshold on the log-odds for rows with weights (N,): exact, over all cuts."""
    middle, _, confusions = all_cuts(margin, target, weight, objective.groups or 1)
    return float(middle[best_cut(middle, scores_of_cuts(confusions, objective))])


def scores_of_cuts(confusions: np.ndarray, objective: Objective) -> np.ndarray:
    """The scores of the confusions of all cuts, of which one at least meets the constraints."""
    scores = objective.scores(confusions)
    objective.check_met(
        confusions[scores.argmax()], lambda side: confusions[side.scores(confusions).argmax()]
    )
    return scores


def best_cut(middle: np.ndarray, scores: np.ndarray) -> int:
    """The cut with the best score; among ties, the one closest to the model's own threshold, 0."""
    ties = scores >= scores.max() - ROUNDING
    return int(np.where(ties, np.abs(middle), np.inf).argmin())


def threshold_gains(thresholds: np.ndarray | float) -> np.ndarray:
    """diag(t, 1 − t) for thresholds on the log-odds (...), t = sigmoid(threshold): (..., 2, 2).

    Beyond `SATURATED` all rows get one label, also where the smaller probability is 0.
    """
    thresholds = np.asarray(thresholds, dtype=np.float64)[..., None, None]
    gains = sigmoid(thresholds * np.array([1.0, -1.0])) * np.eye(2)
    one_label = np.concatenate([thresholds > 0, thresholds < 0], -1)
    return np.where(np.abs(thresholds) > SATURATED, one_label, gains)


def log_odds_of_gains(gains: np.ndarray) -> np.ndarray:
    """The thresholds (L,) on the log-odds of gains (L, 2, 2), infinite for a constant label."""
    with np.errstate(divide="ignore"):
        return np.log(gains[:, 0, 0]) - np.log(gains[:, 1, 1])
