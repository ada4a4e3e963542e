"""Which rules of a family pass their tests, at one level for all of them.

A rule breaks its promise if any of its constraints is violated. The largest of their p-values tests
this: whichever constraint is violated, its p-value alone is rarely small. So constraints that are
tested together share the level instead of dividing it (an intersection-union test).

- Rates among fixed rows (recall, specificity, fpr, fnr, predicted_rate) only rise or only fall
  along the cuts. Let the cut t* be the last one, seen from the safe end, that meets all bounds that
  are safe at this end, whatever the rows. If a cut beyond t* passes, so does t*, as its counts are
  at least as good. So the choice among all cuts costs nothing.
- Precision, npv, accuracy and gaps may rise and fall again, and the rows that chose a cut cannot
  test it. So a ladder of cuts is fixed by the ranks of the rows, without their labels, and climbed
  in a fixed order (the fallback procedure of Wiens): some steps, the starts, get parts of the
  level; a step that passes hands its part to the next step, and a step that fails loses it. A cut
  is tested as if it were at a row.
- Rules that are not cuts are climbed likewise, from the safest on.

Bounds that are safe at one end, those at the other, and each bound on a ladder get equal parts of
the level. A smaller level gives no step a larger part, so more confidence never promises more.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from evalign.core.constraints import Constraint
from evalign.decisions.families import Family
from evalign.decisions.p_values import RISING, rate_of, right_share

# Steps of the ladder for each halving of the rows beyond a threshold.
STEPS_PER_HALVING = 8
# The first start, in rows, and the ratio between starts. The best threshold for accuracy or a gap
# may lie anywhere, and needs a start nearby.
FIRST_START = 8.0
START_RATIO = 1.5
# Precision falls as more rows are labelled, so few starts are enough, each with a smaller part of
# the level than the one before. These numbers promised as often as starts sized for one level.
START_RATIO_OF_LABELLED = 3.0
PART_RATIO_OF_LABELLED = 0.6
# The level between two of these numbers goes to starts that are sized for it.
LEVELS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5)

# The ends of the cuts: the class for all rows, or for none.
ENDS = ("all", "none")


def passed(
    constraints: Sequence[Constraint], p: np.ndarray, family: Family, level: float
) -> np.ndarray:
    """Which rules of a family (K,) pass, by the p-values (constraints, K)."""
    if family.below is None:
        parts = np.zeros(p.shape[1])
        parts[list(family.starts)] = level / len(set(family.starts))
        return _fallback(p.max(0), np.arange(p.shape[1]), parts)
    sides = [safe_side(constraint, family) for constraint in constraints]
    together = [np.array([side == end for side in sides]) for end in ENDS if end in sides]
    alone = [k for k, side in enumerate(sides) if side is None]
    part = level / (len(together) + len(alone))
    passes = np.ones(p.shape[1], dtype=bool)
    for members in together:
        passes &= p[members].max(0) <= part
    for k in alone:
        passes &= climbed(constraints[k], p[k], family.below, part, family.chosen)
    return passes


def safe_side(constraint: Constraint, family: Family) -> str | None:
    """The end of the cuts at which a constraint surely holds, None if it is certain at neither."""
    rate = rate_of(constraint)
    assert rate is not None
    if constraint.gap or not rate.known_of_constant_labels:
        return None
    rises = (rate.stem in RISING) == (rate.class_index == family.chosen)
    return "all" if rises == constraint.at_least else "none"


def climbed(
    constraint: Constraint, p: np.ndarray, below: np.ndarray, level: float, chosen: int = 1
) -> np.ndarray:
    """Which of all cuts for a class pass a constraint, on a ladder.

    A rate among the rows with a label is climbed from few of these rows to many; accuracy or a gap
    from few rows with the class to many, with starts at both ends.
    """
    rate = rate_of(constraint)
    assert rate is not None
    rows = int(below[-1])
    of_labelled = rate.of in ("predicted", "rejected") and not constraint.gap
    upwards = of_labelled and (rate.of == "predicted") != (rate.class_index == chosen)

    def places(sizes: np.ndarray, from_below: bool) -> np.ndarray:
        """The cuts with so many rows below them, or above them."""
        count = np.round(sizes) if from_below else rows - np.round(sizes)
        return np.minimum(np.searchsorted(below, count), len(below) - 1)

    parts = np.zeros(len(p))
    if of_labelled:
        for size, part in _starts_of_labelled(right_share(constraint), rows, level):
            parts[places(np.array(size), upwards)] += part
    else:
        number = math.log(max(rows / FIRST_START, 1)) / math.log(START_RATIO)
        sizes = FIRST_START * START_RATIO ** np.arange(number + 1)
        sizes = sizes[sizes <= rows / 2]
        starts = np.unique(np.concatenate([places(sizes, side) for side in (False, True)]))
        parts[starts] = level / max(len(starts), 1)

    halvings = np.arange(STEPS_PER_HALVING * math.log2(max(rows, 2)) + 1) / STEPS_PER_HALVING
    steps = [places(rows * 0.5**halvings, side) for side in (False, True)]
    order = np.unique(np.concatenate([np.flatnonzero(parts), *steps]))
    return _fallback(p, order if upwards else order[::-1], parts)


def _starts_of_labelled(bound: float, rows: int, level: float) -> Iterator[tuple[float, float]]:
    """The starts for a rate among labelled rows: so many of these rows, and a part of the level.

    If all rows of a start are right, its p-value is the bound to their number. So each level needs
    starts of its own size. Those for smaller levels stay if the level grows, and lose nothing.
    """
    bound = min(max(bound, 1e-9), 1 - 1e-12)
    for low, high in pairwise(LEVELS):
        spent = min(level, high) - low
        if spent <= 0:
            break
        most = rows * math.log(bound) / math.log(high - low)
        number = 1 + int(math.log(max(most, 1)) / math.log(START_RATIO_OF_LABELLED))
        shares = PART_RATIO_OF_LABELLED ** np.arange(number)
        shares = shares / shares.sum()
        first = math.log((high - low) * shares[0]) / math.log(bound)
        for k, share in enumerate(shares.tolist()):
            yield first * START_RATIO_OF_LABELLED**k, spent * share


def _fallback(p: np.ndarray, order: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Which rules pass, tested in some order, with a part of the level at each start."""
    passes = np.zeros(len(p), dtype=bool)
    held = 0.0
    for step in order:
        held += parts[step]
        passes[step] = held > 0 and p[step] <= held
        if not passes[step]:
            held = 0.0
    return passes
