"""The ways `AlignedClassifier` trains: a loss, its annealing, and the offsets to add back."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from evalign.core.checks import require
from evalign.core.metrics import Metric
from evalign.core.rows import Task
from evalign.losses import AlignedLoss, FocalLoss, LogitAdjustedLoss, MetricLoss
from evalign.training import TemperatureAnnealing

COOLINGS = 3  # coolings in vain before EAST's training ends


class Recipe(NamedTuple):
    """The loss to train with, its offsets and its annealing.

    Args:
        loss: called as loss(logits, target, sample_weight=...).
        offsets: one per class or label; softmax(logits + offsets), of labels sigmoid(logits +
            offsets), are the probabilities.
        annealing: cools the loss and ends the training, in the place of plain early stopping.
    """

    loss: nn.Module
    offsets: Tensor
    annealing: TemperatureAnnealing | None = None


# The recipes use ranks="own": an estimator trains on its own rows, even if other ranks train too.
# Counts are one per class, or of many labels a row a pair (negative, positive) per label.


def east(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3)."""
    loss = MetricLoss(metric, ranks="own", task=_task(class_counts))
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        # The stretches before each cooling and the end make up the patience.
        patience=5 if patience is None else -(-patience // (COOLINGS + 1)),
        coolings=2**31 if patience is None else COOLINGS,
        greater_is_better=loss.metric.greater_is_better,
    )
    return Recipe(loss, _no_offsets(class_counts), annealing)


def cross_entropy(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Cross-entropy, the baseline. torch's own module does not take a weight per row."""
    many = class_counts.ndim == 2
    loss = FocalLoss(0.0, task="multilabel") if many else _adjusted(class_counts, tau=0.0)
    return Recipe(loss, _no_offsets(class_counts))


def focal(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Focal loss, as published; its probabilities are known to be too cautious."""
    return Recipe(FocalLoss(task=_task(class_counts)), _no_offsets(class_counts))


def logit_adjusted(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Logit adjustment, as published. The prior stays out, as if classes were equally frequent."""
    allowed, cure = (
        "be another one for many labels a row, which have no common prior",
        'Use "aligned".',
    )
    one = class_counts.ndim == 1
    require(one, "AlignedClassifier", "recipe", allowed, "'logit_adjusted'", cure)
    return Recipe(_adjusted(class_counts), _no_offsets(class_counts))


def aligned(metric: Metric, class_counts: Tensor, patience: int | None) -> Recipe:
    """Cross-entropy and the metric together, see `AlignedLoss`."""
    loss = AlignedLoss(metric, class_counts, ranks="own", task=_task(class_counts))
    return Recipe(loss, loss.offsets)


def _task(class_counts: Tensor) -> Task:
    return "multilabel" if class_counts.ndim == 2 else "multiclass"


def _no_offsets(class_counts: Tensor) -> Tensor:
    return class_counts.new_zeros(len(class_counts))


def _adjusted(class_counts: Tensor, tau: float = 1.0) -> LogitAdjustedLoss:
    return LogitAdjustedLoss(class_counts, tau=tau, task="multiclass")


RECIPES: dict[str, Callable[[Metric, Tensor, int | None], Recipe]] = {
    "aligned": aligned,
    "cross_entropy": cross_entropy,
    "east": east,
    "focal": focal,
    "logit_adjusted": logit_adjusted,
}
