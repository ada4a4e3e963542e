"""SurF Sections 3 and 4: which gradients vanish where, for F-beta and for the losses.

p is the share of positives, q0 the mean of 1 − f among positives (false negatives) and q1 the mean
of f among negatives (false positives). When all rows of a class have one score, a mean of functions
is the function of the mean, and the paper's approximations (eq. 16 and 21) are exact.
"""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from evalign import Confusion, metrics
from evalign.losses import (
    FocalLoss,
    MAELoss,
    SoftFBetaLoss,
    SurrogateFBetaLoss,
    inverse_frequency_weights,
)
from tests.tolerances import REFERENCE, SAME

POSITIVES, NEGATIVES = 3, 9
P = POSITIVES / (POSITIVES + NEGATIVES)
TARGET = torch.tensor([1] * POSITIVES + [0] * NEGATIVES)
WEIGHTS = inverse_frequency_weights([NEGATIVES, POSITIVES])
# −log f_y without a factor: focal loss at γ = 0 is cross-entropy (eq. 13).
BCE = FocalLoss(gamma=0.0, class_weight=WEIGHTS)
MAE = MAELoss(class_weight=WEIGHTS)

rates = st.floats(0.01, 0.99)
betas = st.floats(0.25, 5)


def tensors(*values):
    return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]


def odds(beta, p=P):
    """β² p / (1 − p), the constant of eq. 12 and 20."""
    return beta**2 * p / (1 - p)


def fbeta(q0, q1, p, beta):
    """F-beta of the population (eq. 10), from its confusion matrix."""
    negatives = torch.stack([(1 - p) * (1 - q1), (1 - p) * q1])
    positives = torch.stack([p * q0, p * (1 - q0)])
    return metrics.FBeta(beta=beta)(Confusion.from_matrix(torch.stack([negatives, positives])))


def risk(loss, q0, q1):
    """Compute the loss of a batch in which every class has one score."""
    logits = torch.cat([(1 - q0).logit().expand(POSITIVES), q1.logit().expand(NEGATIVES)])
    return loss(logits, TARGET)


def gradient(value, *inputs):
    return [g.item() for g in torch.autograd.grad(value, inputs)]


def approx(expected, tolerance=REFERENCE):
    return pytest.approx(expected, rel=tolerance, abs=tolerance)


# The F-beta score itself.


@given(rates, rates, rates, betas)
def test_gradient_of_log_fbeta(q0, q1, p, beta):  # eq. 11
    x0, x1 = tensors(q0, q1)
    z = (1 - q0) * (p * (beta**2 + 1 - q0 - q1) + q1)
    expected = [-(beta**2 * p - p * q1 + q1) / z, (p - p * q0 - 1 + q0) / z]
    assert gradient(fbeta(x0, x1, p, beta).log(), x0, x1) == approx(expected)


@given(rates, rates, rates, betas)
def test_fbeta_is_critical_along_the_direction_of_equation_12(q0, q1, p, beta):
    x0, x1 = tensors(q0, q1)
    slope0, slope1 = gradient(fbeta(x0, x1, p, beta).log(), x0, x1)
    down, up = -(1 - q0), odds(beta, p) + q1  # q0′ and q1′ that satisfy eq. 12
    assert slope0 * down == approx(-slope1 * up)
    assert slope0 * down > 0  # neither term is 0: other directions are not critical


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.5])
def test_the_best_threshold_satisfies_equation_12(beta):
    # Scores of exponential distributions, positive above θ: 1 − q0 = exp(−θ), q1 = exp(−2θ).
    # Eq. 12 reads −1 = −2 q1 / (β² p / (1 − p) + q1), so q1 = β² p / (1 − p).
    best = -math.log(odds(beta)) / 2

    def slope(theta):
        (t,) = tensors(theta)
        return gradient(fbeta(1 - (-t).exp(), (-2 * t).exp(), P, beta).log(), t)[0]

    assert slope(best) == approx(0)
    assert slope(best - 0.01) > 1e-4
    assert slope(best + 0.01) < -1e-4


# Cross-entropy and mean absolute error, class-balanced.


@given(rates, rates)
def test_balanced_cross_entropy_of_one_score_per_class(q0, q1):  # eq. 16 and 17
    x0, x1 = tensors(q0, q1)
    value = risk(BCE, x0, x1)
    assert value.item() == approx(-math.log(1 - q0) - math.log(1 - q1))
    assert gradient(value, x0, x1) == approx([1 / (1 - q0), 1 / (1 - q1)])


