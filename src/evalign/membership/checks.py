"""Checks of tensors, and when their values may be read."""

from collections.abc import Sequence

import torch
from torch import Tensor

from evalign.core.checks import complaint, numbers, require, within_checked
from evalign.core.values import array_of, refuse


def traced() -> bool:
    """Whether `torch.compile` or `torch.func` traces this call, so that tensors are stand-ins."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return torch.compiler.is_compiling() or functorch.peek_interpreter_stack() is not None


def values_readable(tensor: Tensor) -> bool:
    """Whether values may be read: on the CPU, where reading is free, or within `checked`."""
    return not traced() and not tensor.is_meta and (tensor.device.type == "cpu" or within_checked())


def check_temperature(owner: str, temperature: float | Tensor) -> None:
    """Check that a temperature lies in (0, 0.4], the domain of EAST eq. 4."""
    if isinstance(temperature, Tensor) and not values_readable(temperature):
        return
    value = temperature if isinstance(temperature, Tensor) else tensor_of_numbers(temperature)
    ok = value.numel() == 1 and 0 < value.item() <= 0.4 + 1e-7  # float32 holds 0.4 as 0.400000006
    got = f"{value.item():g}" if value.numel() == 1 else repr(temperature)
    cure = "0.4 is the softest step; small values approach a hard one."
    require(ok, owner, "temperature", "lie in (0, 0.4]", got, cure)


def thresholds_tensor(owner: str, argument: str, value: float | Sequence[float] | Tensor) -> Tensor:
    """One or several thresholds, each in (0, 1), as float64."""
    tensor = tensor_of_numbers(value)
    valid = tensor.ndim <= 1 and tensor.numel() > 0 and bool(((tensor > 0) & (tensor < 1)).all())
    require(valid, owner, argument, "be one or several numbers between 0 and 1", value)
    return tensor


def tensor_of_numbers(value: object) -> Tensor:
    """A float64 copy on the CPU; empty if the value does not hold numbers."""
    return torch.from_numpy(numbers(value))  # on the CPU, wherever tensors are made by default


def tensor_of(owner: str, argument: str, values: object, cure: str = "") -> Tensor:
    """A tensor as it came, or made from an array, a list or a data frame's column."""
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(array_of(owner, argument, values, cure).copy())


def check_kind(owner: str, argument: str, tensor: Tensor) -> None:
    """Check that a tensor is dense and of a dtype whose values can be compared."""
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.dtype == torch.uint64:
        allowed = "be dense, and neither complex nor uint64"
        raise ValueError(complaint(owner, argument, allowed, f"{tensor.dtype} in {tensor.layout}"))


def signed(labels: Tensor) -> Tensor:
    """Unsigned labels as int64: compared with -100, torch would match a uint8 of 156."""
    unsigned = (torch.uint8, torch.uint16, torch.uint32)
    return labels.long() if labels.dtype in unsigned else labels


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
