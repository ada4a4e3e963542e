"""Two classes: the best of all thresholds, scored at once."""

import torch
from torch import Tensor

from evalign.decisions.objective import ROUNDING, Objective

# Beyond these log-odds the smaller probability underflows (e^-745), and a rule of probabilities
# sees no difference.
SATURATED = 700.0


def all_cuts(
    margin: Tensor, target: Tensor, weight: Tensor, objective: Objective
) -> tuple[Tensor, Tensor, Tensor]:
    """The thresholds (K,) of all cuts, the rows below each, and the confusion of each.

    Cut k labels the k rows of lowest log-odds 0 and the others 1. After one sort, cumulative sums
    of the targets (N, 2), labels or probabilities, give the confusion matrices of all cuts. With
    groups, targets are (N, G·2).
    """
    order, middle, kept = cut_places(margin)
    # Cells first, cuts last in memory: sums and scores then run along the cuts.
    below = (weight[order] * target.T[:, order]).cumsum(-1)
    below = torch.cat([torch.zeros_like(below[..., :1]), below], -1)
    total = below[..., -1:]
    if len(kept) < below.shape[-1]:
        below = below[..., kept]
    above = total - below
    if objective.compact:
        tp = torch.stack([below[0], above[1]])
        predicted = torch.stack([below.sum(0), above.sum(0)])
        confusions = torch.stack([tp, predicted, total.expand_as(tp)])
    else:
        confusions = torch.stack([below, above], 1)
    return middle, kept, confusions.permute(2, 0, 1)


def cut_places(margin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The order of rows by their log-odds, the thresholds between them, and the rows below each.

    Rows of equal log-odds are never separated. A threshold lies in the middle between its
    neighbours; outside of all rows, at the default 0 or 1 away from the last row, whichever is
    farther out.
    """
    margin, order = margin.clamp(-SATURATED, SATURATED).sort()
    low, high = margin[:-1], margin[1:]
    ends = (margin[:1] - 1).clamp(max=0), (margin[-1:] + 1).clamp(min=0)
    middle = torch.cat([ends[0], (low + high) / 2, ends[1]])
    apart = high - low > ROUNDING * (1 + low.abs())
    edge = apart.new_ones(1)
    kept = torch.cat([edge, apart, edge]).nonzero().squeeze(1)
    return order, middle[kept], kept


def best_threshold(margin: Tensor, target: Tensor, weight: Tensor, objective: Objective) -> Tensor:
    """The best threshold on the log-odds for rows of weights (N,): exact, over all cuts."""
    objective = objective.compacted()
    middle, _, confusions = all_cuts(margin, target, weight, objective)
    scores = objective.scores(confusions)
    if objective.constraints and scores.amax().isneginf():
        raise objective.infeasible(confusions)
    return middle[best_cut(middle, scores)]


def best_cut(middle: Tensor, scores: Tensor) -> Tensor:
    """The best cut by its score; of equal cuts, the one nearest to the default.

    The data cannot tell them apart, and the default is the model's own.
    """
    ties = scores >= scores.amax() - ROUNDING
    return torch.where(ties, middle.abs(), torch.inf).argmin()


def threshold_gains(thresholds: Tensor) -> Tensor:
    """diag(t, 1 − t) for thresholds on the log-odds, t = sigmoid(threshold).

    Beyond `SATURATED` all rows get one label, which gains whatever the probabilities are: the
    smaller one may be 0, which is above no threshold.
    """
    gains = torch.stack([thresholds, -thresholds], -1).sigmoid().diag_embed()
    one_label = torch.stack([thresholds > 0, thresholds < 0], -1).to(gains).unsqueeze(-2)
    return torch.where((thresholds.abs() > SATURATED)[..., None, None], one_label, gains)
