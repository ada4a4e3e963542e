"""Intervals of cross-validation means."""

import math

import numpy as np
import pytest
from scipy import stats

from evalign.core.estimates import estimate


def test_corrected_t_agrees_with_an_independent_computation():
    values = np.random.default_rng(0).normal(0.01, 0.02, size=15)
    # In t of the plain test the variance of the mean is s²/15; the correction stretches it.
    plain = stats.ttest_1samp(values, 0)
    stretch = math.sqrt((1 / 15) / (1 / 15 + 20 / 80))
    p = 2 * stats.t.cdf(-abs(plain.statistic) * stretch, df=14)
    interval = plain.confidence_interval(0.95)
    reach = (interval.high - interval.low) / 2 / stretch
    got = estimate(values.tolist(), folds=5)
    assert got == pytest.approx((values.mean(), values.mean() - reach, values.mean() + reach, p))


def test_intervals_stay_within_bounds():
    values = [0.99, 0.9, 1.0, 1.0, 0.96, 1.0]
    plain, bounded = estimate(values, folds=3), estimate(values, 3, (0, 1))
    assert plain.high > 1 >= bounded.high > bounded.value > bounded.low > 0
    assert (plain.value, plain.p) == (bounded.value, bounded.p)
    # On a scale of another unit it is the same interval; far from the bounds, the plain one.
    scaled = estimate([2 * value - 1 for value in values], 3, (-1, 1))
    assert scaled[:3] == pytest.approx([2 * value - 1 for value in bounded[:3]])
    assert estimate(values, 3, (-1e6, 1e6)) == pytest.approx(plain, abs=1e-4)
    assert estimate([1.0] * 6, 3, (0, 1)) == (1, 1, 1, 1)
    assert estimate(values, 3, (0, 0.5)) == plain  # bounds that it does not keep are none
    assert estimate(values, 3, (0, math.inf)) == plain


def test_coverage_near_a_bound():
    """Of scores with mean 0.97 that correlate as folds do; the symmetric interval has 0.87."""
    rng, folds, mean = np.random.default_rng(0), 5, 0.97
    shared, own = rng.normal(size=(1500, 1)), rng.normal(size=(1500, folds))
    drawn = stats.norm.cdf(math.sqrt(1 / folds) * shared + math.sqrt(1 - 1 / folds) * own)
    scores = stats.beta.ppf(drawn, mean * 30, (1 - mean) * 30).tolist()

    def coverage(*bounds):
        found = [estimate(row, folds, *bounds) for row in scores]
        return np.mean([low <= mean <= high for _, low, high, _ in found])

    assert coverage((0, 1)) == pytest.approx(0.95, abs=0.02)
    assert coverage() < 0.9


@pytest.mark.slow
def test_size_under_the_correlation_it_assumes():
    # Scores of two folds correlate by n_test / n; the statistic then has a t distribution exactly.
    rng = np.random.default_rng(0)
    draws, folds, n = 4000, 5, 15
    shared, own = rng.normal(size=(draws, 1)), rng.normal(size=(draws, n))
    values = math.sqrt(1 / folds) * shared + math.sqrt(1 - 1 / folds) * own
    rejected = np.mean([estimate(row, folds).p < 0.05 for row in values])
    assert abs(rejected - 0.05) < 4 * math.sqrt(0.05 * 0.95 / draws)
    naive = np.mean(stats.ttest_1samp(values, 0, axis=1).pvalue < 0.05)
    assert naive > 0.3  # what the correction is for
