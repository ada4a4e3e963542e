"""From logits to the sums of a Confusion, as one differentiable operation.

For a compiler it is an operator of `torch.library`, which is not traced into. Called eagerly, such
an operator costs as much as a small batch, so there it is a plain `autograd.Function`.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.confusion import Confusion
from evalign.kernels import plain


def soft_sums(*batch_and_settings: Any) -> Tensor:
    """tp, predicted and actual, one below the other. The arguments are those of `_operator`."""
    compiled = torch.compiler.is_compiling()
    return (_operator if compiled else _Eager.apply)(*batch_and_settings)[0]


@torch.library.custom_op("evalign::multiclass_sums", mutates_args=())
def _operator(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    sigmoid: bool,
    detach_threshold: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums, and what the gradient needs beside the batch."""
    return _kernels(logits).forward(logits, target, weight, temperature, sigmoid)


@_operator.register_fake
def _(logits: Tensor, target: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    rows, classes = logits.shape
    sums = weight.new_empty(3, classes, dtype=torch.float64)
    if logits.is_cuda:
        top = target.new_empty(2, rows, dtype=torch.int32)
        return sums, weight.new_empty(4, rows), top, weight.new_empty(0)
    top = target.new_empty(2, rows, 1)
    return sums, weight.new_empty(7, rows, 1), top, weight.new_empty(rows, classes)


@torch.library.custom_op("evalign::multiclass_sums_backward", mutates_args=())
def _backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    rows: Tensor,
    top: Tensor,
    kept: Tensor,
    loss_from_sums: Tensor,
    sigmoid: bool,
    detach_threshold: bool,
) -> Tensor:
    kernels, batch = _kernels(logits), (logits, target, weight, temperature)
    return kernels.backward(*batch, rows, top, kept, loss_from_sums, sigmoid, detach_threshold)


@_backward.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, target, weight, temperature, ctx.sigmoid, ctx.detach_threshold = inputs
    # The temperature may be changed in place before the backward pass.
    ctx.save_for_backward(logits, target, weight, temperature.clone(), *output[1:])
    ctx.set_materialize_grads(False)


def _gradient(
    ctx: Any, loss_from_sums: Tensor | None, *_: Any, backward: Callable[..., Tensor] = _backward
) -> tuple[Tensor | None, ...]:
    logits, target, weight, temperature, *kept = ctx.saved_tensors
    rest = (None,) * 5
    if loss_from_sums is None:
        return None, *rest
    if not torch.is_grad_enabled():
        batch = logits, target, weight, temperature
        return backward(*batch, *kept, loss_from_sums, ctx.sigmoid, ctx.detach_threshold), *rest
    # A gradient that will be differentiated again comes from the reference.
    soft = membership.multiclass(
        logits,
        temperature=temperature,
        heaviside="sigmoid" if ctx.sigmoid else "linear",
        detach_threshold=ctx.detach_threshold,
    )
    c = Confusion.from_membership(Batch("multiclass", logits, target, weight), soft)
    sums = torch.stack([c.tp, c.predicted, c.actual])
    return *torch.autograd.grad(sums, logits, loss_from_sums, create_graph=True), *rest


_operator.register_autograd(_gradient, setup_context=_keep)


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        logits, *rest, _ = inputs
        output = _kernels(logits).forward(logits, *rest)
        _keep(ctx, inputs, output)
        ctx.mark_non_differentiable(*output[1:])
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return _gradient(ctx, gradients[0], backward=_kernels(ctx.saved_tensors[0]).backward)


def _kernels(logits: Tensor) -> ModuleType:
    if logits.is_cuda:
        from evalign.kernels import fused  # imports Triton, which the CPU does not need

        return fused
    return plain
