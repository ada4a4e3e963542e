"""More than two classes: find the gain matrix of the linearised metric by Frank–Wolfe."""

import torch
from torch import Tensor

from evalign.decisions.confusions import ScoredRows, weighted_argmax, without_last_bits
from evalign.decisions.local_search import best_neighbour, standings
from evalign.decisions.objective import ROUNDING, Objective, first_best, in_units_of_rounding

MOST_STEPS = 40
# A step that gains less of the metric ends the climb. Rows cannot tell such rules apart.
LEAST_PROGRESS = 1e-7
# With more rows, the many starts are tried on an evenly spread part of them.
ROWS_FOR_STARTS = 2**14
# Starts times classes. Beyond this only the rarest classes get starts of their own: all cost C⁴.
STARTS_TIMES_CLASSES = 2**10
# After so many steps only the best quarter of the starts goes on, but at least four. Earlier, those
# that end best are not yet ahead.
STEPS_OF_ALL_STARTS, FEWEST_STARTS = 6, 4
# With so few rows single ones decide what a constraint costs, and the local search begins from all
# starts.
ROWS_FOR_FULL_LOCAL_SEARCH = 2**7
# Moves, and numbers in the confusions of a move, of a quick local search.
QUICK_MOVES, QUICK_NUMBERS = 16, 2**18
# Odds of the violation of the constraints against the metric.
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

    Constraints are met through (1 − s)·metric − s·violation: the search runs for a range of shares
    s at once, then for shares between the neighbours of the best one. The best rule on the way that
    meets the constraints is kept and improved by local search.

    Args:
        rows: the rows to label.
        objective: the objective.
        starts: rules to start from.
        own: weights of the classes (C,) that give the model's own labels, 1 by default. They are
            one of the starts.
        believed: whether targets are probabilities. Then local search improves the rule of few
            rows also without constraints; with labels as targets, a move by a single row is luck.
    """
    step = len(rows.eta) // ROWS_FOR_STARTS + 1
    few = len(rows.eta) <= ROWS_FOR_FULL_LOCAL_SEARCH
    part = rows.every(step)
    if starts is None:
        mass = objective.over_groups(rows.actual().unsqueeze(1)).squeeze(1)
        starts = weighted_argmax(_starts(mass, own), objective)
        if step > 1:
            found = best_rule(part, objective.unconstrained(), starts)
            starts = torch.stack([starts[0], found])
    if not objective.constraints:
        found = _search(rows, objective, starts, rows.weight.new_zeros(1))[0]
        return _improved(rows, found, objective)[0] if believed and few else found[0]

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
    rule, standing = _improved(rows, found, objective)
    if standing[0] < 0:
        raise objective.infeasible(rows.confusions(rule.unsqueeze(0), objective))
    return rule


def quick_standing(
    eta: Tensor, target: Tensor, weight: Tensor, objective: Objective, own: Tensor
) -> Tensor:
    """The standing (2,) of a good rule near a model's own labels, argmax_j own_j η_j.

    Cheap enough to compare the epochs of a training, and not a rule to use.
    """
    rule = weighted_argmax(own, objective).unsqueeze(0)
    rows, few = (
        ScoredRows(eta, target, weight),
        {"most_moves": QUICK_MOVES, "numbers": QUICK_NUMBERS},
    )
    return _improved(rows, rule, objective, **few)[1]


def _improved(
    rows: ScoredRows, rules: Tensor, objective: Objective, **limits: int
) -> tuple[Tensor, Tensor]:
    """The best rule in the neighbourhood of some rules, and its standing."""
    reached = standings(objective, rows.confusions(rules, objective))
    return best_neighbour(rows, rules, reached, objective, **limits)


def _starts(mass: Tensor, own: Tensor | None) -> Tensor:
    """Weights of the classes (S, C): the model's own, one over their mass (C,), each up and down.

    Metrics such as precision and MCC have several local optima, and where a class is never
    predicted they may have no slope at all. The starts lie on all sides of these places.
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
    """Climb from B rules at once. Return the best rule on the way of each, and its score.

    To first order the best labels are argmax_j Σ_y η_y G[y, j] with G = ∂M/∂C. Their confusion
    matrix is a corner of the set that rules can reach; C moves towards it as far as M rises (a
    search over halvings of the step), and G is taken anew. The C that moves belongs to a randomised
    rule, so the best corner is kept. Every `problems`-th rule belongs to the same problem, and most
    of those that lag behind are given up.

    The gap ⟨G, corner − C⟩ ends the search when it is no longer positive. Where the metric is
    concave in C, and the target is η itself, it bounds the gain of any other rule over C, but not
    over the corner that is kept, unless the metric is linear. Most metrics (F-beta, MCC, precision)
    are not concave: for them the end is a stationary point and certifies nothing.
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
