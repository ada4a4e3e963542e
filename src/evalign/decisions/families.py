"""Families of rules that no label has chosen, to be tested with all labels.

A family is made from the scores alone, so its tests need no rows of their own. Its members differ
in one number, the tilt:

- Two classes: all thresholds.
- Bounds on one of several classes: a base rule, the best for the metric that the model's own
  probabilities expect, and a tilt for or against this class. Each row gets either the class or the
  best of the other labels. So the family is a threshold on how far the class leads, and its
  confusions are those of cuts between the rows.
- Bounds on several classes, or on accuracy alone: mixtures of the base rule and of the rule that is
  expected to keep the largest distance to all bounds, from the safest to the base rule.

The probabilities are not calibrated first: that would take the labels.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from evalign.decisions.blocks import softmax
from evalign.decisions.confusions import ScoredRows, best_of, normalised
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import Objective
from evalign.decisions.p_values import CellSums, p_values, rate_of
from evalign.decisions.threshold import SATURATED, all_cuts, cut_places, threshold_gains
from evalign.decisions.tuned import LogitRows, search_gains

# Numbers in the confusions of a family, which bound how many evenly spread cuts it has.
NUMBERS = 2**22
# Weights of the safest rule against the base rule.
WEIGHTS = 2.0 ** np.linspace(8, -8, 65)


class Family(NamedTuple):
    """Rules in the order of their tilt, and the weights and squared weights of their cells.

    `mass` and `squares` are matrices (K, G·C, C), and `gain` gives the matrix of a rule. `tilts`
    are 0 at the base rule.

    Of cuts, rule k withholds the `chosen` class from `below[k]` rows, and the `constant` gains give
    it to all rows and to none. Other rules stand from the safest on, and `starts` are the places
    where tests begin.
    """

    gain: Callable[[int], np.ndarray]
    tilts: np.ndarray
    mass: np.ndarray
    squares: np.ndarray
    chosen: int = 1
    below: np.ndarray | None = None
    constant: tuple[np.ndarray, np.ndarray] | None = None
    starts: tuple[int, ...] = ()


def family_of(rows: LogitRows, objective: Objective) -> Family:
    """The family for the bounds of an objective."""
    if rows.logits.shape[1] == 2:
        return _thresholds(rows, objective)
    rates = [rate_of(constraint) for constraint in objective.constraints]
    classes = {rate.class_index for rate in rates if rate is not None and rate.of_class}
    if len(classes) == 1:
        return _one_against_the_others(rows, objective, classes.pop())
    return _mixtures(rows, objective)


def _thresholds(rows: LogitRows, objective: Objective) -> Family:
    """All thresholds of two classes."""
    margin = rows.logits[:, 1] - rows.logits[:, 0]
    number = objective.groups or 1
    middle, below, mass = all_cuts(margin, rows.target, rows.weight, number)
    _, _, squares = all_cuts(margin, rows.target, rows.weight**2, number)

    def gain(k: int) -> np.ndarray:
        return threshold_gains(middle[k])

    beyond = 2 * SATURATED
    constant = threshold_gains(-beyond), threshold_gains(beyond)
    return Family(gain, middle, mass, squares, below=below, constant=constant)


def _base(eta: np.ndarray, weight: np.ndarray, objective: Objective) -> np.ndarray:
    """The gain matrix that is best for the metric if the probabilities η are true."""
    return search_gains(eta, without_floor(eta), weight, objective.of_all_rows())


def _one_against_the_others(rows: LogitRows, objective: Objective, chosen: int) -> Family:
    """Tilts of the base rule for or against one class.

    A tilt for the class raises the gain of its right labels, so that rows win by their ratio of
    probabilities; a tilt against it lowers the gain of all its labels.
    """
    eta = softmax(rows.logits)
    classes = eta.shape[1]
    base = _base(eta, rows.weight, objective)
    scores = (base.T @ eta.T).T
    of_chosen = scores[:, chosen].copy()
    scores[:, chosen] = -np.inf
    other, best_other = best_of(scores.T, classes)
    lead = of_chosen - best_other
    shortfall = np.maximum(-lead, 0) / np.maximum(eta[:, chosen], 1e-300)
    tilts, below, mass, squares = _cuts(
        np.where(lead > 0, lead, -np.log1p(shortfall)), other, rows, objective, chosen
    )

    def gain(k: int) -> np.ndarray:
        tilted = base.copy()
        if tilts[k] < 0:
            tilted[chosen, chosen] += np.expm1(-tilts[k])
        else:
            tilted[:, chosen] -= tilts[k]
        return normalised(tilted)

    always = np.zeros_like(base)
    always[:, chosen] = 1.0
    never = base.copy()
    never[:, chosen] = -1.0
    constant = always, normalised(never)
    return Family(gain, tilts, mass, squares, chosen, below, constant=constant)


def _cuts(
    margin: np.ndarray, other: np.ndarray, rows: LogitRows, objective: Objective, chosen: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The thresholds, the rows below, and the cells if rows above get the chosen class."""
    classes = rows.logits.shape[1]
    targets = classes * (objective.groups or 1)
    order, tilts, below = cut_places(margin)
    most = max(NUMBERS // (targets * classes), 2)
    if len(below) > most:
        even = np.linspace(0, len(below) - 1, most).astype(np.int64)
        tilts = tilts[even]
        below = below[even]
    part = np.searchsorted(below, np.arange(len(order)), side="right")
    target = rows.target[order]

    def cells(weight: np.ndarray) -> np.ndarray:
        shape = (len(below) + 1, targets, classes)
        of_others = np.bincount(
            (part * targets + target) * classes + other[order], weight, np.prod(shape)
        )
        gained = np.bincount(part * targets + target, weight, shape[0] * targets)
        gained = gained.reshape(shape[:2])
        sums = of_others.reshape(shape).cumsum(0)[:-1]
        sums[:, :, chosen] += gained[::-1].cumsum(0)[::-1][1:]
        return sums

    weight = rows.weight[order]
    return tilts, below, cells(weight), cells(weight**2)


def _mixtures(rows: LogitRows, objective: Objective) -> Family:
    """Mixtures of the rule that is expected to be safest and the base rule, in this order."""
    eta = softmax(rows.logits)
    base = _base(eta, rows.weight, objective)
    believed = objective.by_group(without_floor(eta), rows.groups)
    safest = search_gains(eta, believed, rows.weight, objective.safest())
    gains = np.concatenate([safest[None], base + WEIGHTS[:, None, None] * safest, base[None]])
    groups = objective.groups or 1

    def cells(target: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return ScoredRows(eta, target, weight, groups).matrices(gains)

    expected = CellSums.of(objective, cells(believed, rows.weight), cells(believed, rows.weight**2))
    p = np.max([p_values(constraint, expected) for constraint in objective.constraints], 0)
    starts = (0, int(p.argmin()))
    tilts = np.concatenate([[2 * WEIGHTS[0]], WEIGHTS, [0.0]])
    mass = cells(rows.target, rows.weight)
    squares = cells(rows.target, rows.weight**2)
    return Family(lambda k: normalised(gains[k]), tilts, mass, squares, starts=starts)
