"""Rules near a rule: one class is given to more rows or to fewer, over all cuts.

The search of `gains` follows slopes, which see no single row. Where a constraint binds, single rows
decide whether it is met and what it costs. Here they are moved one by one, for one class at a time.
"""

import torch
from torch import Tensor

from evalign.core.constraints import OfClass
from evalign.decisions.goal import ROUNDING, Goal, but_for_rounding

# Moves of one class in all: enough for three rounds of twenty classes, and numbers to look at in
# all, which are reached with many rows, where single ones do not matter.
MOVES, LOOKED_AT = 128, 2**27
# Numbers in the confusions that are scored at once.
NUMBERS = 2**22
# Beyond this a number of a rule would leave no digits to the others.
FARTHEST = 1e8


def best_nearby(
    eta: Tensor,
    target: Tensor,
    weight: Tensor,
    rules: Tensor,
    reached: Tensor,
    goal: Goal,
    *,
    most_moves: int = MOVES,
    numbers: int = NUMBERS,
) -> tuple[Tensor, Tensor]:
    """The best rule near some rules, of which the standings are known, and its standing.

    A move tries as many cuts, evenly spread, as `numbers` allow.
    """
    compared = but_for_rounding(reached).tolist()
    ranked = sorted(range(len(rules)), key=compared.__getitem__, reverse=True)
    best, standing = rules[ranked[0]], reached[ranked[0]]
    moves = LOOKED_AT // eta.numel()
    for k in ranked[: max(1, moves // MOVES)]:
        steps = min(moves, most_moves)
        rule, end = _climb(eta, target, weight, rules[k], reached[k], goal, steps, numbers)
        if _better(end, standing):
            best, standing = rule, end
    return best, standing


def _climb(
    eta: Tensor,
    target: Tensor,
    weight: Tensor,
    rule: Tensor,
    standing: Tensor,
    goal: Goal,
    steps: int,
    numbers: int,
) -> tuple[Tensor, Tensor]:
    """Move one class after the other until none can be moved for the better.

    Label j's score has two numbers of its own: what it adds to every row, and what it multiplies
    η_j by. For each, all its values are tried at once: they are cuts between rows, sorted by where
    j overtakes the best other label.
    """
    named = [each.metric.index for each in goal.constraints if isinstance(each.metric, OfClass)]
    classes = dict.fromkeys([*(j for j in named if j is not None), *range(eta.shape[1])])
    moves = [(j, multiplied) for j in classes for multiplied in (False, True)]
    since = 0
    for step in range(steps):
        j, multiplied = moves[step % len(moves)]
        moved, reached = _best_move(eta, target, weight, rule, goal, j, multiplied, numbers)
        since += 1
        if _better(reached, standing):
            rule, standing, since = moved, reached, 0
        if since == len(moves):
            break
    return rule, standing


def standings(goal: Goal, confusions: Tensor) -> Tensor:
    """(..., 2): what is missing to meet the constraints, at most 0, and the metric where they are.

    The larger of two is the better, by the first number first.
    """
    scores = goal.free().scores(confusions)
    if not goal.constraints:
        return torch.stack([torch.zeros_like(scores), scores], -1)
    missing = goal.least(confusions).clamp(max=0).nan_to_num(-torch.inf)
    missing = missing.masked_fill(missing >= -ROUNDING, 0)
    return torch.stack([missing, torch.where(missing == 0, scores, -torch.inf)], -1)


def _better(one: Tensor, other: Tensor) -> bool:
    gains = (one > other + ROUNDING).tolist()
    losses = (one < other - ROUNDING).tolist()
    return gains[0] or (gains[1] and not losses[0])


def _best_move(
    eta: Tensor,
    target: Tensor,
    weight: Tensor,
    rule: Tensor,
    goal: Goal,
    j: int,
    multiplied: bool,
    numbers: int,
) -> tuple[Tensor, Tensor]:
    """The best rule that gives label j to the rows before some cut, and its standing."""
    scores = torch.addcmul(rule[1], eta, rule[0]) if goal.compact else eta @ rule
    own = scores[:, j].clone()
    scores[:, j] = -torch.inf
    other, second = scores.max(1)
    overtakes = other - own
    if multiplied:
        overtakes = torch.where(eta[:, j] > 0, overtakes / eta[:, j], torch.inf)
    overtakes, order = overtakes.clamp(-FARTHEST, FARTHEST).sort()

    # A cut lies between rows that differ; beyond the last ones it is as far as they are large.
    rows = len(order)
    ends = overtakes[[0, -1]]
    ends = ends + overtakes.new_tensor([-1, 1]) * (1 + ends.abs())
    line = torch.cat([ends[:1], overtakes, ends[1:]])
    cuts = (line[1:] - line[:-1] > ROUNDING * (1 + line[1:].abs())).nonzero().squeeze(1)
    values = (line[cuts] + line[cuts + 1]) / 2
    allowed = values.abs() < FARTHEST
    if multiplied and goal.compact:  # more evidence must not count against
        allowed &= rule[0, j] + values >= 0
    cuts, values = cuts[allowed], values[allowed]
    if not len(cuts):
        return rule, overtakes.new_full((2,), -torch.inf)
    most = max(2, numbers // rule.numel())
    if len(cuts) > most:
        even = torch.linspace(0, len(cuts) - 1, most, dtype=eta.dtype, device=cuts.device).long()
        cuts, values = cuts[even], values[even]

    confusions = _cut_confusions(
        target[order], weight[order], second[order], cuts, rows, goal, j, eta.shape[1]
    )
    reached = standings(goal, confusions)
    # Of equal ones the nearest is taken.
    least = reached[:, 0] >= reached[:, 0].max() - ROUNDING
    metric = torch.where(least, reached[:, 1], -torch.inf)
    ties = least & (metric >= metric.max() - ROUNDING)
    best = torch.where(ties, values.abs(), torch.inf).argmin()
    moved = rule.clone()
    if multiplied:
        moved[(0, j) if goal.compact else (j, j)] += values[best]
    elif goal.compact:
        moved[1, j] += values[best]
    else:
        moved[:, j] += values[best]
    return moved / moved.abs().amax().clamp(min=1e-300), reached[best]


def _cut_confusions(
    target: Tensor,
    weight: Tensor,
    second: Tensor,
    cuts: Tensor,
    rows: int,
    goal: Goal,
    j: int,
    classes: int,
) -> Tensor:
    """The confusions if the rows before each cut get label j, and the others their second label."""
    part = torch.searchsorted(cuts, torch.arange(rows, device=cuts.device), right=True)
    parts = len(cuts) + 1
    weighted = weight.unsqueeze(1) * target

    def before(index: Tensor, values: Tensor) -> Tensor:
        """Sums over the rows before each cut, and over all rows."""
        zeros = values.new_zeros(parts * classes, *values.shape[1:])
        sums = zeros.index_add_(0, part * classes + index, values)
        return sums.unflatten(0, (parts, classes)).cumsum(0)

    if not goal.compact:
        lost = before(second, weighted)  # by second label and true class
        matrices = lost[-1] - lost[:-1]
        matrices[:, j] = lost[:-1].sum(1)
        return matrices.mT
    own = torch.full_like(second, j)
    result = []
    for label_mass in (weighted, weight.unsqueeze(1).expand_as(target)):
        lost = before(second, label_mass.gather(1, second.unsqueeze(1)).squeeze(1))
        gained = before(own, label_mass[:, j])
        result.append(lost[-1] - lost[:-1] + gained[:-1])
    actual = weighted.sum(0).expand_as(result[0])
    return torch.stack([*result, actual], 1)
