"""The loss and the true metric of the validation rows."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.losses import WMWLoss


class Validation(NamedTuple):
    """The outcome of a validation: scalars, still on the device."""

    loss: Tensor
    metric: Tensor
    collapsed: Tensor  # whether all rows of several classes were predicted as one


@torch.no_grad()
def validate(
    predict: Callable[[Tensor], Tensor],
    loss: Callable[..., Tensor],
    metric: Metric,
    batches: Iterable[tuple[Tensor, ...]],
    batch_size: int,
) -> Validation:
    """Evaluate the rows as a whole: the metric of a set is not a mean over its parts.

    Only a loss over pairs, whose cost is quadratic, is a mean over batches of `batch_size`.
    """
    outputs = [(predict(x), *rest) for x, *rest in batches]
    logits, target, *weight = (torch.cat(part) for part in zip(*outputs, strict=True))
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    pairwise = any(isinstance(module, WMWLoss) for module in modules)
    parts = [(logits, target, *weight)]
    if pairwise:
        parts = zip(*(part.split(batch_size) for part in parts[0]), strict=True)
    values = torch.stack([loss_of(loss, *part) for part in parts])

    confusion = hard_confusion(
        logits,
        target,
        sample_weight=weight[0] if weight else None,
        ignore_index=getattr(loss, "ignore_index", -100),
        matrix=metric.needs_matrix,
    )
    return Validation(values.mean(), metric(confusion), _collapsed(confusion))


def loss_of(
    loss: Callable[..., Tensor], logits: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Call the loss, with weights only where there are some: torch's own losses take none."""
    return loss(logits, target) if weight is None else loss(logits, target, sample_weight=weight)


def hard_confusion(
    logits: Tensor,
    target: Tensor,
    *,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    matrix: bool = False,
) -> Confusion:
    """The confusion of the plain decision: the largest logit, or a single logit above 0."""
    classes = None
    if logits.ndim == 1 or logits.shape[1] == 1:
        classes, predicted, target = 2, (logits > 0).long().reshape(target.shape), target.long()
    elif target.shape == logits.shape:
        predicted = logits > 0  # multilabel
    else:
        classes, predicted, target = logits.shape[1], logits.argmax(1), target.long()
    return Confusion.from_predictions(
        predicted,
        target,
        num_classes=classes,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        matrix=matrix,
    )


def _collapsed(c: Confusion) -> Tensor:
    if c.multilabel:
        constant = ((c.predicted == 0) | (c.predicted == c.total)).all()
        return constant & ((c.actual > 0) & (c.actual < c.total)).any()
    return ((c.predicted > 0).sum() == 1) & ((c.actual > 0).sum() > 1)
