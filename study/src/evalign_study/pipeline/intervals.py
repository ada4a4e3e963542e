"""A mean and its interval, by which every comparison of the study is judged."""

import math
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean over trials and its 95% interval, NaN for a single trial."""

    mean: float
    low: float
    high: float
    trials: int


NO_INTERVAL = Interval(math.nan, math.nan, math.nan, 0)


def interval(values: Iterable[float]) -> Interval:
    """Compute a mean and its interval by Student's t; for equal values its width is 0.

    Examples:
        >>> mean, low, high, n = interval([0.02, 0.03, 0.01, 0.04, 0.05])
        >>> f"{mean:.3f} in [{low:.3f}, {high:.3f}] of {n}"
        '0.030 in [0.010, 0.050] of 5'
    """
    x = np.fromiter(values, float)
    mean, n = float(x.mean()), len(x)
    if n == 1:
        return Interval(mean, math.nan, math.nan, n)
    # The mean of equal values may differ from them in its last digit.
    spread = 0.0 if np.ptp(x) == 0 else float(x.std(ddof=1))
    reach = _quantile(n - 1) * spread / math.sqrt(n)
    return Interval(mean, mean - reach, mean + reach, n)


@cache  # scipy takes longer than all else here, and tables have ten thousand intervals
def _quantile(degrees: int) -> float:
    return float(stats.t.ppf(0.975, degrees))
