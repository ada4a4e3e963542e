"""The ways `AlignedClassifier` trains: a loss, its annealing, and the offsets to add back."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from evalign.core.checks import require
from evalign.core.metrics import Metric
from evalign.core.rows import Task
from evalign.losses import AlignedLoss, FocalLoss, LogitAdjustedLoss, MetricLoss
from evalign.losses.base import Loss
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

    loss: Loss
    offsets: Tensor
    annealing: TemperatureAnnealing | None = None


class Aim(NamedTuple):
    """What a network is trained for.

    Args:
        metric: the metric to be best in.
        class_counts: of the training rows, one per class, or of many labels a row a pair (negative,
            positive) per label.
        patience: epochs without a new best before training ends.
        constraint: what its labels have to meet, which the best epoch and the rule heed.
        classes: the names of the classes in it.
    """

    metric: Metric
    class_counts: Tensor
    patience: int | None
    constraint: str | None = None
    classes: list[str] | None = None

    @property
    def task(self) -> Task:
        return "multilabel" if self.class_counts.ndim == 2 else "multiclass"

    def no_offsets(self) -> Tensor:
        return self.class_counts.new_zeros(len(self.class_counts))


# The recipes use ranks="own": an estimator trains on its own rows, even if other ranks train too.


def east(aim: Aim) -> Recipe:
    """EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3)."""
    loss = MetricLoss(aim.metric, ranks="own", task=aim.task)
    patience = aim.patience
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        # The stretches before each cooling and the end make up the patience.
        patience=5 if patience is None else -(-patience // (COOLINGS + 1)),
        coolings=2**31 if patience is None else COOLINGS,
        greater_is_better=loss.metric.greater_is_better,
    )
    return Recipe(loss, aim.no_offsets(), annealing)


def cross_entropy(aim: Aim) -> Recipe:
    """Cross-entropy, the baseline. torch's own module does not take a weight per row."""
    many = aim.task == "multilabel"
    loss = FocalLoss(0.0, task="multilabel") if many else _adjusted(aim, tau=0.0)
    return Recipe(loss, aim.no_offsets())


def focal(aim: Aim) -> Recipe:
    """Focal loss, as published; its probabilities are known to be too cautious."""
    return Recipe(FocalLoss(task=aim.task), aim.no_offsets())


def logit_adjusted(aim: Aim) -> Recipe:
    """Logit adjustment, as published. The prior stays out, as if classes were equally frequent."""
    one, cure = aim.task == "multiclass", 'Use "aligned".'
    allowed = "be another one for many labels a row, which have no common prior"
    require(one, "AlignedClassifier", "recipe", allowed, "'logit_adjusted'", cure)
    return Recipe(_adjusted(aim), aim.no_offsets())


def aligned(aim: Aim) -> Recipe:
    """Cross-entropy and the metric together, see `AlignedLoss`."""
    loss = AlignedLoss(aim.metric, aim.class_counts, ranks="own", task=aim.task)
    return Recipe(loss, loss.offsets)


def _adjusted(aim: Aim, tau: float = 1.0) -> LogitAdjustedLoss:
    return LogitAdjustedLoss(aim.class_counts, tau=tau, task="multiclass")


RECIPES: dict[str, Callable[[Aim], Recipe]] = {
    "aligned": aligned,
    "cross_entropy": cross_entropy,
    "east": east,
    "focal": focal,
    "logit_adjusted": logit_adjusted,
}
