"""A whole loss as one differentiable function: rows in, a number out.

The sums of the rows, those of other ranks, the running average, the metric and its slopes are
computed in the forward pass without a graph, and the gradient of the logits in the backward pass.
On a GPU this takes three launches for up to 4096 classes, and more with offsets, class weights or
counts that `AlignedLoss` learns. `MetricLoss.value` and `AlignedLoss.value` are the reference, and
serve the rows and metrics that are not covered here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evalign.aggregation import RankSum, RunningConfusion
from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.checks import traced
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric
from evalign.core.numerics import full_precision
from evalign.core.rows import GivenRows, signed
from evalign.kernels import DEVICES, plain
from evalign.kernels.closed import ZERO, Closed, Sums, value_and_slopes

_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


class FusedLoss(NamedTuple):
    """1 − metric of the soft confusion matrix, and perhaps a cross-entropy.

    Args:
        metric: the metric.
        form: its closed form.
        sigmoid: whether the step is the sigmoid.
        odds: exp(shift) of the cross-entropy of logits + shift; None for no cross-entropy.
        class_weight: the factors of the classes in the cross-entropy; None for 1.
        metric_weight: the factor of the metric.
        learn: is told the mass of the classes in the batch; None for nobody.
        ranks: adds the sums of other processes; None for this one alone.
        running: the average at which the slopes are taken; None for the batch alone.

    The others are those of `MetricLoss`.
    """

    metric: Metric
    form: Closed
    temperature: Tensor
    sigmoid: bool
    threshold: Tensor | None
    odds: Tensor | None
    class_weight: Tensor | None
    metric_weight: float
    learn: Callable[[Tensor], None] | None
    ranks: RankSum | None
    running: RunningConfusion | None

    def covers(self, rows: GivenRows) -> bool:
        """Whether it can compute the loss of these rows."""
        logits, target, weight, form = rows.logits, rows.target, rows.weight, self.form
        device = logits.device
        if traced() or type(logits) not in (Tensor, nn.Parameter) or logits.dtype not in _FLOATS:
            return False
        if self.temperature.requires_grad or target.device != device:
            return False
        if weight is not None and (weight.requires_grad or weight.device != device):
            return False
        if rows.task == "multiclass":
            known = rows.indices and self.threshold is None and target.dtype in _INTEGERS
            two = logits.shape[1] == 2
        else:
            known = logits.is_cuda and target.dtype in _INTEGERS | _FLOATS
            two = rows.task == "binary"
            if self.threshold is not None and self.threshold.ndim:
                known = known and not two and self.threshold.shape == logits.shape[1:2]
        if rows.task == "multilabel" and form.kind != "ratio":
            return False
        if form.average == "binary" and not two:
            return False
        # Kernels count in 32 bits the places within an image, and up to eight numbers of every row.
        fits = logits.numel() < 2**31 * max(1, len(logits)) and target.numel() < 2**28
        return known and fits and device.type in DEVICES

    def __call__(self, rows: GivenRows) -> Tensor:
        value: Any = _Fused.apply(rows.logits, rows, self)
        return value

    def with_graph(
        self, rows: GivenRows, point: Confusion, size: int, cross_slope: Tensor
    ) -> Tensor:
        """The loss up to a constant, with a graph, at the sums where the slopes were taken."""
        with full_precision(rows.logits):
            batch = Batch.of(rows)
            soft = membership.of_batch(
                "MetricLoss",
                batch,
                temperature=self.temperature,
                heaviside="sigmoid" if self.sigmoid else "linear",
                threshold=self.threshold,
            )
            at = iter(point.tensors())
            sums = Confusion.from_membership(batch, soft)
            score = self.metric(sums.map(lambda x: next(at) + size * (x - x.detach())))
            value = torch.where(score.isnan(), 0, -score)  # no class has a score, or NaN logits
            value = self.metric_weight * value
            if self.odds is None:
                return value
            shift = self.odds.log().to(batch.logits)
            shift = shift[1] - shift[0] if batch.task == "binary" else shift
            moved = replace(batch, given=batch.logits + shift)
            log_p = moved.log_probabilities()
            return value + cross_slope * batch.mean(log_p, torch.neg, self.class_weight).sum


class _Passed(NamedTuple):
    """What the forward pass leaves behind beside the rows."""

    value: Tensor
    # By tp and predicted of every class, by the cross-entropy; temperature; on a GPU `Step.odds`.
    slopes: Tensor
    # tp, predicted, actual, total of every label; total and rows of exclusive ones; the actual
    # mass of the labels in this batch.
    point: Tensor
    kept: tuple[Tensor, ...]  # numbers of every row


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, rows: GivenRows, loss: FusedLoss) -> Tensor:
        ctx.size = 1 if loss.ranks is None else loss.ranks.size()
        passed = (_forward_on_gpu if logits.is_cuda else _forward_on_cpu)(ctx, rows, loss)
        if loss.learn is not None:
            classes = (len(passed.point) - 2) // 5
            loss.learn(passed.point[-classes:])
        ctx.save_for_backward(logits, rows.target, rows.weight, *passed[1:3], *passed.kept)
        ctx.task, ctx.ignore_index, ctx.loss = rows.task, rows.ignore_index, loss
        return passed.value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        logits, target, weight, slopes, point, *kept = ctx.saved_tensors
        rows = GivenRows(ctx.task, logits, target, weight, ctx.ignore_index)
        if torch.is_grad_enabled():  # the gradient will be differentiated again
            at = _confusion(point, rows.task == "multilabel")
            cross_slope, temperature = slopes[2 * at.num_classes :][:2].double()
            loss = ctx.loss._replace(temperature=temperature)
            value = loss.with_graph(rows, at, ctx.size, cross_slope)
            (grad,) = torch.autograd.grad(value, logits, outer[0].double(), create_graph=True)
        else:
            run = _backward_on_gpu if logits.is_cuda else _backward_on_cpu
            grad = run(ctx, rows, slopes, tuple(kept), outer[0])
        return grad, None, None


def _confusion(point: Tensor, multilabel: bool) -> Confusion:
    """The sums at which the metric is taken."""
    classes = (len(point) - 2) // 5
    tp, predicted, actual, totals, (total, rows), _ = point.split([classes] * 4 + [2, classes])
    if multilabel:
        return Confusion(tp, predicted, actual, totals, multilabel=True)
    return Confusion(tp, predicted, actual, total, rows=rows)


def _forward_on_gpu(ctx: Any, rows: GivenRows, loss: FusedLoss) -> _Passed:
    from evalign.kernels import fused  # imports Triton, which the CPU does not need

    # A loss that was not moved to the device is copied there in every call.
    device = rows.logits.device
    odds = loss.odds
    if odds is not None and loss.class_weight is not None:
        odds = torch.stack([odds, loss.class_weight])
    step = fused.Step(
        loss.temperature.to(device),
        loss.sigmoid,
        None if loss.threshold is None else loss.threshold.to(device),
        None if odds is None else odds.to(device),
    )
    running, momentum = (), None
    with fused.current(device):
        plan = fused.plan_of(rows, step)
        partial, stats = fused.sums(plan, rows, step)
        if loss.ranks is not None and ctx.size > 1:
            partial = loss.ranks.total(fused.total(plan, partial), plan.classes)
        if loss.running is not None:
            running = loss.running.sums(plan.classes, rows.task == "multilabel", device)
            momentum = loss.running.momentum
        facts = loss.form, running, momentum, ctx.size, loss.metric_weight
        value, slopes, point = fused.end(plan, step, partial, *facts)
    ctx.plan, ctx.step = plan, step
    return _Passed(value, slopes, point, (stats,))


def _backward_on_gpu(
    ctx: Any, rows: GivenRows, slopes: Tensor, kept: tuple[Tensor, ...], outer: Tensor
) -> Tensor:
    from evalign.kernels import fused

    with fused.current(rows.logits.device):
        return fused.backward(ctx.plan, rows, ctx.step, kept[0], slopes, outer)


def _forward_on_cpu(ctx: Any, rows: GivenRows, loss: FusedLoss) -> _Passed:
    logits, target, weight = _batch(rows)
    temperature = loss.temperature.item()
    sums, cross, of_rows = plain.forward(
        logits, target, weight, temperature, loss.sigmoid, loss.odds, loss.class_weight
    )
    mass, count = float(sums[2].sum()), float(np.count_nonzero(weight.numpy() > 0))
    if loss.ranks is not None and ctx.size > 1:
        own = torch.from_numpy(np.append(sums, [mass, count, cross]))
        total = loss.ranks.total(own, sums.shape[1]).numpy()
        sums, (mass, count, cross) = total[:-3].reshape(3, -1), total[-3:].tolist()
    now = c = Sums(sums[0], sums[1], sums[2], mass, count)
    if loss.running is not None:
        c = _moved(loss.running, now)
    score, slopes = value_and_slopes(loss.form, c)
    undefined = loss.metric.nan_if_undefined and np.isnan(score)
    if mass == 0 or (undefined and not np.isnan(c.predicted.sum())):
        score, slopes = 1.0, np.zeros_like(slopes)
    per_cross = 1 / mass if mass >= ZERO else 0.0
    if loss.class_weight is not None:
        heavy = float(sums[2] @ loss.class_weight.numpy())
        per_cross = 1 / heavy if heavy >= ZERO else 0.0
    value = loss.metric_weight * (1 - score) + (0 if loss.odds is None else cross * per_cross)
    slopes = -ctx.size * loss.metric_weight * slopes.ravel()
    facts = np.concatenate([slopes, [ctx.size * per_cross, temperature]])
    point = np.concatenate([c.tp, c.predicted, c.actual, c.actual, [c.total, c.rows], now.actual])
    value = torch.tensor(value, dtype=weight.dtype, device="cpu")  # whatever the default device is
    return _Passed(
        value, torch.from_numpy(facts), torch.from_numpy(point), (target, weight, *of_rows)
    )


def _moved(running: RunningConfusion, now: Sums) -> Sums:
    """Move the running average in place, and return it; as `RunningConfusion` does in torch."""
    seen, *kept = (x.numpy() for x in running.sums(len(now.tp), False, torch.device("cpu")))
    if now.total != 0 and np.isfinite(now.predicted.sum()):
        seen += running.momentum * (1 - seen)
        for old, new in zip(kept, now, strict=True):
            old += running.momentum * (new - old)
    if seen == 0:  # before any batch counts there is no average
        return now
    mass = max(seen, running.momentum)
    # A batch with NaN shows it.
    means = (old / mass + (new - new) for old, new in zip(kept, now, strict=True))
    tp, predicted, actual, total, rows = means
    return Sums(tp, predicted, actual, float(total), float(rows))


def _backward_on_cpu(
    ctx: Any, rows: GivenRows, slopes: Tensor, kept: tuple[Tensor, ...], outer: Tensor
) -> Tensor:
    loss, size = ctx.loss, outer.item()
    settings = loss.sigmoid, loss.odds, loss.class_weight
    # Python's numbers: numpy's would make float64 of all that they meet.
    by_class, (by_cross, temperature) = slopes[:-2].view(2, -1).numpy(), slopes[-2:].tolist()
    target, weight, *of_rows = kept
    batch = _images(rows.logits), target, weight, temperature
    grad = plain.backward(*batch, tuple(of_rows), size * by_class, size * by_cross, *settings)
    return grad.squeeze(0).t() if rows.logits.ndim == 2 else grad.view_as(rows.logits)


def _batch(rows: GivenRows) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (images, classes, positions), targets and weights (images, positions)."""
    logits, target = _images(rows.logits), signed(rows.target)
    ignored = target == rows.ignore_index
    weight = (~ignored).to(torch.promote_types(logits.dtype, torch.float32))
    if rows.weight is not None:
        weight = weight * rows.weight.to(weight.dtype)
    shape = len(logits), logits.shape[2]
    target = target.masked_fill(ignored, 0).long()
    return logits, target.reshape(shape), weight.reshape(shape)


def _images(logits: Tensor) -> Tensor:
    return logits.t().unsqueeze(0) if logits.ndim == 2 else logits.flatten(2)
