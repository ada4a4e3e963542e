"""More classes: the gain matrix of the linearised metric, by Frank–Wolfe.

A rule labels a row argmax_j Σ_y η_y G[y, j]. While it is searched for, a rule is the slope of the
metric where the search stands: G itself, (C, C), or for a compact goal the slopes (3, C) by the
sums, a of the true positives, b of the predicted mass, and those of the actual mass, which move no
label. Then G = diag(a) + 1·bᵀ, and the label argmax_j (a_j η_j + b_j) takes C operations, not C².
"""

import torch
from torch import Tensor

from evalign.decisions.goal import ROUNDING, Goal, but_for_rounding, first_best
from evalign.decisions.nearby import best_nearby, standings

STEPS = 40
# Bits of a gain that are left out: more than sums round, fewer than part rows beside a cut.
LAST = 10
# A step that gains less of the metric ends the climb. This is far below what rows can tell apart.
PROGRESS = 1e-7
# Numbers at a time: the scores of a block of rows stay in the cache.
BLOCK = 2**18
# With more rows than this, the many starts are tried on an evenly spread part of them.
MANY = 2**14
# Starts times classes. Beyond this only the rarest classes get starts of their own: all cost C⁴.
CORNERS = 2**10
# After so many steps only the best quarter of the starts goes on, but at least four. Earlier, those
# that end best are not yet ahead.
CUT, FEWEST = 6, 4
# With so few rows single ones decide what a constraint costs, and all starts are climbed from.
FEW = 2**7
# Moves of one class, and numbers in the confusions of a move, of a quick look.
QUICK_MOVES, QUICK_NUMBERS = 16, 2**18
# Odds of what is missing to the constraints against the metric.
ODDS = [0.0, *(2.0**k for k in range(-5, 6))]


def confusions(eta: Tensor, target: Tensor, weight: Tensor, gains: Tensor) -> Tensor:
    """The confusion matrix that each gain matrix (B, C, C) makes of the rows, of weights (N,).

    C[y, j] = Σ_r w_r·target_r[y]·1{label_r = j}, for targets (N, C), or (N, G·C) of groups.
    """
    number, classes, _ = gains.shape
    # By rule and label, then by true class.
    total = gains.new_zeros(number * classes, target.shape[1])
    first = classes * torch.arange(number, device=gains.device).unsqueeze(1)
    for eta_part, target_part, mass in _blocks(number, eta, target, weight):
        labels = (eta_part @ gains).max(-1).indices  # twice as fast as argmax
        weighted = mass.unsqueeze(1) * target_part
        total.index_add_(0, (first + labels).flatten(), weighted.repeat(number, 1))
    return total.view(number, classes, -1).mT


def _sums(eta: Tensor, target: Tensor, weight: Tensor, rules: Tensor, actual: Tensor) -> Tensor:
    """The true positives, predicted and actual mass (B, 3, C) that each rule makes of the rows."""
    a, b, _ = rules.unsqueeze(2).unbind(1)
    total = torch.zeros_like(rules)
    for eta_part, target_part, mass in _blocks(len(rules), eta, target, weight):
        labels = torch.addcmul(b, eta_part, a).max(-1).indices  # twice as fast as argmax
        total[:, 0].scatter_add_(1, labels, mass * target_part.T.gather(0, labels))
        total[:, 1].scatter_add_(1, labels, (mass * target_part.sum(1)).expand_as(labels))
    total[:, 2] = actual
    return total


