"""The stairs between the floors: the only file of the ground floor that knows PyTorch.

The ground floor needs NumPy alone. Here it recognises the tensors that people hand to it, and here
stand the named calls upward, each of which imports its part of the upper floor when it is called.
Nothing here imports torch unless a tensor came or a network was asked for.
"""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn
    from typing_extensions import TypeIs

    Array = np.ndarray | Tensor


def needs_torch(name: str) -> ImportError:
    """The error of something that trains or ships networks, where PyTorch is not installed."""
    return ImportError(f"{name} needs PyTorch: pip install 'evalign[torch]'")


def has_torch() -> bool:
    """Whether PyTorch is installed, without the seconds that importing it takes."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


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


def soft_confusion(logits: Any, target: Any, **settings: Any) -> Any:
    """The soft confusion of logits."""
    torch_of("Confusion.from_logits")
    from evalign.membership.soft_confusion import from_logits

    return from_logits(logits, target, **settings)


def label_tensor(owner: str, argument: str, labels: Any, cure: str) -> "Tensor":
    """Labels as a tensor, where others beside them came as one."""
    from evalign.membership.checks import check_kind, signed, tensor_of

    tensor = tensor_of(owner, argument, labels, cure)
    check_kind(owner, argument, tensor)
    return signed(tensor)


def as_tensors(c: Any) -> list[Any]:
    """A Confusion of tensors in place of arrays, if torch was imported: nobody else has use."""
    torch = sys.modules.get("torch")
    return [] if torch is None else [c.map(torch.tensor)]


def slopes_by_autograd(metric: Any, c: Any) -> Any:
    """The slopes of a metric at a Confusion of tensors."""
    from evalign.membership.slopes import by_autograd

    return by_autograd(metric, c)
