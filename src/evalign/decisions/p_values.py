"""p-values of violated constraints.

The hypothesis is that the constraint does not hold on new data. It can be tested for rates, which
are shares of some rows: recall, precision and the like of one class, and accuracy. The p-value is
the exact binomial tail (Clopper and Pearson). For a gap it is the normal tail, after z² rows are
added to each group, half of which count (Agresti and Coull), so that a perfect rate of few rows
does not count as certain. For unequal weights, the effective number of rows is Kish's,
(Σw)² / Σw².
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betainc, ndtr, ndtri

from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, OfClass
from evalign.decisions.objective import Objective

# The sum of a confusion that counts the rows of each rate.
RATES = {
    "recall": "actual",
    "fnr": "actual",
    "specificity": "negatives",
    "fpr": "negatives",
    "predicted_rate": "total",
    "accuracy": "total",
    "precision": "predicted",
    "npv": "rejected",
}


class Rate(NamedTuple):
    """A metric that is a share of some rows, which the sum `of` a confusion counts.

    Of two classes the rate is `monotone` if it only rises or only falls with the threshold.
    """

    of: str
    class_index: int
    monotone: bool


def rate_of(constraint: Constraint) -> Rate | None:
    """The rate that a constraint or its gap is about; None if it is about another metric."""
    metric = constraint.metric
    stem = metric.name
    index = 0
    if isinstance(metric, OfClass):
        stem = metric.metric.stem
        index = 1 if metric.index is None else metric.index
    if stem not in RATES:
        return None
    chosen = constraint.gap or stem in ("accuracy", "precision", "npv")
    return Rate(RATES[stem], index, not chosen)


class CellSums(NamedTuple):
    """Sums of weights and of squared weights (K, G, d, d), by rule, group, true class and label."""

    mass: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, objective: Objective, mass: np.ndarray, squares: np.ndarray) -> "CellSums":
        """The sums of an objective's matrices (K, G·d, d)."""
        number, _, labels = mass.shape
        shape = (number, objective.groups or 1, labels, labels)
        return cls(mass.reshape(shape), squares.reshape(shape))

    def rates(self, constraint: Constraint) -> tuple[np.ndarray, np.ndarray]:
        """The rates (K, G) and their effective numbers of rows; G is 1 unless it is a gap."""
        rate = rate_of(constraint)
        assert rate is not None

        def rows_of(c: Confusion) -> np.ndarray:
            counts = c.total_of_each if rate.of == "total" else getattr(c, rate.of)
            return np.broadcast_to(counts, c.tp.shape)[..., rate.class_index]

        sums = self if constraint.gap else (x.sum(1, keepdims=True) for x in self)
        mass, squares = (Confusion.from_matrix(x) for x in sums)
        rows = rows_of(mass) ** 2 / np.maximum(rows_of(squares), 1e-300)
        return np.clip(constraint.metric(mass), 0, 1), rows


def tail(rate: np.ndarray, rows: np.ndarray, bound: float) -> np.ndarray:
    """The probability of this rate or a greater one among n rows if the true rate is the bound.

    Examples:
        >>> tail(np.array([1.0]), np.array([29.0]), 0.9).round(3)
        array([0.047])
    """
    found = rate * rows
    exact = betainc(np.maximum(found, 1e-300), rows - found + 1, bound)
    return np.where(found > 0, exact, 1.0)


def slack_and_error(
    constraint: Constraint, seen: CellSums, z: float
) -> tuple[np.ndarray, np.ndarray]:
    """The slack of a constraint for K rules and its standard error, with z² rows added.

    Any pair of groups can violate a gap, so the pair closest to the bound, in standard errors,
    stands for the gap. The slack is −∞ where the metric is undefined.
    """
    value, rows = seen.rates(constraint)
    value = (value * rows + z**2 / 2) / (rows + z**2)
    variance = value * (1 - value) / (rows + z**2)
    if constraint.gap:
        one, other = np.triu_indices(value.shape[1], 1)
        value = np.abs(value[:, one] - value[:, other])
        variance = variance[:, one] + variance[:, other]
    slack = (value - constraint.bound) * (1 if constraint.at_least else -1)
    slack = np.nan_to_num(slack, nan=-np.inf)
    error = np.sqrt(np.nan_to_num(variance))
    nearest = np.arange(len(slack)), (slack / np.maximum(error, 1e-300)).argmin(1)
    return slack[nearest], error[nearest]


def p_values(constraint: Constraint, seen: CellSums, level: float) -> np.ndarray:
    """The p-values of a violated constraint for K rules, each tested by itself."""
    up = constraint.at_least
    bound = constraint.bound
    if constraint.gap:
        slack, error = slack_and_error(constraint, seen, float(ndtri(1 - level)))
        return ndtr(-slack / np.maximum(error, 1e-300))
    rate, rows = (x[:, 0] for x in seen.rates(constraint))
    rate = np.where(rows > 0, rate if up else 1 - rate, 0)  # an upper bound is one of 1 − rate
    return tail(rate, rows, bound if up else 1 - bound)