scores = st.lists(st.floats(-4, 4), min_size=len(TARGET), max_size=len(TARGET))


def smoothed_rates(logits):
    f = logits.sigmoid()
    return 1 - f[TARGET == 1].mean(), f[TARGET == 0].mean()  # eq. 7


@given(scores)
def test_balanced_cross_entropy_exceeds_its_approximation(z):  # eq. 15
    (logits,) = tensors(z)
    assume(logits[:POSITIVES].std() > 0.1)
    q0, q1 = smoothed_rates(logits)
    assert BCE(logits, TARGET) > -(1 - q0).log() - (1 - q1).log()


@given(scores)
def test_balanced_mean_absolute_error_is_the_sum_of_the_rates(z):  # eq. 18 and 19, any scores
    (logits,) = tensors(z)
    q0, q1 = smoothed_rates(logits)
    expected = 2 * q0 + 2 * q1
    value = MAE(logits, TARGET)
    assert value.item() == approx(expected.item())
    (slope,), (wanted,) = (torch.autograd.grad(x, logits) for x in (value, expected))
    torch.testing.assert_close(slope, wanted, rtol=REFERENCE, atol=REFERENCE)


# The surrogate.


@given(rates, rates, betas)
def test_surrogate_of_one_score_per_class(q0, q1, beta):  # eq. 21 and 22
    x0, x1 = tensors(q0, q1)
    value = risk(SurrogateFBetaLoss(P, beta=beta), x0, x1)
    assert value.item() == approx(-math.log(1 - q0) + math.log(odds(beta) + q1))
    assert gradient(value, x0, x1) == approx([1 / (1 - q0), 1 / (odds(beta) + q1)])


@given(rates, rates, betas)
def test_surrogate_and_fbeta_have_the_same_gradient_condition(q0, q1, beta):  # eq. 12 and 22
    x0, x1 = tensors(q0, q1)
    surrogate = gradient(risk(SurrogateFBetaLoss(P, beta=beta), x0, x1), x0, x1)
    score = gradient(fbeta(x0, x1, P, beta).log(), x0, x1)
    # parallel and opposite: one vanishes along a direction when the other does
    assert surrogate[0] * score[1] == approx(surrogate[1] * score[0])
    assert surrogate[0] * score[0] < 0


@given(rates, rates, betas)
def test_surrogate_is_a_decreasing_function_of_fbeta(q0, q1, beta):
    # eq. 10 divided by p (1 − q0): F = (1 + β²) / (1 + (1 − p)/p · exp R), R being eq. 21
    x0, x1 = tensors(q0, q1)
    r = risk(SurrogateFBetaLoss(P, beta=beta), x0, x1).item()
    expected = (1 + beta**2) / (1 + (1 - P) / P * math.exp(r))
    assert fbeta(x0, x1, P, beta).item() == approx(expected)
    assert 1 - risk(SoftFBetaLoss(beta), x0, x1).item() == approx(expected)  # eq. 24


@pytest.mark.parametrize("balanced", [True, False])
@given(scores, betas, rates)
def test_surrogate_with_q_tends_to_equation_20(balanced, z, beta, p):
    (logits,) = tensors(z)
    positive, f = TARGET == 1, logits.detach().sigmoid()
    weight = torch.ones_like(f)
    if balanced:
        weight = torch.where(positive, weight / p, weight / (1 - p))
    signed = torch.where(positive, -weight, weight)
    log = torch.where(positive, f, odds(beta, p) + f).log()

    def value(q):
        loss = SurrogateFBetaLoss(p, beta=beta, q=q, class_balanced=balanced)
        return loss(logits, TARGET).item()

    equation_20 = (signed * log).mean().item()
    assert value(0.0) == approx(equation_20)
    # (x^q − 1) / q = log x + q log² x / 2, off by less than q² |log x|³ / 3
    q = 1e-3
    first_order = q * (signed * log**2 / 2).mean().item()
    remainder = q**2 * (weight * log.abs() ** 3 / 3).mean().item()
    assert abs(value(q) - equation_20 - first_order) <= remainder + REFERENCE


@given(scores)
def test_surrogate_with_q_1_is_half_of_the_mean_absolute_error(z):
    (logits,) = tensors(z)
    surrogate = SurrogateFBetaLoss(0.5, q=1.0, class_balanced=False)
    assert surrogate(logits, TARGET).item() == approx(MAELoss()(logits, TARGET).item() / 2, SAME)


# Figure 1: loss against rate at β = 1, p = ½; the mean absolute error is drawn halved.
