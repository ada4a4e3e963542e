"""Shuffled batches of tensors, and the generators that decide their order."""

from collections.abc import Iterator

import torch
from torch import Tensor

from evalign.core.checks import require

Rows = tuple[Tensor, ...]  # (X, y) or (X, y, sample_weight)


def shuffled(rows: Rows, batches: int, order: torch.Generator) -> Iterator[Rows]:
    """Yield the batches of an epoch in random order. Their sizes differ by one row at most."""
    places = torch.randperm(len(rows[0]), generator=order, device=order.device)
    for index in places.tensor_split(batches):
        yield tuple(part.index_select(0, index) for part in rows)


def generators(device: torch.device) -> dict[str, torch.Generator]:
    """Every source of randomness: the order of the rows, and dropout."""
    sources = {"order": torch.Generator(device), "cpu": torch.default_generator}
    if device.type == "cuda":
        sources["cuda"] = torch.cuda.default_generators[device.index]
    return sources


def check_rows(name: str, rows: Rows) -> Rows:
    """Check the tensors of the argument `name` of `fit`."""
    tensors = len(rows) in (2, 3) and all(isinstance(part, Tensor) for part in rows)
    allowed, cure = "come with y, as tensors", "Use torch.as_tensor(...)."
    got = [type(part).__name__ for part in rows]
    require(tensors, "fit", name, allowed, got, cure)
    lengths = [len(part) for part in rows]
    same = len(set(lengths)) == 1 and lengths[0] > 0
    require(same, "fit", name, "have rows, and a target for each", lengths)
    return tuple(rows)
