"""Soft and hard metrics have one limit when memberships are right on average.

BtG Section 4.2: Beta memberships against Bernoulli decisions; MC-Fβ Section 5.2: Dirichlet against
categorical ones. Both are simulated, and compared within the standard error of the simulation.
"""

import math

import numpy as np
import pytest
import torch

from evalign import metrics
from evalign.membership.batch import Batch
from evalign.membership.soft_confusion import summed
from tests.tolerances import FALSE_ALARM, SAME

SIZES = [1000, 100_000]


def score(metric, target, soft, task):
    """Compute the metric of given memberships; the logits are not used."""
    target, soft = torch.from_numpy(target), torch.from_numpy(soft)
    weight = torch.ones(len(soft), dtype=torch.float64)
    batch = Batch(task, torch.zeros_like(soft), target, weight)
    return metric(summed(batch, soft)).item()


def standard_error(limit, matrix, true, soft):
    """Compute the error of limit(C_n) to first order: its gradient G makes a row worth G[y]·soft.

    The labels are fixed, so only the spread within each true class counts.
    """
    matrix = torch.tensor(matrix, requires_grad=True)
    (slope,) = torch.autograd.grad(limit(matrix), matrix)
    worth = (slope.numpy()[true] * soft).sum(1)
    spread = sum(worth[true == k].var() * (true == k).mean() for k in range(len(matrix)))
    return math.sqrt(spread / len(true))


# BtG Section 4.2: a share r of positives; memberships of mean u among them and v among negatives.


def binary_f1(r, u, v):
    return 2 * r * u / (r + r * u + v - r * v)  # BtG eq. 10 and 12


def binary_accuracy(r, u, v):
    return r * u + (1 - r) * (1 - v)


BINARY = {"f1": binary_f1, "accuracy": binary_accuracy}
RATES = [(0.5, 0.8, 0.3), (0.1, 0.6, 0.05), (0.3, 0.2, 0.7)]
# α + β of the Beta distribution: nearly hard memberships, uniform-like ones, narrow ones
CONCENTRATIONS = [0.1, 2.0, 50.0]


def binary_error(limit, r, u, v, target, soft):
    """Compute the standard error of the simulated score."""

    def of_matrix(c):  # rates from the sums over the rows
        return limit(r, c[1, 1] / r, c[0, 1] / (1 - r))

    matrix = [[(1 - r) * (1 - v), (1 - r) * v], [r * (1 - u), r * u]]
    return standard_error(of_matrix, matrix, target, np.stack([1 - soft, soft], 1))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("rows", SIZES)
def test_beta_memberships_and_their_decisions_have_one_limit(name, rates, rows):
    metric, limit, (r, u, v) = metrics.resolve(name), BINARY[name], rates
    random = np.random.default_rng(0)
    target = (np.arange(rows) < r * rows).astype(float)
    mean = np.where(target == 1, u, v)
    decisions = (random.random(rows) < mean).astype(float)
    drawn = [random.beta(a * mean, a * (1 - mean)) for a in CONCENTRATIONS]
    for soft in [decisions, *drawn]:
        error = binary_error(limit, r, u, v, target.astype(int), soft)
        assert abs(score(metric, target, soft, "binary") - limit(r, u, v)) < FALSE_ALARM * error


# MC-Fβ Section 5.2: shares q of the classes; row i of `MEANS` is the mean membership of class i.

SHARES = np.array([0.6, 0.3, 0.1])
MEANS = np.array([[0.7, 0.2, 0.1], [0.25, 0.6, 0.15], [0.3, 0.3, 0.4]])


def macro_fbeta(matrix, beta):
    """Compute the limit, MC-Fβ eq. 10 and 14, of the matrix q_i p_ij."""
    diagonal, rows, columns = matrix.diagonal(), matrix.sum(1), matrix.sum(0)
    return ((1 + beta**2) * diagonal / (beta**2 * rows + columns)).mean()


@pytest.mark.parametrize("beta", [0.25, 1.0, 5.0])
@pytest.mark.parametrize("rows", SIZES)
def test_dirichlet_memberships_and_their_decisions_have_one_limit(beta, rows):
    random = np.random.default_rng(0)
    target = np.repeat(range(3), (SHARES * rows).round().astype(int))
    matrix = SHARES[:, None] * MEANS
    limit = macro_fbeta(torch.tensor(matrix), beta).item()
    by_hand = [
        (1 + beta**2) * MEANS[k, k] * SHARES[k]
        / (beta**2 * SHARES[k] + sum(MEANS[j, k] * SHARES[j] for j in range(3)))
        for k in range(3)
    ]  # fmt: skip
    assert limit == pytest.approx(sum(by_hand) / 3, rel=SAME)

    decisions = np.concatenate(
        [random.multinomial(1, MEANS[k], (target == k).sum()) for k in range(3)]
    )
    drawn = [
        np.concatenate([random.dirichlet(a * MEANS[k], (target == k).sum()) for k in range(3)])
        for a in CONCENTRATIONS
    ]
    metric = metrics.FBeta(beta=beta, average="macro")
    for soft in [decisions.astype(float), *drawn]:
        error = standard_error(lambda c: macro_fbeta(c, beta), matrix, target, soft)
        assert abs(score(metric, target, soft, "multiclass") - limit) < FALSE_ALARM * error
