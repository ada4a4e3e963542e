"""Training under a constraint: a Lagrange multiplier for each bound, learnt with the network."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from evalign import Confusion
from evalign.aggregation import RunningConfusion
from evalign.aggregation.running import keep
from evalign.core.constraints import Constraint, OfClass, parse, undefined
from evalign.core.metrics import Metric
from evalign.losses.base import zero_if_empty
from evalign.membership import soft_sets
from evalign.membership.batch import Batch, Sums
from evalign.membership.soft_confusion import summed
from evalign_study.refuted.counted import CountedLoss

# The shortfall from a bound is measured in units of the room that the bound leaves: 0.1 for
# recall >= 0.9, 0.01 for fpr <= 0.01. Multipliers then have one scale whatever the metric, and one
# rate serves all. The rate and the next two constants are cautious round numbers, read off a few
# synthetic problems.
RATE = 0.005
PENALTY = 0.1  # a weight also responds to the shortfall at once, which damps oscillation
LARGEST_MULTIPLIER = 5.0  # a bound that needs more is taken to be infeasible
OF_TRUE_ROWS = ("recall", "fnr", "specificity", "fpr")  # whose rows the labels do not choose
LEAST_ROOM = 0.01  # as a share of the metric's range: recall >= 1 would leave no room


def undefined_without_rows(metric: Metric) -> Metric:
    """The metric with NaN where no row is of the class that its rate is of.

    Before the first row of a class its recall is not 0. Other metrics keep their value for 0/0: a
    precision without a row of that label is broken by the rule itself.
    """
    rate = isinstance(metric, OfClass) and metric.metric.stem in OF_TRUE_ROWS
    return undefined(metric) if rate else metric


class ConstrainedLoss(CountedLoss):
    """`CountedLoss` under a constraint such as "recall >= 0.9".

    Args:
        metric: as in `CountedLoss`.
        counts: as in `CountedLoss`.
        constraint: the bounds, as in `fit_decision`, without gaps between groups.
        momentum: weight of the new batch in the running statistics.
        settings: further arguments of `CountedLoss`.
    """

    def __init__(
        self,
        metric: str,
        counts: Tensor,
        *,
        constraint: str,
        momentum: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__(metric, counts, momentum=momentum, **settings)
        self.constraint = constraint
        self.multipliers = Multipliers(parse(constraint, owner="ConstrainedLoss"), momentum)

    def sums_from_batch(self, batch: Batch) -> Sums:
        cross_entropy, soft = super().sums_from_batch(batch)
        return cross_entropy, summed(batch, soft_sets.hard(batch)), soft

    def loss_from_sums(self, sums: Sums) -> Tensor:
        cross_entropy, hard, soft = sums
        added = self.multipliers(soft, hard, learn=self.learns())
        loss = super().loss_from_sums((cross_entropy, soft))
        return loss + zero_if_empty(added, hard.total.sum())


class Multipliers(nn.Module):
    """Lagrange multipliers λ of constraints, updated by every training batch.

    The shortfall of the hard labels moves λ; the gradient comes from the shortfall of the soft
    Confusion, since hard labels have none: the proxy Lagrangian of Cotter et al. (JMLR 20, 2019).
    Both are running averages, so that rare classes count.

    Each batch adds Σ w·shortfall(soft) to the loss, with w = λ + PENALTY·shortfall(hard), and then
    moves λ ← λ + RATE·shortfall(hard). The shortfall of hard labels is clipped to [−1, 1] and is
    negative if the constraint is met with room to spare; w and λ are clipped to
    [0, LARGEST_MULTIPLIER]. A batch without rows or with a non-finite logit does not move them.

    Args:
        constraints: the bounds.
        momentum: of the running averages.

    Attributes:
        values: the multipliers, in the order of the constraints.
    """

    values: Tensor

    def __init__(self, constraints: tuple[Constraint, ...], momentum: float) -> None:
        super().__init__()
        self.constraints = tuple(
            replace(c, metric=undefined_without_rows(c.metric)) for c in constraints
        )
        self.soft, self.hard = RunningConfusion(momentum), RunningConfusion(momentum)
        self.register_buffer("values", torch.zeros(len(constraints), dtype=torch.float64))

    def forward(self, soft: Confusion, hard: Confusion, *, learn: bool) -> Tensor:
        """Return the term that the constraints add to the loss."""
        counts = (hard.total.sum() != 0) & hard.predicted.sum().isfinite()
        if learn:
            soft, hard = self.soft(soft), self.hard(hard)
        values = self.values.to(hard.tp)
        # A shortfall of more than one room counts as one, so that λ does not overshoot.
        shortfall = torch.where(counts, self._shortfall(hard), 0).clamp(-1, 1)
        weight = (values + PENALTY * shortfall).clamp(0, LARGEST_MULTIPLIER)
        if learn:
            keep(self, "values", (values + RATE * shortfall).clamp(0, LARGEST_MULTIPLIER))
        return (weight * self._shortfall(soft)).sum()

    def _shortfall(self, confusion: Confusion) -> Tensor:
        """Return the shortfall from each bound in units of its room; 0 where it is undefined."""
        found = torch.stack([-each.slack(confusion) / _room(each) for each in self.constraints])
        return torch.where(found.isnan(), 0, found)


def _room(constraint: Constraint) -> float:
    """Return what the bound leaves of the metric's range; 1 if the range is infinite."""
    low, high = constraint.metric.bounds
    span = high - low if high - low < math.inf else 1.0
    room = high - constraint.bound if constraint.at_least else constraint.bound - low
    return max(room, LEAST_ROOM * span) if room < math.inf else 1.0
