"""What formulas need beyond operators, for arrays of NumPy and tensors of PyTorch alike.

Both libraries share the operators, `where`, `log`, `stack`, `sum(-1)`, `clip` and most else under
one name: `library(x).log(x)`. Here stands the rest. Gradients flow where tensors are given.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from evalign.core import stairs

ZERO = 1e-30  # a denominator below counts as 0: its slope nears the largest float32

Weights = TypeVar("Weights", bound=Any)


def library(x: Any) -> Any:
    """The library of an array: `numpy`, or `torch` for a tensor."""
    if isinstance(x, (np.ndarray, np.generic)):  # a union would break the graph of torch.compile
        return np
    return stairs.torch_of("A tensor")


def is_numpy(x: Any) -> bool:
    return library(x) is np


def where(condition: Any, chosen: Any, other: Any) -> Any:
    """`where` of the condition's library. NumPy gives a number, not an array without dimensions."""
    if is_numpy(condition):
        return np.where(condition, chosen, other)[()]
    return library(condition).where(condition, chosen, other)


def safe_ratio(numerator: Any, denominator: Any, fill: float = 0.0) -> Any:
    """numerator / denominator, and `fill` where the denominator is below `ZERO`.

    It is replaced before the division: selecting only afterwards would leave 0/0 in the graph,
    whose gradient is NaN. NaN itself is not a zero and stays visible.
    """
    zero = denominator < ZERO
    return where(zero, fill, numerator / where(zero, 1.0, denominator))


def safe_sqrt(x: Any) -> Any:
    """√x, and 0 with gradient 0 where x is not positive (a difference may round below zero)."""
    zero = x <= 0
    return where(zero, 0.0, library(x).sqrt(where(zero, 1.0, x)))


def part_of(whole: Any, part: Any) -> Any:
    """Clamp the value of `part` to [0, whole], and keep its gradient.

    A part computed as a difference of large sums may be nothing but rounding error.
    """
    within = library(part).minimum(part.clip(0), whole)  # NaN stays visible
    if is_numpy(part):
        return within
    return within.detach() + (part - part.detach())


def detached(x: Any) -> Any:
    """The values alone, through which no gradient flows."""
    return x if is_numpy(x) else x.detach()


def sum_dtype(like: Any) -> Any:
    """The dtype of sums: float64, which holds every count exactly, or float32 on MPS."""
    xp = library(like)
    return xp.float32 if xp is not np and like.device.type == "mps" else xp.float64


def cast(x: Any, dtype: Any) -> Any:
    """The array in another dtype."""
    return x.astype(dtype, copy=False) if is_numpy(x) else x.to(dtype)


def sum_by(index: Any, values: Any, size: int) -> Any:
    """Sums (size,) of the values (N,) of each index (N,)."""
    if is_numpy(values):
        return np.bincount(index, values, size).astype(np.float64, copy=False)  # of none: integers
    return values.new_zeros(size).index_add(0, index, values)


def with_mean_one(weight: Weights) -> Weights:
    """Scale weights so that the nonzero ones have mean 1.

    Examples:
        >>> with_mean_one(np.array([0.0, 1e308, 1.5e308]))
        array([0. , 0.8, 1.2])
    """
    if not weight.any():
        return weight
    weight = weight / weight.max()  # their sum might overflow
    return weight / weight[weight > 0].mean()


_on_devices: dict[tuple[Any, ...], Any] = {}


def constant(values: Sequence[Any], like: Any, *, dtype: Any = None) -> Any:
    """A constant array in the library and dtype of `like`, and on its device.

    There it is cached, because copying to a device synchronises.
    """
    xp = library(like)
    dtype = like.dtype if dtype is None else getattr(xp, dtype)
    if xp is np:
        return np.array(values, dtype=dtype)
    device = like.device
    if xp.compiler.is_compiling() or device.type in ("cpu", "meta"):
        return xp.tensor(values, dtype=dtype, device=device)
    key = (values, dtype, device)
    if key in _on_devices:
        return _on_devices[key]
    with xp.inference_mode(False):  # else the copy could never take part in training
        made = xp.tensor(values, dtype=dtype, device=device)
    functorch = xp._C._functorch
    if not functorch.is_functorch_wrapped_tensor(made):  # one of torch.func must not outlive it
        _on_devices[key] = made
    return made
