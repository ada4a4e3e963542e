"""Which way a call takes, and the way on a GPU, where the whole loss is one function.

| what a kernel computes            | for                                               |
| --------------------------------- | ------------------------------------------------- |
| the loss, forward and backward    | a GPU, and metrics in closed form                 |
| the sums of the Confusions        | the same for other metrics; a CPU                 |
| nothing: torch, as the reference  | everything else, such as graphs of a compiler     |
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evalign.aggregation import RunningConfusion
from evalign.kernels import DEVICES, LONGEST
from evalign.kernels.sums import refuse_second_derivative
from evalign.losses.offsets import FLAT, ODDS, PSEUDO_ROWS
from evalign.membership.checks import traced
from evalign.membership.rows import GivenRows

if TYPE_CHECKING:
    from evalign.losses.metric import MetricLoss

LARGE = 1024  # pixels of an image
_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def by_kernel(loss: "MetricLoss", rows: GivenRows, *, whole: bool) -> bool:
    """Whether a kernel computes the loss of these rows, the `whole` of it or its sums."""
    logits, target, weight = rows.logits, rows.target, rows.weight
    own = type(loss).__dict__.get("has_kernels", False)
    default = loss.heaviside == "linear" and loss.threshold is None
    if traced() or not (own and default and logits.numel()) or (whole and not logits.is_cuda):
        return False
    plain = type(logits) in (Tensor, nn.Parameter) and logits.dtype in _FLOATS
    here = logits.device.type in DEVICES and target.device == logits.device
    learned = loss.temperature.requires_grad or (weight is not None and weight.requires_grad)
    # One image at a time pays if it is large.
    large = not loss.per_image or rows.shape[1:].numel() >= LARGE
    fits = large and not (loss.per_image and rows.task == "multilabel")
    # Kernels count in 32 bits the places within an image, and up to eight numbers of every row.
    fits &= logits.numel() < 2**31 * len(logits) and target.numel() < 2**28
    fits &= not logits.is_cuda or rows.task == "binary" or logits.shape[1] <= LONGEST
    if not (plain and here and fits) or learned or loss.metric.needs_matrix:
        return False
    if whole:
        return _whole(loss, rows)
    if rows.task == "multiclass":
        return rows.indices and target.dtype in _INTEGERS
    # The kernel of labels divides nothing by zero, but 0·∞ is NaN there. (float64 is slow.)
    wide = torch.promote_types(logits.dtype, torch.float32)
    finite = not logits.is_cuda and math.isfinite(logits.detach().sum(dtype=wide))
    return finite and target.dtype in _INTEGERS | _FLOATS


def _whole(loss: "MetricLoss", rows: GivenRows) -> bool:
    form, labels = loss.closed_form, rows.task == "multilabel"
    smooth = getattr(loss, "label_smoothing", 0) or getattr(loss, "class_shares", None) is not None
    if form is None or smooth or loss.per_image or (labels and form.kind != "ratio"):
        return False
    two = rows.task == "binary" or (rows.task == "multiclass" and rows.logits.shape[1] == 2)
    if form.average == "binary" and not two:
        return False
    if rows.task == "multiclass":
        return rows.indices and rows.target.dtype in _INTEGERS
    return rows.target.dtype in _INTEGERS | _FLOATS


class WholeLoss(torch.autograd.Function):
    """The loss by kernels of a GPU; `cross` is that of `kernels.fused.sums`."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        rows: GivenRows,
        cross: Tensor | None,
        loss: "MetricLoss",
        learns: bool,
    ) -> Tensor:
        from evalign.kernels import fused  # imports Triton, which the CPU does not need

        form, t = loss.closed_form, loss.temperature
        assert form is not None  # `by_kernel` says so
        t = t if t.device == logits.device else t.to(logits.device)  # the loss was not moved there
        size = loss.over_ranks.size() if learns else 1
        weight = getattr(loss, "metric_weight", 1.0)
        with fused.current(logits.device):
            plan = fused.plan_of(rows, cross)
            partial, stats = fused.sums(plan, rows, t, cross)
            if size > 1:
                partial = loss.over_ranks.total(fused.total(plan, partial), plan.classes)
            state = _state(loss, plan.classes, rows) if learns else None
            value, slopes = fused.end(plan, t, cross, partial, form, state, size, weight)
        ctx.save_for_backward(logits, rows.target, rows.weight, stats, slopes)
        ctx.plan, ctx.task, ctx.ignore_index = plan, rows.task, rows.ignore_index
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        from evalign.kernels import fused

        refuse_second_derivative()
        logits, target, weight, stats, slopes = ctx.saved_tensors
        rows = GivenRows(ctx.task, logits, target, weight, ctx.ignore_index)
        with fused.current(logits.device):
            grad = fused.backward(ctx.plan, rows, stats, slopes, outer[0])
        return grad, None, None, None, None


def _state(loss: Any, classes: int, rows: GivenRows) -> Any:
    from evalign.kernels.fused import State

    running: RunningConfusion | None = loss.running
    if running is None:
        return None
    labels, follows = rows.task == "multilabel", hasattr(loss, "offsets")
    sums = running.sums_for(classes, rows.logits, multilabel=labels, hard=follows)
    if not follows:
        return State(running.seen, sums, running.momentum)
    root = loss.root_of_counts(pixels=rows.pixels)
    how = root, PSEUDO_ROWS, loss.metric.inner_optimum, ODDS, FLAT
    return State(running.seen, sums, running.momentum, loss.counts, loss.offsets, how)
