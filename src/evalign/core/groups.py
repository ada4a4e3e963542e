"""Groups of rows, and the Confusion of each.

The Confusions of all groups are one with a dimension more, the groups first: `tp` has the shape
(groups, classes). It is added, averaged and saved as any other.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from evalign.core.batch import Batch
from evalign.core.checks import complaint, require, values_readable
from evalign.core.confusion import Confusion
from evalign.core.numerics import sum_dtype
from evalign.core.rows import GivenRows, per_row

# Sums have a place for each of so many groups, whichever occur: shapes must not depend on values,
# and ranks that see different groups must add up alike.
MOST = 64


def as_groups(owner: str, groups: Tensor, rows: GivenRows, *, validate: bool) -> Tensor:
    """Check the number of the group of each row, or of each example, and give each row one."""
    allowed = f"be a tensor of integers from 0 to {MOST - 1}, the group of each row"
    cure = "Number those of all rows once: numpy.unique(groups, return_inverse=True)[1]."
    got = groups.dtype if isinstance(groups, Tensor) else type(groups).__name__
    if not isinstance(groups, Tensor) or groups.is_floating_point() or groups.is_complex():
        raise TypeError(complaint(owner, "groups", allowed, got, cure))
    groups = per_row(owner, "groups", groups, rows.shape).long()
    if values_readable(groups, validate=validate):
        wrong = groups[(groups < 0) | (groups >= MOST)]
        require(not len(wrong), owner, "groups", allowed, wrong[:1].tolist(), cure)
    return groups


def stacked(parts: Sequence[Confusion]) -> Confusion:
    """The Confusions of groups as one."""
    columns = zip(*(part.tensors() for part in parts), strict=True)
    return parts[0].map(lambda _: torch.stack(next(columns)))


def of_each(function: Callable[[Confusion], Tensor], groups: Confusion) -> Tensor:
    """A function of the Confusion of each group, at once."""

    def of_one(*tensors: Tensor) -> Tensor:
        parts = iter(tensors)
        return function(groups.map(lambda _: next(parts)))

    return torch.vmap(of_one)(*groups.tensors())


def confusion_by_group(batch: Batch, soft: Tensor, *, matrix: bool = False) -> Confusion:
    """`Confusion.from_membership` of the rows of each of `MOST` groups; 0 for one without rows."""
    assert batch.groups is not None
    group, dtype = batch.groups, sum_dtype(soft)

    def summed(rows: Tensor) -> Tensor:
        index = group.view(-1, *[1] * (rows.ndim - 1)).expand_as(rows)
        return rows.new_zeros(MOST, *rows.shape[1:], dtype=dtype).scatter_add(
            0, index, rows.to(dtype)
        )

    if batch.task == "multilabel":
        target, weight = batch.target, batch.weight
    else:
        target, weight = batch.target_probabilities(), batch.weight.unsqueeze(1)
    if batch.task == "binary":
        soft = torch.stack([1 - soft, soft], -1)
    soft, actual = weight * soft, summed(weight * target)
    sums = Confusion(summed(target * soft), summed(soft), actual, actual.sum(1))
    if batch.task == "multilabel":
        return replace(sums, total=summed(weight), multilabel=True)
    full = summed(target.unsqueeze(2) * soft.unsqueeze(1)) if matrix else None
    return replace(sums, full=full, rows=summed(batch.weight > 0))
