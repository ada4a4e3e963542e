"""Rules that meet their constraints on new rows, with a stated probability.

A constraint that binds on some rows is broken on others half of the time. Here a rule is taken only
if the p-value of "the constraint is broken" is at most δ = (1 − confidence) / (number of
constraints) on these rows (`certainty`). Then the probability, over the draw of the rows, that a
rule is taken that breaks a constraint is at most 1 − confidence.

Two classes, a rate among given rows (recall, specificity, fpr, fnr, predicted_rate): the choice
among all thresholds costs nothing. Such a rate only rises or only falls with the threshold. So if
any threshold beyond t*, where the bound is broken, passes, then t* passes, because its counts are
at least as good; and t* is one threshold, which does not depend on the rows.

Two classes, anything else (precision, accuracy, F1, a gap): a threshold that was chosen because its
rows look well is not tested by them. So a ladder of thresholds is fixed by the ranks of the rows,
without their labels, and climbed in a fixed order (the fallback procedure of Wiens): some steps,
the starts, are given equal parts of δ; what a step has goes on to the next if it passes, and is
lost if not. The probability that any step passes that is broken is at most δ. The limits are those
of a threshold at a row, while it lies in the middle between two: this is nearly exact.

More classes: a rule is searched for with bounds that are moved by a margin, until it passes. The
search has seen the rows, and what that is worth is not subtracted: this is approximate.
"""

import math

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from evalign.core.constraints import Constraint, Infeasible
from evalign.core.input_warnings import warn
from evalign.decisions.certainty import CellSums, lacking, p_values, rate_of, standing
from evalign.decisions.cuts import all_cuts, best_cut, threshold_gains
from evalign.decisions.gains import confusions
from evalign.decisions.goal import ROUNDING, Goal
from evalign.decisions.tuned import Tuned, tuned

# Steps of the ladder for each halving of the rows beyond a threshold.
STEPS = 8
# The first of its starts, and their ratio. F1 and the like may have their best threshold anywhere,
# and a start has to be near. Precision falls with the rows that are labelled: few starts are
# enough, the first at so many times the rows that suffice if all are right.
FIRST, RATIO = 8.0, 1.5
OF_LABELLED, RATIO_OF_LABELLED = 1.5, 4.0
# Searches with other margins, for more classes.
SEARCHES = 8


class NotPromisedWarning(UserWarning):
    """A rule meets its constraint on the rows it was fitted to, and promises nothing beyond."""


def promised(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    argmax: Tensor,
    confidence: float,
    groups: Tensor | None = None,
    names: list[str | float] | None = None,
) -> tuple[Tuned, bool]:
    """The best rule that passes, and whether one does; the arguments are those of `tuned`.

    If none passes it is the one that comes nearest to it, of those that meet the constraints on
    these rows, and a warning says how many rows it takes.
    """
    level = (1 - confidence) / len(goal.constraints)
    if logits.shape[1] == 2:
        found = _best_threshold(owner, logits, target, weight, goal, level, groups)
    else:
        found = _best_rule(owner, logits, target, weight, goal, argmax, level, groups)
    rule, seen, passes = found
    if not passes:
        lacks = [lacking(each, seen, level, names) for each in goal.constraints]
        why = " ".join(filter(None, lacks)) or "Enough rows for one threshold are not for several."
        warn(
            "The rule does not promise its constraint, which it meets on these rows, for new rows "
            f"with confidence {confidence:g}. {why} It is the safest one found. Give more labelled "
            "rows, or a lower confidence.",
            NotPromisedWarning,
        )
    return rule, passes


Found = tuple[Tuned, CellSums, bool]


def _best_threshold(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    level: float,
    groups: Tensor | None,
) -> Found:
    margin, target = logits[:, 1] - logits[:, 0], goal.by_group(target, groups)
    middle, below, matrices = all_cuts(margin, target, weight, goal)
    seen = CellSums.of(goal, matrices, all_cuts(margin, target, weight**2, goal).confusions)
    scores = goal.scores(matrices)
    if scores.amax().isneginf():
        raise goal.infeasible(owner, matrices)
    p = np.stack([p_values(each, seen, level) for each in goal.constraints])
    passed = np.stack(
        [
            tested <= level if _along(each) == "one way" else climbed(each, tested, below, level)
            for each, tested in zip(goal.constraints, p, strict=True)
        ]
    ).all(0)
    passed = torch.from_numpy(passed).to(scores.device) & scores.isfinite()
    passes = bool(passed.any())
    if not passes:
        worst = torch.from_numpy(p.max(0)).to(scores).masked_fill(scores.isneginf(), torch.inf)
        passed = worst <= worst.min() * (1 + ROUNDING)
    best = best_cut(middle, scores.masked_fill(~passed, -torch.inf))
    gain, none = threshold_gains(middle[best]), torch.zeros_like(logits[0])
    found = CellSums(*(x[best].unsqueeze(0) for x in seen))
    return Tuned(gain, 1.0, none, scores[best].item()), found, passes


def _along(constraint: Constraint) -> str:
    found = rate_of(constraint)
    return "all" if found is None else found[0].along


def climbed(constraint: Constraint, p: np.ndarray, below: Tensor, level: float) -> np.ndarray:
    """Which of all cuts pass, for their p-values, on the ladder.

    A rate of rows with a label is climbed from few of them to many, all else from few rows of
    label 1 to many, with starts at both ends.
    """
    under, rows, along, found = below.cpu().numpy(), int(below[-1]), _along(constraint), None
    sizes = rows * 0.5 ** (np.arange(STEPS * math.log2(max(rows, 2)) + 1) / STEPS)
    upwards, sides, first, ratio, most = False, (False, True), FIRST, RATIO, rows / 2
    if along != "all" and (found := rate_of(constraint)) is not None:
        upwards = (along == "own") == (found[1] == 0)
        bound = constraint.bound if constraint.at_least else 1 - constraint.bound
        bound = min(max(bound, 1e-9), 1 - 1e-12)
        sides, ratio, most = (upwards,), RATIO_OF_LABELLED, rows
        first = OF_LABELLED * math.log(level) / math.log(bound)

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


def _best_rule(
    owner: str,
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    argmax: Tensor,
    level: float,
    groups: Tensor | None,
) -> Found:
    z, best, margins = float(ndtri(1 - level)), None, np.zeros(len(goal.constraints))
    met = margins
    for _ in range(SEARCHES):
        try:
            moved = goal.moved(margins.tolist())
            rule = tuned(owner, logits, target, weight, moved, argmax, groups)
        except Infeasible:
            if best is None:
                raise
            margins = (met + margins) / 2  # too much: halfway back
            continue
        met = margins
        eta, aims = (rule.factor * logits + rule.offsets).softmax(1), goal.by_group(target, groups)
        both = [confusions(eta, aims, w, rule.gain.unsqueeze(0)) for w in (weight, weight**2)]
        seen = CellSums.of(goal, *both)
        limits = [standing(each, seen, z) for each in goal.constraints]
        short = np.array([(z * error - slack).item() for slack, error in limits])
        if best is None or short.max() < best[0]:
            best = short.max(), rule, seen
        # The margins come from the delta method; whether it passes, from the exact test if any.
        if all(p_values(each, seen, level)[0] <= level for each in goal.constraints):
            return rule, seen, True
        if np.isinf(short).any():  # no margin makes up for a group without rows
            break
        margins = margins + np.maximum(short, 0)
    assert best is not None
    return best[1], best[2], False
