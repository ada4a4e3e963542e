"""The goal that a rule is fitted for: a metric to maximise, and perhaps a constraint."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

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
    """Scores of many confusions at once, and their slopes.

    A confusion is a tensor here: the matrix (d, d), or in a compact goal the three sums (3, d) that
    most metrics are functions of: true positives, predicted and actual mass. Of many labels a row
    it is those sums and the total mass of each label, (4, L).

    Args:
        metric: what to maximise; a cost is negated.
        slack: a second score, at least 0 where the constraint is met.
        constraint: the constraint in words, for errors.
        needs_matrix: whether the metric or the slack reads single cells of the matrix.
        compact: whether confusions are the three sums.
        multilabel: whether they are those of many labels a row.
    """

    metric: Callable[[Confusion], Tensor]
    slack: Callable[[Confusion], Tensor] | None = None
    constraint: str = ""
    needs_matrix: bool = True
    compact: bool = False
    multilabel: bool = False

    @classmethod
    def of(cls, owner: str, metric: str | MetricFunction, constraint: str | None) -> "Goal":
        """Make the goal of what `fit_decision` was given."""
        metric = resolve(metric, owner=owner)
        goal = _scorer(metric, 1 if metric.greater_is_better else -1, 0.0)
        needs_matrix = metric.needs_matrix
        if constraint is None:
            return cls(goal, needs_matrix=needs_matrix)
        parts = re.fullmatch(r"\s*(.+?)\s*(>=|<=)\s*(\S+)\s*", constraint)
        try:
            bound = float(parts[3]) if parts else None
        except ValueError:
            bound = None
        allowed, cure = "be a metric's name, >= or <=, and a number", 'As in "recall >= 0.9".'
        if not parts or bound is None:
            raise ValueError(complaint(owner, "constraint", allowed, repr(constraint), cure))
        limited = resolve(parts[1], owner=owner)
        slack = _scorer(limited, 1 if parts[2] == ">=" else -1, bound)
        return cls(goal, slack, constraint, needs_matrix or limited.needs_matrix)

    def free(self) -> "Goal":
        """The metric without the constraint."""
        return replace(self, slack=None)

    def safest(self) -> "Goal":
        """The constraint's slack as the metric."""
        assert self.slack is not None
        return replace(self, metric=self.slack, slack=None)

    def compacted(self) -> "Goal":
        """The goal on sums instead of matrices, if they are all it needs."""
        return replace(self, compact=not self.needs_matrix)

    def scores(self, confusions: Tensor) -> Tensor:
        """The metric; −∞ where it is undefined or the constraint is not met."""
        scores = self._each(self.metric, confusions)
        scores = scores.masked_fill(scores.isnan(), -torch.inf)
        if self.slack is None:
            return scores
        met = self._each(self.slack, confusions) >= -ROUNDING
        return scores.masked_fill(~met, -torch.inf)

    def infeasible(self, owner: str, confusions: Tensor) -> ValueError:
        """The error to raise when no confusion meets the constraint."""
        assert self.slack is not None
        best = self._each(self.slack, confusions).nan_to_num(-torch.inf).max()
        parts = re.split(r"\s*[<>]=\s*", self.constraint)
        reached = float(parts[1]) + best.item() * (1 if ">=" in self.constraint else -1)
        cure = f"The best rule found reaches {parts[0].strip()} = {reached:.4g}."
        allowed = "be met by some rule on these rows"
        return ValueError(complaint(owner, "constraint", allowed, repr(self.constraint), cure))

    def mixed(self, confusions: Tensor, share: Tensor) -> Tensor:
        """(1 − share)·metric + share·slack, the Lagrangian of the constraint; NaN is −∞."""
        scores = self._each(self._mixed, confusions, share.expand(confusions.shape[:-2]))
        return scores.masked_fill(scores.isnan(), -torch.inf)

    def slopes(self, confusions: Tensor, share: Tensor) -> Tensor:
        """∂/∂C of `mixed`; 0 where it has no slope."""

        def slope(confusion: Tensor, share: Tensor) -> Tensor:
            return torch.func.grad(lambda x: self._mixed(self._confusion(x), share))(confusion)

        return _each(slope, confusions, share).nan_to_num(0, 0, 0)

    def _mixed(self, confusion: Confusion, share: Tensor) -> Tensor:
        if self.slack is None:
            return self.metric(confusion)
        return (1 - share) * self.metric(confusion) + share * self.slack(confusion)

    def _each(self, function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
        return _each(lambda x, *rest: function(self._confusion(x), *rest), confusions, *more)

    def _confusion(self, confusion: Tensor) -> Confusion:
        if self.multilabel:
            return Confusion(*confusion, multilabel=True)
        if not self.compact:
            return Confusion.from_matrix(confusion)
        tp, predicted, actual = confusion
        return Confusion(tp, predicted, actual, actual.sum())


def _scorer(metric: Metric, sign: int, bound: float) -> Callable[[Confusion], Tensor]:
    def score(confusion: Confusion) -> Tensor:
        return sign * (metric(confusion) - bound)

    return score


def _each(function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
    """Apply the function to every confusion, over all leading dimensions at once."""
    lead = confusions.shape[:-2]
    flat = [confusions.flatten(0, -3), *(x.flatten() for x in more)]
    try:
        result = torch.vmap(function, chunk_size=CHUNK)(*flat)
    except RuntimeError:  # a user's function with a Python `if` on values
        result = torch.stack([function(*each) for each in zip(*flat, strict=True)])
    return result.reshape(*lead, *result.shape[1:])
