"""Moving average of Confusions over batches, for classes missing from most batches."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.checks import require, values_readable
from evalign.core.confusion import Confusion
from evalign.core.numerics import moved, sum_dtype


def keep(owner: nn.Module, name: str, value: Tensor) -> Tensor:
    """Update a buffer in place, as stacked losses and CUDA graphs need it.

    A compiled graph replaces the buffer instead: its backward pass may recompute the value from the
    old buffer, and in-place updates of a scalar buffer are lost. Under `torch.func` only buffers
    passed as arguments (`functional_call`) are updated: other tensors are stand-ins that must not
    outlive the call.
    """
    before: Tensor | None = getattr(owner, name)
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    if torch.compiler.is_compiling():
        setattr(owner, name, value)
    elif (level := functorch.maybe_current_level()) is not None:
        if before is not None and functorch.maybe_get_level(before) == level:
            before.copy_(value)
    elif before is None:  # a plain tensor, though logits may be of a library's own kind
        setattr(owner, name, value.as_subclass(Tensor))
    else:
        before.copy_(value)
    return value


def make_saved(
    owner: nn.Module, names: Iterable[str], state: dict[str, Any], prefix: str, like: Tensor
) -> None:
    """Allocate buffers in the shapes of the saved ones: torch does not load into None.

    Counts stay in double precision, whatever the precision of the saved state.
    """
    kind = {"device": like.device, "dtype": sum_dtype(like)}
    for name in names:
        saved = state.get(prefix + name)
        here = None if saved is None else torch.zeros_like(saved, **kind)
        setattr(owner, name, here)


# Such a state comes from torch.distributed.checkpoint, which fills in the state dict of a new loss,
# and from averages of weights, which copy its existing buffers.
WITHOUT_SUMS = (
    "The state of a loss has running statistics without their sums, as a loss has before its first "
    "batch. The statistics start afresh. To resume with them, give the loss a batch in training "
    "mode before you load into its state_dict."
)
_PARTS = ("tp", "predicted", "actual", "total", "full", "rows")


class RunningConfusion(nn.Module):
    """Exponential moving average of Confusions, with bias correction.

    The result has the value of the average C̄ and the gradient of the batch C: C̄ + (C − stop(C)). A
    metric of it is differentiated at the average with respect to this batch, without the factor of
    the momentum. Batches without rows and batches with a logit that is not finite leave the average
    unchanged; the loss of the latter is NaN.

    Args:
        momentum: the weight of the new batch, in (0, 1]; 1 is the batch alone.
        owner: the loss that errors name.
    """

    seen: Tensor
    tp: Tensor
    predicted: Tensor
    actual: Tensor
    total: Tensor
    rows: Tensor

    def __init__(self, momentum: float = 0.1, owner: str = "MetricLoss") -> None:
        super().__init__()
        allowed = "lie in (0, 1], the weight of the new batch"
        ok = isinstance(momentum, int | float) and 0 < momentum <= 1
        require(ok, owner, "momentum", allowed, repr(momentum))
        self.momentum = momentum
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))  # 1 − (1 − momentum)^k
        for part in _PARTS:  # their size is that of the first batch
            self.register_buffer(part, None)

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}"

    def forward(self, confusion: Confusion) -> Confusion:
        now = confusion.detach()
        counts = (now.total.sum() != 0) & now.predicted.sum().isfinite()

        def blend(old: Tensor, new: Tensor | float) -> Tensor:
            return torch.where(counts, old + self.momentum * (new - old), old)

        given = {part for part in _PARTS if getattr(now, part) is not None}
        kept = {part for part in _PARTS if getattr(self, part) is not None}
        if kept and not given <= kept:  # kept by a loss that needs fewer sums
            self.reset()
        for part in kept - given:  # by one that needs more: it would not move any longer
            setattr(self, part, None)
        seen = keep(self, "seen", blend(self.seen, 1.0))
        average: dict[str, Tensor] = {}
        for part in _PARTS:
            value: Tensor | None = getattr(now, part)
            if value is None:
                continue
            running = keep(self, part, blend(self._before(part, value), value))
            attached: Tensor = getattr(confusion, part)
            # Before any batch counts there is no average, and a first one that is NaN is visible.
            mean = torch.where(seen == 0, value, running / seen.to(value))
            average[part] = mean + (attached - value)
        return Confusion(**average, multilabel=confusion.multilabel)

    def sums(self, classes: int, multilabel: bool, device: torch.device) -> tuple[Tensor, ...]:
        """The buffers seen, tp, predicted, actual, total and rows, for a kernel that updates them.

        A multilabel problem has no rows; the total takes their place.
        """
        if self.tp is not None and self.tp.device != device:
            self._apply(lambda x: x.to(device))
        self._buffers["full"] = None  # a kernel would not move it
        tp, rows = self.tp, self.total if multilabel else self.rows
        if tp is None or rows is None or len(tp) != classes or self.total.ndim != multilabel:
            if tp is not None and rows is None:  # kept by a loss that needs fewer sums
                self.reset()
            each = torch.zeros(classes, dtype=torch.float64, device=device)
            for part in _PARTS[:3]:
                self._make(part, each)
            self._make("total", each if multilabel else each[0])
            rows = self.total if multilabel else self._make("rows", each[0])
            self.seen = self.seen.to(device)
        return self.seen, self.tp, self.predicted, self.actual, self.total, rows

    def _make(self, part: str, value: Tensor) -> Tensor:
        keep(self, part, self._before(part, value))
        return getattr(self, part)

    def _before(self, part: str, value: Tensor) -> Tensor:
        """The running sum of a part, in the shape of the first batch."""
        running: Tensor | None = getattr(self, part)
        if running is None:
            return torch.zeros_like(value)
        allowed = f"keep the {running.shape[:1].numel()} classes of the batches before"
        got, cure = value.shape[:1].numel(), "Make a new loss."
        require(running.shape == value.shape, "running statistics", "logits", allowed, got, cure)
        return running

    def empty(self) -> None:
        """Forget all batches in place, so that CUDA graphs stay valid."""
        for part in ("seen", *_PARTS):
            if (kept := getattr(self, part)) is not None:
                kept.zero_()

    def reset(self) -> None:
        """Forget all batches and their number of classes."""
        self.seen.zero_()
        for part in _PARTS:
            setattr(self, part, None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningConfusion":
        for name, buffer in self.named_buffers():
            self._buffers[name] = moved(buffer, fn)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        make_saved(self, _PARTS, state_dict, prefix, self.seen)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if self.tp is None and values_readable(self.seen, validate=True) and self.seen > 0:
            self.reset()  # an average of nothing would be too small, and its slopes too steep
            warnings.warn(WITHOUT_SUMS, UserWarning, stacklevel=2)
