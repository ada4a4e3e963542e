"""Two classes: the best of all thresholds, scored at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from evalign.decisions.goal import ROUNDING, Goal

# Beyond this log-odds the smaller probability underflows (e^-745), and a rule of probabilities
# sees no difference.
SATURATED = 700.0


class Cuts(NamedTuple):
    """All ways to part rows by their log-odds.

    Args:
        middle: the thresholds (K,), ascending.
        below: the number of rows below each.
        confusions: those of each, as the goal has them.
    """

    middle: Tensor
    below: Tensor
    confusions: Tensor


def all_cuts(margin: Tensor, target: Tensor, weight: Tensor, goal: Goal) -> Cuts:
    """All cuts of rows of weights (N,), with a compact goal as sums.

    Cut k labels the k rows of lowest log-odds 0 and the others 1. After one sort, cumulative sums
    of the targets (N, 2), labels or probabilities, give the confusion matrices of all cuts. Targets
    of groups are (N, G·2). Rows of equal log-odds are never separated. The threshold lies in the
    middle between its neighbours; outside of all rows, at the default 0 or 1 away from the last
    row, whichever is farther out.
    """
    margin, order = margin.clamp(-SATURATED, SATURATED).sort()
    # Cells first, cuts last in memory: sums and scores then run along the cuts.
    below = (weight[order] * target.T[:, order]).cumsum(-1)
    below = torch.cat([torch.zeros_like(below[..., :1]), below], -1)
    low, high = margin[:-1], margin[1:]
    middle = torch.cat(
        [(margin[:1] - 1).clamp(max=0), (low + high) / 2, (margin[-1:] + 1).clamp(min=0)]
    )
    total = below[..., -1:]
    apart = high - low > ROUNDING * (1 + low.abs())
    cuts = torch.arange(len(middle), device=middle.device)
    if not apart.all():
        edge = apart.new_ones(1)
        cuts = torch.cat([edge, apart, edge]).nonzero().squeeze(1)
        below, middle = below[..., cuts], middle[cuts]
    if goal.compact:
        above = total - below
        tp = torch.stack([below[0], above[1]])
        predicted = torch.stack([below.sum(0), above.sum(0)])
        confusions = torch.stack([tp, predicted, total.expand_as(tp)])
    else:
        confusions = torch.stack([below, total - below], 1)
    return Cuts(middle, cuts, confusions.permute(2, 0, 1))


def best_threshold(
    owner: str, margin: Tensor, target: Tensor, weight: Tensor, goal: Goal
) -> Tensor:
    """The best threshold on the log-odds for rows of weights (N,): exact, over all cuts."""
    goal = goal.compacted()
    middle, _, confusions = all_cuts(margin, target, weight, goal)
    scores = goal.scores(confusions)
    if goal.slack is not None and scores.amax().isneginf():
        raise goal.infeasible(owner, confusions)
    return middle[best_cut(middle, scores)]


def best_cut(middle: Tensor, scores: Tensor) -> Tensor:
    """The best cut by its score; of equal ones, the one nearest to the default.

    The data cannot tell them apart, and the default is what the model itself says.
    """
    ties = scores >= scores.amax() - ROUNDING
    return torch.where(ties, middle.abs(), torch.inf).argmin()


def threshold_gains(thresholds: Tensor) -> Tensor:
    """diag(t, 1 − t) for thresholds on the log-odds, t = sigmoid(threshold)."""
    gains = torch.stack([thresholds, -thresholds], -1).sigmoid().diag_embed()
    return one_label_beyond(gains, thresholds, SATURATED)


def one_label_beyond(gains: Tensor, thresholds: Tensor, reach: float) -> Tensor:
    """The gains, but those of one label for all rows where the threshold lies beyond the reach.

    That label gains whatever the probabilities are: the smaller one may be 0, which is above no
    threshold.
    """
    one_label = torch.stack([thresholds > 0, thresholds < 0], -1).to(gains).unsqueeze(-2)
    return torch.where((thresholds.abs() > reach)[..., None, None], one_label, gains)
