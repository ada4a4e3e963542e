"""p-values of "the constraint is broken on new data", and the number of rows that a test takes.

For a rate, such as recall or precision, the p-value is the exact binomial tail (Clopper and
Pearson). For any other metric it comes from the delta method and is approximate: a metric is a
function of the cells of the confusion matrix, and its variance is Σ_r w_r² s², with the slope s by
the cell of row r. First z² rows of each class are added, half of them labelled correctly, as
Agresti and Coull do for rates, so that a perfect score of few rows does not count as certain. For
unequal weights, the number of rows is Kish's, (Σw)² / Σw².
"""

import math
from collections.abc import Callable
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

# More rows than these are not worth naming.
MOST_ROWS_NAMED = 1e9


class Rate(NamedTuple):
    """A metric that is a share of some rows.

    Args:
        part: the mass that counts, by class.
        whole: the mass of the rows.
        rows: these rows in words.
        along: whether it only rises or only falls along the thresholds of two classes ("one way").
            If not, which rows it is a share of: those labelled as the class itself ("own") or as
            the other class ("other"), or "all" rows.
    """

    part: Callable[[Confusion], Tensor]
    whole: Callable[[Confusion], Tensor]
    rows: str
    along: str


OF_TRUE, OF_FALSE = "rows of {own}", "rows of {other}"
RATES: dict[type[metrics.Metric], Rate] = {
    metrics.Recall: Rate(lambda c: c.tp, lambda c: c.actual, OF_TRUE, "one way"),
    constraints.FalseNegativeRate: Rate(lambda c: c.fn, lambda c: c.actual, OF_TRUE, "one way"),
    metrics.Specificity: Rate(lambda c: c.tn, lambda c: c.negatives, OF_FALSE, "one way"),
    constraints.FalsePositiveRate: Rate(lambda c: c.fp, lambda c: c.negatives, OF_FALSE, "one way"),
    constraints.PredictedRate: Rate(
        lambda c: c.predicted, lambda c: c.total.expand_as(c.tp), "rows", "one way"
    ),
    metrics.Precision: Rate(lambda c: c.tp, lambda c: c.predicted, "rows labelled {own}", "own"),
    metrics.NegativePredictiveValue: Rate(
        lambda c: c.tn, lambda c: c.rejected, "rows labelled {other}", "other"
    ),
    metrics.Accuracy: Rate(
        lambda c: c.tp.sum(0, keepdim=True), lambda c: c.total.unsqueeze(0), "rows", "all"
    ),
}


def rate_of(constraint: Constraint) -> tuple[Rate, int] | None:
    """The rate that a constraint bounds, and the index of its class; None if it is not a rate."""
    metric, place = constraint.metric, 0
    if isinstance(metric, OfClass):
        metric, place = metric.metric, 1 if metric.index is None else metric.index
    rate = RATES.get(type(metric))
    averaged = not isinstance(constraint.metric, OfClass | metrics.Accuracy)
    return None if rate is None or constraint.gap or averaged else (rate, place)


class CellSums(NamedTuple):
    """Sums of weights and of their squares (K, G, d, d), by rule, group, true class and label."""

    mass: Tensor
    squares: Tensor

    @classmethod
    def of(cls, objective: Objective, mass: Tensor, squares: Tensor) -> "CellSums":
        number = objective.groups or 1
        return cls(*(x.unflatten(-2, (number, -1)) for x in (mass, squares)))

    def whole(self) -> "CellSums":
        return CellSums(*(x.sum(1, keepdim=True) for x in self))


