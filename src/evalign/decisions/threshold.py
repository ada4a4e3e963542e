"""Two classes: the best of all thresholds, scored at once."""

import torch
from torch import Tensor

from evalign.decisions.objective import ROUNDING, Objective

# Beyond these log-odds the smaller probability underflows (e^-745), and a rule that sees
# probabilities cannot tell rows apart.
SATURATED = 700.0


def all_cuts(margin: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The thresholds (K,) of all cuts, the rows below each, and the confusion matrix of each.

    Cut k gives label 0 to the k rows with the lowest log-odds. After one sort, cumulative sums of
    the targets (N, 2), labels or probabilities, give the matrices. With groups, they are (N, G·2).
    Rows with equal log-odds are never separated. A threshold lies midway between its neighbours;
    outside of all rows, at the default 0 or 1 away from the last row, whichever is farther out.
    """
    margin, order = margin.clamp(-SATURATED, SATURATED).sort()
    low, high = margin[:-1], margin[1:]
    ends = (margin[:1] - 1).clamp(max=0), (margin[-1:] + 1).clamp(min=0)
    middle = torch.cat([ends[0], (low + high) / 2, ends[1]])
    apart = high - low > ROUNDING * (1 + low.abs())
    edge = apart.new_ones(1)
    kept = torch.cat([edge, apart, edge]).nonzero().squeeze(1)
    # Cells first, cuts last in memory: sums and scores then run along the cuts.
    below = (weight[order] * target.T[:, order]).cumsum(-1)
    below = torch.cat([torch.zeros_like(below[..., :1]), below], -1)
    total = below[..., -1:]
    if len(kept) < below.shape[-1]:
        below = below[..., kept]
    return middle[kept], kept, torch.stack([below, total - below], 1).permute(2, 0, 1)


def best_threshold(margin: Tensor, target: Tensor, weight: Tensor, objective: Objective) -> Tensor:
    """The best threshold on the log-odds for rows with weights (N,): exact, over all cuts."""
    middle, _, confusions = all_cuts(margin, target, weight)
    return middle[best_cut(middle, scores_of_cuts(confusions, objective))]


def scores_of_cuts(confusions: Tensor, objective: Objective) -> Tensor:
    """The scores of the confusions of all cuts, of which one at least meets the constraints."""
    scores = objective.scores(confusions)
    objective.check_met(
        confusions[scores.argmax()], lambda side: confusions[side.scores(confusions).argmax()]
    )
    return scores


def best_cut(middle: Tensor, scores: Tensor) -> Tensor:
    """The cut with the best score; among ties, the one closest to the model's own threshold, 0."""
    ties = scores >= scores.amax() - ROUNDING
    return torch.where(ties, middle.abs(), torch.inf).argmin()


def threshold_gains(thresholds: Tensor) -> Tensor:
    """diag(t, 1 − t) for thresholds on the log-odds, t = sigmoid(threshold).

    Beyond `SATURATED` all rows get one label, also where the smaller probability is 0.
    """
    gains = torch.stack([thresholds, -thresholds], -1).sigmoid().diag_embed()
    one_label = torch.stack([thresholds > 0, thresholds < 0], -1).to(gains).unsqueeze(-2)
    return torch.where((thresholds.abs() > SATURATED)[..., None, None], one_label, gains)
