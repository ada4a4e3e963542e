"""The stairs between the floors: the only file of the ground floor that knows PyTorch.

The ground floor needs NumPy alone. Here it recognises the tensors that people hand to it, and here
stand the named calls upward, each of which imports its part of the upper floor when it is called.
Nothing here imports torch unless a tensor came or a network was asked for.
"""

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evalign.core.errors import NeedsTorch

if TYPE_CHECKING:
    from torch import Tensor, nn
    from typing_extensions import TypeIs

    Array = np.ndarray | Tensor


def needs_torch(name: str) -> ImportError:
    """The error of something that trains or ships networks, where PyTorch is not installed."""
    return NeedsTorch(f"{name} needs PyTorch: pip install 'evalign[torch]'")


def has_torch() -> bool:
    """Whether PyTorch is installed, without the seconds that importing it takes."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def no_attribute(module: str, name: str, upper: Collection[str] = ()) -> Exception:
    """The error of a module's `__getattr__`: of a name of the `upper` floor, that it needs PyTorch.

    `hasattr` is false after an AttributeError alone, and an import statement keeps the text of an
    ImportError alone. So the error depends on who asks: `_handle_fromlist` is Python's own function
    for "from module import name".
    """
    if name not in upper:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    error = needs_torch(name)
    asked_by_import = sys._getframe(2).f_code.co_name == "_handle_fromlist"
    return error if asked_by_import else AttributeError(str(error))


def torch_of(name: str) -> Any:
    """The module torch, which `name` needs."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise needs_torch(name) from error
    return torch


def is_tensor(value: object) -> "TypeIs[Tensor]":
    """Whether the value is a tensor of PyTorch: there are none before torch was imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def as_numpy(value: Any) -> Any:
    """A tensor as an array on the CPU, of half precision in float32; anything else unchanged."""
    if not is_tensor(value):
        return value
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()
    return tensor.numpy()


def in_form_of(array: np.ndarray, like: object) -> Any:
    """The array as a tensor on the device of `like`, if that is a tensor; else the array."""
    if not is_tensor(like):
        return array
    torch = torch_of("A tensor")
    # A copy, since PyTorch takes no array that is read-only or runs backwards.
    tensor = torch.from_numpy(np.array(array, order="C"))
    if like.device.type == "mps" and tensor.dtype == torch.float64:  # which MPS lacks
        tensor = tensor.float()
    return tensor.to(like.device)


def rule_module(rule: Any, probabilities: bool) -> "nn.Module":
    """A decision rule as a module from logits to labels."""
    torch_of("DecisionRule.as_module")
    from evalign.training.rule_module import RuleModule

    return RuleModule(rule, probabilities)


class Process(NamedTuple):
    """A process of torch.distributed: its rank, and how many there are."""

    rank: int
    size: int


def ranks() -> Process | None:
    """This process among those of torch.distributed; None without them."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    distributed = torch.distributed
    if not distributed.is_initialized():
        return None
    return Process(distributed.get_rank(), distributed.get_world_size())


def gathered(part: Any) -> Iterator[Any]:
    """The part of each process of torch.distributed in turn, of which one at a time is held."""
    distributed = torch_of("torch.distributed").distributed
    rank = distributed.get_rank()
    for source in range(distributed.get_world_size()):
        sent = [part if source == rank else None]
        distributed.broadcast_object_list(sent, src=source)
        yield sent[0]


def soft_confusion(logits: Any, target: Any, **settings: Any) -> Any:
    """The soft confusion of logits."""
    torch_of("Confusion.from_logits")
    from evalign.membership.soft_confusion import from_logits

    return from_logits(logits, target, **settings)


def label_tensor(owner: str, argument: str, labels: Any, cure: str) -> "Tensor":
    """Labels as a tensor, for a call in which one of the arguments is a tensor."""
    from evalign.membership.checks import check_kind, signed, tensor_of

    tensor = tensor_of(owner, argument, labels, cure)
    check_kind(owner, argument, tensor)
    return signed(tensor)


def as_tensors(c: Any) -> list[Any]:
    """The Confusion with tensors for arrays, in a list; empty before torch was imported."""
    torch = sys.modules.get("torch")
    return [] if torch is None else [c.map(torch.tensor)]


def slopes_by_autograd(metric: Any, c: Any) -> Any:
    """The slopes of a metric at a Confusion of tensors."""
    from evalign.membership.slopes import by_autograd

    return by_autograd(metric, c)


def aligned_classifier() -> Any:
    """The class `AlignedClassifier`, which trains a network."""
    torch_of("AlignedClassifier")
    from evalign.training.classifier import AlignedClassifier

    return AlignedClassifier


def bytes_of_tensors(tensors: dict[str, Any]) -> bytes:
    """Tensors by name, as a saved file holds them."""
    return _saved_tensors("A tensor").bytes_of(tensors)


def tensors_of_bytes(data: bytes, name: str) -> dict[str, Any]:
    """The inverse of `bytes_of_tensors`, for untrusted bytes, which `name` holds."""
    return _saved_tensors(name).tensors_of(data)


def state_of_checkpoint(path: Path, name: str) -> dict[str, Any]:
    """The plain values and tensors in a file that `torch.save` wrote, for `name`."""
    return _saved_tensors(name).state_of_checkpoint(path)


def register_networks(name: str) -> None:
    """Make networks known to the store, for `name`, which holds one."""
    torch_of(name)
    aligned_classifier()


def _saved_tensors(name: str) -> Any:
    try:  # safetensors comes with the extra too
        from evalign.training import saved_tensors
    except ModuleNotFoundError as error:
        raise needs_torch(name) from error
    return saved_tensors