def _blocks(
    rules: int, eta: Tensor, target: Tensor, weight: Tensor
) -> "zip[tuple[Tensor, Tensor, Tensor]]":
    rows = max(2**8, BLOCK // (rules * eta.shape[1]))
    return zip(eta.split(rows), target.split(rows), weight.split(rows), strict=True)


def gain_matrix(rule: Tensor, goal: Goal) -> Tensor:
    """The gain matrix (C, C) of a rule."""
    if goal.compact:
        a, b, _ = rule
        rule = a.diag() + b
    return _rounded(normalised(rule))


def _rounded(gains: Tensor) -> Tensor:
    """Gains without their last digits, by Veltkamp's splitting.

    These depend on the order of the rows, and would part classes that tie on a row.
    """
    far = (2**LAST + 1) * gains
    return far - (far - gains)


def class_weights(weights: Tensor, goal: Goal) -> Tensor:
    """The rules argmax_j w_j η_j, for weights of the classes (..., C)."""
    if not goal.compact:
        return weights.diag_embed()
    return torch.stack([weights, torch.zeros_like(weights), torch.zeros_like(weights)], -2)


def best_rule(
    owner: str,
    eta: Tensor,
    target: Tensor,
    weight: Tensor,
    goal: Goal,
    starts: Tensor | None = None,
    own: Tensor | None = None,
    *,
    believed: bool = False,
) -> Tensor:
    """The best rule found for rows of weights (N,), from given starts (S, ...) or many.

    Constraints are met through (1 − s)·metric − s·(what is missing to them): the search runs for a
    range of shares s at once, then for shares between the neighbours of the best one. Of all rules
    on the way, the best one that meets the constraints is kept, and its neighbours are tried. `own`
    are the weights of the classes (C,) whose labels are the model's own, one of the starts. They
    are 1 by default. Of few rows whose targets are probabilities, `believed`, the neighbours are
    tried without constraints too. With labels as targets, a move by a single row is luck.
    """
    step = len(eta) // MANY + 1
    part = eta[::step], target[::step], weight[::step]
    if starts is None:
        mass = goal.over_groups((weight @ target).unsqueeze(1)).squeeze(1)
        starts = class_weights(_starts(mass, own), goal)
        if step > 1:
            found = best_rule(owner, *part, goal.free(), starts)
            starts = torch.stack([starts[0], found])
    if goal.slack is None:
        found = _search(eta, target, weight, goal, starts, weight.new_zeros(1))[0]
        few = believed and len(eta) <= FEW
        return _nearby(eta, target, weight, found, goal)[0] if few else found[0]

    odds = weight.new_tensor(ODDS)
    shares = odds / (1 + odds)
    rules, scores = _search(*part, goal, starts, shares)
    # The safest start is the rule with the most slack.
    safe = best_rule(owner, eta, target, weight, goal.safest(), starts)
    best = int(first_best(scores)) if scores.isfinite().any() else len(shares) - 1
    low, high = shares[max(best - 1, 0)], shares[min(best + 1, len(shares) - 1)]
    shares = torch.linspace(0, 1, 9, dtype=eta.dtype, device=eta.device) * (high - low) + low
    rules, scores = _search(eta, target, weight, goal, torch.stack([rules[best], safe]), shares)

    found = torch.stack([safe, rules[first_best(scores)]])
    found = torch.cat([found, starts]) if len(eta) <= FEW else found
    rule, standing = _nearby(eta, target, weight, found, goal)
    if standing[0] < 0:
        reached = _confusions(eta, target, weight, rule.unsqueeze(0), goal, weight @ target)
        raise goal.infeasible(owner, reached)
    return rule


def quick_standing(eta: Tensor, target: Tensor, weight: Tensor, goal: Goal, own: Tensor) -> Tensor:
    """The standing (2,) of a good rule near a model's own labels, argmax_j own_j η_j.

    It costs as much as some looks at the rows, and is for comparing models, not for use.
    """
    rule = class_weights(own, goal).unsqueeze(0)
    few: dict[str, int] = {"most_moves": QUICK_MOVES, "numbers": QUICK_NUMBERS}
    return _nearby(eta, target, weight, rule, goal, **few)[1]


def _nearby(
    eta: Tensor, target: Tensor, weight: Tensor, rules: Tensor, goal: Goal, **limits: int
) -> tuple[Tensor, Tensor]:
    """The best rule near some rules, and its standing."""
    reached = _confusions(eta, target, weight, rules, goal, weight @ target)
    return best_nearby(eta, target, weight, rules, standings(goal, reached), goal, **limits)


def _starts(mass: Tensor, own: Tensor | None) -> Tensor:
    """Weights of the classes (S, C): the model's own, one over their mass (C,), each up and down.

    Metrics such as precision and MCC have several local optima, and where a class is never
    predicted they may have no slope at all. The starts lie on all sides of these places.
    """
    even = torch.where(mass > 0, mass.sum() / mass.clamp(min=1e-300), 1)
    one = torch.ones_like(mass)
    rarest = mass.argsort(stable=True)[: CORNERS // len(mass)]
    up = one + 3 * torch.eye(len(mass), dtype=mass.dtype, device=mass.device)[rarest]
    own = one if own is None else own
    starts = torch.cat([torch.stack([own, even]), up, 1 / up])
    return starts / starts.amax(-1, keepdim=True)


def _search(
    eta: Tensor, target: Tensor, weight: Tensor, goal: Goal, starts: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """The best rule of all starts (S, ...) for each share, and its score."""
    copies, number = len(starts), len(shares)
    rules, scores = frank_wolfe(
        eta,
        target,
        weight,
        starts.repeat_interleave(number, 0),
        goal,
        shares.repeat(copies),
        number,
    )
    scores, rules = (each.unflatten(0, (copies, number)) for each in (scores, rules))
    best = first_best(scores)
    return rules[best, torch.arange(number, device=best.device)], scores.amax(0)


def frank_wolfe(
    eta: Tensor,
    target: Tensor,
    weight: Tensor,
    rules: Tensor,
    goal: Goal,
    shares: Tensor,
    problems: int,
) -> tuple[Tensor, Tensor]:
    """Climb from B rules at once. Return the best rule on the way of each, and its score.

    To first order the best labels are argmax_j Σ_y η_y G[y, j] with G = ∂M/∂C. Their confusion
    matrix is a corner of what rules can reach; C moves towards it as far as M rises (a search over
    halvings of the step), and G is taken anew. The C that moves belongs to a randomised rule, so
    what is kept is the best corner. Every `problems`-th rule belongs to the same problem, and most
    of those that lag behind are given up (`CUT`).

    The gap ⟨G, corner − C⟩ ends the search when it is no longer positive. Where the metric is
    concave in C, and the target is η itself, it bounds what any rule could still gain over C. That
    says nothing of the corner that is kept, unless the metric is linear, where corners are all
    there is. Most metrics (F-beta, MCC, precision) are not concave: for them the end is a
    stationary point and certifies nothing.
    """
    actual = weight @ target
    corner = _confusions(eta, target, weight, rules, goal, actual)
    best, score = rules.clone(), goal.scores(corner)
    mean, value = corner.clone(), goal.mixed(corner, shares)
    halvings = 0.5 ** torch.arange(12, dtype=eta.dtype, device=eta.device).view(-1, 1, 1)
    active = torch.arange(len(rules), device=rules.device)
    for step in range(STEPS):
        if step == CUT:
            kept = max(FEWEST, len(value) // problems // 4)
            compared = but_for_rounding(value).view(-1, problems)
            ranks = compared.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
            active = active[ranks.flatten()[active] < kept]
        if not len(active):
            break
        slopes = goal.slopes(mean[active], shares[active])
        rules = goal.for_all_groups(slopes, actual)
        rules = _rounded(rules / rules.abs().amax((-2, -1), keepdim=True).clamp(min=1e-300))
        corner = _confusions(eta, target, weight, rules, goal, actual)
        corner_score = goal.scores(corner)
        better = corner_score > score[active] + ROUNDING
        best[active[better]] = rules[better]
        score[active[better]] = corner_score[better]

        towards = corner - mean[active]
        gap = (slopes * towards).sum((1, 2))
        path = mean[active].unsqueeze(1) + halvings * towards.unsqueeze(1)
        values, halving = goal.mixed(path, shares[active].unsqueeze(1)).max(1)
        rises = (values > value[active] + PROGRESS) & (gap > ROUNDING)
        active = active[rises]
        mean[active] = path[rises, halving[rises]]
        value[active] = values[rises]
    return best, score


def _confusions(
    eta: Tensor, target: Tensor, weight: Tensor, rules: Tensor, goal: Goal, actual: Tensor
) -> Tensor:
    if not goal.compact:
        return confusions(eta, target, weight, rules)
    return _sums(eta, target, weight, rules, actual)


def normalised(gains: Tensor) -> Tensor:
    """Move each class's smallest gain to 0, the largest of all to 1: same labels, less rounding."""
    gains = gains - gains.amin(-1, keepdim=True)
    return gains / gains.amax((-2, -1), keepdim=True).clamp(min=1e-300)
