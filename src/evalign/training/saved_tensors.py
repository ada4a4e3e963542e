"""Tensors in saved files: as safetensors, and in the checkpoints that torch writes."""

import math
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from evalign.store.files import nothing


def bytes_of(tensors: dict[str, Tensor]) -> bytes:
    """Tensors by name, each with a memory of its own, as safetensors asks for."""
    own = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    return safetensors.torch.save(own)


def tensors_of(data: bytes) -> dict[str, Tensor]:
    """The tensors in untrusted bytes, on the CPU."""
    tensors = safetensors.torch.load(data)
    for name, tensor in tensors.items():  # an empty one may claim a huge dimension
        if math.prod(max(size, 1) for size in tensor.shape) > len(data):
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}")
    return tensors


def state_of_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint that `torch.save` wrote holds, without running code from there."""
    try:
        return torch.load(path, "cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        why = "more than weights and plain values: open it with load_from_checkpoint"
        raise nothing(path, why) from error
