"""The best rule if probabilities are right, and what a rule leaves of constraints."""

from dataclasses import replace

from torch import Tensor

from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import multilabel
from evalign.decisions.cuts import threshold_gains
from evalign.decisions.gains import confusions
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import without_floor
from evalign.decisions.tuned import search


def best_of_classes(
    owner: str, logits: Tensor, weight: Tensor, goal: Goal, groups: Tensor | None = None
) -> Tensor:
    """The best gains if the probabilities of these logits are right."""
    believed = goal.by_group(without_floor(logits.softmax(1)), groups)
    return search(owner, logits, believed, weight, goal)


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
