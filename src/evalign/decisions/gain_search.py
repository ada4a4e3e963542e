"""More than two classes: find the gain matrix of the linearised metric by Frank–Wolfe."""

import torch
from torch import Tensor

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
STEPS_OF_ALL_STARTS, FEWEST_STARTS = 6, 4
# With at most this many rows, single rows decide what a constraint costs, and local search begins
# from all starts.
ROWS_FOR_FULL_LOCAL_SEARCH = 2**7
# Weight of a constraint violation relative to the metric.
ODDS = [0.0, *(2.0**k for k in range(-5, 6))]


def best_rule(
    rows: ScoredRows,
    objective: Objective,
    starts: Tensor | None = None,
    own: Tensor | None = None,
    *,
    believed: bool = False,
) -> Tensor:
    """The best rule found, from given starts (S, ...) or from many.

    Constraints enter as (1 − s)·metric − s·violation. The search runs for many shares s at once,
    then for shares between the neighbours of the best one, and local search improves the result,
    which may still miss the constraints. Without constraints, local search is only for few rows
    whose targets are `believed` probabilities: moving a single row for its label would be luck.
    The class weights `own` (C,), which give the model's own labels, are one of the starts.
    """
    step = len(rows.eta) // ROWS_FOR_STARTS + 1
    few = len(rows.eta) <= ROWS_FOR_FULL_LOCAL_SEARCH
    part = ScoredRows(*(each[::step] for each in rows))
    if starts is None:
        mass = objective.over_groups(rows.actual().unsqueeze(1)).squeeze(1)
        starts = weighted_argmax(_starts(mass, own), objective)
        if step > 1:
            found = best_rule(part, objective.unconstrained(), starts)
            starts = torch.stack([starts[0], found])
    if not objective.constraints:
        found = _search(rows, objective, starts, rows.weight.new_zeros(1))[0]
        return best_neighbour(rows, found, objective)[0] if believed and few else found[0]

    odds = rows.weight.new_tensor(ODDS)
    shares = odds / (1 + odds)
    rules, scores = _search(part, objective, starts, shares)
    safest = best_rule(rows, objective.safest(), starts)
    best = int(first_best(scores)) if scores.isfinite().any() else len(shares) - 1
    low, high = shares[max(best - 1, 0)], shares[min(best + 1, len(shares) - 1)]
    shares = torch.linspace(0, 1, 9, dtype=odds.dtype, device=odds.device) * (high - low) + low
    rules, scores = _search(rows, objective, torch.stack([rules[best], safest]), shares)

    found = torch.stack([safest, rules[first_best(scores)]])
    found = torch.cat([found, starts]) if few else found
    return best_neighbour(rows, found, objective)[0]


def _starts(mass: Tensor, own: Tensor | None) -> Tensor:
    """Class weights (S, C): the model's own, one over the mass (C,), each class up and down.

    They surround local optima, and points without a slope, where a class is never predicted.
    """
    even = torch.where(mass > 0, mass.sum() / mass.clamp(min=1e-300), 1)
    one = torch.ones_like(mass)
    rarest = mass.argsort(stable=True)[: STARTS_TIMES_CLASSES // len(mass)]
    up = one + 3 * torch.eye(len(mass), dtype=mass.dtype, device=mass.device)[rarest]
    own = one if own is None else own
    starts = torch.cat([torch.stack([own, even]), up, 1 / up])
    return starts / starts.amax(-1, keepdim=True)


def _search(
    rows: ScoredRows, objective: Objective, starts: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """The best rule of all starts (S, ...) for each share, and its score."""
    copies, number = len(starts), len(shares)
    every = starts.repeat_interleave(number, 0)
    rules, scores = frank_wolfe(rows, every, objective, shares.repeat(copies), number)
    scores, rules = (each.unflatten(0, (copies, number)) for each in (scores, rules))
    best = first_best(scores)
    return rules[best, torch.arange(number, device=best.device)], scores.amax(0)


def frank_wolfe(
    rows: ScoredRows, rules: Tensor, objective: Objective, shares: Tensor, problems: int
) -> tuple[Tensor, Tensor]:
    """Climb from B rules at once. Return the best rule on each path, and its score.

    To first order the best labels are argmax_j Σ_y η_y G[y, j] with G = ∂M/∂C. Their confusion
    matrix is a corner of the set that rules can reach. C moves towards the corner as far as M rises
    (a line search over halvings), and G is computed anew, until the gap ⟨G, corner − C⟩ is no
    longer positive: at a stationary point, which certifies nothing unless the metric is linear. C
    belongs to a randomised rule, so the best corner is kept. Every `problems`-th rule belongs to
    the same problem, and most rules that lag behind are dropped.
    """
    actual = rows.actual()
    corner = rows.confusions(rules, objective)
    best, score = rules.clone(), objective.scores(corner)
    mean, value = corner.clone(), objective.mixed(corner, shares)
    halvings = 0.5 ** torch.arange(12, dtype=mean.dtype, device=mean.device).view(-1, 1, 1)
    active = torch.arange(len(rules), device=rules.device)
    for step in range(MOST_STEPS):
        if step == STEPS_OF_ALL_STARTS:
            kept = max(FEWEST_STARTS, len(value) // problems // 4)
            compared = in_units_of_rounding(value).view(-1, problems)
            ranks = compared.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
            active = active[ranks.flatten()[active] < kept]
        if not len(active):
            break
        slopes = objective.slopes(mean[active], shares[active])
        rules = objective.mean_over_groups(slopes, actual)
        largest = rules.abs().amax((-2, -1), keepdim=True)
        rules = without_last_bits(rules / largest.clamp(min=1e-300))
        corner = rows.confusions(rules, objective)
        corner_score = objective.scores(corner)
        better = corner_score > score[active] + ROUNDING
        best[active[better]] = rules[better]
        score[active[better]] = corner_score[better]

        towards = corner - mean[active]
        gap = (slopes * towards).sum((1, 2))
        path = mean[active].unsqueeze(1) + halvings * towards.unsqueeze(1)
        values, halving = objective.mixed(path, shares[active].unsqueeze(1)).max(1)
        rises = (values > value[active] + LEAST_PROGRESS) & (gap > ROUNDING)
        active = active[rises]
        mean[active] = path[rises, halving[rises]]
        value[active] = values[rises]
    return best, score
