"""The recipes of `AlignedClassifier`: a loss, the offsets of its logits, and its annealing."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from evalign.core.metrics import Metric
from evalign.core.rows import Task
from evalign.losses import AlignedLoss, FocalLoss, LogitAdjustedLoss, MetricLoss
from evalign.losses.base import Loss
from evalign.training import TemperatureAnnealing

COOLINGS = 3  # coolings without a new best before EAST's training ends


class Recipe(NamedTuple):
    """How to train a network.

    Args:
        loss: called as loss(logits, target, sample_weight=...).
        offsets: one per class or label. softmax(logits + offsets), or sigmoid if multilabel, are
            the probabilities.
        annealing: cools the loss and stops training; None for plain early stopping.
    """

    loss: Loss
    offsets: Tensor
    annealing: TemperatureAnnealing | None = None


# Class counts are (C,), or if multilabel (L, 2): the rows without and with each label.
# The losses use ranks="own": an estimator trains on its own rows, even if other ranks train too.


def aligned(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Cross-entropy and the metric together, see `AlignedLoss`."""
    loss = AlignedLoss(metric, class_counts, ranks="own", task=_task(class_counts))
    return Recipe(loss, loss.offsets)


def cross_entropy(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Cross-entropy, the baseline. torch's own module does not take a weight per row."""
    loss = (
        FocalLoss(0.0, task="multilabel")
        if _task(class_counts) == "multilabel"
        else LogitAdjustedLoss(class_counts, tau=0.0, task="multiclass")
    )
    return Recipe(loss, class_counts.new_zeros(len(class_counts)))


def east(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3)."""
    loss = MetricLoss(metric, ranks="own", task=_task(class_counts))
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        # The waits before each cooling and before the end add up to the patience.
        patience=5 if patience is None else -(-patience // (COOLINGS + 1)),
        coolings=2**31 if patience is None else COOLINGS,
        greater_is_better=metric.greater_is_better,
    )
    return Recipe(loss, class_counts.new_zeros(len(class_counts)), annealing)


def _task(class_counts: Tensor) -> Task:
    return "multilabel" if class_counts.ndim == 2 else "multiclass"


RECIPES: dict[str, Callable[[Metric, Tensor, int | None], Recipe]] = {
    "aligned": aligned,
    "cross_entropy": cross_entropy,
    "east": east,
}


def chosen_recipe(recipe: str | None, constraint: str | None) -> str:
    """The recipe by its name; None is "aligned", or "cross_entropy" with a constraint."""
    return recipe or ("aligned" if constraint is None else "cross_entropy")
