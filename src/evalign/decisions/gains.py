"""More classes: the gain matrix of the linearised metric, by Frank–Wolfe."""

import torch
from torch import Tensor

from evalign.decisions.goal import ROUNDING, Goal

STEPS = 40
# Rows at a time: their probabilities and scores stay in the cache.
ROWS = 2**13
# Among more rows than this the many starts are tried on a part, evenly spread.
MANY = 2**14
# Starts times classes: beyond, only the rarest classes get starts of their own. All would cost C⁴.
CORNERS = 2**10
# Odds of the constraint against the metric in the Lagrangian.
ODDS = [0.0, *(2.0**k for k in range(-5, 6))]


def confusions(eta: Tensor, target: Tensor, weights: Tensor, gains: Tensor) -> Tensor:
    """The confusion matrix that each gain matrix (B, C, C) makes of the rows.

    C[y, j] = Σ_r w_r·target_r[y]·1{label_r = j}, with a row of weights (B, N) each.
    """
    total = torch.zeros_like(gains)
    parts = eta.split(ROWS), target.split(ROWS), weights.split(ROWS, 1)
    for eta_part, target_part, weight in zip(*parts, strict=True):
        labels = (eta_part @ gains).argmax(-1, keepdim=True)
        chosen = eta.new_zeros(*weight.shape, eta.shape[1])
        chosen.scatter_(2, labels, weight.unsqueeze(-1))
        total += target_part.T @ chosen
    return total


def best_gains(
    owner: str,
    eta: Tensor,
    target: Tensor,
    weights: Tensor,
    goal: Goal,
    starts: Tensor | None = None,
) -> Tensor:
    """The best gain matrix found for each row of weights (B, N), from given starts or from many.

    A constraint is met through its Lagrangian, (1 − s)·metric + s·slack: the search runs for a
    range of shares s at once, then for shares between the neighbours of the best one. Of all
    matrices on the way, the best one that meets the constraint is kept.
    """
    if starts is None:
        starts = _starts(target, weights)
        step = len(eta) // MANY + 1
        if step > 1:
            part = eta[::step], target[::step], weights[:, ::step]
            found = best_gains(owner, *part, Goal(goal.metric), starts)
            starts = torch.stack([starts[0], found])
    if goal.slack is None:
        return _search(eta, target, weights, goal, starts, weights.new_zeros(1))[0]

    odds = weights.new_tensor(ODDS)
    shares = odds / (1 + odds)
    step = len(eta) // MANY + 1
    part = eta[::step], target[::step], weights[:, ::step]
    gains, scores = _search(*part, goal, starts, shares)
    # The safest start: as much slack as there is.
    safe = best_gains(owner, eta, target, weights, Goal(goal.slack), starts)
    best = int(scores.argmax()) if scores.isfinite().any() else len(shares) - 1
    low, high = shares[max(best - 1, 0)], shares[min(best + 1, len(shares) - 1)]
    shares = torch.linspace(0, 1, 9, dtype=eta.dtype, device=eta.device) * (high - low) + low
    starts = torch.stack([gains[best].expand_as(safe), safe])
    gains, scores = _search(eta, target, weights, goal, starts, shares)
    if scores.isneginf().all():
        raise goal.infeasible(owner, confusions(eta, target, weights, safe))
    return gains[scores.argmax()].unsqueeze(0)


def _starts(target: Tensor, weights: Tensor) -> Tensor:
    """(S, B, C, C): argmax; every class weighted by one over its mass; each class up and down.

    Metrics such as precision and MCC have several local optima, and those with a class that is
    never predicted may have no slope at all; the starts lie on all sides of them.
    """
    mass = weights @ target
    even = torch.where(mass > 0, mass.sum(1, keepdim=True) / mass.clamp(min=1e-300), 1)
    one = torch.ones_like(mass)
    rarest = mass.sum(0).argsort(stable=True)[: CORNERS // mass.shape[1]]
    up = one + 3 * torch.eye(mass.shape[1], dtype=mass.dtype, device=mass.device)[rarest].unsqueeze(
        1
    )
    return normalised(torch.cat([torch.stack([one, even]), up, 1 / up]).diag_embed())


def _search(
    eta: Tensor, target: Tensor, weights: Tensor, goal: Goal, starts: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """The best of all starts (S, B, C, C), for each row of weights or each share (B), and scores.

    Either the rows of weights are many or the shares.
    """
    problems = max(len(weights), len(shares))
    starts = starts.expand(-1, problems, -1, -1)
    copies = len(starts)
    gains, scores = frank_wolfe(
        eta,
        target,
        weights.expand(problems, -1).repeat(copies, 1),
        starts.flatten(0, 1),
        goal,
        shares.expand(problems).repeat(copies),
    )
    scores, best = scores.view(copies, problems).max(0)
    gains = gains.view(starts.shape)
    return gains[best, torch.arange(problems, device=best.device)], scores


def frank_wolfe(
    eta: Tensor, target: Tensor, weights: Tensor, gains: Tensor, goal: Goal, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """Climb from B gain matrices at once; the best matrix on the way of each, and its score.

    To first order the best labels are argmax_j Σ_y η_y G[y, j] with G = ∂M/∂C. Their confusion
    matrix is a corner of what rules can reach; C moves towards it as far as M rises (a search over
    halvings of the step), and G is taken anew. The C that moves belongs to a randomised rule, so
    what is kept is the best corner.

    The gap ⟨G, corner − C⟩ ends the search when it is no longer positive. Where the metric is
    concave in C, and the target is η itself, it bounds what any rule could still gain and the end
    is a certificate. Most metrics (F-beta, MCC, precision) are not concave: for them the end is a
    stationary point and certifies nothing.
    """
    corner = confusions(eta, target, weights, gains)
    best, score = gains.clone(), goal.scores(corner)
    mean, value = corner.clone(), goal.mixed(corner, shares)
    steps = 0.5 ** torch.arange(12, dtype=eta.dtype, device=eta.device).view(-1, 1, 1)
    active = torch.arange(len(gains), device=gains.device)
    for _ in range(STEPS):
        slopes = goal.slopes(mean[active], shares[active])
        gains = normalised(slopes)
        corner = confusions(eta, target, weights[active], gains)
        corner_score = goal.scores(corner)
        better = corner_score > score[active] + ROUNDING
        best[active[better]] = gains[better]
        score[active[better]] = corner_score[better]

        towards = corner - mean[active]
        gap = (slopes * towards).sum((1, 2))
        path = mean[active].unsqueeze(1) + steps * towards.unsqueeze(1)
        values, step = goal.mixed(path, shares[active].unsqueeze(1)).max(1)
        rises = (values > value[active] + ROUNDING) & (gap > ROUNDING)
        active = active[rises]
        if not len(active):
            break
        mean[active] = path[rises, step[rises]]
        value[active] = values[rises]
    return best, score


def normalised(gains: Tensor) -> Tensor:
    """Smallest gain of every true class 0, largest of all 1: the same labels, less rounding."""
    gains = gains - gains.amin(-1, keepdim=True)
    return gains / gains.amax((-2, -1), keepdim=True).clamp(min=1e-300)
