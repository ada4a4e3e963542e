"""A loss of the user's own: found by its name, and tried before it trains anything."""

from importlib import import_module
from typing import Any

import torch
from torch import nn

from evalign_study.refusals import nearest, require


def own_loss(name: str, task: Any) -> nn.Module:
    """Make the loss of "package.module:factory", where factory(task) gives a Module.

    Args:
        name: where the factory is.
        task: what it is given; `task.counts` are the training rows of each class.
    """
    module_name, _, factory_name = name.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ValueError(f"--loss must be package.module:factory. Got {name!r}: {error}.") from None
    known = [one for one in vars(module) if not one.startswith("_")]
    allowed = f"be in {module_name}"
    cure = nearest(factory_name, known)
    require(factory_name in known, "run", "the factory of --loss", allowed, factory_name, cure)
    loss = getattr(module, factory_name)(task)
    kind = type(loss).__name__
    require(isinstance(loss, nn.Module), "run", "--loss", "give a torch.nn.Module", kind)
    classes = len(task.counts)
    logits = torch.linspace(-1, 1, 4 * classes * classes).view(-1, classes).requires_grad_()
    value = loss(logits, torch.arange(len(logits)) % classes)
    scalar = isinstance(value, torch.Tensor) and value.ndim == 0
    got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    require(scalar, "run", "the value of --loss", "be a scalar tensor", got)
    require(bool(value.isfinite()), "run", "the value of --loss", "be finite", f"{value.item()}")
    require(value.requires_grad, "run", "the value of --loss", "have a gradient", "none")
    return loss
