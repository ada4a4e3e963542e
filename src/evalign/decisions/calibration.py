"""Probabilities calibrated with labels, by few numbers."""

import math

import numpy as np
from scipy.optimize import minimize

from evalign.decisions import formula
from evalign.decisions.blocks import blocks, sigmoid, softmax
from evalign.decisions.inputs import FLOOR, FROM_ONE

NEWTON_STEPS = 20
CONVERGED = 1e-9
# With more classes the C × C Hessian would dominate the time of a fit, and is not formed.
MOST_CLASSES_WITH_FACTOR = 64
# Precisions of the prior, a normal distribution around the model's own probabilities: standard
# deviation 1 for offsets of the log-odds, ½ for the factor. Classes without rows follow the prior.
OFFSET_PRECISION = 1.0
FACTOR_PRECISION = 4.0
LEAST_FACTOR = 0.05  # a higher logit must not count against its class
LOG_FLOOR = math.log(FLOOR)


def factor_and_offsets(
    logits: np.ndarray, labels: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray]:
    """a and b (C,) that maximise the posterior of softmax(a·logits + b), by Newton's method.

    With more than `MOST_CLASSES_WITH_FACTOR` classes the factor stays 1. A factor below
    `LEAST_FACTOR` is fixed there, and the offsets are fitted again.
    """
    rows, classes = logits.shape
    if classes == 2:
        a, b = factor_and_offset(logits[:, 1] - logits[:, 0], labels, weight)
        return float(a), np.array([-b, b]) / 2
    logits = _without_outliers(logits)
    mass = np.bincount(labels, weight, classes)
    if classes > MOST_CLASSES_WITH_FACTOR:
        return 1.0, _offsets_of_many(logits, mass, weight)
    of_labels = logits[np.arange(rows), labels]
    actual = np.concatenate([[weight @ of_labels], mass])
    prior = np.full_like(actual, OFFSET_PRECISION)
    prior[0] = FACTOR_PRECISION
    usual = np.zeros_like(actual)
    usual[0] = 1

    def newton(numbers: np.ndarray, *, held: bool = False) -> np.ndarray:
        for _ in range(NEWTON_STEPS):
            expected, hessian = _moments(logits, weight, numbers)
            gradient = expected - actual + prior * (numbers - usual)
            hessian += np.diag(prior)
            if held:
                gradient[0] = 0
                hessian[0, 1:] = 0
                hessian[1:, 0] = 0
            step = np.linalg.solve(hessian, gradient).clip(-1, 1)
            numbers = numbers - step
            if np.abs(step).max() < CONVERGED:
                break
        return numbers

    numbers = newton(usual)
    if numbers[0] < LEAST_FACTOR:
        numbers = newton(LEAST_FACTOR * usual, held=True)
    return float(numbers[0]), numbers[1:]


def _without_outliers(logits: np.ndarray) -> np.ndarray:
    """The log-probabilities of logits. Those at the floor get the least of the others.

    A probability of 0 counts as the least other one, or as 1/(2N + 1): floors are outliers.
    """
    logs = np.empty_like(logits)
    least = -math.log(2 * len(logits) + 1)
    for part in blocks(*logits.shape):
        shifted = formula.log_odds(logits[part], multilabel=False)
        logs[part] = shifted - np.log(np.exp(shifted).sum(1))[:, None]
        above_floor = logs[part] > LOG_FLOOR + FROM_ONE
        least = min(least, logs[part].min(initial=0, where=above_floor))
    for part in blocks(*logits.shape):
        at_floor = np.abs(logs[part] - LOG_FLOOR) <= FROM_ONE
        np.copyto(logs[part], least, where=at_floor)
    return logs


