"""Probabilities calibrated with labels, by few numbers."""

import math

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import logsigmoid

from evalign.decisions.inputs import FLOOR, FROM_ONE

NEWTON_STEPS, CONVERGED = 20, 1e-9
# With more classes the C × C Hessian would dominate the time of a fit, and is not formed.
MOST_CLASSES_WITH_FACTOR = 64
# Precisions of the prior, a normal distribution around the model's own probabilities: standard
# deviation 1 for offsets of the log-odds, ½ for the factor. Classes without rows follow the prior.
OFFSET_PRECISION, FACTOR_PRECISION = 1.0, 4.0
LEAST_FACTOR = 0.05  # a higher logit must not count against its class


def factor_and_offsets(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a and b (C,) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    With more than `MOST_CLASSES_WITH_FACTOR` classes the factor stays 1. A factor below
    `LEAST_FACTOR` is fixed there, and the offsets are fitted again.
    """
    if logits.shape[1] == 2:
        a, b = factor_and_offset(logits[:, 1] - logits[:, 0], target[:, 1], weight)
        return a, torch.stack([-b, b]) / 2
    # A probability of 0 counts as the least other one, or as 1/(2N + 1): floors are outliers.
    logits, floor = logits.log_softmax(1), math.log(FLOOR)
    least = logits[logits > floor + FROM_ONE].min().clamp(max=-math.log(2 * len(logits) + 1))
    logits = logits.masked_fill((logits - floor).abs() <= FROM_ONE, least)
    if logits.shape[1] > MOST_CLASSES_WITH_FACTOR:
        return logits.new_ones(()), _offsets_of_many(logits, target, weight)
    actual = torch.cat([(weight @ (target * logits).sum(1)).unsqueeze(0), weight @ target])
    prior = torch.full_like(actual, OFFSET_PRECISION)
    prior[0] = FACTOR_PRECISION
    usual = torch.eye(len(actual), dtype=logits.dtype, device=logits.device)[0]

    def newton(numbers: Tensor, *, held: bool = False) -> Tensor:
        for _ in range(NEWTON_STEPS):
            mass, hessian = _moments(logits, weight, numbers)
            gradient, hessian = mass - actual + prior * (numbers - usual), hessian + prior.diag()
            if held:
                gradient[0] = hessian[0, 1:] = hessian[1:, 0] = 0
            step = torch.linalg.solve(hessian, gradient).clamp(-1, 1)
            numbers = numbers - step
            if step.abs().max() < CONVERGED:
                break
        return numbers

    numbers = newton(usual)
    if numbers[0] < LEAST_FACTOR:
        numbers = newton(LEAST_FACTOR * usual, held=True)
    return numbers[0], numbers[1:]


def _moments(logits: Tensor, weight: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over rows of the mean and covariance under η of a class's logit and its indicator."""
    classes = logits.shape[1]
    mean, square = logits.new_zeros(1 + classes), logits.new_zeros(1 + classes, 1 + classes)
    for part, w in zip(logits.split(2**14), weight.split(2**14), strict=True):
        eta = (numbers[0] * part + numbers[1:]).softmax(-1)
        weighted = w.unsqueeze(1) * eta
        expected = (eta * part).sum(-1, keepdim=True)
        slope = weighted * (part - expected)  # of the mass of each class in the factor
        mean[0] += (w * expected[:, 0]).sum()
        mean[1:] += weighted.sum(0)
        square[0, 0] += (slope * part).sum()
        square[0, 1:] += slope.sum(0)
        square[1:, 1:] -= eta.T @ weighted
    square[1:, 0] = square[0, 1:]
    square[1:, 1:] += mean[1:].diag()
    return mean, square


def _offsets_of_many(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The offsets b, by scipy's L-BFGS: softmax(logits + b) is e^b·η over its sum."""
    eta, actual = logits.softmax(1), weight @ target
    scale = (actual + OFFSET_PRECISION).rsqrt()  # makes all slopes alike

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        b = scale * torch.from_numpy(numbers).to(eta)
        total = eta @ b.exp()
        value = weight @ total.log() - actual @ b + OFFSET_PRECISION / 2 * b @ b
        slope = b.exp() * ((weight / total) @ eta) - actual + OFFSET_PRECISION * b
        return value.item(), (scale * slope).cpu().numpy()

    how = {"ftol": 0, "gtol": CONVERGED, "maxcor": 30}
    start = np.zeros(len(actual))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=how)
    return scale * torch.from_numpy(found.x).to(eta)


def factor_and_offset(margin: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same for two classes, sigmoid(a·margin + b) (Platt scaling), of each column (N, ...)."""
    high, low, floor = logsigmoid(margin.abs()), logsigmoid(-margin.abs()), math.log(FLOOR)
    least = torch.where(low > floor + FROM_ONE, low, 0).amin(0)
    least = least.clamp(max=-math.log(2 * len(margin) + 1))
    margin = torch.where((low - floor).abs() <= FROM_ONE, margin.sign() * (high - least), margin)

    def newton(a: Tensor, *, held: bool) -> tuple[Tensor, Tensor]:
        b = torch.zeros_like(a)
        for _ in range(NEWTON_STEPS):
            p = (a * margin + b).sigmoid()
            error, curve = weight * (p - positive), weight * p * (1 - p)
            along = curve * margin
            of_a = (error * margin).sum(0) + FACTOR_PRECISION * (a - 1)
            of_b = error.sum(0) + OFFSET_PRECISION * b
            aa, ab = (along * margin).sum(0) + FACTOR_PRECISION, along.sum(0)
            bb = curve.sum(0) + OFFSET_PRECISION
            if held:
                of_a = ab = torch.zeros_like(a)
            size = aa * bb - ab * ab
            by_a = ((bb * of_a - ab * of_b) / size).clamp(-1, 1)
            by_b = ((aa * of_b - ab * of_a) / size).clamp(-2, 2)
            a, b = a - by_a, b - by_b
            if torch.maximum(by_a.abs(), by_b.abs()).max() < CONVERGED:
                break
        return a, b

    one = torch.ones_like(least)
    a, b = newton(one, held=False)
    if (a < LEAST_FACTOR).any():
        _, again = newton(LEAST_FACTOR * one, held=True)
        a, b = a.clamp(min=LEAST_FACTOR), torch.where(a < LEAST_FACTOR, again, b)
    return a, b
