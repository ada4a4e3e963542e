"""The sums and their gradient as Triton kernels; the mathematics is that of `kernels.plain`.

A row that fits on chip is read once in the forward pass. A longer row is read twice for its
statistics (three times for the sigmoid), perhaps from the cache, and again, column by column, for
the sums. The backward pass reads and writes once, and reads a long row twice. Each program writes
its own sums, and these are added up in one order, so that a result is the same from run to run.
"""

# Launch options are not parameters of the kernels.
# pyright: reportCallIssue=false

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from evalign.kernels.fused.slopes import gradient
from evalign.kernels.fused.sums import long_columns, long_row, whole_rows


class Tile(NamedTuple):
    """The rows and columns that a program holds at a time, and its warps."""

    rows: int
    columns: int
    warps: int


# Tried on an H200, with 1,000, 32,768 and 100,000 classes.
LONGEST = 4096  # classes of a row that is kept on chip
LONG_ROW = Tile(1, 2048, 4)
LONG_COLUMNS = Tile(1, 2048, 4)
LONG_GRADIENT = Tile(1, 4096, 32)
PER_PROCESSOR = 8  # programs, where each has sums of its own
WARPS = 64  # of a processor at a time, where nothing is summed over rows


def tile(classes: int) -> Tile:
    """The tile for rows that are kept on chip: sixteen numbers a thread."""
    columns = triton.next_power_of_2(classes)
    return Tile(max(1, 512 // columns), columns, max(1, columns // 512))


def forward(
    logits: Tensor, target: Tensor, weight: Tensor, temperature: Tensor, sigmoid: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits, target, weight = logits.contiguous(), target.contiguous(), weight.contiguous()
    n, classes = logits.shape
    rows = weight.new_empty(4, n)
    top = target.new_empty(2, n, dtype=torch.int32)
    step = {"SIGMOID": sigmoid, "EPS": torch.finfo(weight.dtype).eps}
    if classes <= LONGEST:
        t = tile(classes)
        programs = _programs(logits, triton.cdiv(n, t.rows))
        partial = weight.new_zeros(programs, 3, classes)
        whole_rows[(programs,)](
            *(logits, target, weight, temperature, partial, rows, top, n, classes),
            **step,
            ROWS=t.rows,
            COLUMNS=t.columns,
            num_warps=t.warps,
        )
    else:
        t = LONG_ROW
        long_row[(n,)](
            *(logits, temperature, rows, top, n, classes),
            **step,
            COLUMNS=t.columns,
            num_warps=t.warps,
        )
        t = LONG_COLUMNS
        blocks = triton.cdiv(classes, t.columns)
        programs = triton.cdiv(_programs(logits, blocks * triton.cdiv(n, t.rows)), blocks)
        partial = weight.new_zeros(programs, 3, classes)
        long_columns[(blocks, programs)](
            *(logits, target, weight, temperature, partial, rows, top, n, classes),
            **step,
            COLUMNS=t.columns,
            num_warps=t.warps,
        )
    sums = partial.sum(0, dtype=torch.float64)
    sums[1] += sums[0]
    return sums, rows, top, weight.new_empty(0)


def backward(
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
    logits, target, weight = logits.contiguous(), target.contiguous(), weight.contiguous()
    n, classes = logits.shape
    of_tp, of_predicted, _ = loss_from_sums.to(weight.dtype).contiguous()
    grad = torch.empty_like(logits)
    whole = classes <= LONGEST
    t = tile(classes) if whole else LONG_GRADIENT
    # Nothing is summed over rows here, so there are registers for more threads.
    warps = max(1, t.columns // 256) if whole else t.warps
    gradient[(_programs(logits, triton.cdiv(n, t.rows), WARPS // warps),)](
        *(logits, target, weight, temperature, rows, top, of_tp, of_predicted, grad, n, classes),
        SIGMOID=sigmoid,
        DETACH=detach_threshold,
        EPS=torch.finfo(weight.dtype).eps,
        ROWS=t.rows,
        COLUMNS=t.columns,
        WHOLE=whole,
        num_warps=warps,
    )
    return grad


def _programs(like: Tensor, tiles: int, per_processor: int = PER_PROCESSOR) -> int:
    processors = 4  # of the interpreter, on a CPU
    if like.is_cuda:
        processors = torch.cuda.get_device_properties(like.device).multi_processor_count
    return max(1, min(tiles, per_processor * processors))