def _moments(
    logits: np.ndarray, weight: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over rows of the mean and covariance under η of a class's logit and its indicator."""
    rows, classes = logits.shape
    mean = np.zeros(1 + classes)
    square = np.zeros((1 + classes, 1 + classes))
    for part in blocks(rows, classes):
        logit = logits[part]
        eta = formula.probabilities(logit, numbers[0], numbers[1:], multilabel=False)
        weighted = weight[part, None] * eta
        expected = (eta * logit).sum(1)
        slope = weighted * (logit - expected[:, None])  # of the mass of each class in the factor
        mean[0] += (weight[part] * expected).sum()
        mean[1:] += weighted.sum(0)
        square[0, 0] += (slope * logit).sum()
        square[0, 1:] += slope.sum(0)
        square[1:, 1:] -= eta.T @ weighted
    square[1:, 0] = square[0, 1:]
    square[1:, 1:] += np.diag(mean[1:])
    return mean, square


def _offsets_of_many(logits: np.ndarray, actual: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The offsets b, by scipy's L-BFGS: softmax(logits + b) is e^b·η over its sum."""
    eta = softmax(logits)
    scale = 1 / np.sqrt(actual + OFFSET_PRECISION)  # makes all slopes alike

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        b = scale * numbers
        powers = np.exp(b)
        likelihood = 0.0
        mass = np.zeros_like(b)
        for part in blocks(*eta.shape):
            total = eta[part] @ powers
            likelihood += weight[part] @ np.log(total)
            mass += (weight[part] / total) @ eta[part]
        value = likelihood - actual @ b + OFFSET_PRECISION / 2 * b @ b
        slope = powers * mass - actual + OFFSET_PRECISION * b
        return float(value), scale * slope

    settings = {"ftol": 0, "gtol": CONVERGED, "maxcor": 30}
    start = np.zeros(len(actual))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=settings)
    return scale * found.x


def factor_and_offset(
    margin: np.ndarray, positive: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same for two classes, sigmoid(a·margin + b) (Platt scaling), of each column (N, ...)."""
    size = np.abs(margin)
    log_larger = -np.log1p(np.exp(-size))
    log_smaller = log_larger - size
    least = log_smaller.min(0, initial=0, where=log_smaller > LOG_FLOOR + FROM_ONE)
    least = np.minimum(least, -math.log(2 * len(margin) + 1))
    at_floor = np.abs(log_smaller - LOG_FLOOR) <= FROM_ONE
    margin = np.where(at_floor, np.sign(margin) * (log_larger - least), margin)

    def newton(a: np.ndarray, *, held: bool) -> tuple[np.ndarray, np.ndarray]:
        b = np.zeros_like(a)
        for _ in range(NEWTON_STEPS):
            of_a, of_b, aa, ab, bb = _slopes_and_curves(margin, positive, weight, a, b)
            of_a = of_a + FACTOR_PRECISION * (a - 1)
            of_b = of_b + OFFSET_PRECISION * b
            aa = aa + FACTOR_PRECISION
            bb = bb + OFFSET_PRECISION
            if held:
                of_a = np.zeros_like(a)
                ab = np.zeros_like(a)
            determinant = aa * bb - ab * ab
            by_a = ((bb * of_a - ab * of_b) / determinant).clip(-1, 1)
            by_b = ((aa * of_b - ab * of_a) / determinant).clip(-2, 2)
            a = a - by_a
            b = b - by_b
            if np.maximum(np.abs(by_a), np.abs(by_b)).max() < CONVERGED:
                break
        return a, b

    one = np.ones_like(least)
    a, b = newton(one, held=False)
    if (a < LEAST_FACTOR).any():
        _, offset_of_least = newton(LEAST_FACTOR * one, held=True)
        b = np.where(a < LEAST_FACTOR, offset_of_least, b)
        a = np.maximum(a, LEAST_FACTOR)
    return a, b


def _slopes_and_curves(
    margin: np.ndarray, positive: np.ndarray, weight: np.ndarray, a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """The slopes of the loss in a and b, and its curvature in a, in both and in b, (5, ...)."""
    sums = np.zeros((5, *np.shape(a)))
    for part in blocks(len(margin), max(np.size(a), 1)):
        z = margin[part]
        w = weight[part]
        p = sigmoid(a * z + b)
        error = w * (p - positive[part])
        curve = w * p * (1 - p)
        along = curve * z
        sums[0] += (error * z).sum(0)
        sums[1] += error.sum(0)
        sums[2] += (along * z).sum(0)
        sums[3] += along.sum(0)
        sums[4] += curve.sum(0)
    return sums
