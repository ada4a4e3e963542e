"""Improve a rule by giving one label to more rows or to fewer, over all cuts.

`gain_search` follows slopes, which are blind to single rows. Where a constraint binds, single rows
decide whether it is met and at what cost.
"""

import torch
from torch import Tensor

from evalign.core.constraints import OfClass
from evalign.decisions.confusions import ScoredRows, label_scores
from evalign.decisions.objective import ROUNDING, Objective, in_units_of_rounding

# Moves from one start: enough for three rounds over twenty classes.
MOVES = 128
# Probabilities read in all moves: a limit for many rows, where single rows do not matter.
MOST_READ = 2**27
# Numbers in the confusions of a move, which bound how many evenly spread cuts it tries.
NUMBERS = 2**22
# A larger number in a rule would leave no digits for the others.
LARGEST_MOVE = 1e8


def best_neighbour(rows: ScoredRows, rules: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """The best rule in the neighbourhood of some rules (S, ...), and its standing."""
    reached = standings(objective, rows.confusions(rules, objective))
    compared = in_units_of_rounding(reached).tolist()
    ranked = sorted(range(len(rules)), key=compared.__getitem__, reverse=True)
    best, standing = rules[ranked[0]], reached[ranked[0]]
    moves = MOST_READ // rows.eta.numel()
    for k in ranked[: max(1, moves // MOVES)]:
        rule, end = _climb(rows, rules[k], reached[k], objective, min(moves, MOVES))
        if _better(end, standing):
            best, standing = rule, end
    return best, standing


def _climb(
    rows: ScoredRows, rule: Tensor, standing: Tensor, objective: Objective, most_moves: int
) -> tuple[Tensor, Tensor]:
    """Move one label after the other until no move improves the rule.

    Two numbers belong to the score of label j alone: one is added on every row, one multiplies η_j.
    All values of a number are tried at once, as cuts between the rows, sorted by the value at which
    j overtakes the best other label.
    """
    of_one = [
        each.metric.index for each in objective.constraints if isinstance(each.metric, OfClass)
    ]
    classes = dict.fromkeys([*(j for j in of_one if j is not None), *range(rows.eta.shape[1])])
    moves = [(j, multiplied) for j in classes for multiplied in (False, True)]
    since = 0
    for step in range(most_moves):
        j, multiplied = moves[step % len(moves)]
        moved, reached = _best_move(rows, rule, objective, j, multiplied)
        since += 1
        if _better(reached, standing):
            rule, standing, since = moved, reached, 0
        if since == len(moves):
            break
    return rule, standing


def standings(objective: Objective, confusions: Tensor) -> Tensor:
    """(..., 2): minus the violation of the constraints, and the metric where there is none.

    The larger of two standings, in lexicographic order, is better.
    """
    scores = objective.unconstrained().scores(confusions)
    if not objective.constraints:
        return torch.stack([torch.zeros_like(scores), scores], -1)
    missing = objective.smallest_slack(confusions).clamp(max=0).nan_to_num(-torch.inf)
    missing = missing.masked_fill(missing >= -ROUNDING, 0)
    return torch.stack([missing, torch.where(missing == 0, scores, -torch.inf)], -1)


def _better(one: Tensor, other: Tensor) -> bool:
    gains = (one > other + ROUNDING).tolist()
    losses = (one < other - ROUNDING).tolist()
    return gains[0] or (gains[1] and not losses[0])


def _best_move(
    rows: ScoredRows, rule: Tensor, objective: Objective, j: int, multiplied: bool
) -> tuple[Tensor, Tensor]:
    """The best rule that gives label j to the rows before a cut, and its standing."""
    scores = label_scores(rows.eta, rule, compact=objective.compact)
    own = scores[:, j].clone()
    scores[:, j] = -torch.inf
    other, second = scores.max(1)
    overtakes = other - own
    if multiplied:
        overtakes = torch.where(rows.eta[:, j] > 0, overtakes / rows.eta[:, j], torch.inf)
    overtakes, order = overtakes.clamp(-LARGEST_MOVE, LARGEST_MOVE).sort()

    # A cut lies between rows that differ; the outermost cuts, one beyond twice the last value.
    ends = overtakes[[0, -1]]
    ends = ends + overtakes.new_tensor([-1, 1]) * (1 + ends.abs())
    line = torch.cat([ends[:1], overtakes, ends[1:]])
    cuts = (line[1:] - line[:-1] > ROUNDING * (1 + line[1:].abs())).nonzero().squeeze(1)
    values = (line[cuts] + line[cuts + 1]) / 2
    allowed = values.abs() < LARGEST_MOVE
    if multiplied and objective.compact:  # a higher probability must not count against its class
        allowed &= rule[0, j] + values >= 0
    cuts, values = cuts[allowed], values[allowed]
    if not len(cuts):
        return rule, overtakes.new_full((2,), -torch.inf)
    most = max(2, NUMBERS // rule.numel())
    if len(cuts) > most:
        even = torch.linspace(0, len(cuts) - 1, most, dtype=own.dtype, device=cuts.device).long()
        cuts, values = cuts[even], values[even]

    ordered = ScoredRows(*(part[order] for part in rows))
    reached = standings(objective, _cut_confusions(ordered, second[order], cuts, objective, j))
    # Among ties, the smallest move wins.
    least = reached[:, 0] >= reached[:, 0].max() - ROUNDING
    metric = torch.where(least, reached[:, 1], -torch.inf)
    ties = least & (metric >= metric.max() - ROUNDING)
    best = torch.where(ties, values.abs(), torch.inf).argmin()
    moved = rule.clone()
    if multiplied:
        moved[(0, j) if objective.compact else (j, j)] += values[best]
    elif objective.compact:
        moved[1, j] += values[best]
    else:
        moved[:, j] += values[best]
    return moved / moved.abs().amax().clamp(min=1e-300), reached[best]


def _cut_confusions(
    rows: ScoredRows, second: Tensor, cuts: Tensor, objective: Objective, j: int
) -> Tensor:
    """The confusions if rows before each cut get label j, and the others their best other label."""
    number, classes = rows.eta.shape
    part = torch.searchsorted(cuts, torch.arange(number, device=cuts.device), right=True)
    parts = len(cuts) + 1
    weighted = rows.weight.unsqueeze(1) * rows.target

    def before(index: Tensor, values: Tensor) -> Tensor:
        """Sums over the rows before each cut, and over all rows."""
        zeros = values.new_zeros(parts * classes, *values.shape[1:])
        sums = zeros.index_add_(0, part * classes + index, values)
        return sums.unflatten(0, (parts, classes)).cumsum(0)

    if not objective.compact:
        lost = before(second, weighted)  # by second label and true class
        matrices = lost[-1] - lost[:-1]
        matrices[:, j] = lost[:-1].sum(1)
        return matrices.mT
    own = torch.full_like(second, j)
    result = []
    for label_mass in (weighted, rows.weight.unsqueeze(1).expand_as(rows.target)):
        lost = before(second, label_mass.gather(1, second.unsqueeze(1)).squeeze(1))
        gained = before(own, label_mass[:, j])
        result.append(lost[-1] - lost[:-1] + gained[:-1])
    actual = weighted.sum(0).expand_as(result[0])
    return torch.stack([*result, actual], 1)
