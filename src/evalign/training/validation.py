"""Validation: the loss and the true metric on held-out rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.core.task import Task
from evalign.losses import WMWLoss
from evalign.membership.checks import signed
from evalign.membership.rows import as_rows
from evalign.training.batches import Rows


class Validation(NamedTuple):
    """Results of a validation, as scalars on the device."""

    loss: Tensor
    metric: Tensor
    collapsed: Tensor  # whether rows of several classes were all predicted as one class


@torch.no_grad()
def validate(
    predict: Callable[[Tensor], Tensor],
    loss: Callable[..., Tensor],
    metric: Metric,
    rows: Rows,
    batch_size: int,
    score: Callable[..., Tensor] | None = None,
) -> Validation:
    """Evaluate all rows together, because a metric is not a mean over batches.

    Pairwise losses, whose cost is quadratic in the rows, are averaged over batches of `batch_size`.
    A `score` of (logits, target[, weight]) replaces the metric of the argmax labels.
    """
    X, target, *weight = rows
    logits = torch.cat([predict(x) for x in X.split(4 * batch_size)])
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    pairwise = any(isinstance(module, WMWLoss) for module in modules)
    parts = [(logits, target, *weight)]
    if pairwise:
        parts = zip(*(part.split(batch_size) for part in parts[0]), strict=True)
    values = torch.stack([loss_of(loss, *part) for part in parts])

    how = {"matrix": metric.needs_matrix, **reading(loss)}
    confusion = hard_confusion(logits, target, *weight, **how)
    found = metric(confusion) if score is None else score(logits, target, *weight)
    return Validation(values.mean(), found, _collapsed(confusion))


def loss_of(
    loss: Callable[..., Tensor], logits: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Call the loss, with weights only if there are any: torch's own losses take none."""
    return loss(logits, target, **({} if weight is None else {"sample_weight": weight}))


def reading(loss: Callable[..., Tensor]) -> dict[str, Any]:
    """The `task`, `ignore_index` and `class_dim` of the loss, so that evaluation reads rows alike.

    If the loss lacks an attribute, its parts are asked, as of a sum of two losses.
    """
    own = [*loss.modules()] if isinstance(loss, nn.Module) else []
    # One-hot rows and probabilities look multilabel, but cross-entropy has exclusive classes.
    exclusive = any(isinstance(part, nn.CrossEntropyLoss) for part in own)
    function = getattr(loss, "func", loss)  # inside a `functools.partial`
    task = "multiclass" if exclusive or function is F.cross_entropy else None
    found: dict[str, Any] = {"task": task, "ignore_index": -100, "class_dim": None}
    for name, usual in found.items():
        parts = own if getattr(loss, name, None) is None else [loss]
        values = {getattr(part, name, None) for part in parts} - {None}
        allowed, got = f"have one {name} in all its parts", ", ".join(sorted(map(str, values)))
        cure = f"Give the loss itself an attribute {name}, which evaluation then uses."
        require(len(values) <= 1, type(loss).__name__, "loss", allowed, got, cure)
        found[name] = next(iter(values), usual)
    return found


def hard_confusion(
    logits: Tensor,
    target: Tensor,
    sample_weight: Tensor | None = None,
    *,
    matrix: bool = False,
    **reading: Any,
) -> Confusion:
    """The Confusion of the argmax labels; for binary and multilabel tasks, of logits > 0.

    Soft targets count as their most probable class or label. The `reading` is that of a loss.
    """
    owner = "an evaluation"
    rows = as_rows(owner, logits, target, sample_weight=sample_weight, look=False, **reading)
    # On a GPU this synchronises, but so does `from_predictions` below.
    ok = not rows.target.isnan().any()
    require(ok, owner, "target", "hold labels, or probabilities from 0 to 1", "NaN")
    logits = rows.logits
    if rows.task == "multiclass":
        classes, predicted = logits.shape[1], logits.argmax(1)
    else:
        classes, predicted = 2 if rows.task == "binary" else None, logits > 0
    return Confusion.from_predictions(
        predicted.long(),
        hard_labels(signed(rows.target), rows.task, rows.ignore_index).long(),
        num_classes=classes,
        task=rows.task,
        sample_weight=rows.weight,
        ignore_index=rows.ignore_index,
        matrix=matrix,
    )


def hard_labels(
    target: Tensor, task: Task | None, ignore_index: int, class_dim: int | None = None
) -> Tensor:
    """Soft targets as their most probable class or label; without a `task`, as they are."""
    if task is None or not target.is_floating_point():
        return target
    ignored, labels = target == ignore_index, (target > 0.5).long()
    if task == "multiclass":
        dim = class_dim or 1
        labels, ignored = target.argmax(dim), ignored.any(dim)
    return labels.masked_fill(ignored, ignore_index)


def _collapsed(c: Confusion) -> Tensor:
    if c.multilabel:
        constant = ((c.predicted == 0) | (c.predicted == c.total)).all()
        return constant & ((c.actual > 0) & (c.actual < c.total)).any()
    return ((c.predicted > 0).sum() == 1) & ((c.actual > 0).sum() > 1)
