"""How rows of one shape, layout and precision are computed: tiles, places and compiled kernels.

A launch by Triton looks at every argument anew, which takes longer than a small batch. What a plan
holds is known from its key, so that later calls go straight to the compiled kernels.
"""

from collections.abc import Callable
from math import gcd
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from evalign.kernels.closed import Closed
from evalign.kernels.fused.finish import TASKS, finish
from evalign.kernels.fused.labels import label_gradient, label_sums
from evalign.kernels.fused.metric import AVERAGES, KINDS
from evalign.kernels.fused.slopes import gradient
from evalign.kernels.fused.sums import whole_rows
from evalign.kernels.fused.totals import add_up
from evalign.membership.rows import GivenRows

# Tried on an H200, with 10, 21 and 1,000 classes.
SUM_WARPS = 16  # per processor, where each program has its own sums
NARROW = 32  # classes of a row that one thread goes through
WARPS = 96  # per processor, where nothing is summed over rows
LABELS = 64  # of a tile
ADD = 32, 128  # sums and programs per block
ALONE = 2**16  # sums that the last program adds up by itself
PLANS = 1000  # kept at most
NOTHING_FOLLOWS = 0.0, 0.0, False, 1.0, 0.0


class State(NamedTuple):
    """What a loss keeps between batches, which the last kernel updates in place.

    Args:
        seen, running: the buffers of `RunningConfusion`.
        momentum: the weight of the batch in them.
        counts: cumulative counts of the classes; None where offsets do not follow.
        offsets: those of the next batch.
        how: the power of 1 / counts that the class weights are, the share of pseudo-rows, whether
            offsets are updated, the largest odds, and the share of the largest gain that counts
            as none.
    """

    seen: Tensor
    running: Tensor
    momentum: float
    counts: Tensor | None = None
    offsets: Tensor | None = None
    how: tuple[float, float, bool, float, float] = NOTHING_FOLLOWS


