"""The loss and its gradient as Triton kernels; the mathematics is that of `kernels.cpu`.

A row stays on chip: it is read once in the forward pass and once in the backward pass. Each program
writes its own sums, and these are added up in one order, so that a result is the same from run to
run.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from evalign.kernels import KernelSettings
from evalign.kernels.closed import Closed
from evalign.kernels.fused.plan import ALONE, CallPlan, State, plan_of
from evalign.membership.rows import GivenRows

__all__ = ["CallPlan", "State", "backward", "current", "end", "plan_of", "sums", "total"]


def current(device: torch.device) -> AbstractContextManager:
    """Make a device the current one, on which kernels are launched."""
    if device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def sums(
    this: CallPlan, rows: GivenRows, temperature: Tensor, cross: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The sums of each program (programs, width), and numbers of every row.

    `cross` is what the cross-entropy adds to the logits (C,), or (2, C) with factors behind it, or
    None.
    """
    logits, target, weight = _tensors(this, rows)
    partial = logits.new_empty(this.programs, this.width, dtype=this.compute)
    stats = logits.new_empty(this.stats, this.rows, dtype=this.compute)
    batch = logits, target, weight, temperature, logits if cross is None else cross
    this.sums(*batch, partial, *((stats,) if this.task == "multiclass" else ()))
    return partial, stats


def total(this: CallPlan, partial: Tensor) -> Tensor:
    """The sums of all programs added up, in float64 and in the layout of one program's."""
    added = partial.new_empty(1, this.width, dtype=torch.float64)
    this.add_up(partial, added)
    return added


def end(
    this: CallPlan,
    temperature: Tensor,
    cross: Tensor | None,
    partial: Tensor,
    form: Closed,
    state: State | None = None,
    scale: int = 1,
    metric_weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The loss and its slopes; the state is moved in place, and with it `cross`.

    The slopes are with respect to tp and predicted of every class and to the sum of the
    cross-entropy, times `scale`. They are followed by the temperature, which may change before the
    backward pass, and by the shift and factors of the cross-entropy.
    """
    if partial.numel() > ALONE:
        partial = total(this, partial)
    loss = partial.new_empty((), dtype=this.compute)
    slopes = partial.new_empty((2 + this.cross) * this.classes + 2, dtype=this.compute)
    launch = this.end(form, state, len(partial), partial.dtype, scale)
    kept = (None,) * 4 if state is None else (state.seen, state.running, *state[3:5])
    tensors = partial, temperature, cross, loss, slopes, *kept
    # Triton passes a number as float32, so the remainder follows it.
    weight = float(np.float32(metric_weight))
    numbers = weight, metric_weight - weight
    launch(*(partial if x is None else x for x in tensors), numbers=numbers)
    return loss, slopes


def backward(
    this: CallPlan, rows: GivenRows, stats: Tensor, slopes: Tensor, outer: Tensor
) -> Tensor:
    """The gradient of the logits, given the slopes of the loss by its sums, times `outer`."""
    logits, target, weight = _tensors(this, rows)
    grad = torch.empty_like(logits)
    of_rows = (stats,) if this.task == "multiclass" else ()
    this.gradient(logits, target, weight, *of_rows, slopes, outer, grad)
    return grad


def soft_sums(rows: GivenRows, settings: KernelSettings) -> tuple[Tensor, Tensor]:
    """The sums of `kernels.sums`, and numbers of every row."""
    with current(rows.logits.device):
        cross = settings.cross
        plan = plan_of(rows, cross)
        partial, stats = sums(plan, rows, settings.temperature, cross)
        flat = total(plan, partial)[0]
    classes = plan.classes
    flat[classes : 2 * classes] += flat[:classes]
    if cross is None:
        flat[-2].zero_()  # a number would come from the host
    return flat, stats


def gradient_of_sums(
    rows: GivenRows, settings: KernelSettings, stats: Sequence[Tensor], of_sums: Tensor
) -> Tensor:
    """The gradient of the logits, given that of the sums of `soft_sums`."""
    classes = rows.logits.shape[1]
    parts = [of_sums[: 2 * classes], of_sums[-2:-1], settings.temperature.to(of_sums).view(1)]
    cross = settings.cross
    slopes = torch.cat(parts if cross is None else [*parts, cross.flatten().to(of_sums)])
    slopes = slopes.to(stats[0].dtype)
    with current(rows.logits.device):
        plan = plan_of(rows, cross)
        return backward(plan, rows, stats[0], slopes, torch.ones_like(slopes[:1]))


def _tensors(this: CallPlan, rows: GivenRows) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, target and weights in the layout of the plan; without weights, the logits again."""
    logits = rows.logits.contiguous() if this.copied else rows.logits
    weight = logits if rows.weight is None else rows.weight
    return logits, rows.target.contiguous(), weight.contiguous() if this.weighs_rows else weight
