"""Rules whose constraints hold on new data, with a stated probability.

A constraint that binds on some rows is broken on others half of the time. So a rule is accepted
only if the p-value of "the constraint is broken" is at most δ = (1 − confidence) / (number of
constraints) on these rows (`p_values`). Then the probability, over the draw of the rows, of
accepting a rule that breaks a constraint is at most 1 − confidence.

Two classes, a rate among given rows (recall, specificity, fpr, fnr, predicted_rate): it only rises
or only falls with the threshold. If any threshold beyond t*, where the bound is broken, passes,
then t* passes, because its counts are at least as good; and t* does not depend on the rows. So the
choice among all thresholds costs nothing.

Two classes, anything else (precision, accuracy, F1, a gap): the rows that chose a threshold cannot
test it. So a ladder of thresholds is fixed by the ranks of the rows, without their labels, and
climbed in a fixed order (the fallback procedure of Wiens): some steps, the starts, get equal parts
of δ; a step that passes hands its part on to the next, and a step that fails loses it. The limits
are those of a threshold at a row, while it lies in the middle between two: this is nearly exact.

More classes: a rule is searched for with bounds that are tightened by a margin, until it passes.
The search has seen the rows, and this is not accounted for: the promise is approximate.
"""

import math

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from evalign.core.constraints import Constraint, Infeasible
from evalign.core.input_warnings import warn
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.p_values import CellSums, lacking, p_values, rate_of, slack_and_error
from evalign.decisions.threshold import all_cuts, best_cut, threshold_gains
from evalign.decisions.tuned import Fitted, LogitRows, tuned

# Steps of the ladder for each halving of the rows beyond a threshold.
STEPS_PER_HALVING = 8
# The first of its starts, in rows, and their ratio. F1 and the like may have their best threshold
# anywhere, and a start has to be near. Precision falls with the rows that are labelled: few starts
# are enough, the first at so many times the rows that suffice if all are right.
FIRST_START, START_RATIO = 8.0, 1.5
FIRST_START_OF_LABELLED, START_RATIO_OF_LABELLED = 1.5, 4.0
# Searches with other margins, for more classes.
SEARCHES = 8


class NotPromisedWarning(UserWarning):
    """A rule meets its constraint on the rows it was fitted to, and promises nothing beyond."""


def promised(
    rows: LogitRows,
    objective: Objective,
    confidence: float,
    names: list[str | float] | None = None,
) -> Fitted:
    """The best rule that passes.

    If none passes, it is the one that comes nearest to passing, of those that meet the constraints
    on these rows, and a warning says how many rows it takes.
    """
    level = (1 - confidence) / len(objective.constraints)
    two = rows.logits.shape[1] == 2
    rule, seen = (_best_threshold if two else _best_rule)(rows, objective, level)
    if not rule.promised:
        lacks = [lacking(each, seen, level, names) for each in objective.constraints]
        why = " ".join(filter(None, lacks)) or "Enough rows for one threshold are not for several."
        warn(
            "The rule does not promise its constraint, which it meets on these rows, for new rows "
            f"with confidence {confidence:g}. {why} It is the safest one found. Give more labelled "
            "rows, or a lower confidence.",
            NotPromisedWarning,
        )
    return rule


def _best_threshold(rows: LogitRows, objective: Objective, level: float) -> tuple[Fitted, CellSums]:
    logits, target, weight, _, groups = rows
    margin, target = logits[:, 1] - logits[:, 0], objective.by_group(target, groups)
    middle, below, matrices = all_cuts(margin, target, weight, objective)
    _, _, squares = all_cuts(margin, target, weight**2, objective)
    seen, scores = CellSums.of(objective, matrices, squares), objective.scores(matrices)
    if scores.amax().isneginf():
        raise objective.infeasible(matrices)
    p = np.stack([p_values(each, seen, level) for each in objective.constraints])
    passed = np.stack(
        [
            tested <= level if _along(each) == "one way" else climbed(each, tested, below, level)
            for each, tested in zip(objective.constraints, p, strict=True)
        ]
    ).all(0)
    passed = torch.from_numpy(passed).to(scores.device) & scores.isfinite()
    passes = bool(passed.any())
    if not passes:
        worst = torch.from_numpy(p.max(0)).to(scores).masked_fill(scores.isneginf(), torch.inf)
        passed = worst <= worst.min() * (1 + ROUNDING)
    best = best_cut(middle, scores.masked_fill(~passed, -torch.inf))
    gain = threshold_gains(middle[best])
    of_best = CellSums(*(x[best].unsqueeze(0) for x in seen))
    return Fitted(gain, "labels", scores[best].item(), passes), of_best


