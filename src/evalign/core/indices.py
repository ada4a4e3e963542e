"""Predicted and true labels of exclusive classes, as indices."""

import math

import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.rows import Task, check_indices

MOST_COUNTS = 2**26  # half a gigabyte of counts: more must be asked for by num_classes


def class_indices(
    owner: str,
    predictions: Tensor,
    target: Tensor,
    num_classes: int | None,
    task: Task | None,
    ignore_index: int,
    *,
    matrix: bool,
) -> tuple[Tensor, Tensor, int]:
    """Check integer labels of one shape; give them flat, with 0 where ignored, and their number.

    Args:
        owner: whose arguments these are.
        predictions: labels.
        target: the true ones, signed.
        num_classes: None is the largest label plus one, at least 2.
        task: "binary" has two classes.
        ignore_index: the target of rows that do not count.
        matrix: whether a cell for each pair of classes is asked for.
    """
    of_scores = "Pass labels, e.g. logits.argmax(1) or (p > 0.5).long()."
    cures = {"predictions": (predictions, of_scores), "target": (target, "Use target.long().")}
    for name, (labels, cure) in cures.items():
        if labels.is_floating_point():
            raise TypeError(complaint(owner, name, "be integer labels", labels.dtype, cure))
    ignored = target == ignore_index
    predictions = predictions.long().masked_fill(ignored, 0).flatten()
    target = target.long().masked_fill(ignored, 0).flatten()
    source = "num_classes"
    if task == "binary":
        require(num_classes in (None, 2), owner, "num_classes", "be 2 if binary", num_classes)
        num_classes, source = 2, 'as task="binary"'
    if num_classes is None:
        source = "as num_classes is not given"
        largest = int(torch.cat([predictions, target, predictions.new_ones(1)]).amax())
        num_classes = min(largest + 1, math.isqrt(MOST_COUNTS) if matrix else MOST_COUNTS)
    check_indices(owner, "target", target, num_classes, source)
    check_indices(owner, "predictions", predictions, num_classes, source)
    return predictions, target, num_classes
