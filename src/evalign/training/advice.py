"""Warnings about training that goes wrong, each with a cure.

All but `batch_advice` depend on the history alone, so a resumed run warns as an uninterrupted one.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.metrics import BalancedAccuracy, ClassMetric, CohenKappa, GMean, MatthewsCorrcoef
from evalign.losses import MetricLoss
from evalign.theory import rows_needed

COLLAPSED_EPOCHS = 5
VANISHED_EPOCHS = 3
VANISHED_NORM = 1e-7
EVERY_CLASS = (BalancedAccuracy, GMean, MatthewsCorrcoef, CohenKappa)


class TrainingWarning(UserWarning):
    """Training goes on, but something looks wrong; the text says what may help."""


def batch_advice(loss: object, target: Tensor, batch_size: int) -> str | None:
    """Advise larger batches if they hold too few examples of the rarest class.

    This concerns a `MetricLoss` of one batch at a time whose metric weighs all classes alike. EAST
    Theorem 5.8, applied to the rows of one class, says how many of them bring its recall within 0.5
    with probability 0.95. An estimate from fewer rows is noise.
    """
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if not isinstance(module, MetricLoss) or not _needs_every_class(module):
            continue
        counts = _class_counts(target, module.ignore_index)
        needed = rows_needed(0.5, max(2, len(counts)))
        if getattr(module.metric, "average", None) == "binary":
            counts = counts[1:]
        rarest = min((n for n in counts if n > 0), default=math.inf) / len(target)
        expected = rarest * min(batch_size, len(target))
        if expected < needed:
            return (
                f"A batch of {batch_size} rows holds {expected:.2g} examples of the rarest "
                f"class on average, too few for the loss's metric: below {needed} its recall in a "
                f"batch is mostly noise. Use batches of {math.ceil(needed / rarest)} rows, or a "
                "loss that averages over batches, as AlignedLoss does."
            )
    return None


def new_advice(history: list[dict[str, Any]]) -> dict[str, str]:
    """Warnings, by kind, that the last record of the history is the first to give."""
    found, last = {}, history[-1]
    if not math.isfinite(last["validation_loss"]):
        found["diverged"] = (
            f"The validation loss is {last['validation_loss']}; training stops here. Lower the "
            "learning rate, set clip_norm, or look for such values in the data."
        )
    recent = history[-COLLAPSED_EPOCHS:]
    if len(recent) == COLLAPSED_EPOCHS and all(record["collapsed"] for record in recent):
        found["collapsed"] = (
            f"All validation rows were predicted as one class for {COLLAPSED_EPOCHS} epochs. A "
            "class may be too rare: give more rows of it. A loss without cross-entropy may "
            "collapse, too: use AlignedLoss, the recipe aligned."
        )
    recent = history[-VANISHED_EPOCHS:]
    flat = all(r["gradient_norm"] < VANISHED_NORM and r["loss"] > 0.01 for r in recent)
    if len(recent) == VANISHED_EPOCHS and flat:
        found["vanished"] = (
            f"The gradient has been below {VANISHED_NORM:g} for {VANISHED_EPOCHS} epochs although "
            f"the loss is {last['loss']:.3g}. Use a higher temperature, a lower learning rate, "
            "standardised inputs, or AlignedLoss (the recipe aligned), which keeps a cross-entropy "
            "term."
        )
    said = {kind for past in history[:-1] for kind in past["warnings"]}
    return {kind: text for kind, text in found.items() if kind not in said}


def _needs_every_class(loss: MetricLoss) -> bool:
    """Whether every batch needs all classes. A user's own function is assumed not to."""
    metric, by_batch = loss.metric, loss.momentum is None
    if isinstance(metric, ClassMetric):
        return by_batch and metric.average in ("binary", "macro") and metric.labels is None
    return by_batch and isinstance(metric, EVERY_CLASS)


def _class_counts(target: Tensor, ignore_index: int) -> list[float]:
    """The number of examples of each class, or of each label."""
    seen = target != ignore_index
    soft = target.is_floating_point() or target.dtype == torch.bool
    if soft and target.ndim > 1 and target.shape[1] > 1:  # multilabel
        return (target * seen).transpose(0, 1).flatten(1).sum(1).tolist()
    return target[seen].long().bincount(minlength=2).tolist()
