"""Describe the settings of a loss, a metric or a network, so that a resumed run can be recognised.

The state of a module, which its state dict holds, is left out: a checkpoint restores it.
"""

import hashlib
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss

Plain = None | bool | int | float | str

MODULE = vars(nn.Module()).keys()  # the attributes that every module has


def configuration(name: str, thing: object) -> dict[str, Plain]:
    """Settings by dotted name: of a module the type and attributes of every part, else the repr.

    Examples:
        >>> found = configuration("network", nn.Sequential(nn.Flatten(), nn.Dropout(0.2)))
        >>> found["network.1"], found["network.1.p"]
        ('torch.nn.modules.dropout.Dropout', 0.2)
    """
    if not isinstance(thing, nn.Module):
        return {name: _description(thing)}
    found: dict[str, Plain] = {}
    for path, module in thing.named_modules():
        own = f"{name}.{path}" if path else name
        found[own] = f"{type(module).__module__}.{type(module).__qualname__}"
        for key, value in _settings(module).items():
            found[f"{own}.{key}"] = _description(value)
    return found


def _settings(module: nn.Module) -> dict[str, Any]:
    """Public attributes, and buffers outside the state dict. Torch's losses never change theirs."""
    attributes = {key: value for key, value in vars(module).items() if key not in MODULE}
    fixed = module._buffers if isinstance(module, _Loss) else module._non_persistent_buffers_set
    buffers = {key: module._buffers[key] for key in fixed}
    return {key: value for key, value in (attributes | buffers).items() if not key.startswith("_")}


def _description(value: Any) -> Plain:
    """The value itself if it is plain, else a text that is the same in every process."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value else "nan"  # JSON has no NaN, which equals nothing
        case set() | frozenset():
            return str(sorted(map(repr, value)))  # strings come in another order in every process
        case np.ndarray() if value.dtype.kind in "biuf":
            return _description(torch.as_tensor(value.copy()))
        case Tensor() if value.numel() <= 64:  # few enough to read
            return str(value.to_dense().tolist())
        case Tensor():
            return f"{tuple(value.shape)}, checksum {checksum(value)}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def checksum(*tensors: Tensor) -> str:
    """A checksum of the bytes of tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        dense = tensor.detach().cpu().to_dense().contiguous()
        digest.update(dense.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
