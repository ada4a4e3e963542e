"""The loss and its gradient as Triton kernels; the mathematics is that of `kernels.plain`.

A row that fits on chip is read once in the forward pass. A longer row is read twice for its
statistics (three times for the sigmoid), perhaps from the cache, and again, column by column, for
the sums. The backward pass reads and writes once, and reads a long row twice. Each program writes
its own sums, and these are added up in one order, so that a result is the same from run to run.
"""

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from evalign.core.rows import GivenRows
from evalign.kernels.closed import Closed
from evalign.kernels.fused.plan import ALONE, CallPlan, Step, plan_of

__all__ = ["CallPlan", "Step", "backward", "current", "end", "plan_of", "sums", "total"]


def current(device: torch.device) -> AbstractContextManager:
    """Make a device the current one, on which kernels are launched."""
    if device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def sums(this: CallPlan, rows: GivenRows, step: Step) -> tuple[Tensor, Tensor]:
    """The sums of each program (programs, width), and numbers of every row.

    The last two of a program's sums are the cross-entropy and the number of rows.
    """
    logits, target, weight = _tensors(this, rows)
    make = logits.new_zeros if this.zeroed else logits.new_empty
    partial = make(this.programs, this.width, dtype=this.compute)
    stats = logits.new_empty(this.stats, this.rows, dtype=this.compute)
    odds = logits if step.odds is None else step.odds
    batch = logits, target, weight, step.temperature, odds
    if this.task != "multiclass":
        this.sums[0](*batch, _threshold(step, logits), partial)
    elif len(this.sums) == 1:
        this.sums[0](*batch, partial, stats)
    elif this.sums:  # rows that are longer than a tile
        this.sums[0](*batch, stats)
        this.sums[1](*batch, partial, stats)
        if step.odds is not None:
            partial[0, -2] = stats[7].sum(dtype=torch.float64)
    return partial, stats


def total(this: CallPlan, partial: Tensor) -> Tensor:
    """The sums of all programs, as those of one, in float64."""
    added = partial.new_empty(1, this.width, dtype=torch.float64)
    this.add_up(partial, added)
    return added


def end(
    this: CallPlan,
    step: Step,
    partial: Tensor,
    form: Closed,
    running: tuple[Tensor, ...] = (),
    momentum: float | None = None,
    scale: int = 1,
    metric_weight: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, its slopes, and the sums at which they are taken.

    The slopes are those by tp and predicted of every class, and by the sum of the cross-entropy,
    times `scale`. The temperature stands behind, since it may change before the backward pass, and
    the odds, of `Step`.
    The sums are tp, predicted, actual and total of every class or label, and the total and the
    number of rows of exclusive classes. Behind them is the actual mass of the classes in this
    batch. `running` are the buffers of `RunningConfusion.sums`, which are moved in place.
    """
    if partial.numel() > ALONE:
        partial = total(this, partial)
    loss = partial.new_empty((), dtype=this.compute)
    slopes = partial.new_empty((2 + this.cross) * this.classes + 2, dtype=this.compute)
    point = partial.new_empty(5 * this.classes + 2, dtype=torch.float64)
    launch = this.end(form, momentum, len(partial), partial.dtype, scale)
    odds = partial if step.odds is None else step.odds
    tensors = partial, step.temperature, odds, point, loss, slopes, *(running or (point,) * 6)
    # A number comes as float32, so what that leaves of it follows.
    weight = float(np.float32(metric_weight))
    launch(*tensors, numbers=(weight, metric_weight - weight))
    return loss, slopes, point


def backward(
    this: CallPlan, rows: GivenRows, step: Step, stats: Tensor, slopes: Tensor, outer: Tensor
) -> Tensor:
    """The gradient of the logits, given the slopes of the loss by its sums, times `outer`."""
    logits, target, weight = _tensors(this, rows)
    grad = torch.empty_like(logits)
    third = stats if this.task == "multiclass" else _threshold(step, logits)
    this.gradient(logits, target, weight, third, slopes, outer, grad)
    return grad


def _tensors(this: CallPlan, rows: GivenRows) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, target and weights in the layout of the plan; the logits stand in for no weights."""
    logits = rows.logits.contiguous() if this.copied else rows.logits
    weight = logits if rows.weight is None else rows.weight
    return logits, rows.target.contiguous(), weight.contiguous() if this.weighs_rows else weight


_halves: dict[torch.device, Tensor] = {}


def _threshold(step: Step, logits: Tensor) -> Tensor:
    """The threshold, by default ½, which is made once on every device."""
    if step.threshold is not None:
        return step.threshold
    if logits.device not in _halves:
        _halves[logits.device] = torch.full((), 0.5, dtype=torch.float64, device=logits.device)
    return _halves[logits.device]
