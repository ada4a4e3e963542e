"""Batches of tensors or of a DataLoader, and the generators that decide their order."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from evalign.core.checks import require

Data = tuple[Tensor, ...] | DataLoader  # (X, y) or (X, y, sample_weight), or a loader of these


def shuffled(
    data: Data, batches: int, order: torch.Generator, device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the batches of an epoch in random order. From tensors, sizes differ by one row at most.

    A loader shuffles by itself.
    """
    if isinstance(data, DataLoader):
        yield from in_order(data, 0, device)
    else:
        rows = torch.randperm(len(data[0]), generator=order, device=device)
        for index in rows.tensor_split(batches):
            yield tuple(part.index_select(0, index) for part in data)


def in_order(data: Data, size: int, device: torch.device) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of all rows in order."""
    if isinstance(data, DataLoader):
        for batch in data:
            yield tuple(part.to(device, non_blocking=True) for part in batch)
    else:
        yield from zip(*(part.split(size) for part in data), strict=True)


def generators(data: Data, device: torch.device) -> dict[str, torch.Generator]:
    """Every source of randomness: the order of the rows, dropout, and a loader's own."""
    sources = {"order": torch.Generator(device), "cpu": torch.default_generator}
    if device.type == "cuda":
        sources["cuda"] = torch.cuda.default_generators[device.index]
    if isinstance(data, DataLoader) and data.generator is not None:
        sources["loader"] = data.generator
    return sources


def check_data(name: str, data: Any) -> Data:
    """Check the data of the argument `name` of `fit`."""
    if isinstance(data, DataLoader):
        return data
    tensors = isinstance(data, tuple | list) and all(isinstance(part, Tensor) for part in data)
    allowed, cure = "come with y, as tensors, or be a DataLoader", "Use torch.as_tensor(...)."
    got = [type(part).__name__ for part in data] if isinstance(data, tuple | list) else "no y"
    require(tensors and len(data) in (2, 3), "fit", name, allowed, got, cure)
    lengths = [len(part) for part in data]
    same = len(set(lengths)) == 1 and lengths[0] > 0
    require(same, "fit", name, "have rows, and a target for each", lengths)
    return tuple(data)
