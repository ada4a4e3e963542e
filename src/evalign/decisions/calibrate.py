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


def factor_and_offsets(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a and b (C,) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    This is vector scaling with one factor. With more than `MANY` classes the factor stays 1.
    A factor below `LEAST` is held there, and the offsets are those that go with it.
    """
    if logits.shape[1] > MANY:
        return logits.new_ones(()), _offsets_of_many(logits, target, weight)
    actual = weight @ target
    evidence = weight @ (target * logits).sum(1)

    def newton(a: Tensor, b: Tensor, *, held: bool = False) -> tuple[Tensor, Tensor]:
        for _ in range(STEPS):
            mass, square = torch.zeros_like(b), torch.zeros_like(b.diag())
            mean, spread, both = torch.zeros_like(a), torch.zeros_like(a), torch.zeros_like(b)
            for part, w in zip(logits.split(2**14), weight.split(2**14), strict=True):
                eta = (a * part + b).softmax(-1)
                weighted = w.unsqueeze(-1) * eta
                mass += weighted.sum(0)
                square += eta.T @ weighted
                expected = (eta * part).sum(-1)
                mean += (w * expected).sum()
                slope = weighted * (part - expected.unsqueeze(-1))  # of the mass, by a
                both += slope.sum(0)
                spread += (slope * part).sum()
            hessian = torch.cat(
                [
                    torch.cat([(spread + FACTOR).unsqueeze(0), both]).unsqueeze(0),
                    torch.cat([both.unsqueeze(1), (mass + OFFSET).diag() - square], 1),
                ]
            )
            gradient = torch.cat(
                [(mean - evidence + FACTOR * (a - 1)).unsqueeze(0), mass - actual + OFFSET * b]
            )
            if held:
                gradient[0] = hessian[0, 1:] = hessian[1:, 0] = 0
            step = torch.linalg.solve(hessian, gradient).clamp(-1, 1)
            a, b = a - step[0], b - step[1:]
            if step.abs().max() < CONVERGED:
                break
        return a, b

    a, b = newton(torch.ones_like(evidence), torch.zeros_like(actual))
    if a < LEAST:
        a, b = newton(a.new_tensor(LEAST), torch.zeros_like(b), held=True)
    return a, b


def _offsets_of_many(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The same offsets without the C × C Hessian, whose products are all that its solver needs.

    softmax(logits + b) is e^b·η over its sum, so each product is two of matrices.
    """
    eta, actual = logits.softmax(1), weight @ target
    b = torch.zeros_like(actual)
    for _ in range(STEPS):
        odds = b.exp()
        share = 1 / (eta @ odds)
        mass = odds * ((weight * share) @ eta)
        diagonal, curve = mass + OFFSET, weight * share**2

        def product(v: Tensor, odds=odds, diagonal=diagonal, curve=curve) -> Tensor:
            return diagonal * v - odds * ((curve * (eta @ (odds * v))) @ eta)

        step = _conjugate_gradients(product, diagonal, mass - actual + OFFSET * b).clamp(-2, 2)
        b = b - step
        if step.abs().max() < CONVERGED:
            break
    return b


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], diagonal: Tensor, right: Tensor
) -> Tensor:
    """Solve product(x) = right (C,) to three digits; Newton's next step mends it."""
    x, residual = torch.zeros_like(right), right
    direction = residual / diagonal
    power = residual @ direction
    for _ in range(len(right)):
        image = product(direction)
        length = power / (direction @ image).clamp(min=1e-300)
        x, residual = x + length * direction, residual - length * image
        if residual.abs().amax() <= 1e-3 * right.abs().amax():
            break
        scaled = residual / diagonal
        before, power = power, residual @ scaled
        direction = scaled + power / before.clamp(min=1e-300) * direction
    return x


def factor_and_offset(margin: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a, b that maximise the posterior of sigmoid(a·margin + b) (Platt's), by Newton's method.

    A factor below `LEAST` is held there, as that of `factor_and_offsets`.
    """
    columns = torch.stack([margin, torch.ones_like(margin)], 1)
    prior, usual = margin.new_tensor([FACTOR, OFFSET]), margin.new_tensor([1.0, 0.0])

    def newton(numbers: Tensor, *, held: bool = False) -> Tensor:
        for _ in range(STEPS):
            p = (columns @ numbers).sigmoid()
            curve = (weight * p * (1 - p)).unsqueeze(-1) * columns
            gradient = (weight * (p - positive)) @ columns + prior * (numbers - usual)
            hessian = curve.T @ columns + prior.diag()
            if held:
                gradient[0] = hessian[0, 1] = hessian[1, 0] = 0
            step = torch.linalg.solve(hessian, gradient)
            numbers = numbers - step.clamp(-1, 1)
            if step.abs().max() < CONVERGED:
                break
        return numbers

    a, b = newton(usual)
    if a < LEAST:
        a, b = newton(margin.new_tensor([LEAST, 0.0]), held=True)
    return a, b
