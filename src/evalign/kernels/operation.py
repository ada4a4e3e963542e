"""From logits to the sums of a Confusion, as one differentiable operation.

For a compiler it is an operator of `torch.library`, which is not traced into. Called eagerly, such
an operator costs as much as a small batch, so there it is a plain `autograd.Function`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.confusion import Confusion
from evalign.core.rows import GivenRows
from evalign.kernels import plain

IGNORE = -100  # the rows of a batch are marked already


def soft_sums(*batch_and_settings: Any) -> Tensor:
    """tp, predicted and actual, one below the other. The arguments are those of `_operator`."""
    compiled = torch.compiler.is_compiling()
    return (_operator if compiled else _Eager.apply)(*batch_and_settings)[0]


@torch.library.custom_op("evalign::soft_sums", mutates_args=())
def _operator(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    sigmoid: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums, and what the gradient needs beside the batch."""
    return _forward(logits, target, weight, temperature, sigmoid)


@_operator.register_fake
def _(logits: Tensor, target: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    rows, classes = logits.shape
    sums = weight.new_empty(3, classes, dtype=torch.float64)
    if logits.is_cuda:
        return sums, weight.new_empty(6, rows), target.new_empty(0), weight.new_empty(0)
    numbers = weight.new_empty(plain.NUMBERS, rows)
    return sums, numbers, target.new_empty(2, rows), weight.new_empty(rows * classes)


def _grad(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    numbers: Tensor,
    top: Tensor,
    kept: Tensor,
    of_sums: Tensor,
    sigmoid: bool,
) -> Tensor:
    nothing = of_sums.new_zeros(1)
    if not logits.is_cuda:
        batch = logits.t().unsqueeze(0), target.unsqueeze(0), weight.unsqueeze(0)
        slopes, of_rows = of_sums[:2].numpy(), (numbers, top, kept)
        step = temperature.item(), of_rows, slopes, 0.0, sigmoid, None
        # As the compiler expects it, even where the logits lie otherwise.
        return plain.backward(*batch, *step).squeeze(0).t().contiguous()
    from evalign.kernels import fused

    rows = GivenRows("multiclass", logits, target, weight, IGNORE)
    step = fused.Step(temperature, sigmoid)
    slopes = torch.cat([of_sums[:2].flatten(), nothing, temperature.to(nothing).view(1)])
    slopes, outer = slopes.to(weight.dtype), (nothing + 1).to(weight.dtype)
    with fused.current(logits.device):
        return fused.backward(fused.plan_of(rows, step), rows, step, numbers, slopes, outer)


_backward = torch.library.custom_op("evalign::soft_sums_backward", _grad, mutates_args=())


@_backward.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, target, weight, temperature, ctx.sigmoid = inputs
    # The temperature may be changed in place before the backward pass.
    ctx.save_for_backward(logits, target, weight, temperature.clone(), *output[1:])
    ctx.set_materialize_grads(False)


def _gradient(
    ctx: Any, of_sums: Tensor | None, *_: Any, backward: Callable[..., Tensor] = _backward
) -> tuple[Tensor | None, ...]:
    logits, target, weight, temperature, *kept = ctx.saved_tensors
    rest = (None,) * 4
    if of_sums is None:
        return None, *rest
    if not torch.is_grad_enabled():
        batch = logits, target, weight, temperature
        return backward(*batch, *kept, of_sums, ctx.sigmoid), *rest
    # A gradient that will be differentiated again comes from the reference.
    heaviside = "sigmoid" if ctx.sigmoid else "linear"
    soft = membership.multiclass(logits, temperature=temperature, heaviside=heaviside)
    c = Confusion.from_membership(Batch("multiclass", logits, target, weight), soft)
    sums = torch.stack([c.tp, c.predicted, c.actual])
    return *torch.autograd.grad(sums, logits, of_sums, create_graph=True), *rest


_operator.register_autograd(_gradient, setup_context=_keep)


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        output = _forward(*inputs)
        _keep(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradient(ctx, gradients[0], backward=_grad)


def _forward(
    logits: Tensor, target: Tensor, weight: Tensor, temperature: Tensor, sigmoid: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not logits.is_cuda:
        batch = logits.t().unsqueeze(0), target.unsqueeze(0), weight.unsqueeze(0)
        sums, _, kept = plain.forward(*batch, temperature.item(), sigmoid, None)
        return torch.from_numpy(sums), *kept
    from evalign.kernels import fused  # imports Triton, which the CPU does not need

    rows = GivenRows("multiclass", logits, target, weight, IGNORE)
    step = fused.Step(temperature.to(logits.device), sigmoid)
    with fused.current(logits.device):
        plan = fused.plan_of(rows, step)
        partial, stats = fused.sums(plan, rows, step)
        sums = fused.total(plan, partial)[0, :-2].view(3, -1)
    sums[1] += sums[0]
    return sums, stats, target.new_empty(0), stats.new_empty(0)
