"""Checks of the values of labels, weights and logits; `rows` checks their shapes."""

from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, native, refuse_masked, require


def signed(labels: Tensor) -> Tensor:
    """Unsigned labels as int64: compared with -100, torch would match a uint8 of 156."""
    unsigned = (torch.uint8, torch.uint16, torch.uint32)
    return labels.long() if labels.dtype in unsigned else labels


def check_kind(owner: str, argument: str, tensor: Tensor) -> None:
    """Check that a tensor is dense and of a dtype whose values can be compared."""
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.dtype == torch.uint64:
        allowed = "be dense, and neither complex nor uint64"
        raise ValueError(complaint(owner, argument, allowed, f"{tensor.dtype} in {tensor.layout}"))


def tensor_of(owner: str, argument: str, values: object, cure: str = "") -> Tensor:
    """A tensor as it came, or made from an array, a list or a data frame's column."""
    if isinstance(values, Tensor):
        return values
    refuse_masked(owner, argument, values)
    with suppress(TypeError, ValueError):  # a ragged list, numbers that torch lacks
        array = native(np.asarray(values))  # a copy: torch warns of read-only arrays
        if array.dtype.kind in "biuf":
            return torch.from_numpy(array)
    allowed = "be a tensor, an array or a list of numbers"
    raise TypeError(complaint(owner, argument, allowed, type(values).__name__, cure))


def label_tensor(owner: str, argument: str, labels: object) -> Tensor:
    """Labels, or 0 and 1, as a tensor whose values can be read; unsigned ones as int64."""
    tensor = tensor_of(owner, argument, labels, "Of text, evalign.score takes the labels.")
    check_kind(owner, argument, tensor)
    return signed(tensor)


def refuse(
    wrong: Tensor, values: Tensor, owner: str, argument: str, allowed: str, cure: str = ""
) -> None:
    """Name the first of the values that are wrong, in the cure too as {got}."""
    if bool(wrong.any()):
        got = values[wrong][0].item()
        raise ValueError(complaint(owner, argument, allowed, got, cure.format(got=got)))


def check_indices(
    owner: str,
    argument: str,
    labels: Tensor,
    num_classes: int,
    source: str = "the size of logits' dimension 1",
) -> None:
    """Check that class indices lie in 0 … num_classes − 1, a number that comes from `source`."""
    wrong = (labels < 0) | (labels >= num_classes)
    allowed = f"hold class indices from 0 to {num_classes - 1} ({source})"
    cure = f"Number the classes from 0 to {num_classes - 1}, or leave such rows out by "
    cure = "" if argument == "predictions" else cure + "ignore_index={got}."
    refuse(wrong, labels, owner, argument, allowed, cure)


def check_labels(owner: str, labels: Tensor, declared: bool) -> None:
    """Check that labels are 0 or 1, or probabilities if the task was declared."""
    if declared and labels.is_floating_point():
        allowed = "hold probabilities from 0 to 1"
        return refuse(~((labels >= 0) & (labels <= 1)), labels, owner, "target", allowed)
    cure = (
        "Leave out rows without a label by ignore_index. If these are probabilities, say so: "
        'task="multiclass" for a row of class probabilities per example, task="binary" or '
        '"multilabel" for one per label.'
    )
    wrong = (labels != 0) & (labels != 1)
    return refuse(wrong, labels, owner, "target", "hold 0 and 1 only", cure)


def check_sums(owner: str, target: Tensor, ignore_index: int) -> None:
    """Check that rows of class probabilities, in the last dimension, sum to 1."""
    sums = target.sum(-1)[~(target == ignore_index).any(-1)].float()
    wrong = (sums - 1).abs() > 0.01  # bfloat16 probabilities are off by up to 0.004 each
    refuse(wrong, sums, owner, "target", "hold rows of class probabilities that sum to 1")


def check_weights(owner: str, weight: Tensor) -> None:
    wrong = ~((weight >= 0) & weight.isfinite())
    allowed, cure = "be finite and not negative", "A weight of 0 leaves a row out."
    refuse(wrong, weight, owner, "sample_weight", allowed, cure)


def weights_of_rows(owner: str, sample_weight: object, rows: int) -> Tensor:
    """A checked weight for each row, in float64 on the CPU."""
    weight = tensor_of(owner, "sample_weight", sample_weight).detach().cpu().double()
    shape = tuple(weight.shape)
    require(shape == (rows,), owner, "sample_weight", f"have shape {(rows,)}", shape)
    check_weights(owner, weight)
    return weight
