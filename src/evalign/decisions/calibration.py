"""Probabilities held against labels: calibrated by few numbers, and for other class shares."""

import math

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import chdtri
from torch import Tensor

from evalign.decisions.inputs import FLOOR, FROM_ONE

NEWTON_STEPS, CONVERGED = 20, 1e-9
# With more classes the C × C Hessian would dominate the time of a fit, and is not formed.
MOST_CLASSES_WITH_FACTOR = 64
# Precisions of the prior, a normal distribution around the model's own probabilities: standard
# deviation 1 for offsets of the log-odds, ½ for the factor. Classes without rows follow the prior.
OFFSET_PRECISION, FACTOR_PRECISION = 1.0, 4.0
LEAST_FACTOR = 0.05  # a higher logit must not count against its class
# Steps of the estimate of class shares, and the most rows that it uses, evenly spread: its error is
# then about 0.2 points.
MOST_STEPS, MOST_ROWS = 1000, 2**16
# The level of the likelihood-ratio test for new shares (Saerens, Latinne and Decaestecker 2002,
# section 3).
LEVEL = 0.01


def factor_and_offsets(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """a and b (C,) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    With more than `MOST_CLASSES_WITH_FACTOR` classes the factor stays 1. A factor below
    `LEAST_FACTOR` is fixed there, and the offsets are fitted again.
    """
    # A probability of 0 counts as the least other one, or as 1/(2N + 1): floors are outliers.
    logits, floor = logits.log_softmax(1), math.log(FLOOR)
    least = logits[logits > floor + FROM_ONE].min().clamp(max=-math.log(2 * len(logits) + 1))
    logits = logits.masked_fill((logits - floor).abs() <= FROM_ONE, least)
    if logits.shape[1] > MOST_CLASSES_WITH_FACTOR:
        return logits.new_ones(()), _offsets_of_many(logits, target, weight)
    actual = torch.cat([(weight @ (target * logits).sum(1)).unsqueeze(0), weight @ target])
    # Of two classes only the difference counts: each offset has half of its variance.
    prior = torch.full_like(actual, OFFSET_PRECISION * (2 if logits.shape[1] == 2 else 1))
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
    """a and b that maximise the posterior of sigmoid(a·margin + b) (Platt scaling)."""
    logits = torch.stack([torch.zeros_like(margin), margin], 1)
    target = torch.stack([1 - positive, positive], 1)
    a, both = factor_and_offsets(logits, target, weight)
    return a, both[1] - both[0]


def estimated_shares(eta: Tensor, old: Tensor, rows: int) -> Tensor:
    """Estimate the class shares π of unlabelled rows, (C,), or (L, 2) if multilabel.

    The probabilities η, (N, C) or (N, L, 2), are calibrated for the shares `old` of a number of
    `rows`. With other shares they become ∝ η_y·π_y/old_y. EM maximises the likelihood of π. If the
    data do not distinguish π from `old`, the result is `old`.
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
    count. Probabilities η and targets are (N, C), weights (N, C) or (N, 1).
    """
    actual, expected = (weight * target).sum(0), (weight * eta).sum(0)
    spread = (weight**2 * eta * (1 - eta)).sum(0).sqrt()
    distance = (actual - expected).abs()
    part = distance / torch.maximum(actual, weight.amax()).clamp(min=1e-300)
    return torch.where(distance > 3 * spread, part, 0).max().item()