def tail(rate: np.ndarray, rows: np.ndarray, bound: float) -> np.ndarray:
    """The probability that n rows have this rate or a greater one, if the true rate is the bound.

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
    """The number of rows whose `tail` is the level, at this rate; infinite if there is none.

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

    A gap is broken if one pair of groups breaks it, so that it suffices if all pairs pass, each at
    the full level. The slack is that of the pair nearest to its bound, in standard errors; −∞ if
    the metric is undefined in a group that has rows.
    """
    mass, squares = _with_added_rows(seen if constraint.gap else seen.whole(), z)
    with torch.inference_mode(mode=False), torch.enable_grad():
        points = mass.clone().requires_grad_()
        values = each_of(lambda x: constraint.metric(Confusion.from_matrix(x)), points)
        (slopes,) = torch.autograd.grad(values.nan_to_num().sum(), points, materialize_grads=True)
    values = values.detach()
    variance = (squares * slopes.nan_to_num(0, 0, 0) ** 2).sum((-2, -1))
    if not constraint.gap:
        slack = (values - constraint.bound) * (1 if constraint.at_least else -1)
        return slack[:, 0], variance[:, 0].sqrt()
    difference = (values.unsqueeze(2) - values.unsqueeze(1)).flatten(1)
    error = (variance.unsqueeze(2) + variance.unsqueeze(1)).flatten(1).sqrt()
    slack = constraint.bound - difference
    # A group beside itself, or without any rows, counts as equal for certain.
    same = torch.eye(values.shape[1], dtype=torch.bool, device=values.device).flatten()
    none = same | difference.isnan()
    slack, error = slack.masked_fill(none, constraint.bound), error.masked_fill(none, 0)
    nearest = (slack / error.clamp(min=1e-300)).argmin(1, keepdim=True)
    unknown = (values.isnan() & (mass.sum((-2, -1)) > 0)).any(1)
    slack = slack.gather(1, nearest)[:, 0].masked_fill(unknown, -torch.inf)
    return slack, error.gather(1, nearest)[:, 0]


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
    found = rate_of(constraint)
    if found is None:
        return None
    rate, place = found

    def sums(x: Tensor) -> Tensor:
        c = Confusion.from_matrix(x)
        return torch.stack([rate.part(c)[place], rate.whole(c)[place]])

    mass, squares = (each_of(sums, x[:, 0]) for x in seen.whole())
    part, whole = mass.T.cpu().numpy()
    rows = whole**2 / np.maximum(squares[:, 1].cpu().numpy(), 1e-300)
    value = np.clip(part / np.maximum(whole, 1e-300), 0, 1)
    if constraint.at_least:
        return value, rows, constraint.bound
    return np.where(whole > 0, 1 - value, 0), rows, 1 - constraint.bound


def p_values(constraint: Constraint, seen: CellSums, level: float) -> np.ndarray:
    """The p-values of "the constraint is broken" for K rules, each tested by itself."""
    found = rates(constraint, seen)
    if found is not None:
        return tail(*found)
    slack, error = slack_and_error(constraint, seen, float(ndtri(1 - level)))
    return ndtr(-(slack / error.clamp(min=1e-300)).cpu().numpy())


def lacking(
    constraint: Constraint, seen: CellSums, level: float, names: list[str | float] | None
) -> str:
    """What the rows of one rule lack to pass, in words; "" if they pass."""
    if p_values(constraint, seen, level)[0] <= level:
        return ""
    found, kind = rate_of(constraint), "rows"
    if found is not None:
        value, rows, bound = (float(np.ravel(x)[0]) for x in rates(constraint, seen) or ())
        needed, (rate, place) = rows_needed(value, bound, level), found
        classes = seen.mass.shape[-1]
        words = [f"class {name!r}" for name in names or range(classes)]
        other = words[1 - place] if classes == 2 else f"others than {words[place]}"
        kind = rate.rows.format(own=words[place], other=other)
    else:
        z = float(ndtri(1 - level))
        slack, error = (x.item() for x in slack_and_error(constraint, seen, z))
        if slack == -math.inf:
            return f"{constraint.text!r} has a group without a row that it counts."
        mass, squares = (x.sum().item() for x in seen)
        rows = mass**2 / squares
        needed = rows * (z * error / slack) ** 2 if slack > 0 else math.inf
    if needed > MOST_ROWS_NAMED:
        return f"{constraint.text!r} is met so closely that no number of rows would do."
    takes = f"{constraint.text!r} takes {math.ceil(needed - 1e-9)} {kind}"
    return f"{takes} if they are like these, and there are {math.floor(rows + 1e-9)}."
