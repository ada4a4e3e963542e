"""What each recipe of `AlignedClassifier` is made of: a loss and its annealing."""

from evalign.core.metrics import Metric
from evalign.core.task import Task
from evalign.losses import AlignedLoss, FocalLoss, MetricLoss
from evalign.losses.base import Loss
from evalign.training.annealing import TemperatureAnnealing

COOLINGS = 3  # coolings without a new best before EAST's training ends


def ingredients(
    recipe: str, metric: Metric, task: Task, patience: int | None
) -> tuple[Loss, TemperatureAnnealing | None]:
    """The loss, and what cools it and stops training; None for plain early stopping.

    If the loss has `offsets`, probabilities are softmax(logits + offsets), or sigmoid if
    multilabel. Losses use ranks="own": an estimator trains on its own rows, even if other ranks
    train too.
    """
    if recipe == "aligned":
        return AlignedLoss(metric, ranks="own", task=task), None
    if recipe == "cross_entropy":  # torch's own modules do not take a weight per row
        return FocalLoss(0.0, task=task), None
    # EAST to the letter: the metric loss of each batch, cooled from 0.2 by 0.9 (EAST 4.3).
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
    return loss, annealing
