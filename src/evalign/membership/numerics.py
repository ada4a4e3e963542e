"""Numerical helpers for tensors: precision, devices, batching."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def upcast(x: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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


def at_once(function: Callable[..., Any], *inputs: Tensor, chunk: int | None = None) -> Any:
    """Apply a function to each row of the inputs: by `vmap`, in chunks, or else one by one."""
    try:
        return torch.vmap(function, chunk_size=chunk)(*inputs)
    except RuntimeError:  # a user's metric with a Python `if` on values
        found = [function(*each) for each in zip(*inputs, strict=True)]
        several = isinstance(found[0], tuple)
        return tuple(map(torch.stack, zip(*found, strict=True))) if several else torch.stack(found)
