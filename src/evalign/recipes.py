"""The ways `AlignedClassifier` trains: a loss, its annealing, and the prior to add back."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from evalign.core.batch import Sums
from evalign.core.metrics import MetricFunction
from evalign.losses import FocalLoss, LogitAdjustedLoss, MetricLoss
from evalign.statistics import Ranks
from evalign.training import TemperatureAnnealing

ANCHOR = 1.0  # the weight of the cross-entropy beside the metric loss
PRIOR = 0.5  # how much of the log prior is taken out of the logits
MOMENTUM = 0.1  # of the running confusion matrix
COOLINGS = 3  # coolings in vain before EAST's training ends


class Recipe(NamedTuple):
    """What to train with.

    Args:
        loss: called as loss(logits, target, sample_weight=...).
        offsets: one per class; softmax(logits + offsets) are the probabilities.
        annealing: cools the loss and ends the training, in the place of plain early stopping.
    """

    loss: nn.Module
    offsets: Tensor
    annealing: TemperatureAnnealing | None = None


class AnchoredLoss(nn.Module):
    """cross-entropy(logits + ½ log prior) + metric loss on running statistics.

    The cross-entropy keeps the training stable and the probabilities calibrated; the metric loss
    sees the logits without the prior, so that rare classes are found.

    Args:
        metric: a metric, or any function of a `Confusion`.
        prior: the counts or shares of the classes.
        ranks: of the metric loss, see `MetricLoss`.
    """

    def __init__(self, metric: MetricFunction, prior: Tensor, *, ranks: Ranks = "all") -> None:
        super().__init__()
        self.cross_entropy = LogitAdjustedLoss(prior, tau=PRIOR, task="multiclass")
        self.metric = MetricLoss(
            metric, statistics="running", momentum=MOMENTUM, ranks=ranks, task="multiclass"
        )

    def forward(
        self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        cross_entropy = self.cross_entropy(logits, target, sample_weight=sample_weight)
        return ANCHOR * cross_entropy + self.metric(logits, target, sample_weight=sample_weight)

    def sums(self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Sums:
        """What `exact_backward` adds up over micro-batches."""
        both = self.cross_entropy, self.metric
        first, last = (loss.sums(logits, target, sample_weight=sample_weight) for loss in both)
        return *first, *last

    def of_sums(self, sums: Sums) -> Tensor:
        return ANCHOR * self.cross_entropy.of_sums(sums[:1]) + self.metric.of_sums(sums[1:])


# ranks="own": an estimator trains on its own rows, also in a job where others train on theirs.
def east(metric: MetricFunction, prior: Tensor, patience: int | None) -> Recipe:
    """EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3)."""
    loss = MetricLoss(metric, ranks="own", task="multiclass")
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        # The stretches before each cooling and the end make up the patience.
        patience=5 if patience is None else -(-patience // (COOLINGS + 1)),
        coolings=2**31 if patience is None else COOLINGS,
        greater_is_better=loss.maximize,
    )
    return Recipe(loss, torch.zeros_like(prior), annealing)


def cross_entropy(metric: MetricFunction, prior: Tensor, patience: int | None) -> Recipe:
    """The baseline. (torch's own module takes no weight per row.)"""
    loss = LogitAdjustedLoss(prior, tau=0.0, task="multiclass")
    return Recipe(loss, torch.zeros_like(prior))


def focal(metric: MetricFunction, prior: Tensor, patience: int | None) -> Recipe:
    """Focal loss, as published; its probabilities are known to be too cautious."""
    return Recipe(FocalLoss(task="multiclass"), torch.zeros_like(prior))


def logit_adjusted(metric: MetricFunction, prior: Tensor, patience: int | None) -> Recipe:
    """Logit adjustment, as published: the prior stays out, so probabilities are those of classes
    that are equally frequent."""
    return Recipe(LogitAdjustedLoss(prior, task="multiclass"), torch.zeros_like(prior))


def anchored(metric: MetricFunction, prior: Tensor, patience: int | None) -> Recipe:
    """Cross-entropy and the metric together, see `AnchoredLoss`."""
    return Recipe(AnchoredLoss(metric, prior, ranks="own"), PRIOR * (prior / prior.sum()).log())


RECIPES: dict[str, Callable[[MetricFunction, Tensor, int | None], Recipe]] = {
    "anchored": anchored,
    "cross_entropy": cross_entropy,
    "east": east,
    "focal": focal,
    "logit_adjusted": logit_adjusted,
}
