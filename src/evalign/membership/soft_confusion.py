"""From logits or memberships to a soft Confusion."""

from typing import Any

import torch
from torch import Tensor

from evalign.core.arrays import sum_dtype
from evalign.core.confusion import Confusion
from evalign.core.task import Task
from evalign.membership import soft_sets
from evalign.membership.batch import Batch, as_batch
from evalign.membership.checks import thresholds_tensor
from evalign.membership.numerics import full_precision


def from_logits(
    logits: Tensor,
    target: Tensor,
    *,
    task: Task | None = None,
    temperature: float | Tensor = 0.2,
    heaviside: soft_sets.Heaviside = "linear",
    threshold: float | Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    matrix: bool = False,
    class_dim: int | None = None,
) -> Confusion:
    """`Confusion.from_logits`; shapes and tasks as in `membership.rows`."""
    owner = "Confusion.from_logits"
    soft_sets.check_step(owner, heaviside, temperature)
    if threshold is not None:
        threshold = thresholds_tensor(owner, "threshold", threshold)
    with full_precision(logits):
        batch = as_batch(
            owner,
            logits,
            target,
            sample_weight=sample_weight,
            task=task,
            ignore_index=ignore_index,
            class_dim=class_dim,
        )
        soft = soft_sets.of_batch(
            owner, batch, temperature=temperature, heaviside=heaviside, threshold=threshold
        )
        return summed(batch, soft, matrix=matrix)


def summed(batch: Batch, soft: Tensor, *, matrix: bool = False) -> Confusion:
    """Sum memberships into the matrix (EAST Definition 5.5): row r adds w_r·t_r ⊗ soft_r.

    `soft` is in the shape of the batch's logits: for a binary problem, the positive class.
    """
    dtype: Any = sum_dtype(soft)
    if batch.task == "multilabel":
        target, weight = batch.target, batch.weight
        return Confusion(
            tp=(weight * target * soft).sum(0, dtype=dtype),
            predicted=(weight * soft).sum(0, dtype=dtype),
            actual=(weight * target).sum(0, dtype=dtype),
            total=weight.sum(0, dtype=dtype),
            multilabel=True,
        )
    if batch.task == "binary":
        soft = torch.stack([1 - soft, soft], -1)
    soft = batch.weight.unsqueeze(1) * soft
    if batch.task == "multiclass" and batch.target.ndim == 1:
        of_target = soft.gather(1, batch.target.unsqueeze(1)).squeeze(1)
        tp = _sum_by_class(of_target, batch)
        actual = _sum_by_class(batch.weight, batch)
        full = _sum_by_class(soft, batch) if matrix else None
    else:
        target = batch.target_probabilities()
        tp = (target * soft).sum(0, dtype=dtype)
        actual = (target * batch.weight.unsqueeze(1)).sum(0, dtype=dtype)
        full = target.T.to(dtype) @ soft.to(dtype) if matrix else None
    return Confusion(
        tp=tp,
        predicted=soft.sum(0, dtype=dtype),
        actual=actual,
        # The sum of `actual`, so that a batch of one class has exactly 0 negatives.
        total=actual.sum(),
        full=full,
        rows=(batch.weight > 0).sum(dtype=dtype),
    )


def _sum_by_class(rows: Tensor, batch: Batch) -> Tensor:
    """Sum the rows of each true class."""
    rows = rows.to(sum_dtype(rows))
    zeros = rows.new_zeros(batch.num_classes, *rows.shape[1:])
    # `index_add` would be simpler, but `vmap` takes it member by member.
    index = batch.target.view(-1, *[1] * (rows.ndim - 1)).expand_as(rows)
    return zeros.scatter_add(0, index, rows)
