"""The best rule if probabilities are right, and what a rule leaves of constraints."""

from dataclasses import replace

import torch
from torch import Tensor

from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import multilabel
from evalign.decisions.cuts import threshold_gains
from evalign.decisions.gains import confusions, rounded
from evalign.decisions.goal import ROUNDING, Goal
from evalign.decisions.inputs import without_floor
from evalign.decisions.tuned import search


def best_of_classes(
    owner: str, logits: Tensor, weight: Tensor, goal: Goal, groups: Tensor | None = None
) -> Tensor:
    """The best gains if the probabilities of these logits are right."""
    eta = without_floor(logits.softmax(1))
    gain = search(owner, logits, goal.by_group(eta, groups), weight, goal)
    if logits.shape[1] > 2 or goal.constraints:
        return gain
    return _break_even(logits[:, 1] - logits[:, 0], eta, weight, goal, gain)


def _break_even(margin: Tensor, eta: Tensor, weight: Tensor, goal: Goal, gain: Tensor) -> Tensor:
    """Gains of two classes whose threshold is where either label adds as much to the metric.

    These rows leave open where it lies between two of them, and the slopes of the metric tell.
    It stays in the middle if these would label a row otherwise, as they may where the metric has a
    kink, or leave it on the threshold, where rounding would label it.
    """
    confusion = confusions(eta, eta, weight, gain.unsqueeze(0))
    slopes = goal.slopes(confusion, torch.zeros(1).to(confusion))[0]
    worth = torch.stack([slopes[0, 0] - slopes[0, 1], slopes[1, 1] - slopes[1, 0]])
    even, middle = (worth[0] / worth[1]).log(), (gain[0, 0] / gain[1, 1]).log()
    low, high = torch.minimum(even, middle), torch.maximum(even, middle)
    near = ROUNDING * (1 + even.abs())
    crossed = ((margin >= low - near) & (margin <= high + near)).any()
    return torch.where((worth > 0).all() & ~crossed, rounded(worth / worth.sum()).diag(), gain)


def best_of_labels(
    owner: str, logits: Tensor, weight: Tensor, metric: str | MetricFunction, goal: Goal
) -> Tensor:
    """The same for many labels a row, (L, 2, 2)."""
    label_goal = multilabel.LabelGoal.of(resolve(metric), goal)
    believed = without_floor(logits.sigmoid())
    return threshold_gains(multilabel.thresholds(owner, logits, believed, weight, label_goal))


def slacks_of(
    goal: Goal, logits: Tensor, eta: Tensor, true: Tensor, weight: Tensor, gain: Tensor, many: bool
) -> dict[str, float] | None:
    """How far each constraint is from its bound: of logits with η, if `true` is the truth."""
    if not goal.constraints:
        return None
    if not many:
        return goal.slacks(confusions(eta, true, weight, gain.unsqueeze(0))[0])
    at = (gain[:, 0, 0] / gain[:, 1, 1]).log()
    return replace(goal, multilabel=True).slacks(multilabel.sums(logits, true, weight, at))
