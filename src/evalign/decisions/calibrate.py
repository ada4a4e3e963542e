"""Correct probabilities with labels, by few numbers, so that few rows are enough to fit them."""

import torch
from torch import Tensor

STEPS, CONVERGED = 20, 1e-9
# The prior is a normal distribution around "as the model says": of width 1 for offsets of the
# log-odds, ½ for the factor. Where classes have no rows, it alone decides.
OFFSET, FACTOR = 1.0, 4.0


def class_offsets(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Offsets b (B, C) that maximise the posterior of softmax(logits + b), by Newton's method."""
    actual = weights @ target
    b = torch.zeros_like(actual)
    for _ in range(STEPS):
        mass, square = torch.zeros_like(b), torch.zeros_like(b.diag_embed())
        for part, weight in zip(logits.split(2**14), weights.split(2**14, 1), strict=True):
            eta = (part + b.unsqueeze(1)).softmax(-1)
            weighted = weight.unsqueeze(-1) * eta
            mass += weighted.sum(1)
            square += eta.mT @ weighted
        hessian = (mass + OFFSET).diag_embed() - square
        step = torch.linalg.solve(hessian, mass - actual + OFFSET * b).clamp(-2, 2)
        b = b - step
        if step.abs().max() < CONVERGED:
            break
    return b


def factor_and_offset(margin: Tensor, positive: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """a, b (B,) that maximise the posterior of sigmoid(a·margin + b) (Platt's), by Newton."""
    columns = torch.stack([margin, torch.ones_like(margin)], 1)
    prior = margin.new_tensor([FACTOR, OFFSET])
    change = columns.new_zeros(len(weights), 2)
    for _ in range(STEPS):
        p = (margin + change @ columns.T).sigmoid()
        curve = (weights * p * (1 - p)).unsqueeze(-1) * columns
        gradient = (weights * (p - positive)) @ columns + prior * change
        step = torch.linalg.solve(curve.mT @ columns + prior.diag(), gradient)
        change = change - step.clamp(-1, 1)
        if step.abs().max() < CONVERGED:
            break
    return (1 + change[:, 0]).clamp(min=0.05), change[:, 1]  # more evidence must not count against
