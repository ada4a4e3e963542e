"""Correct probabilities with labels, by few numbers, so that few rows are enough to fit them."""

from collections.abc import Callable

import torch
from torch import Tensor

STEPS, CONVERGED = 20, 1e-9
# With more classes than this the Hessian is not made: C × C matrices take longer than all else.
MANY = 64
# The prior is a normal distribution around "as the model says": of width 1 for offsets of the
# log-odds, ½ for the factor. Where classes have no rows, it alone decides.
OFFSET, FACTOR = 1.0, 4.0
LEAST = 0.05  # of the factor: more evidence must not count against a class


def factor_and_offsets(logits: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """a (B,), b (B, C) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    This is vector scaling with one factor. Each row of weights (B, N) is a problem of its own. With
    more than `MANY` classes the factor stays 1.
    """
    if logits.shape[1] > MANY:
        return logits.new_ones(len(weights)), _offsets_of_many(logits, target, weights)
    actual = weights @ target
    evidence = weights @ (target * logits).sum(1)
    a, b = torch.ones_like(evidence), torch.zeros_like(actual)
    for _ in range(STEPS):
        mass, square = torch.zeros_like(b), torch.zeros_like(b.diag_embed())
        mean, spread, both = torch.zeros_like(a), torch.zeros_like(a), torch.zeros_like(b)
        for part, weight in zip(logits.split(2**14), weights.split(2**14, 1), strict=True):
            eta = (a.view(-1, 1, 1) * part + b.unsqueeze(1)).softmax(-1)
            weighted = weight.unsqueeze(-1) * eta
            mass += weighted.sum(1)
            square += eta.mT @ weighted
            expected = (eta * part).sum(-1)
            mean += (weight * expected).sum(1)
            slope = weighted * (part - expected.unsqueeze(-1))  # of the mass, by a
            both += slope.sum(1)
            spread += (slope * part).sum((1, 2))
        hessian = torch.cat(
            [
                torch.cat([(spread + FACTOR).unsqueeze(1), both], 1).unsqueeze(1),
                torch.cat([both.unsqueeze(2), (mass + OFFSET).diag_embed() - square], 2),
            ],
            1,
        )
        gradient = torch.cat(
            [(mean - evidence + FACTOR * (a - 1)).unsqueeze(1), mass - actual + OFFSET * b], 1
        )
        step = torch.linalg.solve(hessian, gradient).clamp(-1, 1)
        a, b = a - step[:, 0], b - step[:, 1:]
        if step.abs().max() < CONVERGED:
            break
    return a.clamp(min=LEAST), b


def _offsets_of_many(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The same offsets without the C × C Hessian, whose products are all that its solver needs.

    softmax(logits + b) is e^b·η over its sum, so each product is two of matrices.
    """
    eta, actual = logits.softmax(1), weights @ target
    b = torch.zeros_like(actual)
    for _ in range(STEPS):
        odds = b.exp()
        share = 1 / (odds @ eta.T)
        mass = odds * ((weights * share) @ eta)
        diagonal, curve = mass + OFFSET, weights * share**2

        def product(v: Tensor, odds=odds, diagonal=diagonal, curve=curve) -> Tensor:
            return diagonal * v - odds * ((curve * ((odds * v) @ eta.T)) @ eta)

        step = _conjugate_gradients(product, diagonal, mass - actual + OFFSET * b).clamp(-2, 2)
        b = b - step
        if step.abs().max() < CONVERGED:
            break
    return b


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], diagonal: Tensor, right: Tensor
) -> Tensor:
    """Solve product(x) = right for each row (B, C) to three digits; Newton's next step mends it."""
    x, residual = torch.zeros_like(right), right
    direction = residual / diagonal
    power = (residual * direction).sum(1, keepdim=True)
    for _ in range(right.shape[1]):
        image = product(direction)
        length = power / (direction * image).sum(1, keepdim=True).clamp(min=1e-300)
        x, residual = x + length * direction, residual - length * image
        if bool((residual.abs().amax(1) <= 1e-3 * right.abs().amax(1)).all()):
            break
        scaled = residual / diagonal
        before, power = power, (residual * scaled).sum(1, keepdim=True)
        direction = scaled + power / before.clamp(min=1e-300) * direction
    return x


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
    return (1 + change[:, 0]).clamp(min=LEAST), change[:, 1]
