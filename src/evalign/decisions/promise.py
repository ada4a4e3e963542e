"""Rules whose constraints hold on new data, with a given confidence.

A rule passes if the p-value of each violated constraint (`p_values`) is at most
δ = (1 − confidence) / (number of constraints). Then the probability, over the draw of the rows,
that a rule passes and violates a constraint is at most 1 − confidence.

Two classes and a rate among fixed rows (recall, specificity, fpr, fnr, predicted_rate): the rate is
monotone in the threshold. Let t* be the threshold that reaches the bound, whatever the rows. If any
threshold beyond t* passes, so does t*, because its counts are at least as good. So the choice among
all thresholds costs nothing.

Two classes and precision, npv, accuracy or a gap: the rows that chose a threshold cannot test it.
So a ladder of thresholds is fixed by the ranks of the rows, without their labels, and climbed in a
fixed order (the fallback procedure of Wiens): some steps, the starts, get equal parts of δ; a step
that passes hands its part to the next step, and a step that fails loses it. This is nearly exact:
a threshold is tested as if it were at a row.

More classes: the bounds are tightened by a margin until the rule that the search finds passes. The
test ignores that the search has seen the rows, so the promise is approximate.
"""

import math

import numpy as np
from scipy.special import ndtri

from evalign.core.constraints import Constraint, Infeasible
from evalign.core.input_warnings import warn
from evalign.decisions.blocks import softmax
from evalign.decisions.confusions import ScoredRows
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.p_values import CellSums, p_values, rate_of, slack_and_error
from evalign.decisions.threshold import all_cuts, best_cut, scores_of_cuts, threshold_gains
from evalign.decisions.tuned import Fitted, LogitRows, tuned

# Steps of the ladder for each halving of the rows beyond a threshold.
STEPS_PER_HALVING = 8
# The first start, in rows, and the ratio between starts. The best threshold for accuracy or a gap
# may lie anywhere, and needs a start nearby. Precision falls as more rows are labelled, so few
# starts are enough, the first at this multiple of the rows that suffice if all are correct.
FIRST_START = 8.0
START_RATIO = 1.5
FIRST_START_OF_LABELLED = 1.5
START_RATIO_OF_LABELLED = 4.0
# Searches with different margins, for more than two classes.
SEARCHES = 8


class NotPromisedWarning(UserWarning):
    """A rule meets its constraint on the rows it was fitted to, with no promise for new data."""


def promised(rows: LogitRows, objective: Objective, confidence: float) -> Fitted:
    """The best rule that passes.

    If none passes, it is the one closest to passing of those that meet the constraints on these
    rows, with a warning.
    """
    level = (1 - confidence) / len(objective.constraints)
    two = rows.logits.shape[1] == 2
    rule = (_best_threshold if two else _best_rule)(rows, objective, level)
    if not rule.promised:
        warn(
            "The rule does not promise its constraint with confidence "
            f"{confidence:g}: it holds on these rows, but may not on new data. The rule is the "
            "safest one found. Provide more labelled rows, or lower the confidence.",
            NotPromisedWarning,
        )
    return rule


def _best_threshold(rows: LogitRows, objective: Objective, level: float) -> Fitted:
    margin = rows.logits[:, 1] - rows.logits[:, 0]
    target = rows.target
    weight = rows.weight
    number = objective.groups or 1
    middle, below, matrices = all_cuts(margin, target, weight, number)
    _, _, squares = all_cuts(margin, target, weight**2, number)
    seen = CellSums.of(objective, matrices, squares)
    scores = scores_of_cuts(matrices, objective)
    p = np.stack([p_values(each, seen, level) for each in objective.constraints])
    tests = zip(objective.constraints, p, strict=True)
    passed = np.stack([climbed(constraint, found, below, level) for constraint, found in tests])
    passed = passed.all(0) & np.isfinite(scores)
    passes = bool(passed.any())
    if not passes:
        worst = np.where(scores == -np.inf, np.inf, p.max(0))
        passed = worst <= worst.min() * (1 + ROUNDING)
    best = best_cut(middle, np.where(passed, scores, -np.inf))
    return Fitted(threshold_gains(middle[best]), "labels", float(scores[best]), passes)


