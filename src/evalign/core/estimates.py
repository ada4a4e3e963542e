"""Confidence intervals of cross-validation means.

Folds share training rows, so their scores are not independent. The variance is corrected after
Nadeau and Bengio, "Inference for the Generalization Error" (Machine Learning 52, 2003), for
repeated folds as in Bouckaert and Frank, "Evaluating the Replicability of Significance Tests for
Comparing Learning Algorithms" (PAKDD 2004).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, logit

SPREAD = 1e-9  # relative to the mean; less is rounding error
UNBOUNDED = (-math.inf, math.inf)


class Estimate(NamedTuple):
    """A mean over folds, its 95% confidence interval, and the p-value of a mean of 0."""

    value: float
    low: float
    high: float
    p: float


def estimate(
    values: Sequence[float], folds: int, bounds: tuple[float, float] = UNBOUNDED
) -> Estimate:
    """The mean of a repeated cross-validation, with Nadeau and Bengio's corrected variance.

    For n = folds · repetitions values with sample variance s², the variance of the mean is
    (1/n + n_test/n_train) · s², where n_test/n_train = 1/(folds - 1). The test is Student's t with
    n - 1 degrees of freedom. If all values are equal, p is 1.

    Within bounds, the interval is symmetric on the scale of the logit, log((m - a)/(b - m)), where
    by the delta method the error is (b - a)/((m - a)(b - m)) times that of the mean m.

    Examples:
        >>> mean, low, high, p = estimate([0.02, 0.03, 0.01, 0.04, 0.05], folds=5)
        >>> f"{mean:.3f} in [{low:.3f}, {high:.3f}], p = {p:.3f}"
        '0.030 in [0.001, 0.059], p = 0.047'
    """
    n = len(values)
    mean = float(np.mean(values))
    error = math.sqrt((1 / n + 1 / (folds - 1)) * float(np.var(values, ddof=1)))
    if error <= SPREAD * abs(mean):
        return Estimate(mean, mean, mean, 1.0)
    reach = float(stats.t.ppf(0.975, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1))
    least, most = bounds
    if not (math.isfinite(most - least) and least < mean < most):
        return Estimate(mean, mean - reach, mean + reach, p)
    share = (mean - least) / (most - least)
    reach /= (most - least) * share * (1 - share)
    low, high = (least + (most - least) * float(expit(logit(share) + by)) for by in (-reach, reach))
    return Estimate(mean, low, high, p)
