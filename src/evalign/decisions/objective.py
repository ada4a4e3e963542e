"""The objective of a rule: a metric to maximise and constraints to meet."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, Infeasible, parse
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.core.numerics import at_once

# Scores are quotients of float64 sums of up to 2²⁰ terms: a smaller difference is rounding error.
# A power of two, so that no share k/n of the rows lies halfway between two of its multiples.
ROUNDING = 2.0**-40
# Confusions evaluated at a time: few enough that the metric's temporaries stay in the cache.
CONFUSIONS_AT_ONCE = 2**15
# T of the smooth minimum of several slacks, −T·log Σ exp(−slack/T), whose slope depends on every
# small slack, not only on the smallest. It is at most T·log(count) below the minimum.
SOFTNESS = 0.01

# The confusions of the groups of rows, if there are groups.
Groups = Sequence[Confusion] | None


@dataclass(frozen=True)
class Objective:
    """Scores of many confusions at once, and their slopes.

    A confusion is a tensor here: the matrix (d, d), or for a `compact` objective three sums (3, d),
    which most metrics need: true positives, predicted and actual mass. Multilabel confusions are
    the three sums and the total mass of each label, (4, L). With G `groups` of rows, the matrices
    of the groups are stacked, (G·d, d). A `score` of the confusions of all rows and of the groups
    takes the place of the metric. Errors name the `owner`, and unless `told` nothing else.
    """

    owner: str
    metric: Metric
    score: Callable[[Confusion, Groups], Tensor] | None = None
    constraints: tuple[Constraint, ...] = ()
    compact: bool = False
    multilabel: bool = False
    groups: int = 0
    told: bool = True

    @classmethod
    def of(
        cls,
        owner: str,
        metric: str | MetricFunction,
        constraint: str | None,
        classes: Iterable[object] | None = None,
        groups: int | None = 0,
        *,
        multilabel: bool = False,
    ) -> "Objective":
        """Make the objective from the arguments of `fit_decision`.

        Groups have to be given exactly where a constraint bounds a gap, unless None are known yet.
        """
        metric = resolve(metric, owner=owner)
        constraints = () if constraint is None else parse(constraint, classes, owner=owner)
        if groups is not None:
            gap, got = any(each.gap for each in constraints), "groups" if groups else "none"
            allowed = "be given for a constraint with a gap" if gap else "be None without a gap"
            cure = 'Use fit_decision with both: constraint="gap(recall) <= 0.05", groups=groups.'
            require(gap == bool(groups), owner, "groups", allowed, got, cure)
        return cls(owner, metric, None, constraints, multilabel=multilabel, groups=groups or 0)

    def unconstrained(self) -> "Objective":
        """The metric without the constraints."""
        return replace(self, constraints=())

    def safest(self) -> "Objective":
        """The slack of the constraints as the metric."""
        return replace(self, score=self._slack, constraints=())

    def compacted(self) -> "Objective":
        """The objective on sums instead of matrices, if sums are enough."""
        metrics = self.metric, *(each.metric for each in self.constraints)
        needs_matrix = self.groups or any(each.needs_matrix for each in metrics)
        return replace(self, compact=not needs_matrix)

    def tightened(self, margins: Sequence[float]) -> "Objective":
        """The objective with each bound tightened by its margin, whose errors nobody reads."""
        tighter = tuple(
            replace(each, bound=each.bound + margin if each.at_least else each.bound - margin)
            for each, margin in zip(self.constraints, margins, strict=True)
        )
        return replace(self, constraints=tighter, told=False)

    def by_group(self, target: Tensor, groups: Tensor | None) -> Tensor:
        """Targets (N, d) placed in the columns of each row's group (N,), 0 elsewhere: (N, G·d)."""
        if groups is None:
            return target
        own = torch.nn.functional.one_hot(groups, self.groups).to(target)
        return (own.unsqueeze(2) * target.unsqueeze(1)).flatten(1)

    def over_groups(self, sums: Tensor) -> Tensor:
        """Sums (..., G·d, n) over the groups, (..., d, n)."""
        return sums.unflatten(-2, (self.groups, -1)).sum(-3) if self.groups else sums

    def mean_over_groups(self, slopes: Tensor, actual: Tensor) -> Tensor:
        """Average slopes (..., G·d, d) over groups by their shares of a class in `actual` mass."""
        if not self.groups:
            return slopes
        mass = actual.view(self.groups, -1)
        share = (mass / mass.sum(0).clamp(min=1e-300)).view(-1, 1)
        return self.over_groups(share * slopes)

    def scores(self, confusions: Tensor) -> Tensor:
        """The metric; −∞ where it is undefined or a constraint is violated."""
        scores = self._each(self._score, confusions)
        scores = scores.masked_fill(scores.isnan(), -torch.inf)
        if not self.constraints:
            return scores
        return scores.masked_fill(~(self.smallest_slack(confusions) >= -ROUNDING), -torch.inf)

    def smallest_slack(self, confusions: Tensor) -> Tensor:
        """The smallest slack, as a share of the range of its metric."""
        return self._each(lambda c, groups: self._slacks(c, groups).amin(0), confusions)

    def slacks(self, confusion: Tensor) -> dict[str, float] | None:
        """The distance to each bound, positive on the allowed side; None without constraints."""
        if not self.constraints:
            return None
        c, groups = self._confusion(confusion)
        return {each.text: each.slack(c, groups).item() for each in self.constraints}

    def check_met(self, confusion: Tensor, search: Callable[["Objective"], Tensor]) -> None:
        """Check that the best confusion meets all constraints, or say what is possible.

        A `search` returns the best confusion for an objective, whether or not it meets the
        constraints.
        """
        if not self.constraints or self._met(confusion):
            return
        if not self.told:
            raise Infeasible(self.owner)
        sides = []
        for one in self.constraints if len(self.constraints) > 1 else ():
            others = tuple(each for each in self.constraints if each is not one)
            side = replace(self, score=one.slack, constraints=others)
            found = search(side)
            if side._met(found):
                held = repr(", ".join(each.text for each in others))
                most = f"{'up' if one.at_least else 'down'} to {self._value(one, found)}"
                sides.append(f"{held} is possible with {one.given} {most}.")
        both = torch.stack([confusion, search(self.safest())])
        nearest = both[self.smallest_slack(both).nan_to_num(-torch.inf).argmax()]
        reached = [f"{each.given} = {self._value(each, nearest)}" for each in self.constraints]
        cure = " ".join(sides) or f"The best rule found reaches {', '.join(reached)}."
        allowed = "be met by some rule on these rows"
        got = repr(", ".join(each.text for each in self.constraints))
        raise Infeasible(complaint(self.owner, "constraint", allowed, got, cure))

    def _met(self, confusion: Tensor) -> bool:
        return bool(self.scores(confusion.unsqueeze(0)).isfinite())

    def _value(self, constraint: Constraint, confusion: Tensor) -> str:
        return f"{constraint.value(*self._confusion(confusion)):.4g}"

    def mixed(self, confusions: Tensor, share: Tensor) -> Tensor:
        """(1 − share)·metric − share·(smooth violation of the bounds); NaN becomes −∞."""
        scores = self._each(self._mixed, confusions, share.expand(confusions.shape[:-2]))
        return scores.masked_fill(scores.isnan(), -torch.inf)

    def slopes(self, confusions: Tensor, share: Tensor) -> Tensor:
        """∂/∂C of `mixed`; 0 where it has no slope."""
        # The gradient of the sum over all confusions. `torch.func.grad` takes seconds to import.
        with torch.inference_mode(mode=False), torch.enable_grad():
            points = confusions.clone().requires_grad_()
            total = self._each(self._mixed, points, share.clone()).sum()
            if not total.requires_grad:
                return torch.zeros_like(confusions)
            (slopes,) = torch.autograd.grad(total, points, materialize_grads=True)
        return slopes.nan_to_num(0, 0, 0)

    def _mixed(self, confusion: Confusion, groups: Groups, share: Tensor) -> Tensor:
        metric = self._score(confusion, groups)
        if not self.constraints:
            return metric
        violation = SOFTNESS * softplus(-self._slack(confusion, groups) / SOFTNESS)
        return (1 - share) * metric - share * violation

    def _score(self, c: Confusion, groups: Groups) -> Tensor:
        if self.score is not None:
            return self.score(c, groups)
        return self.metric(c) if self.metric.greater_is_better else -self.metric(c)

    def _slack(self, c: Confusion, groups: Groups) -> Tensor:
        """The smooth minimum of the slacks: at least 0 only if all constraints are met."""
        slacks = self._slacks(c, groups)
        if len(slacks) == 1:
            return slacks[0]
        return -SOFTNESS * (-slacks / SOFTNESS).logsumexp(0)

    def _slacks(self, c: Confusion, groups: Groups) -> Tensor:
        """The slack of each constraint, as a share of the range of its metric."""
        slacks = []
        for each in self.constraints:
            low, high = each.metric.bounds
            slacks.append(each.slack(c, groups) / (high - low if 0 < high - low < math.inf else 1))
        return torch.stack(slacks)

    def _each(self, function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
        return each_of(lambda x, *rest: function(*self._confusion(x), *rest), confusions, *more)

    def _confusion(self, confusion: Tensor) -> tuple[Confusion, Groups]:
        if self.multilabel:
            return Confusion(*confusion, multilabel=True), None
        if self.groups:
            parts = [Confusion.from_matrix(part) for part in confusion.chunk(self.groups)]
            return Confusion.from_matrix(self.over_groups(confusion)), parts
        if not self.compact:
            return Confusion.from_matrix(confusion), None
        tp, predicted, actual = confusion
        return Confusion(tp, predicted, actual, actual.sum()), None


def each_of(function: Callable[..., Tensor], confusions: Tensor, *more: Tensor) -> Tensor:
    """Apply the function to every confusion, over all leading dimensions at once."""
    lead = confusions.shape[:-2]
    flat = [confusions.flatten(0, -3), *(x.flatten() for x in more)]
    many = len(flat[0]) > CONFUSIONS_AT_ONCE  # chunking takes time, even with one chunk
    result = at_once(function, *flat, chunk=CONFUSIONS_AT_ONCE if many else None)
    return result.reshape(*lead, *result.shape[1:])


def in_units_of_rounding(scores: Tensor) -> Tensor:
    """Scores in units of ROUNDING, so that scores which differ by rounding error tie."""
    return (scores / ROUNDING).round()


def first_best(scores: Tensor) -> Tensor:
    """The index of the first of the best scores (S, ...).

    Scores that differ by rounding error tie: a GPU sums in any order, and every rank must find the
    same rule.
    """
    return (scores >= scores.amax(0) - ROUNDING).int().argmax(0)
