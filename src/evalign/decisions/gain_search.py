"""More than two classes: find the gain matrix of the linearised metric by Frank–Wolfe."""

import numpy as np

from evalign.decisions.confusions import ScoredRows, weighted_argmax, without_last_bits
from evalign.decisions.local_search import best_neighbour
from evalign.decisions.objective import ROUNDING, Objective, first_best, in_units_of_rounding

MOST_STEPS = 40
# A smaller gain of the metric ends the climb: the rows cannot tell the rules apart.
LEAST_PROGRESS = 1e-7
# With more rows, the many starts are tried on an evenly spread part of them.
ROWS_FOR_STARTS = 2**14
# Starts times classes. Beyond this only the rarest classes get their own starts: all would cost C⁴.
STARTS_TIMES_CLASSES = 2**10
# After this many steps only the best quarter of the starts continues, but at least four. Earlier,
# the eventual winners are not yet ahead.
STEPS_OF_ALL_STARTS = 6
FEWEST_STARTS = 4
# With at most this many rows, single rows decide what a constraint costs, and local search begins
# from all starts.
ROWS_FOR_FULL_LOCAL_SEARCH = 2**7
# Weight of a constraint violation relative to the metric.
ODDS = [0.0, *(2.0**k for k in range(-5, 6))]


def best_rule(
    rows: ScoredRows,
    objective: Objective,
    starts: np.ndarray | None = None,
    own: np.ndarray | None = None,
    *,
    believed: bool = False,
) -> np.ndarray:
    """The best rule found, from given starts (S, ...) or from many.

    Constraints enter as (1 − s)·metric − s·violation. The search runs for many shares s at once,
    then for shares between the neighbours of the best one, and local search improves the result,
    which may still miss the constraints. Without constraints, local search is only for few rows
    whose targets are `believed` probabilities: moving a single row for its label would be luck.
    The class weights `own` (C,), which give the model's own labels, are one of the starts.
    """
    step = len(rows.eta) // ROWS_FOR_STARTS + 1
    few = len(rows.eta) <= ROWS_FOR_FULL_LOCAL_SEARCH
    part = rows.rows(slice(None, None, step)) if step > 1 else rows
    if starts is None:
        mass = objective.over_groups(rows.actual[:, None])[:, 0]
        starts = weighted_argmax(_starts(mass, own), objective)
        if step > 1:
            found = best_rule(part, objective.unconstrained(), starts)
            starts = np.stack([starts[0], found])
    if not objective.constraints:
        rules, _ = _search(rows, objective, starts, np.zeros(1))
        return best_neighbour(rows, rules, objective)[0] if believed and few else rules[0]

    odds = np.array(ODDS)
    shares = odds / (1 + odds)
    rules, scores = _search(part, objective, starts, shares)
    safest = best_rule(rows, objective.safest(), starts)
    best = int(first_best(scores)) if np.isfinite(scores).any() else len(shares) - 1
    low = shares[max(best - 1, 0)]
    high = shares[min(best + 1, len(shares) - 1)]
    shares = np.linspace(0, 1, 9) * (high - low) + low
    rules, scores = _search(rows, objective, np.stack([rules[best], safest]), shares)

    candidates = np.stack([safest, rules[first_best(scores)]])
    candidates = np.concatenate([candidates, starts]) if few else candidates
    return best_neighbour(rows, candidates, objective)[0]


def _starts(mass: np.ndarray, own: np.ndarray | None) -> np.ndarray:
    """Class weights (S, C): the model's own, one over the mass (C,), each class up and down.

    They surround local optima, and points without a slope, where a class is never predicted.
    """
    even = np.where(mass > 0, mass.sum() / np.maximum(mass, 1e-300), 1)
    one = np.ones_like(mass)
    rarest = mass.argsort(kind="stable")[: STARTS_TIMES_CLASSES // len(mass)]
    up = one + 3 * np.eye(len(mass))[rarest]
    own = one if own is None else own
    starts = np.concatenate([np.stack([own, even]), up, 1 / up])
    return starts / starts.max(-1, keepdims=True)


def _search(
    rows: ScoredRows, objective: Objective, starts: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The best rule of all starts (S, ...) for each share, and its score."""
    copies = len(starts)
    problems = len(shares)
    every = starts.repeat(problems, 0)
    rules, scores = frank_wolfe(rows, every, objective, np.tile(shares, copies), problems)
    rules = rules.reshape(copies, problems, *rules.shape[1:])
    scores = scores.reshape(copies, problems)
    return rules[first_best(scores), np.arange(problems)], scores.max(0)


def frank_wolfe(
    rows: ScoredRows, rules: np.ndarray, objective: Objective, shares: np.ndarray, problems: int
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from B rules at once. Return the best rule on each path, and its score.

    To first order the best labels are argmax_j Σ_y η_y G[y, j] with G = ∂M/∂C. Their confusion
    matrix is a corner of the set that rules can reach. C moves towards the corner as far as M rises
    (a line search over halvings), and G is computed anew, until the gap ⟨G, corner − C⟩ is no
    longer positive: at a stationary point, which certifies nothing unless the metric is linear. C
    belongs to a randomised rule, so the best corner is kept. Every `problems`-th rule belongs to
    the same problem, and most rules that lag behind are dropped.
    """
    actual = rows.actual
    corner = rows.confusions(rules, objective)
    best = rules.copy()
    score = objective.scores(corner)
    mean = corner.copy()
    value = objective.mixed(corner, shares)
    halvings = 0.5 ** np.arange(12)[:, None, None]
    active = np.arange(len(rules))
    for step in range(MOST_STEPS):
        if step == STEPS_OF_ALL_STARTS:
            kept = max(FEWEST_STARTS, len(value) // problems // 4)
            compared = in_units_of_rounding(value).reshape(-1, problems)
            ranks = (-compared).argsort(axis=0, kind="stable").argsort(axis=0)
            active = active[ranks.ravel()[active] < kept]
        if not len(active):
            break
        slopes = objective.slopes(mean[active], shares[active])
        rules = objective.mean_over_groups(slopes, actual)
        largest = np.abs(rules).max((-2, -1), keepdims=True)
        rules = without_last_bits(rules / np.maximum(largest, 1e-300))
        corner = rows.confusions(rules, objective)
        corner_score = objective.scores(corner)
        better = corner_score > score[active] + ROUNDING
        best[active[better]] = rules[better]
        score[active[better]] = corner_score[better]

        towards = corner - mean[active]
        gap = (slopes * towards).sum((1, 2))
        path = mean[active][:, None] + halvings * towards[:, None]
        values = objective.mixed(path, shares[active][:, None])
        halving = values.argmax(1)
        values = values[np.arange(len(values)), halving]
        rises = (values > value[active] + LEAST_PROGRESS) & (gap > ROUNDING)
        active = active[rises]
        mean[active] = path[rises, halving[rises]]
        value[active] = values[rises]
    return best, score
