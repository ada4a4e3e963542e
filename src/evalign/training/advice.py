"""Warnings about a run that goes wrong, each with a cure.

All but `batch_advice` depend on the history alone: a resumed run warns like an uninterrupted one.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.metrics import (
    BalancedAccuracy,
    ClassMetric,
    CohenKappa,
    GMean,
    MatthewsCorrcoef,
)
from evalign.core.theory import rows_needed
from evalign.losses import MetricLoss

COLLAPSED_EPOCHS = 5
VANISHED_EPOCHS = 3
VANISHED_NORM = 1e-7


class TrainingWarning(UserWarning):
    """Training goes on, but something looks wrong; the text says what may help."""


def batch_advice(loss: object, target: Tensor, batch_size: int) -> str | None:
    """Advise if batches hold too few examples of a class for the metric of the loss.

    This concerns every `MetricLoss` in `loss` that sees one batch at a time and whose metric gives
    rare classes a weight of their own. EAST Theorem 5.8, applied to the rows of one class, says
    how many rows bring its recall within 0.5 with probability 0.95: fewer are noise.
    """
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    for module in modules:
        if not isinstance(module, MetricLoss) or getattr(module, "statistics", "batch") != "batch":
            continue
        share = _examples_per_row(target, module.ignore_index)
        present = [s for s in _of_classes_that_matter(module.metric, share) if s > 0]
        rarest = min(present, default=math.inf)
        expected = rarest * min(batch_size, len(target))
        needed = rows_needed(0.5, max(2, len(share)))
        if expected < needed:
            return (
                f"A batch of {batch_size} rows holds {expected:.2g} examples of the rarest "
                f"class on average, too few for the loss's metric: below {needed} its recall in a "
                f"batch is mostly noise. Use batches of {math.ceil(needed / rarest)} rows, or a "
                "loss that averages over batches, as AlignedLoss does."
            )
    return None


def advice(history: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield warnings after the last record of `history`, as pairs (kind, text)."""
    last = history[-1]
    if not math.isfinite(last["validation_loss"]):
        yield (
            "diverged",
            f"The validation loss is {last['validation_loss']}; training stops here. Lower the "
            "learning rate, set clip_norm, or look for such values in the data.",
        )
        return
    recent = history[-COLLAPSED_EPOCHS:]
    if len(recent) == COLLAPSED_EPOCHS and all(record["collapsed"] for record in recent):
        yield (
            "collapsed",
            f"All validation rows were predicted as one class for {COLLAPSED_EPOCHS} epochs. A "
            "class may be too rare: give more rows of it. A loss without cross-entropy may "
            "collapse, too: use AlignedLoss, the recipe aligned.",
        )
    recent = history[-VANISHED_EPOCHS:]
    flat = all(r["gradient_norm"] < VANISHED_NORM and r["loss"] > 0.01 for r in recent)
    if len(recent) == VANISHED_EPOCHS and flat:
        yield (
            "vanished",
            f"The gradient has been below {VANISHED_NORM:g} for {VANISHED_EPOCHS} epochs although "
            f"the loss is {last['loss']:.3g}. Use a higher temperature, a lower learning rate, "
            "standardised inputs, or AlignedLoss (the recipe aligned), which keeps a cross-entropy "
            "term.",
        )


def new_advice(history: list[dict[str, Any]]) -> dict[str, str]:
    """The warnings, by kind, that the last record is the first to give."""
    said = {kind for past in history[:-1] for kind in past["warnings"]}
    return {kind: text for kind, text in advice(history) if kind not in said}


def _examples_per_row(target: Tensor, ignore_index: int) -> list[float]:
    """The mean number of examples of each class, or of each label, in a row."""
    seen = target != ignore_index
    if target.ndim > 1 and (target.is_floating_point() or target.dtype == torch.bool):
        counts = (target * seen).transpose(0, 1).flatten(1).sum(1)
        if len(counts) == 1:  # binary, as a column
            counts = torch.stack([seen.sum() - counts[0], counts[0]])
    else:
        counts = target[seen].round().long() if target.is_floating_point() else target[seen].long()
        counts = counts.bincount(minlength=2)
    return (counts.double() / len(target)).tolist()


def _of_classes_that_matter(metric: object, share: list[float]) -> list[float]:
    """The shares of the classes whose recall alone moves the metric, however rare they are."""
    match metric:
        case ClassMetric(average="binary"):
            return share[1:2]
        case ClassMetric(average="macro", labels=tuple(labels)):
            return [share[k] for k in labels if k < len(share)]
        case ClassMetric(average="macro"):
            return share
        case BalancedAccuracy() | GMean() | MatthewsCorrcoef() | CohenKappa():
            return share
    return []  # accuracy and the like, and functions of a Confusion, of which nothing is known