class Launch:
    """A kernel with its grid and all but its first arguments.

    The first are tensors, and numbers that may change from call to call.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], *rest: Any, warps: int = 4) -> None:
        self.kernel, self.rest, self.warps = kernel, rest, warps
        self.grid = (*grid, 1, 1)[:3]
        self.compiled: Callable[..., None] | None = None

    def __call__(self, *tensors: Tensor, numbers: tuple[float, ...] = ()) -> None:
        if self.compiled is not None:  # takes addresses, too, and asks nothing about them
            self.compiled(*[tensor.data_ptr() for tensor in tensors], *numbers, *self.rest)
            return
        compiled = self.kernel[self.grid](*tensors, *numbers, *self.rest, num_warps=self.warps)
        if compiled is not None:  # it is None in Triton's interpreter
            self.compiled = compiled[self.grid]


class Strides(NamedTuple):
    """Number c of position s of image b is at b·image + c·column + s·position."""

    image: int
    column: int
    position: int


class CallPlan:
    """Everything about a call but the numbers.

    A matrix is one image, whose positions are its rows. So is a binary problem, with one column.
    """

    def __init__(self, rows: GivenRows, cross: int) -> None:
        logits, weight = rows.logits, rows.weight
        self.task, self.cross = rows.task, cross
        self._ends: dict[tuple, Launch] = {}
        if rows.task == "binary":
            images, columns, size = 1, 1, logits.numel()
        elif logits.ndim == 2:
            images, (size, columns) = 1, logits.shape
        else:
            images, columns = logits.shape[:2]
            size = logits.numel() // max(1, images * columns)
        self.rows, self.classes = images * size, 2 if rows.task == "binary" else columns
        self.compute = torch.float64 if logits.dtype == torch.float64 else torch.float32
        of_matrix, of_images = Strides(0, 1, columns), Strides(columns * size, size, 1)
        of_target = of_matrix if rows.task != "binary" and logits.ndim == 2 else of_images
        # The first dimension of a binary volume are not channels, however it lies in memory.
        channels_last = rows.task != "binary" and _channels_last(logits)
        self.copied = not (channels_last or logits.is_contiguous())
        of_logits = Strides(columns * size, 1, columns) if channels_last else of_target
        # One weight an image, or one a row.
        by_image = weight is not None and images > 1 and not any(weight.stride()[1:])
        self.weighs_rows = weight is not None and not by_image
        of_weight = (weight.stride(0), 0) if weight is not None and by_image else (size, 1)

        places = images, size, *of_logits, *of_weight, rows.ignore_index
        # The classes of a row lie side by side from a multiple of this on; 0 if they do not.
        adjacent = gcd(of_logits.image, of_logits.position, 16) if of_logits.column == 1 else 0
        eps = torch.finfo(self.compute).eps
        kind = weight is not None, self.cross, eps
        processors = _processors(logits.device)
        if rows.task != "multiclass":
            self._plan_labels(places, (*of_target, columns), kind, processors)
        else:
            self._plan_classes(places, columns, kind, processors, adjacent)
        grid = (triton.cdiv(self.width, ADD[0]),)
        self.add_up = Launch(add_up, grid, self.programs, self.width, *ADD)

    def _plan_classes(
        self, places: Any, classes: int, kind: Any, processors: int, adjacent: int
    ) -> None:
        images, size, *_ = places
        columns = triton.next_power_of_2(classes)
        narrow, wide = columns <= NARROW, columns > 1024
        warps = 4 if narrow else columns // 512 if wide else 1
        rows = 32 * warps if narrow else max(1, 256 // columns)
        tiles = images * triton.cdiv(size, rows)
        self.programs = max(1, min(tiles, processors * SUM_WARPS // warps))
        self.width, self.stats = 5 * classes + 2, 6 + (self.cross > 0)
        # The compiler gives a narrow row to one thread, if it does not know that it lies side by
        # side. What is summed over classes then needs no other thread.
        rest = (*places, classes, *kind, rows, columns, 0 if narrow else adjacent)
        self.sums = Launch(whole_rows, (self.programs,), *rest, warps=warps)
        # Nothing is summed over rows here, so there are registers for more threads.
        warps = max(1, columns // 256)
        rows = min(rows, 32)
        tiles = images * triton.cdiv(size, rows)
        programs = max(1, min(tiles, processors * WARPS // warps))
        rest = (*places, classes, *kind, rows, columns, adjacent)
        self.gradient = Launch(gradient, (programs,), *rest, warps=warps)

    def _plan_labels(self, places: Any, of_labels: Any, kind: Any, processors: int) -> None:
        images, size, *_ = places
        labels = of_labels[-1]
        columns = min(triton.next_power_of_2(labels), LABELS)
        rows, blocks = 1024 // columns, triton.cdiv(labels, columns)
        tiles = images * triton.cdiv(size, rows)
        self.programs = max(1, min(tiles, processors * 8 // blocks))
        self.width, self.stats = 9 * labels + 1, 0
        rest = (*places, *of_labels, *kind, self.task == "binary", rows, columns)
        self.sums = Launch(label_sums, (self.programs, blocks), *rest)
        programs = max(1, min(tiles, processors * WARPS // 4))
        self.gradient = Launch(label_gradient, (programs, blocks), *rest)

    def end(
        self, form: Closed, state: State | None, programs: int, kind: torch.dtype, scale: int
    ) -> Launch:
        """The launch that ends the forward pass, for so many sums of this kind."""
        momentum = None if state is None else state.momentum
        by_counts, *following = NOTHING_FOLLOWS if state is None else state.how
        key = form, momentum, by_counts, *following, programs, kind, scale
        if key in self._ends:
            return self._ends[key]
        columns = triton.next_power_of_2(self.classes)
        parts = max(1, min(triton.next_power_of_2(programs), 4096 // columns))
        zero, leave_out = float(form.zero_division == 1), form.zero_division not in (0, 1)
        self._ends[key] = Launch(
            finish,
            (1,),
            *(programs, scale, self.classes, TASKS[self.task], self.cross, by_counts),
            *(momentum is not None, momentum or 0.0, *following),
            *(KINDS[form.kind], AVERAGES[form.average], zero, leave_out),
            *(*form.ratio, columns, parts),
            warps=8 if columns <= 1024 else 32,
        )
        return self._ends[key]


_plans: dict[tuple, CallPlan] = {}


def plan_of(rows: GivenRows, cross_entropy: Tensor | None) -> CallPlan:
    """The plan for rows, made when the first of their kind come."""
    logits, target, weight = rows.logits, rows.target, rows.weight
    # 0 for no cross-entropy; 2 if its classes have factors, else 1.
    cross = 0 if cross_entropy is None else cross_entropy.ndim
    key = (
        *(rows.task, rows.ignore_index, logits.shape, logits.stride(), logits.dtype, logits.device),
        *(logits.data_ptr() % 16, target.dtype, target.stride(), target.data_ptr() % 16),
        None if weight is None else (weight.dtype, weight.stride(), weight.data_ptr() % 16),
        cross,
    )
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= PLANS:
            _plans.clear()
        plan = _plans[key] = CallPlan(rows, cross)
    return plan


def _channels_last(logits: Tensor) -> bool:
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(logits.ndim)
    return form is not None and logits.is_contiguous(memory_format=form)


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # of the interpreter, on a CPU
    return torch.cuda.get_device_properties(device).multi_processor_count
