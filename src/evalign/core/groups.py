"""Confusions of several groups of rows, stacked into one.

The stack has one dimension more, the groups first: `tp` has the shape (groups, classes).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from evalign.core.confusion import Confusion


def stacked(parts: Sequence[Confusion]) -> Confusion:
    """Stack the Confusions of groups."""
    columns = zip(*(part.tensors() for part in parts), strict=True)
    return parts[0].map(lambda _: torch.stack(next(columns)))


def of_each(function: Callable[[Confusion], Tensor], groups: Confusion) -> Tensor:
    """Apply a function to the Confusion of each group, all at once."""

    def of_one(*tensors: Tensor) -> Tensor:
        parts = iter(tensors)
        return function(groups.map(lambda _: next(parts)))

    return torch.vmap(of_one)(*groups.tensors())