def _along(constraint: Constraint) -> str:
    found = rate_of(constraint)
    return "all" if found is None else found[0].along


def climbed(constraint: Constraint, p: np.ndarray, below: Tensor, level: float) -> np.ndarray:
    """Which of all cuts pass on the ladder, by their p-values.

    A rate of rows with a label is climbed from few such rows to many; anything else from few rows
    of label 1 to many, with starts at both ends.
    """
    under, rows, along, found = below.cpu().numpy(), int(below[-1]), _along(constraint), None
    sizes = rows * 0.5 ** (
        np.arange(STEPS_PER_HALVING * math.log2(max(rows, 2)) + 1) / STEPS_PER_HALVING
    )
    upwards, sides, first, ratio, most = False, (False, True), FIRST_START, START_RATIO, rows / 2
    if along != "all" and (found := rate_of(constraint)) is not None:
        upwards = (along == "own") == (found[1] == 0)
        bound = constraint.bound if constraint.at_least else 1 - constraint.bound
        bound = min(max(bound, 1e-9), 1 - 1e-12)
        sides, ratio, most = (upwards,), START_RATIO_OF_LABELLED, rows
        first = FIRST_START_OF_LABELLED * math.log(level) / math.log(bound)

    def places(sizes: np.ndarray, from_below: bool) -> np.ndarray:
        count = np.round(sizes) if from_below else rows - np.round(sizes)
        return np.minimum(np.searchsorted(under, count), len(under) - 1)

    starts = first * ratio ** np.arange(math.log(max(rows / first, 1)) / math.log(ratio) + 1)
    starts = np.concatenate([places(starts[starts <= most], side) for side in sides])
    steps = np.concatenate([starts, *(places(sizes, side) for side in (False, True))])
    part = level / max(len(np.unique(starts)), 1)
    passed, held = np.zeros(len(p), dtype=bool), 0.0
    for step in np.unique(steps)[:: 1 if upwards else -1]:
        held += part if step in starts else 0.0
        passed[step] = held > 0 and p[step] <= held
        held = held if passed[step] else 0.0
    return passed


def _best_rule(rows: LogitRows, objective: Objective, level: float) -> tuple[Fitted, CellSums]:
    z, best, margins = float(ndtri(1 - level)), None, np.zeros(len(objective.constraints))
    met = margins
    for _ in range(SEARCHES):
        try:
            rule = tuned(rows, objective.tightened(margins.tolist()))
        except Infeasible:
            if best is None:
                raise
            margins = (met + margins) / 2  # too much: halfway back
            continue
        met, eta = margins, (rule.factor * rows.logits + rule.offsets).softmax(1)
        both = [rows.matrices(eta, rule.gain, w, objective) for w in (rows.weight, rows.weight**2)]
        seen = CellSums.of(objective, *both)
        limits = [slack_and_error(each, seen, z) for each in objective.constraints]
        short = np.array([(z * error - slack).item() for slack, error in limits])
        if best is None or short.max() < best[0]:
            best = short.max(), rule, seen
        # The margins come from the delta method; the verdict from the exact test, if there is one.
        if all(p_values(each, seen, level)[0] <= level for each in objective.constraints):
            return rule._replace(promised=True), seen
        if np.isinf(short).any():  # no margin makes up for a group without rows
            break
        margins = margins + np.maximum(short, 0)
    assert best is not None
    return best[1]._replace(promised=False), best[2]
