"""Which way a call takes, and the way on a GPU, where the whole loss is one function.

| way    | what a kernel computes            | for                                               |
| ------ | --------------------------------- | ------------------------------------------------- |
| "loss" | the loss, forward and backward    | a GPU, and metrics in closed form                 |
| "sums" | the sums of the Confusions        | class indices, in eager mode                      |
| "core" | nothing: torch, as the reference  | everything else, such as graphs of a compiler     |
"""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from evalign.core.checks import traced
from evalign.core.rows import GivenRows
from evalign.kernels import DEVICES
from evalign.kernels.closed import closed_form
from evalign.kernels.sums import Settings

if TYPE_CHECKING:
    from evalign.losses.metric import MetricLoss

_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
_FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


def route(loss: "MetricLoss", rows: GivenRows) -> Literal["loss", "sums", "core"]:
    """The way that a call of `MetricLoss` or `AlignedLoss` takes."""
    logits, target, weight = rows.logits, rows.target, rows.weight
    own = type(loss).__dict__.get("has_kernels", False)
    if traced() or not own or callable(loss.heaviside) or loss.per_image or not logits.numel():
        return "core"
    plain = type(logits) in (Tensor, nn.Parameter) and logits.dtype in _FLOATS
    here = logits.device.type in DEVICES and target.device == logits.device
    learned = loss.temperature.requires_grad or (weight is not None and weight.requires_grad)
    # Kernels count in 32 bits the places within an image, and up to eight numbers of every row.
    fits = logits.numel() < 2**31 * len(logits) and target.numel() < 2**28
    if not (plain and here and fits) or learned or loss.metric.needs_matrix:
        return "core"
    if logits.is_cuda and _whole(loss, rows):
        return "loss"
    indices = rows.indices and target.dtype in _INTEGERS and loss.threshold is None
    return "core"


def _whole(loss: "MetricLoss", rows: GivenRows) -> bool:
    form, labels = closed_form(loss.metric), rows.task == "multilabel"
    smooth = getattr(loss, "label_smoothing", 0) or getattr(loss, "class_shares", None) is not None
    if form is None or smooth or (labels and form.kind != "ratio"):
        return False
    two = rows.task == "binary" or (rows.task == "multiclass" and rows.logits.shape[1] == 2)
    if form.average == "binary" and not two:
        return False
    if rows.task == "multiclass":
        return rows.indices and rows.target.dtype in _INTEGERS and loss.threshold is None
    threshold = loss.threshold
    sizes = [(), rows.logits.shape[1:2]] if labels else [()]
    known = threshold is None or threshold.shape in sizes
    return known and rows.target.dtype in _INTEGERS | _FLOATS


def whole_loss(loss: "MetricLoss", rows: GivenRows, settings: Settings) -> Tensor:
    """The loss by kernels of a GPU."""
    raise NotImplementedError
