"""EAST Section 5.2: how far the soft confusion matrix of n random rows is from the population's.

The population is discrete, so that its confusion matrix is an exact expectation.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evalign import Confusion, metrics, theory
from tests.theorems import bounds
from tests.tolerances import FALSE_ALARM, SAME

REPETITIONS = 4000
FAILURE = 0.05
CLASSES = 3

# Twelve kinds of rows, four of each class, and how often they occur.
_random = np.random.default_rng(0)
TARGET = torch.arange(12) % CLASSES
LOGITS = torch.tensor(_random.normal(size=(12, CLASSES)) + 2 * np.eye(CLASSES)[TARGET])
PROBABILITY = torch.tensor(_random.dirichlet(np.full(12, 5)))
SHARES = torch.bincount(TARGET, weights=PROBABILITY)


def confusion(weight, logits=LOGITS, target=TARGET):
    """Compute the matrix of the population that has `weight` of each kind of row."""
    return Confusion.from_logits(logits, target, sample_weight=weight, matrix=True)


def samples(rows, seed, probability=PROBABILITY):
    """Draw random samples: the share of each kind of row among `rows`."""
    counts = np.random.default_rng(seed).multinomial(rows, probability.numpy(), REPETITIONS)
    return torch.tensor(counts, dtype=torch.float64) / rows


def of_samples(function, weights, **rows):
    """Compute a function of the confusion of every sample, for all samples at once."""
    return torch.vmap(lambda weight: function(confusion(weight, **rows)))(weights)


def matrix_errors(rows, seed):
    """‖Ĉ_n − C‖_max of every sample."""
    sampled = of_samples(lambda c: c.matrix, samples(rows, seed))
    return (sampled - confusion(PROBABILITY).matrix).abs().amax((1, 2))


def metric_errors(metric, rows, seed):
    """M(Ĉ_n) − M(C) of every sample."""
    return of_samples(metric, samples(rows, seed)) - metric(confusion(PROBABILITY))


def falls_with_the_root_of_n(mean_error):
    """Check that mean errors at n and 64 n have the ratio 8, within the spread of the two means."""
    few, many = mean_error(1000, seed=1), mean_error(64_000, seed=2)
    # A mean of |errors|, whose spread is at most their mean, has a relative error of 1/√REPETITIONS
    relative = FALSE_ALARM * math.sqrt(2 / REPETITIONS)
    return (few / many).item() == pytest.approx(8, rel=relative)


# Theorem 5.7.


@pytest.mark.parametrize("name", ["f1_macro", "accuracy", "matthews_corrcoef", "precision_macro"])
def test_metric_of_a_sample_converges_to_the_populations(name):
    metric = metrics.resolve(name)
    assert falls_with_the_root_of_n(lambda n, seed: metric_errors(metric, n, seed).abs().mean())


@pytest.mark.parametrize("name", ["f1_macro", "accuracy", "matthews_corrcoef", "precision_macro"])
def test_metric_of_a_sample_is_unbiased_in_the_limit(name):
    errors = metric_errors(metrics.resolve(name), 10**6, seed=3)
    assert errors.mean().abs() < FALSE_ALARM * errors.std() / math.sqrt(REPETITIONS)


# Theorem 5.8.


@pytest.mark.parametrize("rows", [10, 100, 1000])
def test_matrix_of_a_sample_is_within_the_bound(rows):
    bound = theory.confusion_error(rows, CLASSES, failure=FAILURE)
    assert (matrix_errors(rows, seed=rows) <= bound).double().mean() >= 1 - FAILURE


def test_matrix_error_falls_with_the_root_of_n():
    assert falls_with_the_root_of_n(lambda n, seed: matrix_errors(n, seed).mean())


def test_no_bound_of_half_the_size_holds():
    # Hoeffding's inequality is nearly tight for shares of ½: a population of two sure decisions.
    logits, target = torch.tensor([[50.0, 0.0], [0.0, 50.0]]).double(), torch.tensor([0, 1])
    half = torch.tensor([0.5, 0.5]).double()
    weights = samples(1000, seed=4, probability=half)
    sampled = of_samples(lambda c: c.matrix, weights, logits=logits, target=target)
    errors = (sampled - torch.diag(half)).abs().amax((1, 2))
    bound = theory.confusion_error(1000, 2, failure=FAILURE)
    assert (errors <= bound).double().mean() >= 1 - FAILURE
    assert (errors <= bound / 2).double().mean() < 1 - FAILURE


def test_bound_by_hand():
    # log(2 · 5² / 0.5) = log 100
    error = theory.confusion_error(50, 5, failure=0.5)
    assert error == pytest.approx(math.sqrt(math.log(100) / 100), rel=SAME)


sizes = st.tuples(st.integers(2, 1000), st.floats(1e-6, 0.5))


@given(sizes, st.floats(1e-4, 0.5))
def test_rows_needed_are_the_fewest(size, error):
    classes, failure = size
    rows = theory.rows_needed(error, classes, failure=failure)
    assert theory.confusion_error(rows, classes, failure=failure) <= error * (1 + SAME)
    if rows > 1:
        assert theory.confusion_error(rows - 1, classes, failure=failure) > error * (1 - SAME)


# Theorem 5.9.

BOUNDED = [
    metrics.Accuracy(),
    metrics.BalancedAccuracy(),
    metrics.Recall(average="macro"),
    metrics.FBeta(average="macro"),
    metrics.FBeta(beta=0.5, average="macro"),
    metrics.FBeta(beta=(1, 2, 3), average="macro"),
    metrics.Jaccard(average="macro"),
    metrics.Specificity(average="macro"),
    metrics.Informedness(average="macro"),
    metrics.CohenKappa(),
    metrics.ExpectedCost([[0, 1, 2], [5, -1, 1], [1, 1, 0]]),
]


@pytest.mark.parametrize("metric", BOUNDED, ids=str)
@pytest.mark.parametrize("rows", [30, 1000])
def test_metric_of_a_sample_is_within_the_bound(metric, rows):
    rarest = SHARES.min().item()
    bound = bounds.metric_error(metric, rows, CLASSES, rarest=rarest, failure=FAILURE)
    assert (metric_errors(metric, rows, seed=rows).abs() <= bound).double().mean() >= 1 - FAILURE


@pytest.mark.parametrize("metric", BOUNDED, ids=str)
def test_metric_bound_is_the_lipschitz_constant_times_the_matrix_bound(metric):
    # O_p(L / √n): the rate is exact in n, and L does not depend on it
    few, many = (bounds.metric_error(metric, n, CLASSES, rarest=0.2) for n in (100, 6400))
    assert few / many == pytest.approx(8, rel=SAME)
    lipschitz = bounds.metric_lipschitz(metric, CLASSES, rarest=0.2)
    assert few == pytest.approx(lipschitz * theory.confusion_error(100, CLASSES), rel=SAME)


def test_rows_needed_for_a_tiny_error():
    """Its square is 0 in floating point; n ε² does not depend on ε."""
    few, many = theory.rows_needed(1e-6, 10), theory.rows_needed(1e-200, 10)
    assert many / 10**388 == pytest.approx(few)


def test_an_error_that_is_not_finite():
    with pytest.raises(ValueError, match=r"error of rows_needed must be positive and finite\. Got"):
        theory.rows_needed(float("inf"), 10)
