"""Constraints in training: a Lagrange multiplier each, learnt from the batches with the network."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from evalign.aggregation import RunningConfusion
from evalign.aggregation.running import keep
from evalign.core.checks import traced, values_readable
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, undefined_without_rows
from evalign.core.numerics import moved

# What is missing to a bound is measured in the room that the bound leaves: 0.1 for recall >= 0.9,
# 0.01 for fpr <= 0.01. Multipliers are then of one size whatever the metric, and one rate serves
# all. It and the next two are careful round numbers, read off a few made problems.
RATE = 0.005
# A weight also answers at once to what is missing, which keeps multipliers from swinging.
PENALTY = 0.1
# A bound that needs a greater multiplier is taken to be out of reach. Two such bounds then pull
# evenly, and beside them the loss keeps a say.
LARGEST = 5.0
LEAST_ROOM = 0.01  # of what a metric spans: a bound at its very end, recall >= 1, leaves none
HARD = 1e-30  # the temperature at which a soft label is a hard one


class OutOfReachWarning(UserWarning):
    """A constraint does not seem to be within reach; training goes on."""


class Multipliers(nn.Module):
    """Lagrange multipliers λ of constraints, which move with every batch of training.

    They are moved by what the *labels* miss (the largest logit; a probability above the threshold),
    and the network by the gradient of what the soft Confusion misses, since labels have no slope:
    the proxy Lagrangian of Cotter et al. (JMLR 20, 2019). A soft recall of 0.9 may be a recall of
    0.8. Both are averages over batches, so that rare classes count.

    Each batch adds Σ w·missing(soft) to the loss, with w = λ + PENALTY·missing(labels), and then
    moves λ ← λ + RATE·missing(labels). What labels miss is taken from −1 to 1, and is negative if
    the constraint is met with room to spare; w and λ are taken from 0 to LARGEST. A constraint that
    never binds has λ = w = 0 and changes nothing. A batch without rows or with a logit that is not
    finite does not move them.

    Of a gap between groups, both are averages for each group.

    Args:
        constraints: what is bounded.
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
        self.needs_matrix = any(c.metric.needs_matrix for c in constraints)
        self.groups_need_matrix = any(c.metric.needs_matrix for c in constraints if c.gap)
        self.gaps = tuple(c.text for c in constraints if c.gap)
        self.labels = RunningConfusion(momentum)
        self.labels_of_groups, self.soft_groups = (
            RunningConfusion(momentum) if self.gaps else None for _ in range(2)
        )
        self.register_buffer("values", torch.zeros(len(constraints), dtype=torch.float64))
        self._warned = False

    def forward(
        self,
        soft: Confusion,
        hard: Confusion,
        hard_groups: Confusion | None = None,
        soft_groups: Confusion | None = None,
        *,
        learn: bool,
    ) -> Tensor:
        """What the constraints add to the loss.

        Args:
            soft: has the value of the running average and the gradient of the batch.
            hard: of the labels of the batch.
            hard_groups: of the labels of each group of rows, where gaps are bounded.
            soft_groups: of each group's memberships in the batch.
            learn: whether to move the multipliers.
        """
        counts = (hard.total.sum() != 0) & hard.predicted.sum().isfinite()
        if learn:
            hard = self.labels(hard)
            if self.labels_of_groups is not None and self.soft_groups is not None:
                hard_groups = self.labels_of_groups(hard_groups)
                soft_groups = self.soft_groups(soft_groups)
        values = self.values.to(hard.tp)
        # More than one room is as bad as one: far from its bound λ must not run ahead.
        missing = torch.where(counts, self._missing(hard, hard_groups), 0).clamp(-1, 1)
        weight = (values + PENALTY * missing).clamp(0, LARGEST)
        if learn:
            if values.device != self.values.device:  # the logits are elsewhere than the loss
                self.values = values
            keep(self, "values", (values + RATE * missing).clamp(0, LARGEST))
            if not traced() and values_readable(self.values):
                self._warn_if_out_of_reach()
        return (weight * self._missing(soft, soft_groups)).sum()

    def reached(self) -> dict[str, float]:
        """The constrained metrics of the labels of recent batches; NaN before there is one."""
        now, groups = _average(self.labels), _average(self.labels_of_groups)
        return {
            c.text: math.nan if now is None else c.value(now, groups).item()
            for c in self.constraints
        }

    def train(self, mode: bool = True) -> Self:
        # Once an epoch multipliers may be read on any device; forward reads them on the CPU only.
        if not mode and not traced() and not self.values.is_meta:
            self._warn_if_out_of_reach()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = self.values  # .half() must not round it
        super()._apply(fn, recurse)
        self.values = moved(exact, fn)
        return self

    def extra_repr(self) -> str:
        return ", ".join(c.text for c in self.constraints)

    def _missing(self, c: Confusion, groups: Confusion | None) -> Tensor:
        """What is missing to each bound, in the room that it leaves; 0 where nothing is known."""
        missing = torch.stack([-each.slack(c, groups) / _room(each) for each in self.constraints])
        return torch.where(missing.isnan(), 0, missing)

    def _warn_if_out_of_reach(self) -> None:
        if self._warned or not (self.values == LARGEST).any():
            return
        self._warned = True
        found = zip(self.values.tolist(), self.reached().items(), strict=True)
        missed = [f"{text!r}, at {now:.3g}" for value, (text, now) in found if value == LARGEST]
        text = (
            f"The constraint {' and '.join(missed)} on recent batches, is not met with the largest "
            "multiplier: with this network, or together with other constraints, it seems to be out "
            "of reach. Training goes on; a bound that can be met would serve it better."
        )
        warnings.warn(text, OutOfReachWarning, stacklevel=3)


def _average(kept: RunningConfusion | None) -> Confusion | None:
    """The average that was kept; None if there is none."""
    if kept is None or not kept.seen > 0:
        return None
    sums: Any = {name: x / kept.seen for name, x in kept.named_buffers() if name != "seen"}
    return Confusion(**sums, multilabel=kept.total.ndim == kept.tp.ndim)


def _room(c: Constraint) -> float:
    """What the bound leaves of what the metric spans; 1 if there is no end to it."""
    low, high = c.metric.bounds
    span = high - low if high - low < math.inf else 1.0
    low = 0.0 if c.gap else low
    room = high - c.bound if c.at_least else c.bound - low
    return max(room, LEAST_ROOM * span) if room < math.inf else 1.0
