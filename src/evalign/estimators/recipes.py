"""The recipes of `AlignedClassifier`: a loss and its annealing."""

from collections.abc import Callable
from typing import NamedTuple

from evalign.core.metrics import Metric
from evalign.core.rows import Task
from evalign.losses import AlignedLoss, FocalLoss, MetricLoss
from evalign.losses.base import Loss
from evalign.training import TemperatureAnnealing

COOLINGS = 3  # coolings without a new best before EAST's training ends


class Recipe(NamedTuple):
    """How to train a network.

    Args:
        loss: called as loss(logits, target, sample_weight=...). If it has `offsets`, probabilities
            are softmax(logits + offsets), or sigmoid if multilabel.
        annealing: cools the loss and stops training; None for plain early stopping.
    """

    loss: Loss
    annealing: TemperatureAnnealing | None = None


# The losses use ranks="own": an estimator trains on its own rows, even if other ranks train too.


def aligned(metric: Metric, task: Task, patience: int | None) -> Recipe:
    """Cross-entropy and the metric together, see `AlignedLoss`."""
    return Recipe(AlignedLoss(metric, ranks="own", task=task))


def cross_entropy(metric: Metric, task: Task, patience: int | None) -> Recipe:
    """Cross-entropy, the baseline. Torch's own modules do not take a weight per row."""
    return Recipe(FocalLoss(0.0, task=task))


def east(metric: Metric, task: Task, patience: int | None) -> Recipe:
    """EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3)."""
    loss = MetricLoss(metric, ranks="own", task=task)
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        # The waits before each cooling and before the end add up to the patience.
        patience=5 if patience is None else -(-patience // (COOLINGS + 1)),
        coolings=2**31 if patience is None else COOLINGS,
        greater_is_better=metric.greater_is_better,
    )
    return Recipe(loss, annealing)


RECIPES: dict[str, Callable[[Metric, Task, int | None], Recipe]] = {
    "aligned": aligned,
    "cross_entropy": cross_entropy,
    "east": east,
}


def chosen_recipe(recipe: str | None, constraint: str | None) -> str:
    """The recipe by its name; None is "aligned", or "cross_entropy" with a constraint."""
    return recipe or ("aligned" if constraint is None else "cross_entropy")
