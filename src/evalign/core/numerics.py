"""Numerical helpers: ratios and roots with finite gradients, precision, constants, batching."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

ZERO = 1e-30  # a denominator below counts as 0: its slope nears the largest float32

Weights = TypeVar("Weights", Tensor, np.ndarray[Any, Any])


def safe_ratio(numerator: Tensor, denominator: Tensor, fill: float = 0.0) -> Tensor:
    """numerator / denominator, and `fill` where the denominator is below `ZERO`.

    It is replaced before the division: selecting only afterwards would leave 0/0 in the graph,
    whose gradient is NaN. NaN itself is not a zero and stays visible.
    """
    zero = denominator < ZERO
    return (numerator / denominator.masked_fill(zero, 1)).masked_fill(zero, fill)


def part_of(whole: Tensor, part: Tensor) -> Tensor:
    """Clamp the value of `part` to [0, whole], and keep its gradient.

    A part computed as a difference of large sums may be nothing but rounding error.
    """
    within = torch.minimum(part.clamp(min=0), whole)  # NaN stays visible
    return within.detach() + (part - part.detach())


def with_mean_one(weight: Weights) -> Weights:
    """Scale weights so that the nonzero ones have mean 1.

    Examples:
        >>> with_mean_one(torch.tensor([0.0, 1e38, 3e38]))
        tensor([0.0000, 0.5000, 1.5000])
    """
    x: Any = weight  # all of this is the same for both kinds of array
    if not x.any():
        return weight
    x = x / x.max()  # their sum might overflow
    return x / x[x > 0].mean()


def safe_sqrt(x: Tensor) -> Tensor:
    """√x, and 0 with gradient 0 where x is not positive (a difference may round below zero)."""
    zero = x <= 0
    return torch.where(zero, 0, torch.where(zero, 1, x).sqrt())


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def sum_dtype(like: Tensor) -> torch.dtype:
    """The dtype of sums: float64, which holds every count exactly, or float32 on MPS."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def full_precision(like: Tensor) -> AbstractContextManager:
    """Turn autocast off: it would compute products of confusion matrices in half precision."""
    # Meta tensors have no autocast. (Asking torch.amp which devices do breaks the compiled graph.)
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def beside(value: float | Tensor, like: Tensor) -> Tensor:
    """A number or tensor with the dtype and device of `like`, without a copy that synchronises."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def moved(buffer: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """A buffer on the device that `fn` (of `nn.Module._apply`) takes it to, with all its digits.

    A device without float64 holds it in float32.
    """
    there = fn(buffer.float())
    if buffer.is_meta:  # it has no value to keep, nor has the result of to_empty
        return there.to(buffer.dtype)
    return there if there.device.type == "mps" else buffer.to(there.device)


_on_devices: dict[tuple[Sequence, torch.dtype, torch.device], Tensor] = {}


def constant(values: Sequence, like: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """A constant tensor on the device of `like`, cached there, because copying synchronises."""
    dtype, device = like.dtype if dtype is None else dtype, like.device
    if torch.compiler.is_compiling() or device.type in ("cpu", "meta"):
        return torch.tensor(values, dtype=dtype, device=device)
    key = values, dtype, device
    if key in _on_devices:
        return _on_devices[key]
    with torch.inference_mode(False):  # else the copy could never take part in training
        made = torch.tensor(values, dtype=dtype, device=device)
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    if not functorch.is_functorch_wrapped_tensor(made):  # one of torch.func must not outlive it
        _on_devices[key] = made
    return made


def at_once(function: Callable[..., Any], *inputs: Tensor, chunk: int | None = None) -> Any:
    """Apply a function to each row of the inputs: by `vmap`, in chunks, or else one by one."""
    try:
        return torch.vmap(function, chunk_size=chunk)(*inputs)
    except RuntimeError:  # a user's metric with a Python `if` on values
        found = [function(*each) for each in zip(*inputs, strict=True)]
        several = isinstance(found[0], tuple)
        return tuple(map(torch.stack, zip(*found, strict=True))) if several else torch.stack(found)
