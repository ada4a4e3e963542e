"""Membership and sums in one operation, forward and backward; `core/` is the reference.

`plain` is numpy in `blocks` of rows, for the CPU; `fused` are Triton kernels, for CUDA; `operation`
makes one differentiable operation of either. May import `core`.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

from evalign.core import membership
from evalign.core.batch import Batch
from evalign.core.confusion import Confusion, count_rows
from evalign.kernels.operation import soft_sums

DEVICES = ("cpu", "cuda") if find_spec("triton") else ("cpu",)


def soft_confusion(
    owner: str,
    batch: Batch,
    *,
    temperature: Tensor,
    heaviside: membership.Heaviside = "linear",
    threshold: Tensor | None = None,
    matrix: bool = False,
) -> Confusion:
    """`Confusion.from_membership(membership.of_batch(...))`, by a kernel where there is one.

    There is a kernel for multiclass problems with class indices, where a membership takes a
    softmax, a search and a normalisation. In other tasks it is a function of one logit.
    """
    if (
        batch.task == "multiclass"
        and batch.target.ndim == 1
        and not callable(heaviside)
        and threshold is None
        and not matrix
        and not (batch.weight.requires_grad or temperature.requires_grad)
        and batch.given.device.type in DEVICES
        and batch.weight.numel() < 2**28  # kernels count in 32 bits
        and not _transformed()
    ):
        rows = batch.given, batch.target, batch.weight
        sums = soft_sums(*rows, temperature, heaviside == "sigmoid")
        tp, predicted, actual = sums.unbind()
        actual = actual.detach()
        return Confusion(tp, predicted, actual, actual.sum(), rows=count_rows(batch.weight))
    soft = membership.of_batch(
        owner,
        batch,
        temperature=temperature,
        heaviside=heaviside,
        threshold=threshold,
    )
    return Confusion.from_membership(batch, soft, matrix=matrix)


def _transformed() -> bool:
    """Whether `torch.func` transforms this call, so that tensors are stand-ins."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return functorch.peek_interpreter_stack() is not None


# The stack of transforms is the same when a compiler traces a call and when the call runs. This is
# the mark of `torch.compiler.assume_constant_result`, which would load the compiler here.
_transformed._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
