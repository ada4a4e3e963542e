"""p-values of violated constraints, and the number of rows that a test needs.

The hypothesis is that the constraint does not hold on new data. It can be tested for rates, which
are shares of some rows: recall, precision and the like of one class, and accuracy. The p-value is
the exact binomial tail (Clopper and Pearson). For a gap it is the normal tail, after z² rows are
added to each group, half of which count (Agresti and Coull), so that a perfect rate of few rows
does not count as certain. For unequal weights, the effective number of rows is Kish's,
(Σw)² / Σw².
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, ndtr, ndtri
from torch import Tensor, stack

from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, OfClass
from evalign.decisions.objective import Objective, each_of

# A larger number of rows is not worth reporting.
MOST_ROWS_NAMED = 1e9
# The sum of a confusion that counts the rows of each rate, and these rows in words.
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
ROWS = {
    "actual": "rows of {own}",
    "negatives": "rows of {other}",
    "total": "rows",
    "predicted": "rows labelled {own}",
    "rejected": "rows labelled {other}",
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
    metric, stem, index = constraint.metric, constraint.metric.name, 0
    if isinstance(metric, OfClass):
        stem, index = metric.metric.stem, 1 if metric.index is None else metric.index
    if stem not in RATES:
        return None
    chosen = constraint.gap or stem in ("accuracy", "precision", "npv")
    return Rate(RATES[stem], index, not chosen)


class CellSums(NamedTuple):
    """Sums of weights and of squared weights (K, G, d, d), by rule, group, true class and label."""

    mass: Tensor
    squares: Tensor

    @classmethod
    def of(cls, objective: Objective, mass: Tensor, squares: Tensor) -> "CellSums":
        number = objective.groups or 1
        return cls(*(x.unflatten(-2, (number, -1)) for x in (mass, squares)))

    def rates(self, constraint: Constraint) -> tuple[np.ndarray, np.ndarray]:
        """The rates (K, G) and their effective numbers of rows; G is 1 unless it is a gap."""
        rate = rate_of(constraint)
        assert rate is not None

        def rate_and_rows(x: Tensor) -> Tensor:
            c = Confusion.from_matrix(x)
            rows = getattr(c, rate.of).expand_as(c.tp)[rate.class_index]
            return stack([constraint.metric(c), rows])

        groups = self if constraint.gap else (x.sum(1, keepdim=True) for x in self)
        mass, squares = (each_of(rate_and_rows, x).cpu().numpy() for x in groups)
        rows = mass[..., 1] ** 2 / np.maximum(squares[..., 1], 1e-300)
        return np.clip(mass[..., 0], 0, 1), rows


def tail(rate: np.ndarray, rows: np.ndarray, bound: float) -> np.ndarray:
    """The probability of this rate or a greater one among n rows if the true rate is the bound.

    Examples:
        >>> tail(np.array([1.0]), np.array([29.0]), 0.9).round(3)
        array([0.047])
    """
    found = rate * rows
    exact = betainc(np.maximum(found, 1e-300), rows - found + 1, bound)
    return np.where(found > 0, exact, 1.0)


def rows_needed(rate: float, bound: float, level: float) -> float:
    """The number of rows whose `tail` is the level at this rate; infinite if there is none."""

    def excess(log_rows: float) -> float:
        return float(tail(np.array(rate), np.exp(log_rows), bound)) - level

    least, most = math.log(1e-3), math.log(MOST_ROWS_NAMED)
    return math.inf if excess(most) > 0 else math.exp(float(brentq(excess, least, most)))  # pyright: ignore[reportArgumentType]


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
    slack, error = np.nan_to_num(slack, nan=-np.inf), np.sqrt(np.nan_to_num(variance))
    nearest = np.arange(len(slack)), (slack / np.maximum(error, 1e-300)).argmin(1)
    return slack[nearest], error[nearest]


def _at_least(constraint: Constraint, seen: CellSums) -> tuple[np.ndarray, np.ndarray, float]:
    """A rate, its number of rows and its lower bound; with an upper one, those of 1 − rate."""
    value, rows = (x[:, 0] for x in seen.rates(constraint))
    up, bound = constraint.at_least, constraint.bound
    value = np.where(rows > 0, value if up else 1 - value, 0)
    return value, rows, bound if up else 1 - bound


def p_values(constraint: Constraint, seen: CellSums, level: float) -> np.ndarray:
    """The p-values of a violated constraint for K rules, each tested by itself."""
    if not constraint.gap:
        return tail(*_at_least(constraint, seen))
    slack, error = slack_and_error(constraint, seen, float(ndtri(1 - level)))
    return ndtr(-slack / np.maximum(error, 1e-300))


def lacking(
    constraint: Constraint, seen: CellSums, level: float, names: list[str | float] | None
) -> str:
    """Say how many rows one rule needs to pass, and how many there are; "" if it passes."""
    if p_values(constraint, seen, level)[0] <= level:
        return ""
    rate = rate_of(constraint)
    assert rate is not None
    value, rows, bound = (float(np.ravel(x)[0]) for x in _at_least(constraint, seen))
    needed = math.inf if constraint.gap else rows_needed(value, bound, level)
    if math.isinf(needed):
        return f"{constraint.text!r} is met too narrowly, or undefined in a group."
    own = f"class {rate.class_index if names is None else names[rate.class_index]!r}"
    kind = ROWS[rate.of].format(own=own, other=f"classes other than {own}")
    needs = f"{constraint.text!r} needs {math.ceil(needed - 1e-9)} {kind}"
    return f"{needs} like these, and there are {math.floor(rows + 1e-9)}."
