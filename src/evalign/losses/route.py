"""Which way a call takes, and the way on a GPU, where the whole loss is one function.

| way    | what a kernel computes            | for                                               |
| ------ | --------------------------------- | ------------------------------------------------- |
| "loss" | the loss, forward and backward    | a GPU, and metrics in closed form                 |
| "sums" | the sums of the Confusions        | the same for other metrics; a CPU                 |
| "core" | nothing: torch, as the reference  | everything else, such as graphs of a compiler     |
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.checks import traced
from evalign.core.confusion import Confusion
from evalign.core.numerics import full_precision
from evalign.core.rows import GivenRows
from evalign.kernels import DEVICES, LONGEST
from evalign.kernels.sums import KernelSettings
from evalign.losses.offsets import FLAT, ODDS, PSEUDO_ROWS

if TYPE_CHECKING:
    from evalign.losses.metric import MetricLoss

LARGE = 1024  # pixels of an image
_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def route(
    loss: "MetricLoss", rows: GivenRows, *, whole: bool = True
) -> Literal["loss", "sums", "core"]:
    """The way that a call of `MetricLoss` or `AlignedLoss` takes, or one for its sums alone."""
    logits, target, weight = rows.logits, rows.target, rows.weight
    own = type(loss).__dict__.get("has_kernels", False)
    default = loss.heaviside == "linear" and loss.threshold is None
    if traced() or not (own and default and logits.numel()):
        return "core"
    plain = type(logits) in (Tensor, nn.Parameter) and logits.dtype in _FLOATS
    here = logits.device.type in DEVICES and target.device == logits.device
    learned = loss.temperature.requires_grad or (weight is not None and weight.requires_grad)
    # One image at a time pays if it is large.
    large = rows.task != "multilabel" and rows.shape[1:].numel() >= LARGE
    fits = large or not loss.per_image
    # Kernels count in 32 bits the places within an image, and up to eight numbers of every row.
    fits &= logits.numel() < 2**31 * len(logits) and target.numel() < 2**28
    fits &= not logits.is_cuda or rows.task == "binary" or logits.shape[1] <= LONGEST
    if not (plain and here and fits) or learned or loss.metric.needs_matrix:
        return "core"
    if whole and logits.is_cuda and _whole(loss, rows):
        return "loss"
    if rows.task == "multiclass":
        return "sums" if rows.indices and target.dtype in _INTEGERS else "core"
    # The kernel of labels divides nothing by zero, but 0·∞ is NaN there.
    finite = not logits.is_cuda and math.isfinite(logits.detach().sum(dtype=torch.float64))
    return "sums" if finite and target.dtype in _INTEGERS | _FLOATS else "core"


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


def whole_loss(loss: "MetricLoss", rows: GivenRows, settings: KernelSettings) -> Tensor:
    """The loss by kernels of a GPU."""
    device = rows.logits.device
    if settings.temperature.device != device:  # the loss was not moved there
        settings = KernelSettings._make(x if x is None else x.to(device) for x in settings)
    value: Any = _WholeLoss.apply(rows.logits, rows, settings, loss, loss.learns())
    return value


class _WholeLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        rows: GivenRows,
        settings: KernelSettings,
        loss: "MetricLoss",
        learns: bool,
    ) -> Tensor:
        from evalign.kernels import fused  # imports Triton, which the CPU does not need

        form = loss.closed_form
        assert form is not None  # `route` says so
        ctx.size = loss.over_ranks.size() if learns else 1
        weight = getattr(loss, "metric_weight", 1.0)
        with fused.current(logits.device):
            plan = fused.plan_of(rows, settings)
            partial, stats = fused.sums(plan, rows, settings)
            if ctx.size > 1:
                partial = loss.over_ranks.total(fused.total(plan, partial), plan.classes)
            state = _state(loss, plan.classes, rows) if learns else None
            value, slopes, point = fused.end(plan, settings, partial, form, state, ctx.size, weight)
        ctx.save_for_backward(logits, rows.target, rows.weight, stats, slopes, point)
        ctx.plan, ctx.metric, ctx.weight = plan, loss.metric, weight
        ctx.task, ctx.ignore_index = rows.task, rows.ignore_index
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        from evalign.kernels import fused

        logits, target, weight, stats, slopes, point = ctx.saved_tensors
        rows = GivenRows(ctx.task, logits, target, weight, ctx.ignore_index)
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            value = _with_graph(ctx, rows, slopes, point)
            (grad,) = torch.autograd.grad(value, logits, outer[0].double(), create_graph=True)
        else:
            with fused.current(logits.device):
                grad = fused.backward(ctx.plan, rows, stats, slopes, outer[0])
        return grad, None, None, None, None


def _state(loss: "MetricLoss", classes: int, rows: GivenRows) -> Any:
    from evalign.kernels.fused import State

    if loss.running is None:
        return None
    counts, offsets = getattr(loss, "counts", None), getattr(loss, "offsets", None)
    follows = counts is not None
    multilabel, momentum = rows.task == "multilabel", loss.running.momentum
    buffers = loss.running.buffers_for(classes, rows.logits, multilabel=multilabel, hard=follows)
    if not follows:
        return State(buffers, momentum)
    following = PSEUDO_ROWS, loss.metric.inner_optimum, ODDS, FLAT
    return State(buffers, momentum, counts, offsets, following)


def _with_graph(ctx: Any, rows: GivenRows, slopes: Tensor, point: Tensor) -> Tensor:
    """The loss up to a constant, with a graph, at the sums where the slopes were taken."""
    multilabel, classes = rows.task == "multilabel", ctx.plan.classes
    cross_slope, temperature = slopes[2 * classes :][:2].double()
    shift, factor = None, None
    if ctx.plan.cross:
        shift, *factors = slopes[2 * classes + 2 :].double().view(ctx.plan.cross, -1)
        factor = factors[0] if factors else None
    with full_precision(rows.logits):
        batch = Batch.of(rows)
        soft = membership.of_batch("MetricLoss", batch, temperature=temperature)
        sums = Confusion.from_membership(batch, soft)
        tp, predicted, actual, totals, (total, number) = point[: 4 * classes + 2].split(
            [classes] * 4 + [2]
        )
        at = iter([tp, predicted, actual, totals if multilabel else total, number])
        score = ctx.metric(sums.map(lambda x: next(at) + ctx.size * (x - x.detach())))
        value = ctx.weight * torch.where(score.isnan(), 0, -score)  # no class has a score, or NaN
        if shift is None:
            return value
        return value + cross_slope * batch.cross_entropy(shift, factor)
