"""Improve a rule by giving one label to more rows or to fewer, over all cuts.

`gain_search` follows slopes, which are blind to single rows. Where a constraint binds, single rows
decide whether it is met and at what cost.
"""

import numpy as np

from evalign.core.constraints import OfClass
from evalign.decisions.confusions import ScoredRows, best_of, label_scores
from evalign.decisions.objective import ROUNDING, Objective, in_units_of_rounding

# Moves from one start: enough for three rounds over twenty classes.
MOVES = 128
# Starts times classes: the moves from one start, and the time of each, grow with the classes.
STARTS_TIMES_CLASSES = 32
# Probabilities read in all moves: a limit for many rows, where single rows do not matter.
MOST_READ = 2**27
# Numbers in the confusions of a move, which bound how many evenly spread cuts it tries.
NUMBERS = 2**22
# A larger number in a rule would leave no digits for the others.
LARGEST_MOVE = 1e8


def best_neighbour(
    rows: ScoredRows, rules: np.ndarray, objective: Objective
) -> tuple[np.ndarray, np.ndarray]:
    """The best rule in the neighbourhood of some rules (S, ...), and its standing."""
    reached = standings(objective, rows.confusions(rules, objective))
    compared = in_units_of_rounding(reached).tolist()
    ranked = sorted(range(len(rules)), key=compared.__getitem__, reverse=True)
    best = rules[ranked[0]]
    standing = reached[ranked[0]]
    moves = MOST_READ // rows.eta.size
    most_starts = max(2, STARTS_TIMES_CLASSES // rows.eta.shape[1])
    for k in ranked[: max(1, min(moves // MOVES, most_starts))]:
        rule, end = _climb(rows, rules[k], reached[k], objective, min(moves, MOVES))
        if _better(end, standing):
            best, standing = rule, end
    return best, standing


def _climb(
    rows: ScoredRows, rule: np.ndarray, standing: np.ndarray, objective: Objective, most_moves: int
) -> tuple[np.ndarray, np.ndarray]:
    """Move one label after the other until no move improves the rule.

    Two numbers belong to the score of label j alone: one is added on every row, one multiplies η_j.
    All values of a number are tried at once, as cuts between the rows, sorted by the value at which
    j overtakes the best other label.
    """
    bounded = [
        constraint.metric.index
        for constraint in objective.constraints
        if isinstance(constraint.metric, OfClass)
    ]
    # The classes of constraints first.
    classes = dict.fromkeys([*(j for j in bounded if j is not None), *range(rows.eta.shape[1])])
    moves = [(j, multiplied) for j in classes for multiplied in (False, True)]
    in_vain = 0
    for step in range(most_moves):
        j, multiplied = moves[step % len(moves)]
        moved, reached = _best_move(rows, rule, objective, j, multiplied)
        in_vain += 1
        if _better(reached, standing):
            rule, standing = moved, reached
            in_vain = 0
        if in_vain == len(moves):
            break
    return rule, standing


def standings(objective: Objective, confusions: np.ndarray) -> np.ndarray:
    """(..., 2): minus the violation of the constraints, and the metric where there is none.

    The larger of two standings, in lexicographic order, is better.
    """
    scores = objective.unconstrained().scores(confusions)
    if not objective.constraints:
        return np.stack([np.zeros_like(scores), scores], -1)
    missing = np.nan_to_num(np.minimum(objective.smallest_slack(confusions), 0), nan=-np.inf)
    missing = np.where(missing >= -ROUNDING, 0, missing)
    return np.stack([missing, np.where(missing == 0, scores, -np.inf)], -1)


def _better(one: np.ndarray, other: np.ndarray) -> bool:
    gains = one > other + ROUNDING
    losses = one < other - ROUNDING
    return bool(gains[0] or (gains[1] and not losses[0]))


def _best_move(
    rows: ScoredRows, rule: np.ndarray, objective: Objective, j: int, multiplied: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The best rule that gives label j to the rows before a cut, and its standing."""
    scores = label_scores(rows.eta, rule, compact=objective.compact)
    score_of_j = scores[:, j].copy()
    scores[:, j] = -np.inf
    second, best_other = best_of(scores.T, scores.shape[1])
    overtakes = best_other - score_of_j
    if multiplied:
        likely = rows.eta[:, j]
        overtakes = np.divide(
            overtakes, likely, out=np.full_like(overtakes, np.inf), where=likely > 0
        )
    overtakes = overtakes.clip(-LARGEST_MOVE, LARGEST_MOVE)
    order = overtakes.argsort(kind="stable")
    overtakes = overtakes[order]

    # A cut lies between rows that differ; the outermost cuts, one beyond twice the last value.
    first = overtakes[0] - 1 - abs(overtakes[0])
    last = overtakes[-1] + 1 + abs(overtakes[-1])
    line = np.concatenate([[first], overtakes, [last]])
    cuts = np.flatnonzero(line[1:] - line[:-1] > ROUNDING * (1 + np.abs(line[1:])))
    values = (line[cuts] + line[cuts + 1]) / 2
    allowed = np.abs(values) < LARGEST_MOVE
    if multiplied and objective.compact:  # a higher probability must not count against its class
        allowed &= rule[0, j] + values >= 0
    cuts = cuts[allowed]
    values = values[allowed]
    if not len(cuts):
        return rule, np.full(2, -np.inf)
    most = max(2, NUMBERS // rule.size)
    if len(cuts) > most:
        even = np.linspace(0, len(cuts) - 1, most).astype(np.int64)
        cuts = cuts[even]
        values = values[even]

    confusions = _cut_confusions(rows.rows(order), second[order], cuts, objective, j)
    reached = standings(objective, confusions)
    # Among ties, the smallest move wins.
    least = reached[:, 0] >= reached[:, 0].max() - ROUNDING
    metric = np.where(least, reached[:, 1], -np.inf)
    ties = least & (metric >= metric.max() - ROUNDING)
    best = np.where(ties, np.abs(values), np.inf).argmin()
    moved = rule.copy()
    if multiplied:
        moved[(0, j) if objective.compact else (j, j)] += values[best]
    elif objective.compact:
        moved[1, j] += values[best]
    else:
        moved[:, j] += values[best]
    return moved / max(np.abs(moved).max(), 1e-300), reached[best]


def _cut_confusions(
    rows: ScoredRows, second: np.ndarray, cuts: np.ndarray, objective: Objective, j: int
) -> np.ndarray:
    """The confusions if rows before each cut get label j, and the others their best other label."""
    number, classes = rows.eta.shape
    part = np.searchsorted(cuts, np.arange(number), side="right")
    parts = len(cuts) + 1

    def before(labels: np.ndarray | int, values: np.ndarray) -> np.ndarray:
        """Sums (parts, C) by label of the rows before each cut, and of all rows."""
        sums = np.bincount(part * classes + labels, values, parts * classes)
        return sums.reshape(parts, classes).cumsum(0)

    if not objective.compact:
        targets = rows.groups * classes
        matrices = np.empty((len(cuts), targets, classes))
        for y in range(targets):
            lost = before(second, rows.weight * _of_target(rows, y))
            matrices[:, y] = lost[-1] - lost[:-1]
            matrices[:, y, j] = lost[:-1].sum(1)
        return matrices
    sums = []
    for of_second, of_j in (
        (rows.weight * rows.target_of(second), rows.weight * _of_target(rows, j)),
        (rows.mass, rows.mass),
    ):
        lost = before(second, of_second)
        gained = before(j, of_j)
        sums.append(lost[-1] - lost[:-1] + gained[:-1])
    sums.append(np.broadcast_to(rows.actual, sums[0].shape))
    return np.stack(sums, 1)


def _of_target(rows: ScoredRows, y: int) -> np.ndarray:
    """How far target y is true of each row: 0 or 1, or a probability."""
    return rows.target == y if rows.labelled else rows.target[:, y]
