"""Class shares other than those of the rows that a rule was fitted on."""

import torch
from scipy.special import chdtri
from torch import Tensor

MOST_STEPS, CONVERGED = 1000, 1e-9
# The most rows that an estimate looks at, evenly spread: it is then right to about 0.2 points.
MOST_ROWS = 2**16
# The level of the likelihood-ratio test that new shares have to pass (Saerens, Latinne and
# Decaestecker 2002, section 3).
LEVEL = 0.01


def estimated_shares(eta: Tensor, weight: Tensor, old: Tensor, rows: int) -> Tensor:
    """The class shares of rows without labels, (C,), or (L, 2) if multilabel.

    Rows have probabilities η, (N, C) or (N, L, 2), that are right where the shares are `old`. With
    other shares π, but the same rows within each class, they are ∝ η_y·π_y/old_y. EM maximises
    the likelihood of π. Where the data do not tell it from `old`, `old` is returned. The old shares
    come from a number of rows themselves, and are as uncertain.
    """
    step = len(eta) // MOST_ROWS + 1
    ratio, weight = eta[::step] / old.clamp(min=1e-300), weight[::step]
    total = weight.sum()
    new = old
    for _ in range(MOST_STEPS):
        each = ratio * new
        each = each / each.sum(-1, keepdim=True)
        before, new = new, torch.tensordot(weight, each, 1) / total
        if (new - before).abs().max() < CONVERGED:
            break
    gain = 2 * torch.tensordot(weight, (ratio * new).sum(-1).log(), 1)
    known = gain / (1 + len(weight) / rows) > chdtri(old.shape[-1] - 1, LEVEL)
    return torch.where(known.unsqueeze(-1), new, old)


def calibration_gap(eta: Tensor, target: Tensor, weight: Tensor) -> float:
    """The largest relative difference between a class's mean probability and its share.

    Only differences count that chance does not explain: above three standard deviations of the sum
    of labels, were they drawn with these probabilities. All are (N, C), the weight may be (N, 1).
    """
    actual, expected = (weight * target).sum(0), (weight * eta).sum(0)
    spread = (weight**2 * eta * (1 - eta)).sum(0).sqrt()
    distance = (actual - expected).abs()
    part = distance / torch.maximum(actual, weight.amax()).clamp(min=1e-300)
    return torch.where(distance > 3 * spread, part, 0).max().item()
