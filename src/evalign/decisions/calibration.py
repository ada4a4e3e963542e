"""Calibrate probabilities with labels, by so few numbers that few rows are enough."""

import numpy as np
import torch
from scipy.sparse import diags_array
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

NEWTON_STEPS, CONVERGED = 20, 1e-9
# With more classes the Hessian is not formed: C × C matrices would take longer than all else.
MOST_CLASSES_WITH_FACTOR = 64
# Precisions of the prior, a normal distribution around the model's own probabilities: standard
# deviation 1 for offsets of the log-odds, ½ for the factor. Classes without rows have it alone.
OFFSET_PRECISION, FACTOR_PRECISION = 1.0, 4.0
LEAST_FACTOR = 0.05  # a higher logit must not count against a class


def factor_and_offsets(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a and b (C,) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    This is vector scaling with one factor. With more than `MOST_CLASSES_WITH_FACTOR` classes the
    factor stays 1. A factor below `LEAST_FACTOR` is held there, and the offsets fitted to it.
    """
    if logits.shape[1] > MOST_CLASSES_WITH_FACTOR:
        return logits.new_ones(()), _offsets_of_many(logits, target, weight)
    actual = weight @ target
    evidence = weight @ (target * logits).sum(1)

    def newton(a: Tensor, b: Tensor, *, held: bool = False) -> tuple[Tensor, Tensor]:
        for _ in range(NEWTON_STEPS):
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
                    torch.cat([(spread + FACTOR_PRECISION).unsqueeze(0), both]).unsqueeze(0),
                    torch.cat([both.unsqueeze(1), (mass + OFFSET_PRECISION).diag() - square], 1),
                ]
            )
            gradient = torch.cat(
                [
                    (mean - evidence + FACTOR_PRECISION * (a - 1)).unsqueeze(0),
                    mass - actual + OFFSET_PRECISION * b,
                ]
            )
            if held:
                gradient[0] = hessian[0, 1:] = hessian[1:, 0] = 0
            step = torch.linalg.solve(hessian, gradient).clamp(-1, 1)
            a, b = a - step[0], b - step[1:]
            if step.abs().max() < CONVERGED:
                break
        return a, b

    a, b = newton(torch.ones_like(evidence), torch.zeros_like(actual))
    if a < LEAST_FACTOR:
        a, b = newton(a.new_tensor(LEAST_FACTOR), torch.zeros_like(b), held=True)
    return a, b


def _offsets_of_many(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The same offsets without the C × C Hessian: its products with vectors are enough to solve.

    softmax(logits + b) is e^b·η over its sum, so each product takes two products of matrices.
    """
    eta, actual = logits.softmax(1), weight @ target
    b = torch.zeros_like(actual)
    for _ in range(NEWTON_STEPS):
        odds = b.exp()
        share = 1 / (eta @ odds)
        mass = odds * ((weight * share) @ eta)
        diagonal, curve = mass + OFFSET_PRECISION, weight * share**2

        def product(v: np.ndarray, odds=odds, diagonal=diagonal, curve=curve) -> np.ndarray:
            x = torch.from_numpy(v).to(odds)
            return (diagonal * x - odds * ((curve * (eta @ (odds * x))) @ eta)).cpu().numpy()

        gradient = (mass - actual + OFFSET_PRECISION * b).cpu().numpy()
        shape = (len(b), len(b))
        scaled = diags_array(1 / diagonal.cpu().numpy())
        # Three digits are enough: Newton's next step mends the rest.
        hessian = LinearOperator(shape, matvec=product, dtype=np.float64)  # pyright: ignore[reportCallIssue]
        solved, _ = cg(hessian, gradient, rtol=1e-3, M=scaled)
        step = torch.from_numpy(solved).to(b).clamp(-2, 2)
        b = b - step
        if step.abs().max() < CONVERGED:
            break
    return b


def factor_and_offset(margin: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a, b that maximise the posterior of sigmoid(a·margin + b) (Platt's), by Newton's method.

    A factor below `LEAST_FACTOR` is held there, as in `factor_and_offsets`.
    """
    columns = torch.stack([margin, torch.ones_like(margin)], 1)
    prior, usual = (
        margin.new_tensor([FACTOR_PRECISION, OFFSET_PRECISION]),
        margin.new_tensor([1.0, 0.0]),
    )

    def newton(numbers: Tensor, *, held: bool = False) -> Tensor:
        for _ in range(NEWTON_STEPS):
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
    if a < LEAST_FACTOR:
        a, b = newton(margin.new_tensor([LEAST_FACTOR, 0.0]), held=True)
    return a, b
