"""Predicted and true labels of exclusive classes, as indices."""

import math

import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.input_warnings import warn_of_columns
from evalign.core.rows import Task, check_indices, mask_of_255

LARGEST = 2**26  # numbers, half a gigabyte, that the labels alone may ask for


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
    columns = target.shape[1] if target.ndim == 2 else 1
    predictions = predictions.long().masked_fill(ignored, 0).flatten()
    target = target.long().masked_fill(ignored, 0).flatten()
    source = "num_classes"
    if task == "binary":
        require(num_classes in (None, 2), owner, "num_classes", "be 2 if binary", num_classes)
        num_classes, source = 2, 'as task="binary"'
    if num_classes is None:
        source = "as num_classes is not given"
        largest = int(torch.cat([predictions, target, predictions.new_ones(1)]).amax())
        if largest == 1 and columns > 1 and task is None:
            warn_of_columns(owner, columns)
        if largest == 255 and mask_of_255(target) and int(predictions.amax()) <= 1:
            largest = 1  # the check below refuses the mask
        num_classes = min(largest + 1, math.isqrt(LARGEST) if matrix else LARGEST)
    check_indices(owner, "predictions", predictions, num_classes, source)
    check_indices(owner, "target", target, num_classes, source)
    return predictions, target, num_classes
