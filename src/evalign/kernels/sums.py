"""From rows to soft sums, hard sums and a cross-entropy, differentiable.

The cross-entropy is that of logits + shift, with a factor for each class.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.kernels import KernelSettings, cpu, labels
from evalign.membership.checks import signed
from evalign.membership.rows import GivenRows


class KernelSums(NamedTuple):
    """The sums of a batch; those of the hard Confusion come only with a cross-entropy."""

    soft: Confusion
    hard: Confusion
    cross: Tensor


def kernel_sums(rows: GivenRows, settings: KernelSettings) -> KernelSums:
    """The sums of rows by the kernel of their device: of labels or one logit on a CPU alone."""
    of: Any = _SoftSums.apply(rows.logits, rows, settings)
    tp, predicted, cross, actual, hard_tp, hard_predicted, total, number = of
    many = rows.task == "multilabel"
    shared = actual, total, None, many, None if many else number
    soft, hard = Confusion(tp, predicted, *shared), Confusion(hard_tp, hard_predicted, *shared)
    return KernelSums(soft, hard, cross)


class _SoftSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, rows: GivenRows, settings: KernelSettings
    ) -> tuple[Tensor, ...]:
        # The temperature and the shift may be changed in place before the backward pass.
        shift = None if settings.shift is None else settings.shift.clone()
        ctx.settings = settings._replace(temperature=settings.temperature.clone(), shift=shift)
        ctx.task, ctx.ignore_index = rows.task, rows.ignore_index
        if logits.is_cuda:
            from evalign.kernels import fused  # imports Triton, which the CPU does not need

            flat, *of_rows = fused.soft_sums(rows, ctx.settings)
            sums, (cross, number) = flat[:-2].view(5, -1), flat[-2:]
            total = sums[2].sum()
        elif rows.indices:
            ctx.batch = _batch(rows)
            sums, cross, of_rows = cpu.forward(*ctx.batch, settings)
            total, number = sums[2].sum(), (ctx.batch[2] > 0).sum(dtype=torch.float64)
        else:
            sums, total, number, cross, *of_rows = labels.forward(rows, settings)
        ctx.save_for_backward(logits, rows.target, rows.weight, *of_rows)
        tp, predicted, *fixed = sums.unbind()
        ctx.mark_non_differentiable(*fixed, total, number)
        return tp, predicted, cross, *fixed, total, number

    @staticmethod
    def backward(ctx: Any, *of: Tensor) -> tuple[Tensor | None, ...]:
        of_tp, of_predicted, of_cross, *_ = of
        logits, target, weight, *of_rows = ctx.saved_tensors
        settings: KernelSettings = ctx.settings
        rows = GivenRows(ctx.task, logits, target, weight, ctx.ignore_index)
        refuse_second_derivative()
        if logits.is_cuda:
            from evalign.kernels import fused

            of_sums = torch.cat([of_tp, of_predicted, of_cross.expand(2)])
            return fused.gradient_of_sums(rows, settings, of_rows, of_sums), None, None
        slopes = of_tp, of_predicted, of_cross.item()
        if not rows.indices:
            return labels.backward(rows, settings, of_rows[0], *slopes), None, None
        batch: tuple[Tensor, Tensor, Tensor] = ctx.batch
        gradient = cpu.backward(*batch, settings, of_rows, *slopes)
        return gradient.view_as(logits), None, None


def _batch(rows: GivenRows) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (images, classes, positions), targets and weights (images, positions)."""
    logits, target = rows.logits.detach(), signed(rows.target)
    logits = logits.flatten(2) if logits.ndim > 2 else logits.unsqueeze(2)
    weight = target.new_empty(target.shape, dtype=torch.promote_types(logits.dtype, torch.float32))
    if torch.ne(target, rows.ignore_index, out=weight).amin() == 0:
        target = target.masked_fill(weight == 0, 0)
    if rows.weight is not None:
        weight = weight * rows.weight.to(weight.dtype)
    shape = len(logits), logits.shape[2]
    return logits, target.long().reshape(shape), weight.reshape(shape)


def refuse_second_derivative() -> None:
    """Refuse a gradient that is to be differentiated again."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "The kernels of MetricLoss and AlignedLoss have no second derivative. Use torch.func, "
            "or pass a sample_weight that requires a gradient: torch computes the loss then."
        )
