"""Error messages, checks of single arguments, and when values may be read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch
from torch import Tensor


def complaint(owner: str, argument: str, allowed: str, got: object, cure: str = "") -> str:
    """The text of an error: whose argument it is, what is allowed, what was given, and the cure."""
    return f"{argument} of {owner} must {allowed}. Got {got}.{' ' + cure if cure else ''}"


def traced() -> bool:
    """Whether `torch.compile` or `torch.func` traces this call, so that tensors are stand-ins."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return torch.compiler.is_compiling() or functorch.peek_interpreter_stack() is not None


_everywhere = ContextVar("checked", default=False)


@contextmanager
def checked() -> Iterator[None]:
    """Check values also where reading them synchronises the device, and that logits are finite."""
    before = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(before)


def within_checked() -> bool:
    """Whether the call is made within `checked`."""
    return _everywhere.get()


def values_readable(tensor: Tensor) -> bool:
    """Whether values may be read: on the CPU, where reading is free, or within `checked`."""
    return not traced() and not tensor.is_meta and (tensor.device.type == "cpu" or within_checked())


def require(ok: bool, owner: str, argument: str, allowed: str, got: object, cure: str = "") -> None:
    """Raise the complaint as a ValueError unless `ok`."""
    if not ok:
        raise ValueError(complaint(owner, argument, allowed, got, cure))


def refuse_masked(owner: str, argument: str, values: object) -> None:
    """Refuse masked numpy cells, whose hidden values would be taken for data."""
    number = np.ma.count_masked(values) if isinstance(values, np.ma.MaskedArray) else 0
    cure = "Fill them, or leave these rows out."
    require(not number, owner, argument, "be without masked cells", f"{number} of them", cure)


def check_ignored(owner: str, ignore_index: int) -> None:
    """Check that `ignore_index` is not itself a label, where labels are 0 and 1."""
    allowed = "be neither 0 nor 1 for a float or multilabel target, which holds them"
    cure = "Mark what to leave out by another value, such as -100."
    require(ignore_index not in (0, 1), owner, "ignore_index", allowed, ignore_index, cure)


def check_temperature(owner: str, temperature: float | Tensor) -> None:
    """Check that a temperature lies in (0, 0.4], the domain of EAST eq. 4."""
    given = isinstance(temperature, Tensor)
    if given and not values_readable(temperature):
        return
    value = temperature if given else numbers(temperature)
    ok = value.numel() == 1 and 0 < value.item() <= 0.4 + 1e-7  # float32 holds 0.4 as 0.400000006
    got = f"{value.item():g}" if value.numel() == 1 else repr(temperature)
    cure = "0.4 is the softest step; small values approach a hard one."
    require(ok, owner, "temperature", "lie in (0, 0.4]", got, cure)


def thresholds_tensor(owner: str, argument: str, value: float | Sequence[float] | Tensor) -> Tensor:
    """One or several thresholds, each in (0, 1), as float64."""
    tensor = numbers(value)
    valid = tensor.ndim <= 1 and tensor.numel() > 0 and bool(((tensor > 0) & (tensor < 1)).all())
    require(valid, owner, argument, "be one or several numbers between 0 and 1", value)
    return tensor


def numbers(value: object) -> Tensor:
    """A float64 copy on the CPU; empty if the value does not hold numbers."""
    if isinstance(value, np.ndarray):  # torch takes neither steps backwards nor swapped bytes
        value = None if np.ma.is_masked(value) else native(value)
    try:
        return torch.as_tensor(value, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError):  # strings, ragged lists, 10**400
        return torch.zeros(0, dtype=torch.float64, device="cpu")


def native(array: np.ndarray) -> np.ndarray:
    """A copy that torch accepts: with positive strides, in native byte order."""
    return np.array(array, dtype=array.dtype.newbyteorder("="))
