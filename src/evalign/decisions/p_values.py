"""p-values of violated constraints, and the number of rows that a test needs.

The hypothesis is that the constraint does not hold on new data. For a rate, such as recall or
precision, the p-value is the exact binomial tail (Clopper and Pearson). For any other metric it is
approximate, by the delta method: the metric is a function of the cells of the confusion matrix, and
its variance is Σ_r w_r² s², where s is the slope in the cell of row r. First, z² rows are added to
each class, half of them labelled correctly, as Agresti and Coull do for rates, so that a perfect
score on few rows does not count as certain. For unequal weights, the effective number of rows is
Kish's, (Σw)² / Σw².
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import betainc, ndtr, ndtri
from torch import Tensor

from evalign.core import constraints, metrics
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, OfClass
from evalign.decisions.objective import Objective, each_of

# A larger number of rows is not worth reporting.
MOST_ROWS_NAMED = 1e9
# The sum of a confusion that counts the rows of each rate, and these rows in words.
RATES: dict[type[metrics.Metric], str] = {
    metrics.Recall: "actual",
    constraints.FalseNegativeRate: "actual",
    metrics.Specificity: "negatives",
    constraints.FalsePositiveRate: "negatives",
    constraints.PredictedRate: "total",
    metrics.Accuracy: "total",
    metrics.Precision: "predicted",
    metrics.NegativePredictiveValue: "rejected",
}
ROWS = {
    "actual": "rows of {own}",
    "negatives": "rows of {other}",
    "total": "rows",
    "predicted": "rows labelled {own}",
    "rejected": "rows labelled {other}",
}


class Rate(NamedTuple):
    """A metric that is a share of some rows.

    Args:
        of: the sum of a confusion that counts these rows, by class.
        class_index: the class.
        monotone: whether the rate of two classes only rises or only falls with the threshold.
    """

    of: str
    class_index: int
    monotone: bool


def rate_of(constraint: Constraint) -> Rate | None:
    """The rate that a constraint bounds; None if it bounds another metric, a mean or a gap."""
    metric, index = constraint.metric, 0
    if isinstance(metric, OfClass):
        metric, index = metric.metric, 1 if metric.index is None else metric.index
    elif not isinstance(metric, metrics.Accuracy):
        return None
    of = RATES.get(type(metric))
    if of is None or constraint.gap:
        return None
    chosen = of in ("predicted", "rejected") or isinstance(metric, metrics.Accuracy)
    return Rate(of, index, not chosen)


class CellSums(NamedTuple):
    """Sums of weights and of squared weights (K, G, d, d), by rule, group, true class and label."""

    mass: Tensor
    squares: Tensor

    @classmethod
    def of(cls, objective: Objective, mass: Tensor, squares: Tensor) -> "CellSums":
        number = objective.groups or 1
        return cls(*(x.unflatten(-2, (number, -1)) for x in (mass, squares)))

    def whole(self) -> "CellSums":
        return CellSums(*(x.sum(1, keepdim=True) for x in self))


def tail(rate: np.ndarray, rows: np.ndarray, bound: float) -> np.ndarray:
    """The probability of this rate or a greater one among n rows if the true rate is the bound.

    Examples:
        >>> tail(np.array([1.0]), np.array([29.0]), 0.9).round(3)
        array([0.047])
    """
    if bound <= 0:
        return np.zeros_like(rate)
    found = rate * rows
    exact = betainc(np.maximum(found, 1e-300), rows - found + 1, bound)
    return np.where(found > 0, exact, 1.0)


def rows_needed(rate: float, bound: float, level: float) -> float:
    """The number of rows whose `tail` is the level at this rate; infinite if there is none.

    Examples:
        >>> round(rows_needed(1.0, 0.9, 0.05), 4), round(math.log(0.05) / math.log(0.9), 4)
        (28.4332, 28.4332)
    """

    def excess(log_rows: float) -> float:
        return float(tail(np.array(rate), np.exp(log_rows), bound)) - level

    least, most = math.log(1e-3), math.log(MOST_ROWS_NAMED)
    if excess(least) <= 0:
        return 0.0
    return math.inf if excess(most) > 0 else math.exp(float(brentq(excess, least, most)))  # pyright: ignore[reportArgumentType]


def slack_and_error(constraint: Constraint, seen: CellSums, z: float) -> tuple[Tensor, Tensor]:
    """The slack of a constraint for K rules and its standard error, by the delta method.

    A gap is violated if any pair of groups violates it. So all pairs have to pass, each at the full
    level, and the pair closest to its bound, in standard errors, stands for the gap. The slack is
    −∞ where the metric is undefined.
    """
    mass, squares = _with_added_rows(seen if constraint.gap else seen.whole(), z)
    with torch.inference_mode(mode=False), torch.enable_grad():
        points = mass.clone().requires_grad_()
        values = each_of(lambda x: constraint.metric(Confusion.from_matrix(x)), points)
        (slopes,) = torch.autograd.grad(values.nan_to_num().sum(), points, materialize_grads=True)
    values = values.detach()
    variance = (squares * slopes.nan_to_num(0, 0, 0) ** 2).sum((-2, -1))
    if constraint.gap:
        pairs = torch.combinations(torch.arange(values.shape[1], device=values.device))
        values, variance = values[:, pairs].diff(dim=2).abs()[..., 0], variance[:, pairs].sum(2)
    slack = (values - constraint.bound) * (1 if constraint.at_least else -1)
    slack, error = slack.masked_fill(slack.isnan(), -torch.inf), variance.sqrt()
    nearest = (slack / error.clamp(min=1e-300)).argmin(1, keepdim=True)
    return slack.gather(1, nearest)[:, 0], error.gather(1, nearest)[:, 0]


def _with_added_rows(seen: CellSums, z: float) -> CellSums:
    """Add z² rows to each class that has any, half of them labelled correctly."""
    classes = seen.mass.shape[-1]
    of_class = seen.mass.sum(-1, keepdim=True)
    row = seen.squares.sum(-1, keepdim=True) / of_class.clamp(min=1e-300)
    eye = torch.eye(classes, dtype=row.dtype, device=row.device)
    added = z**2 / 2 * (eye + (1 - eye) / max(classes - 1, 1))
    return CellSums(seen.mass + row * added, seen.squares + row**2 * added)


def rates(constraint: Constraint, seen: CellSums) -> tuple[np.ndarray, np.ndarray, float] | None:
    """The rate, its effective number of rows, and its lower bound; None if it is not a rate.

    A rate with an upper bound is turned into 1 − rate.
    """
    rate = rate_of(constraint)
    if rate is None:
        return None

    def rate_and_rows(x: Tensor) -> Tensor:
        c = Confusion.from_matrix(x)
        rows = getattr(c, rate.of).expand_as(c.tp)[rate.class_index]
        return torch.stack([constraint.metric(c), rows])

    mass, squares = (each_of(rate_and_rows, x[:, 0]).cpu().numpy() for x in seen.whole())
    value, whole = np.clip(mass[:, 0], 0, 1), mass[:, 1]
    rows = whole**2 / np.maximum(squares[:, 1], 1e-300)
    value = np.where(whole > 0, value if constraint.at_least else 1 - value, 0)
    return value, rows, constraint.bound if constraint.at_least else 1 - constraint.bound


def p_values(constraint: Constraint, seen: CellSums, level: float) -> np.ndarray:
    """The p-values of a violated constraint for K rules, each tested by itself."""
    found = rates(constraint, seen)
    if found is not None:
        return tail(*found)
    slack, error = slack_and_error(constraint, seen, float(ndtri(1 - level)))
    return ndtr(-(slack / error.clamp(min=1e-300)).cpu().numpy())


def lacking(
    constraint: Constraint, seen: CellSums, level: float, names: list[str | float] | None
) -> str:
    """Say how many rows one rule needs to pass, and how many there are; "" if it passes."""
    if p_values(constraint, seen, level)[0] <= level:
        return ""
    rate, kind = rate_of(constraint), "rows"
    if rate is not None:
        value, rows, bound = (float(np.ravel(x)[0]) for x in rates(constraint, seen) or ())
        needed, classes = rows_needed(value, bound, level), seen.mass.shape[-1]
        words = [f"class {name!r}" for name in names or range(classes)]
        own = words[rate.class_index]
        other = words[1 - rate.class_index] if classes == 2 else f"classes other than {own}"
        kind = ROWS[rate.of].format(own=own, other=other)
    else:
        z = float(ndtri(1 - level))
        slack, error = (x.item() for x in slack_and_error(constraint, seen, z))
        if slack == -math.inf:
            return f"{constraint.text!r} is undefined, as in a group without rows of the class."
        mass, squares = (x.sum().item() for x in seen)
        rows = mass**2 / squares
        needed = rows * (z * error / slack) ** 2 if slack > 0 else math.inf
    if needed > MOST_ROWS_NAMED:
        return f"{constraint.text!r} is met too narrowly for any number of rows to suffice."
    needs = f"{constraint.text!r} needs {math.ceil(needed - 1e-9)} {kind}"
    return f"{needs} like these, and there are {math.floor(rows + 1e-9)}."
