"""What a rule is fitted for: a metric, to be made large, and perhaps a constraint."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from evalign.core.checks import complaint
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, MetricFunction, resolve

# Scores are quotients of float64 sums of up to 2²⁰ terms: below this, a difference is rounding.
ROUNDING = 1e-12
# Matrices evaluated at a time: few enough that the metric's temporaries stay in the cache.
CHUNK = 2**15


@dataclass(frozen=True)
class Goal:
    """Scores of many confusion matrices (..., d, d) at once, and their slopes.

    Args:
        metric: what to make large; a cost is turned round.
        slack: a second score, at least 0 where the constraint is met.
        constraint: the constraint in words, for errors.
    """

    metric: Callable[[Tensor], Tensor]
    slack: Callable[[Tensor], Tensor] | None = None
    constraint: str = ""

    @classmethod
    def of(cls, owner: str, metric: str | MetricFunction, constraint: str | None) -> "Goal":
        """Make the goal of what `fit_decision` was given."""
        metric = resolve(metric, owner=owner)
        goal = _scorer(metric, 1 if metric.greater_is_better else -1, 0.0)
        if constraint is None:
            return cls(goal)
        parts = re.fullmatch(r"\s*(.+?)\s*(>=|<=)\s*(\S+)\s*", constraint)
        try:
            bound = float(parts[3]) if parts else None
        except ValueError:
            bound = None
        allowed, cure = "be a metric's name, >= or <=, and a number", 'As in "recall >= 0.9".'
        if not parts or bound is None:
            raise ValueError(complaint(owner, "constraint", allowed, repr(constraint), cure))
        limited = resolve(parts[1], owner=owner)
        return cls(goal, _scorer(limited, 1 if parts[2] == ">=" else -1, bound), constraint)

    def scores(self, matrices: Tensor) -> Tensor:
        """The metric; −∞ where it is undefined or the constraint is not met."""
        scores = _each(self.metric, matrices)
        scores = scores.masked_fill(scores.isnan(), -torch.inf)
        if self.slack is None:
            return scores
        met = _each(self.slack, matrices) >= -ROUNDING
        return scores.masked_fill(~met, -torch.inf)

    def infeasible(self, owner: str, matrices: Tensor) -> ValueError:
        """The error for matrices none of which meets the constraint."""
        assert self.slack is not None
        best = _each(self.slack, matrices).nan_to_num(-torch.inf).max()
        parts = re.split(r"\s*[<>]=\s*", self.constraint)
        reached = float(parts[1]) + best.item() * (1 if ">=" in self.constraint else -1)
        cure = f"The best rule found reaches {parts[0].strip()} = {reached:.4g}."
        allowed = "be met by some rule on these rows"
        return ValueError(complaint(owner, "constraint", allowed, repr(self.constraint), cure))

    def mixed(self, matrices: Tensor, share: Tensor) -> Tensor:
        """(1 − share)·metric + share·slack, the Lagrangian of the constraint; NaN is −∞."""
        scores = _each(self._mixed, matrices, share.expand(matrices.shape[:-2]))
        return scores.masked_fill(scores.isnan(), -torch.inf)

    def slopes(self, matrices: Tensor, share: Tensor) -> Tensor:
        """∂/∂C of `mixed`; 0 where it has none."""
        slopes = _each(torch.func.grad(self._mixed), matrices, share)
        return slopes.nan_to_num(0, 0, 0)

    def _mixed(self, matrix: Tensor, share: Tensor) -> Tensor:
        if self.slack is None:
            return self.metric(matrix)
        return (1 - share) * self.metric(matrix) + share * self.slack(matrix)


def _scorer(metric: Metric, sign: int, bound: float) -> Callable[[Tensor], Tensor]:
    def score(matrix: Tensor) -> Tensor:
        return sign * (metric(Confusion.from_matrix(matrix)) - bound)

    return score


def _each(function: Callable[..., Tensor], matrices: Tensor, *more: Tensor) -> Tensor:
    """The function of every matrix, all leading dimensions at once."""
    lead = matrices.shape[:-2]
    flat = [matrices.flatten(0, -3), *(x.flatten() for x in more)]
    try:
        result = torch.vmap(function, chunk_size=CHUNK)(*flat)
    except RuntimeError:  # a user's function with a Python `if` on values
        result = torch.stack([function(*each) for each in zip(*flat, strict=True)])
    return result.reshape(*lead, *result.shape[1:])
