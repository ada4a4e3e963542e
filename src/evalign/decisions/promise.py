"""Rules whose constraints hold on new data, with a given confidence.

The probability, over the draw of the rows, that a rule is promised and violates a constraint is at
most 1 − confidence, for any number of classes and constraints. It rests on three steps:

1. A family of rules is made from the scores without the labels (`families`). A search that sees the
   labels would find rules that suit these rows by chance, and the same rows cannot test them.
   Calibration would let the labels in too, so the family has the model's own probabilities.
2. All labels test the family, by exact binomial tests of each rate (`p_values`), at one level for
   all rules and constraints together (`ladder`).
3. Of the rules that pass, the best for the metric on these rows is chosen. Whichever it is, it
   breaks a constraint only if a rule that violates one has passed.

The tests are exact for rules that were fixed before the rows were drawn, and thresholds count as
such (`ladder`). The base rule of more classes has seen the scores of the rows. Given the scores,
the right rows are independent, and their number spreads less than the binomial distribution says
(Hoeffding), whose further spread is that of the scores. So the same test allows for both. Two tests
are not exact: that of a gap is a normal tail, and unequal weights count as Kish's number of rows.
`benchmarks/promise_levels.py` measures how often promises are broken.
"""

import math
from dataclasses import replace

import numpy as np

from evalign.core.constraints import Constraint
from evalign.core.input_warnings import warn
from evalign.decisions.families import Family, family_of
from evalign.decisions.ladder import passed
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.p_values import CellSums, p_values, rate_of, right_share
from evalign.decisions.threshold import best_cut, scores_of_cuts
from evalign.decisions.tuned import Fitted, LogitRows, tuned

# Halvings of the range of a bound to find the tightest one that is proven.
HALVINGS = 20
# What the sums of a confusion count, in words.
COUNTED = {
    "actual": "rows of the class",
    "negatives": "rows of other classes",
    "total": "rows",
    "predicted": "rows with the label",
    "rejected": "rows without the label",
}


class NotPromisedWarning(UserWarning):
    """A rule meets its constraint on the rows it was fitted to, with no promise for new data."""


def promised(rows: LogitRows, objective: Objective, confidence: float) -> Fitted:
    """The best rule that passes; if none does, the safest one, with a warning."""
    constraints = objective.constraints
    level = 1 - confidence
    family = family_of(rows, objective)
    seen = CellSums.of(objective, family.mass, family.squares)
    p = np.stack([p_values(constraint, seen) for constraint in constraints])
    if rows.logits.shape[1] == 2:
        scores = scores_of_cuts(family.mass, objective)
    else:
        scores = objective.scores(family.mass)
    passes = passed(constraints, p, family, level) & np.isfinite(scores)
    if passes.any():
        best = best_cut(family.tilts, np.where(passes, scores, -np.inf))
        return Fitted(family.gain(best), "labels", float(scores[best]), promised=True)

    safest = _safest(rows, objective, family, p.max(0), scores)
    proven = [
        _proven(constraint, family, seen, level / len(constraints)) for constraint in constraints
    ]
    warn(
        f"The rule does not promise its constraint with confidence {confidence:g}: it holds on "
        "these rows, but may not on new data. The rule is the safest one found. "
        f"{' '.join(proven)} Provide more labelled rows, or lower the confidence.",
        NotPromisedWarning,
    )
    return safest


def _safest(
    rows: LogitRows, objective: Objective, family: Family, p: np.ndarray, scores: np.ndarray
) -> Fitted:
    """The safest rule that meets the constraints on these rows.

    A class for all rows, or for none, is safest where this alone decides every rate: no test of few
    rows is as certain. Otherwise it is the rule with the smallest p-value.
    """
    rates = [rate_of(constraint) for constraint in objective.constraints]
    if family.constant and all(rate and rate.known_of_constant_labels for rate in rates):
        slacks = objective.smallest_slack(family.mass[[0, -1]])
        ends = [end for end in (0, -1) if slacks[end] >= -ROUNDING]
        if ends:
            best = max(ends, key=lambda end: scores[end])
            return Fitted(family.constant[best], "labels", float(scores[best]), promised=False)
    if not np.isfinite(scores).any():
        return tuned(rows, objective)._replace(promised=False)
    worst = np.where(scores == -np.inf, np.inf, p)
    smallest = worst <= worst.min() * (1 + ROUNDING)
    best = best_cut(family.tilts, np.where(smallest, scores, -np.inf))
    return Fitted(family.gain(best), "labels", float(scores[best]), promised=False)


def _proven(constraint: Constraint, family: Family, seen: CellSums, level: float) -> str:
    """What the rows prove of a constraint by itself, and how many rows it would take."""

    def proves(bound: float) -> bool:
        eased = replace(constraint, bound=bound)
        p = p_values(eased, seen)[None]
        return bool(passed([eased], p, family, level).any())

    if proves(constraint.bound):
        return f"By itself {constraint.text!r} is proven."
    proven = 0.0 if constraint.at_least else 1.0
    beyond = constraint.bound
    for _ in range(HALVINGS):
        middle = (proven + beyond) / 2
        if proves(middle):
            proven = middle
        else:
            beyond = middle
    # Rounded towards the side that is proven.
    shown = (math.floor if constraint.at_least else math.ceil)(1000 * proven) / 1000
    sign = ">=" if constraint.at_least else "<="
    told = f"These rows prove '{constraint.given} {sign} {shown:g}'."
    rate = rate_of(constraint)
    share = right_share(constraint)
    if constraint.gap or rate is None or not 0 < share < 1:
        return told
    needed = math.ceil(math.log(level) / math.log(share))
    most = int(seen.rates(constraint)[1].max())
    here = "" if rate.of in ("predicted", "rejected") else f" Here are {most:,}."
    return (
        f"{told} {constraint.text!r} takes {needed:,} {COUNTED[rate.of]}, even if all of them are "
        f"right.{here}"
    )
