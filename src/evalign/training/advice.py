"""Warnings that help: what looks wrong with a run, and what to do about it.

All but the first depend on the history alone, so that a resumed run warns as an uninterrupted one.
"""

import math
from collections.abc import Iterator
from statistics import fmean, variance
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
DRIFT_EPOCHS = 12  # the second half against the first
DRIFT_ERRORS = 3.0  # standard errors
DRIFT_FALL = 0.05  # of the metric, relative


class TrainingWarning(UserWarning):
    """Training goes on, but something looks wrong; the text says what may help."""


def batch_advice(loss: object, target: Tensor, batch_size: int) -> str | None:
    """Advise if batches hold too few examples of a class for the metric of the loss.

    It concerns every `MetricLoss` in `loss` that sees one batch at a time and whose metric gives
    rare classes a weight of their own. EAST Theorem 5.8, applied to the rows of one class, says
    how many rows bring its recall within 0.5 with probability 0.95: fewer are noise.
    """
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    for module in modules:
        if not isinstance(module, MetricLoss) or getattr(module, "statistics", "batch") != "batch":
            continue
        share = _examples_per_row(target, module.ignore_index)
        matter = _classes_that_matter(module.metric, len(share))
        classes = [k for k in matter if k < len(share) and share[k] > 0]  # none without an example
        if not classes:
            continue
        rarest = min(classes, key=lambda k: share[k])
        expected = share[rarest] * min(batch_size, len(target))
        needed = rows_needed(0.5, max(2, len(share)))
        if expected < needed:
            enough = math.ceil(needed / share[rarest])
            larger = f"batches of {enough} rows" if enough <= len(target) else "larger batches"
            if batch_size >= len(target):
                larger = "more data"
            return (
                f"A batch of {batch_size} rows holds {expected:.2g} examples of the rarest "
                f"class on average, too few for the loss's metric: below {needed} its recall in a "
                f"batch is mostly noise. Use {larger}, or a loss that averages over batches, as "
                "AlignedLoss does."
            )
    return None


def advice(history: list[dict[str, Any]], *, greater_is_better: bool) -> Iterator[tuple[str, str]]:
    """Yield what looks wrong after the last record of `history`, as pairs (kind, text).

    Args:
        history: the records of `fit`.
        greater_is_better: whether the metric rises as the model improves.
    """
    last = history[-1]
    if not math.isfinite(last["validation_loss"]):
        cure = "Lower the learning rate, set clip_norm, or look for such values in the data."
        text = f"The validation loss is {last['validation_loss']}; training stops here."
        yield "diverged", f"{text} {cure}"
        return
    recent = history[-COLLAPSED_EPOCHS:]
    if len(recent) == COLLAPSED_EPOCHS and all(record["collapsed"] for record in recent):
        cure = (
            "A class may be too rare: give more rows of it. A loss without cross-entropy may "
            "collapse, too: use AlignedLoss, the recipe aligned."
        )
        text = f"All validation rows were predicted as one class for {COLLAPSED_EPOCHS} epochs."
        yield "collapsed", f"{text} {cure}"
    recent = history[-VANISHED_EPOCHS:]
    flat = all(r["gradient_norm"] < VANISHED_NORM and r["loss"] > 0.01 for r in recent)
    if len(recent) == VANISHED_EPOCHS and flat:
        cure = (
            "Use a higher temperature, a lower learning rate, standardised inputs, or AlignedLoss "
            "(the recipe aligned), which keeps a cross-entropy term."
        )
        text = f"The gradient has been below {VANISHED_NORM:g} for {VANISHED_EPOCHS} epochs"
        text = f"{text} although the loss is {last['loss']:.3g}."
        yield "vanished", f"{text} {cure}"
    recent = history[-DRIFT_EPOCHS:]
    same_scale = len({record["temperature"] for record in recent}) == 1
    if len(recent) == DRIFT_EPOCHS and same_scale:
        better = [-record["validation_loss"] for record in recent]
        sign = 1 if greater_is_better else -1
        score = [sign * record["validation_metric"] for record in recent]
        before, after = fmean(score[: DRIFT_EPOCHS // 2]), fmean(score[DRIFT_EPOCHS // 2 :])
        fallen = (before - after) > DRIFT_FALL * abs(before)
        if _rise(better) > DRIFT_ERRORS and _rise(score) < -DRIFT_ERRORS and fallen:
            cure = "Keep the epoch with the best metric, or lower the loss's temperature."
            text = (
                f"Over the last {DRIFT_EPOCHS} epochs the validation loss improved while the true "
                "metric got worse: the loss does not stand for the metric here."
            )
            yield "drift", f"{text} {cure}"


def new_advice(history: list[dict[str, Any]], *, greater_is_better: bool) -> dict[str, str]:
    """The advice, by kind, that the last record is the first to give."""
    said = {kind for past in history[:-1] for kind in past["warnings"]}
    found = dict(advice(history, greater_is_better=greater_is_better))
    return {kind: text for kind, text in found.items() if kind not in said}


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


def _classes_that_matter(metric: object, num_classes: int) -> list[int]:
    """The classes whose recall alone moves the metric, however rare they are."""
    match metric:
        case ClassMetric(average="binary"):
            return [1]
        case ClassMetric(average="macro", labels=tuple(labels)):
            return list(labels)
        case ClassMetric(average="macro"):
            return list(range(num_classes))
        case BalancedAccuracy() | GMean() | MatthewsCorrcoef() | CohenKappa():
            return list(range(num_classes))
    return []  # accuracy and the like, and users' functions, which tell nothing


def _rise(values: list[float]) -> float:
    """How far the second half lies above the first, in standard errors of the difference."""
    half = len(values) // 2
    before, after = values[:half], values[half:]
    error = math.sqrt((variance(before) + variance(after)) / half)
    return (fmean(after) - fmean(before)) / max(error, 1e-12)
