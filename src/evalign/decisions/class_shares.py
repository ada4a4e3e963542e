"""Class shares that differ from those of the rows that a rule was fitted to."""

import torch
from scipy.special import chdtri
from torch import Tensor

MOST_STEPS, CONVERGED = 1000, 1e-9
# The most rows that an estimate uses, evenly spread: its error is then about 0.2 points.
MOST_ROWS = 2**16
# The level of the likelihood-ratio test for new shares (Saerens, Latinne and Decaestecker 2002,
# section 3).
LEVEL = 0.01


def estimated_shares(eta: Tensor, old: Tensor, rows: int) -> Tensor:
    """Estimate the class shares π of unlabelled rows, (C,), or (L, 2) if multilabel.

    The probabilities η, (N, C) or (N, L, 2), are calibrated for the shares `old`, which a number of
    `rows` gave. With other shares they become ∝ η_y·π_y/old_y. EM maximises the likelihood of π; if
    the data do not distinguish π from `old`, `old` is returned.
    """
    step = len(eta) // MOST_ROWS + 1
    ratio, new = eta[::step] / old.clamp(min=1e-300), old
    for _ in range(MOST_STEPS):
        each = ratio * new
        before, new = new, (each / each.sum(-1, keepdim=True)).mean(0)
        if (new - before).abs().max() < CONVERGED:
            break
    gain = 2 * (ratio * new).sum(-1).log().sum(0)
    known = gain / (1 + len(ratio) / rows) > chdtri(old.shape[-1] - 1, LEVEL)
    return torch.where(known.unsqueeze(-1), new, old)


def calibration_gap(eta: Tensor, target: Tensor, weight: Tensor) -> float:
    """The largest relative difference between a class's mean probability and its share.

    Differences of up to three standard deviations of labels drawn with these probabilities do not
    count. All are (N, C); the weight may be (N, 1).
    """
    actual, expected = (weight * target).sum(0), (weight * eta).sum(0)
    spread = (weight**2 * eta * (1 - eta)).sum(0).sqrt()
    distance = (actual - expected).abs()
    part = distance / torch.maximum(actual, weight.amax()).clamp(min=1e-300)
    return torch.where(distance > 3 * spread, part, 0).max().item()