def climbed(constraint: Constraint, p: np.ndarray, below: np.ndarray, level: float) -> np.ndarray:
    """Which of all cuts pass, by their p-values: on the ladder, unless the rate is monotone.

    A rate among the rows with a label is climbed from few of these rows to many; accuracy or a gap
    from few rows with label 1 to many, with starts at both ends.
    """
    rate = rate_of(constraint)
    assert rate is not None
    if rate.monotone:
        return p <= level
    rows = int(below[-1])
    sizes = rows * 0.5 ** (
        np.arange(STEPS_PER_HALVING * math.log2(max(rows, 2)) + 1) / STEPS_PER_HALVING
    )
    upwards = False
    sides: tuple[bool, ...] = (False, True)
    first = FIRST_START
    ratio = START_RATIO
    most = rows / 2
    if rate.of in ("predicted", "rejected") and not constraint.gap:
        upwards = (rate.of == "predicted") == (rate.class_index == 0)
        bound = constraint.bound if constraint.at_least else 1 - constraint.bound
        bound = min(max(bound, 1e-9), 1 - 1e-12)
        sides = (upwards,)
        ratio = START_RATIO_OF_LABELLED
        most = rows
        first = FIRST_START_OF_LABELLED * math.log(level) / math.log(bound)

    def places(sizes: np.ndarray, from_below: bool) -> np.ndarray:
        count = np.round(sizes) if from_below else rows - np.round(sizes)
        return np.minimum(np.searchsorted(below, count), len(below) - 1)

    starts = first * ratio ** np.arange(math.log(max(rows / first, 1)) / math.log(ratio) + 1)
    starts = np.concatenate([places(starts[starts <= most], side) for side in sides])
    steps = np.concatenate([starts, *(places(sizes, side) for side in (False, True))])
    part = level / max(len(np.unique(starts)), 1)
    passed = np.zeros(len(p), dtype=bool)
    held = 0.0
    for step in np.unique(steps)[:: 1 if upwards else -1]:
        held += part if step in starts else 0.0
        passed[step] = held > 0 and p[step] <= held
        held = held if passed[step] else 0.0
    return passed


def _best_rule(rows: LogitRows, objective: Objective, level: float) -> Fitted:
    z = float(ndtri(1 - level))
    best: tuple[float, Fitted] | None = None
    margins = np.zeros(len(objective.constraints))
    met = margins
    for _ in range(SEARCHES):
        try:
            tighter = objective.tightened(margins.tolist()) if margins.any() else objective
            rule = tuned(rows, tighter)
        except Infeasible:
            if best is None:
                raise
            margins = (met + margins) / 2  # too much: go halfway back
            continue
        met = margins
        eta = softmax(rows.logits, rule.factor, rule.offsets)
        mass, squares = (
            ScoredRows(eta, rows.target, weight, objective.groups or 1).matrices(rule.gain[None])
            for weight in (rows.weight, rows.weight**2)
        )
        seen = CellSums.of(objective, mass, squares)
        limits = [slack_and_error(each, seen, z) for each in objective.constraints]
        short = np.array([(z * error - slack).item() for slack, error in limits])
        if best is None or short.max() < best[0]:
            best = short.max(), rule
        # Margins come from the normal approximation, the verdict from the exact test of a rate.
        if all(p_values(each, seen, level)[0] <= level for each in objective.constraints):
            return rule._replace(promised=True)
        if np.isinf(short).any():  # no margin helps where the metric is undefined
            break
        margins = margins + np.maximum(short, 0)
    assert best is not None
    return best[1]._replace(promised=False)
