"""What each recipe of `AlignedClassifier` is made of: a loss, its annealing, and its training."""

from dataclasses import replace
from typing import Any, Literal

from evalign.core.metrics import ClassMetric, Metric
from evalign.core.task import Task
from evalign.losses import AlignedLoss, FocalLoss, MetricLoss
from evalign.losses.base import Loss
from evalign.training.annealing import TemperatureAnnealing

PATIENCE = 15
NEVER = 2**31  # coolings that no training comes to

# The weights of a network are their moving average, at a rate that falls along a cosine.
OURS: dict[str, Any] = {"weight_decay": 3e-4, "ema_decay": 0.995}

# EAST says "AdamW" and nothing more of it (E.1), so this is torch's, at a constant rate.
EAST: dict[str, Any] = {
    "schedule": "constant",
    "warmup": 0.0,
    "clip_norm": None,
    "weight_decay": 0.01,
    "ema_decay": None,
    "watch": "loss",
}
EAST_PATIENCE = 50  # E.1
# A point of the grid of E.4. Its training ends by its own rule, far below these epochs.
EAST_STEPS = {"epochs": 2_000, "batch_size": 256, "learning_rate": 1e-3}


def ingredients(
    recipe: str, metric: Metric, task: Task, patience: int | Literal["auto"] | None, classes: int
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
    if task == "multiclass":
        metric = over_all_classes(metric, classes)
    loss = MetricLoss(metric, ranks="own", task=task)
    annealing = TemperatureAnnealing(
        loss,
        start=0.2,
        rate=0.9,
        patience=EAST_PATIENCE if patience in ("auto", None) else patience,
        coolings=NEVER if patience is None else 3,
        greater_is_better=metric.greater_is_better,
    )
    return loss, annealing


def over_all_classes(metric: Metric, classes: int) -> Metric:
    """A macro average with its plain 1 / d over all d classes (EAST eq. 2).

    Without this, a class that a batch lacks counts by its soft predicted rows alone.
    """
    if isinstance(metric, ClassMetric) and metric.average == "macro" and metric.labels is None:
        return replace(metric, labels=tuple(range(classes)))
    return metric


def training_of(recipe: str, patience: int | Literal["auto"] | None) -> dict[str, Any]:
    """How a recipe trains: arguments of `Settings`. EAST's patience is that of its annealing."""
    if recipe == "east":
        return {**EAST, "patience": None}
    return {**OURS, "patience": PATIENCE if patience == "auto" else patience}


def usual_steps(recipe: str) -> dict[str, Any]:
    """The epochs, batch size and learning rate that do not depend on the rows."""
    return dict(EAST_STEPS) if recipe == "east" else {}
