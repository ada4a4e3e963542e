"""The goal that a rule is fitted for: a metric to maximise, and perhaps constraints."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from evalign.core.checks import complaint
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, Infeasible, parse
from evalign.core.groups import stacked
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.core.numerics import at_once

# Scores are quotients of float64 sums of up to 2²⁰ terms: below this, a difference is rounding.
# A power of two has no share of the rows halfway between its multiples, as 1e-12 has k/8192.
ROUNDING = 2.0**-40
# Matrices evaluated at a time: few enough that the metric's temporaries stay in the cache.
CHUNK = 2**15
# T of smooth minima. Several slacks become one, −T·log Σ exp(−slack/T), whose slope heeds all that
# are small and not the smallest alone. It is at most T·log(count) below the minimum.
SOFTNESS = 0.01

# A function of the confusion of all rows, and of those of each group where there are groups.
Score = Callable[[Confusion, Confusion | None], Tensor]


@dataclass(frozen=True)
class Goal:
    """Scores of many confusions at once, and their slopes.

    A confusion is a tensor here: the matrix (d, d), or in a compact goal the three sums (3, d) that
    most metrics are functions of: true positives, predicted and actual mass. Of many labels a row
    it is those sums and the total mass of each label, (4, L). With G groups of rows the matrices of
    the groups lie below each other, (G·d, d).

    Args:
        metric: what to maximise; a cost is negated.
        slack: a second score, at least 0 where all constraints are met: the smooth minimum of
            their slacks, as shares of what the constrained metrics can span.
        constraints: what the slack is made of.
        needs_matrix: whether the metric or the slack reads single cells of the matrix.
        compact: whether confusions are the three sums.
        multilabel: whether they are those of many labels a row.
        groups: the number of groups, 0 where rows are not told apart.
    """

    metric: Score
    slack: Score | None = None
    constraints: tuple[Constraint, ...] = ()
    needs_matrix: bool = True
    compact: bool = False
    multilabel: bool = False
    groups: int = 0

    @classmethod
    def of(
        cls,
        owner: str,
        metric: str | MetricFunction,
        constraint: str | None,
        classes: Iterable[object] | None = None,
        groups: int = 0,
    ) -> "Goal":
        """Make the goal of what `fit_decision` was given."""
        metric = resolve(metric, owner=owner)
        goal = _signed(metric)
        if constraint is None:
            return cls(goal, needs_matrix=metric.needs_matrix, groups=groups)
        constraints = parse(constraint, classes, owner=owner)
        needs_matrix = any(each.metric.needs_matrix for each in constraints) or metric.needs_matrix
        slack = _smooth_minimum(constraints)
        return cls(goal, slack, constraints, needs_matrix, groups=groups)

    def free(self) -> "Goal":
        """The metric without the constraints."""
        return replace(self, slack=None, constraints=())

    def safest(self) -> "Goal":
        """The slack as the metric."""
        assert self.slack is not None
        return replace(self.free(), metric=self.slack)

    def compacted(self) -> "Goal":
        """The goal on sums instead of matrices, if they are all it needs."""
        return replace(self, compact=not self.needs_matrix and not self.groups)

    def moved(self, margins: Sequence[float]) -> "Goal":
        """The goal with bounds that are harder to meet, by a margin for each constraint."""
        harder = tuple(
            replace(each, bound=each.bound + margin if each.at_least else each.bound - margin)
            for each, margin in zip(self.constraints, margins, strict=True)
        )
        return replace(self, slack=_smooth_minimum(harder), constraints=harder)

    def by_group(self, target: Tensor, groups: Tensor | None) -> Tensor:
        """Targets (N, d) in the columns of each row's group (N,), the others 0: (N, G·d)."""
        if groups is None:
            return target
        own = torch.nn.functional.one_hot(groups, self.groups).to(target)
        return (own.unsqueeze(2) * target.unsqueeze(1)).flatten(1)

    def over_groups(self, sums: Tensor) -> Tensor:
        """Sums (..., G·d, n) over the groups, (..., d, n)."""
        return sums.unflatten(-2, (self.groups, -1)).sum(-3) if self.groups else sums

    def for_all_groups(self, slopes: Tensor, actual: Tensor) -> Tensor:
        """The mean over the groups of slopes (..., G·d, d): a rule does not see the group of a row.

        Each counts by its share of the class, as the sums `actual` (G·d,) of true rows have it.
        """
        if not self.groups:
            return slopes
        mass = actual.view(self.groups, -1)
        share = (mass / mass.sum(0).clamp(min=1e-300)).view(-1, 1)
        return self.over_groups(share * slopes)

    def scores(self, confusions: Tensor) -> Tensor:
        """The metric; −∞ where it is undefined or a constraint is not met."""
        scores = self._each(self.metric, confusions)
        scores = scores.masked_fill(scores.isnan(), -torch.inf)
        if self.slack is None:
            return scores
        return scores.masked_fill(~(self.least(confusions) >= -ROUNDING), -torch.inf)

    def least(self, confusions: Tensor) -> Tensor:
        """The smallest slack, as a share of what its metric can span."""
        return self._each(lambda c, g: _shares(self.constraints, c, g).amin(0), confusions)

    def slacks(self, confusion: Tensor) -> dict[str, float]:
        """How far one confusion is on the allowed side of each constraint's bound."""
        c, groups = self._confusion(confusion)
        return {each.text: each.slack(c, groups).item() for each in self.constraints}

    def infeasible(self, owner: str, confusions: Tensor) -> Infeasible:
        """The error to raise when no confusion meets all constraints."""
        flat = confusions.flatten(0, -3)
        nearest = flat[self.least(flat).nan_to_num(-torch.inf).argmax()]
        c, groups = self._confusion(nearest)
        reached = [f"{each.given} = {each.value(c, groups):.4g}" for each in self.constraints]
        cure = f"The best rule found reaches {', '.join(reached)}."
        allowed = "be met by some rule on these rows"
        got = repr(", ".join(each.text for each in self.constraints))
        return Infeasible(complaint(owner, "constraint", allowed, got, cure))

    def mixed(self, confusions: Tensor, share: Tensor) -> Tensor:
        """(1 − share)·metric − share·(what is missing to the bounds, smoothly); NaN is −∞."""
        scores = self._each(self._mixed, confusions, share.expand(confusions.shape[:-2]))
        return scores.masked_fill(scores.isnan(), -torch.inf)

    def slopes(self, confusions: Tensor, share: Tensor) -> Tensor:
        """∂/∂C of `mixed`; 0 where it has no slope."""
        # The gradient of the sum of all. `torch.func.grad` would spend seconds on its imports.
        with torch.inference_mode(mode=False), torch.enable_grad():
            points = confusions.clone().requires_grad_()
            total = self._each(self._mixed, points, share.clone()).sum()
            if not total.requires_grad:
                return torch.zeros_like(confusions)
            (slopes,) = torch.autograd.grad(total, points, materialize_grads=True)
        return slopes.nan_to_num(0, 0, 0)

    def _mixed(self, confusion: Confusion, groups: Confusion | None, share: Tensor) -> Tensor:
        metric = self.metric(confusion, groups)
        if self.slack is None:
            return metric
        missing = SOFTNESS * softplus(-self.slack(confusion, groups) / SOFTNESS)
        return (1 - share) * metric - share * missing

    def _each(self, function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
        return each_of(lambda x, *rest: function(*self._confusion(x), *rest), confusions, *more)

    def _confusion(self, confusion: Tensor) -> tuple[Confusion, Confusion | None]:
        if self.multilabel:
            return Confusion(*confusion, multilabel=True), None
        if self.groups:
            parts = [Confusion.from_matrix(part) for part in confusion.chunk(self.groups)]
            return Confusion.from_matrix(self.over_groups(confusion)), stacked(parts)
        if not self.compact:
            return Confusion.from_matrix(confusion), None
        tp, predicted, actual = confusion
        return Confusion(tp, predicted, actual, actual.sum()), None


def _signed(metric: Metric) -> Score:
    return (lambda c, _: metric(c)) if metric.greater_is_better else lambda c, _: -metric(c)


def _span(metric: Metric) -> float:
    low, high = metric.bounds
    return high - low if 0 < high - low < math.inf else 1.0


def _shares(constraints: tuple[Constraint, ...], c: Confusion, groups: Confusion | None) -> Tensor:
    return torch.stack([each.slack(c, groups) / _span(each.metric) for each in constraints])


def _smooth_minimum(constraints: tuple[Constraint, ...]) -> Score:
    def slack(c: Confusion, groups: Confusion | None) -> Tensor:
        slacks = _shares(constraints, c, groups)
        if len(constraints) == 1:
            return slacks[0]
        return -SOFTNESS * (-slacks / SOFTNESS).logsumexp(0)

    return slack


def each_of(function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
    """Apply the function to every confusion, over all leading dimensions at once."""
    lead = confusions.shape[:-2]
    flat = [confusions.flatten(0, -3), *(x.flatten() for x in more)]
    size = CHUNK if len(flat[0]) > CHUNK else None  # splitting takes time, even into one part
    result = at_once(function, *flat, chunk=size)
    return result.reshape(*lead, *result.shape[1:])


def but_for_rounding(scores: Tensor) -> Tensor:
    """Scores in units of ROUNDING, to rank those that differ by rounding alike."""
    return (scores / ROUNDING).round()


def first_best(scores: Tensor) -> Tensor:
    """The index of the first of the best scores (S, ...).

    What differs by rounding is equal: a GPU sums in any order, and every rank must find one rule.
    """
    return (scores >= scores.amax(0) - ROUNDING).int().argmax(0)
