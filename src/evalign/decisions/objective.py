"""The objective of a rule: a metric to maximise and constraints to meet."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalign.core.checks import complaint, require
from evalign.core.class_order import ClassOrder
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, Infeasible, parse
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions.blocks import sigmoid

# Scores are quotients of float64 sums of up to 2²⁰ terms: a smaller difference is rounding error.
# A power of two, so that no share k/n of the rows lies halfway between two of its multiples.
ROUNDING = 2.0**-40
# Numbers in the confusions evaluated at a time: few enough that temporaries stay in the cache.
NUMBERS_AT_ONCE = 2**16
# T of the smooth minimum of several slacks, −T·log Σ exp(−slack/T), whose slope depends on every
# small slack, not only on the smallest. It is at most T·log(count) below the minimum.
SOFTNESS = 0.01

# The confusions of the groups of rows, if there are groups.
Groups = Sequence[Confusion] | None


@dataclass(frozen=True)
class Objective:
    """Scores of many confusions at once, and their slopes.

    A confusion is an array here: the matrix (d, d), or for a `compact` objective three sums (3, d),
    which most metrics need: true positives, predicted and actual mass. Multilabel confusions are
    the three sums and the total mass of each label, (4, L). With G `groups` of rows, the matrices
    of the groups are stacked, (G·d, d). All stand along leading dimensions. Where constraints are
    the `goal`, the smooth minimum of their slacks takes the place of the metric. Errors name the
    `owner`.
    """

    owner: str
    metric: Metric
    goal: tuple[Constraint, ...] = ()
    constraints: tuple[Constraint, ...] = ()
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
        groups: int | None = 0,
        *,
        multilabel: bool = False,
    ) -> "Objective":
        """Make the objective from the arguments of `fit_decision`.

        Groups have to be given exactly where a constraint bounds a gap, unless None are known yet.
        """
        metric = resolve(metric, owner=owner)
        constraints = () if constraint is None else parse(constraint, classes, owner=owner)
        # A bound that is repeated, perhaps in other words, is one bound.
        distinct = {(each.name, each.at_least, each.bound): each for each in reversed(constraints)}
        constraints = tuple(reversed(distinct.values()))
        if groups is not None:
            gap = any(each.gap for each in constraints)
            require(
                gap == bool(groups),
                owner,
                "constraint_groups",
                "be given for a constraint with a gap" if gap else "be None without a gap",
                "groups" if groups else "none",
                'Use fit_decision with both: constraint="gap(recall) <= 0.05", '
                "constraint_groups=groups.",
            )
        return cls(
            owner, metric, constraints=constraints, multilabel=multilabel, groups=groups or 0
        )

    def counting(self, classes: ClassOrder) -> "Objective":
        """The objective whose metrics know the positive class and the order of the columns."""
        return replace(
            self,
            metric=classes.placed(self.owner, self.metric),
            constraints=tuple(
                classes.placed_constraint(self.owner, each) for each in self.constraints
            ),
        )

    def unconstrained(self) -> "Objective":
        """The metric without the constraints."""
        return replace(self, constraints=())

    def of_all_rows(self) -> "Objective":
        """The metric without the constraints and the groups, which only constraints read."""
        return replace(self, constraints=(), groups=0)

    def safest(self) -> "Objective":
        """The slack of the constraints as the goal."""
        return replace(self, goal=self.constraints, constraints=())

    def compacted(self) -> "Objective":
        """The objective on sums instead of matrices, if sums are enough."""
        metrics = [self.metric, *(each.metric for each in self.constraints)]
        needs_matrix = self.groups or any(each.needs_matrix for each in metrics)
        return replace(self, compact=not needs_matrix)

    def by_group(self, target: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
        """Probabilities (N, d) in the columns of each row's group (N,), 0 elsewhere: (N, G·d)."""
        if groups is None:
            return target
        rows, classes = target.shape
        placed = np.zeros((rows, self.groups, classes))
        placed[np.arange(rows), groups] = target
        return placed.reshape(rows, -1)

    def over_groups(self, sums: np.ndarray) -> np.ndarray:
        """Sums (..., G·d, n) over the groups, (..., d, n)."""
        return self._apart(sums).sum(-3) if self.groups else sums

    def _apart(self, sums: np.ndarray) -> np.ndarray:
        """Sums (..., G·d, n) by group, (..., G, d, n)."""
        return sums.reshape(*sums.shape[:-2], self.groups, -1, sums.shape[-1])

    def mean_over_groups(self, slopes: np.ndarray, actual: np.ndarray) -> np.ndarray:
        """Average slopes (..., G·d, d) over groups by their shares of a class in `actual` mass."""
        if not self.groups:
            return slopes
        mass = actual.reshape(self.groups, -1)
        share = (mass / np.maximum(mass.sum(0), 1e-300)).reshape(-1, 1)
        return self.over_groups(share * slopes)

    def scores(self, confusions: np.ndarray) -> np.ndarray:
        """The metric; −∞ where it is undefined or a constraint is violated."""
        scores = self._in_parts(self._scores, confusions)
        if not self.constraints:
            return scores
        return np.where(self.smallest_slack(confusions) >= -ROUNDING, scores, -np.inf)

    def _scores(self, confusions: np.ndarray) -> np.ndarray:
        scores = self._score(*self._confusion(confusions))
        return np.where(np.isnan(scores), -np.inf, scores)

    def smallest_slack(self, confusions: np.ndarray) -> np.ndarray:
        """The smallest slack, as a share of the range of its metric."""

        def smallest(part: np.ndarray) -> np.ndarray:
            return _slacks(self.constraints, *self._confusion(part)).min(0)

        return self._in_parts(smallest, confusions)

    def slacks(self, confusion: np.ndarray) -> dict[str, float] | None:
        """The distance to each bound, positive on the allowed side; None without constraints."""
        if not self.constraints:
            return None
        c, groups = self._confusion(confusion)
        return {each.text: float(each.slack(c, groups)) for each in self.constraints}

    def check_met(self, confusion: np.ndarray, search: Callable[["Objective"], np.ndarray]) -> None:
        """Check that the best confusion meets all constraints, or say what is possible.

        A `search` returns the best confusion for an objective, whether or not it meets the
        constraints.
        """
        if not self.constraints or self._met(confusion):
            return
        sides = []
        for one in self.constraints if len(self.constraints) > 1 else ():
            others = tuple(each for each in self.constraints if each is not one)
            side = replace(self, goal=(one,), constraints=others)
            found = search(side)
            if side._met(found):
                held = repr(", ".join(each.text for each in others))
                most = f"{'up' if one.at_least else 'down'} to {self._value(one, found)}"
                sides.append(f"{held} is possible with {one.given} {most}.")
        both = np.stack([confusion, search(self.safest())])
        slack = np.nan_to_num(self.smallest_slack(both), nan=-np.inf)
        nearest = both[slack.argmax()]
        reached = [f"{each.given} = {self._value(each, nearest)}" for each in self.constraints]
        cure = " ".join(sides) or f"The best rule found reaches {', '.join(reached)}."
        allowed = "be met by some rule on these rows"
        wanted = repr(", ".join(each.text for each in self.constraints))
        raise Infeasible(complaint(self.owner, "constraint", allowed, wanted, cure))

    def _met(self, confusion: np.ndarray) -> bool:
        return bool(np.isfinite(self.scores(confusion)))

    def _value(self, constraint: Constraint, confusion: np.ndarray) -> str:
        return f"{constraint.value(*self._confusion(confusion)):.4g}"

    def mixed(self, confusions: np.ndarray, share: np.ndarray) -> np.ndarray:
        """(1 − share)·metric − share·(smooth violation of the bounds); NaN becomes −∞."""
        return self._in_parts(self._mixed, confusions, share)

    def _mixed(self, confusions: np.ndarray, share: np.ndarray) -> np.ndarray:
        c, groups = self._confusion(confusions)
        mixed = self._score(c, groups)
        if self.constraints:
            slack = smooth_minimum(_slacks(self.constraints, c, groups))
            violation = SOFTNESS * np.logaddexp(0, -slack / SOFTNESS)
            mixed = (1 - share) * mixed - share * violation
        return np.where(np.isnan(mixed), -np.inf, mixed)

    def slopes(self, confusions: np.ndarray, share: np.ndarray) -> np.ndarray:
        """∂/∂C of `mixed`; 0 where it has no slope."""
        c, groups = self._confusion(confusions)
        if self.goal:
            slopes = self._slack_slopes(self.goal, c, groups)
        else:
            sign = 1 if self.metric.greater_is_better else -1
            slopes = sign * self._of_all_rows(self.metric, c)
        if self.constraints:
            # The slope of T·log(1 + e^(−slack/T)) by the slack is −sigmoid(−slack/T).
            slack = smooth_minimum(_slacks(self.constraints, c, groups))
            share_of_metric = (1 - share)[..., None, None]
            share_of_slack = (share * sigmoid(-slack / SOFTNESS))[..., None, None]
            of_slack = self._slack_slopes(self.constraints, c, groups)
            slopes = share_of_metric * slopes + share_of_slack * of_slack
        return np.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0)

    def _slack_slopes(
        self, constraints: Sequence[Constraint], c: Confusion, groups: Groups
    ) -> np.ndarray:
        """∂/∂C of the smooth minimum of the slacks.

        By the chain rule it is the mean of their slopes, with weights e^(−slack/T).
        """
        slacks = _slacks(constraints, c, groups)
        weights = np.exp((slacks.min(0) - slacks) / SOFTNESS)
        weights = weights / weights.sum(0)
        total = 0.0
        for constraint, weight in zip(constraints, weights, strict=True):
            factor = weight / _span(constraint) * (1 if constraint.at_least else -1)
            if constraint.gap:
                slopes = _gap_slopes(constraint.metric, groups or ())
            else:
                slopes = self._of_all_rows(constraint.metric, c)
            total = total + factor[..., None, None] * slopes
        return np.asarray(total)

    def _of_all_rows(self, metric: Metric, c: Confusion) -> np.ndarray:
        """∂/∂C of a metric of all rows, in the form of the confusions."""
        slopes = metric.slopes(c)
        if self.compact:
            parts = np.broadcast_arrays(slopes.tp, slopes.predicted, slopes.actual)
            return np.stack(parts, -2)
        of_matrix = slopes.of_matrix()
        # The matrix of all rows is the sum of those of the groups.
        return np.concatenate([of_matrix] * self.groups, -2) if self.groups else of_matrix

    def _score(self, c: Confusion, groups: Groups) -> np.ndarray:
        if self.goal:
            return smooth_minimum(_slacks(self.goal, c, groups))
        return self.metric(c) if self.metric.greater_is_better else -self.metric(c)

    def _in_parts(
        self, function: Callable[..., np.ndarray], confusions: np.ndarray, *numbers: np.ndarray
    ) -> np.ndarray:
        """A function of confusions (..., m, n) and numbers (...), of some of them at a time."""
        leading = confusions.shape[:-2]
        every = confusions.reshape(-1, *confusions.shape[-2:])
        others = [np.broadcast_to(x, leading).ravel() for x in numbers]
        size = max(1, NUMBERS_AT_ONCE // math.prod(confusions.shape[-2:]))
        starts = range(0, max(len(every), 1), size)
        parts = [slice(start, start + size) for start in starts]
        results = [function(every[part], *(x[part] for x in others)) for part in parts]
        return np.concatenate(results).reshape(leading)

    def _confusion(self, confusions: np.ndarray) -> tuple[Confusion, Groups]:
        """The confusions of all rows, and of each group of rows."""
        if self.multilabel:
            tp, predicted, actual, total = np.moveaxis(confusions, -2, 0)
            return Confusion(tp, predicted, actual, total, multilabel=True), None
        if self.groups:
            of_groups = np.moveaxis(self._apart(confusions), -3, 0)
            parts = [Confusion.from_matrix(part) for part in of_groups]
            return Confusion.from_matrix(self.over_groups(confusions)), parts
        if not self.compact:
            return Confusion.from_matrix(confusions), None
        tp, predicted, actual = np.moveaxis(confusions, -2, 0)
        return Confusion(tp, predicted, actual, actual.sum(-1)), None


def _slacks(constraints: Sequence[Constraint], c: Confusion, groups: Groups) -> np.ndarray:
    """The slack of each constraint, as a share of the range of its metric, (constraints, ...)."""
    return np.stack([each.slack(c, groups) / _span(each) for each in constraints])


def _span(constraint: Constraint) -> float:
    """The range of a constraint's metric, or 1 if it is unbounded."""
    low, high = constraint.metric.bounds
    return high - low if 0 < high - low < math.inf else 1.0


def smooth_minimum(slacks: np.ndarray) -> np.ndarray:
    """The smooth minimum of slacks (constraints, ...): at least 0 only if all of them are."""
    least = slacks.min(0)
    if len(slacks) == 1:
        return least
    return least - SOFTNESS * np.log(np.exp((least - slacks) / SOFTNESS).sum(0))


def _gap_slopes(metric: Metric, groups: Sequence[Confusion]) -> np.ndarray:
    """∂/∂C of the largest value of the groups minus the smallest; equal ones share it evenly.

    A group whose metric is 0/0 is left out.
    """
    values = np.stack([metric(group) for group in groups])
    counted = ~np.isnan(values)
    most = counted & (values == np.where(counted, values, -np.inf).max(0))
    least = counted & (values == np.where(counted, values, np.inf).min(0))
    weights = most / np.maximum(most.sum(0), 1) - least / np.maximum(least.sum(0), 1)
    of_groups = [
        np.where(weight[..., None, None] == 0, 0.0, weight[..., None, None] * slopes)
        for weight, slopes in zip(
            weights, (metric.slopes(group).of_matrix() for group in groups), strict=True
        )
    ]
    return np.concatenate(of_groups, -2)


def in_units_of_rounding(scores: np.ndarray) -> np.ndarray:
    """Scores in units of ROUNDING, so that scores which differ by rounding error tie."""
    return np.round(scores / ROUNDING)


def first_best(scores: np.ndarray) -> np.ndarray:
    """The index of the first of the best scores (S, ...).

    Scores that differ by rounding error tie: sums are rounded differently on every machine, and
    all must find the same rule.
    """
    return (scores >= scores.max(0) - ROUNDING).argmax(0)
