"""Moving average of Confusions over batches, for classes missing from most batches."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.checks import require, traced
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
_SOFT = ("tp", "predicted", "actual", "total", "full", "rows")
_HARD = {"tp": "hard_tp", "predicted": "hard_predicted", "full": "hard_full"}
PARTS = (*_SOFT, *_HARD.values())


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
    hard_tp: Tensor
    hard_predicted: Tensor

    def __init__(self, momentum: float, owner: str = "MetricLoss") -> None:
        super().__init__()
        allowed = "lie in (0, 1], the weight of the new batch"
        ok = isinstance(momentum, int | float) and 0 < momentum <= 1
        require(ok, owner, "momentum", allowed, repr(momentum))
        self.momentum = momentum
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))  # 1 − (1 − momentum)^k
        for part in PARTS:  # their size is that of the first batch
            self.register_buffer(part, None)

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}"

    def forward(self, confusion: Confusion) -> Confusion:
        """Add the batch to the average."""
        return self.with_hard(confusion, None)[0]

    def with_hard(
        self, confusion: Confusion, hard: Confusion | None
    ) -> tuple[Confusion, Confusion]:
        """Add the batch to both averages, of soft and of hard labels."""
        now = confusion.detach()
        new = {part: getattr(now, part) for part in _SOFT}
        if hard is not None:
            new |= {name: getattr(hard.detach(), part) for part, name in _HARD.items()}
        new = {part: value for part, value in new.items() if value is not None}
        kept = {part for part in PARTS if getattr(self, part) is not None}
        if kept and kept != new.keys():
            self.reset()  # kept by a loss that needs other sums
        counts = (now.total.sum() != 0) & now.predicted.sum().isfinite()

        def blend(old: Tensor, value: Tensor | float) -> Tensor:
            return torch.where(counts, old + self.momentum * (value - old), old)

        seen = keep(self, "seen", blend(self.seen.to(now.tp.device), 1.0))
        means: dict[str, Tensor] = {}
        for part, value in new.items():
            running = keep(self, part, blend(self._before(part, value), value))
            # Before any batch counts there is no average; a first one that is NaN is visible.
            means[part] = torch.where(seen == 0, value, running / seen.to(value))
        names = {part: name for part, name in _HARD.items() if name in means}
        labels = {part: means.pop(name) for part, name in names.items()}
        of_labels = Confusion(**(means | labels), multilabel=confusion.multilabel)
        for part in means:  # NaN of the batch is visible
            means[part] = means[part] + (getattr(confusion, part) - new[part])
        return Confusion(**means, multilabel=confusion.multilabel), replace(of_labels, rows=None)

    def hard_average(self) -> Confusion:
        """The average of hard labels so far."""
        parts = {name: getattr(self, _HARD.get(name, name)) for name in _SOFT[:-1]}
        average = {name: x / self.seen for name, x in parts.items() if x is not None}
        return Confusion(**average, multilabel=self.total.ndim == 1)

    def buffers_for(
        self, classes: int, like: Tensor, *, multilabel: bool, hard: bool
    ) -> tuple[Tensor, ...]:
        """The buffers that a kernel updates in place, made before the first batch.

        They are seen, tp, predicted, actual, total, rows, and with `hard` those of hard labels. A
        multilabel problem has no rows; the total takes their place.
        """
        if self.seen.device != like.device:
            self._apply(lambda x: x.to(like.device))
        names = ["tp", "predicted", "actual", *(["hard_tp", "hard_predicted"] if hard else [])]
        if self.tp is None or (self.rows is None) != multilabel or (self.hard_tp is None) == hard:
            self.reset()
            for part in names:
                setattr(self, part, self.seen.new_zeros(classes))
            self.total = self.tp.clone() if multilabel else self.seen.clone()
            self.rows = None if multilabel else self.seen.clone()
        self._check_classes(self.tp, classes)
        rows = self.total if multilabel else self.rows
        labels = (self.hard_tp, self.hard_predicted) if hard else (self.tp, self.tp)
        return self.seen, self.tp, self.predicted, self.actual, self.total, rows, *labels

    def _before(self, part: str, value: Tensor) -> Tensor:
        """The running sum of a part, in the shape of the first batch."""
        running: Tensor | None = getattr(self, part)
        if running is None:
            return torch.zeros_like(value)
        self._check_classes(running, value.shape[:1].numel())
        return running.to(value.device)

    def _check_classes(self, running: Tensor, classes: int) -> None:
        before = running.shape[:1].numel()
        allowed, cure = f"keep the {before} classes of the batches before", "Make a new loss."
        require(before == classes, "running statistics", "logits", allowed, classes, cure)

    def empty(self) -> None:
        """Forget all batches in place, so that CUDA graphs stay valid."""
        for part in ("seen", *PARTS):
            if (kept := getattr(self, part)) is not None:
                kept.zero_()

    def reset(self) -> None:
        """Forget all batches and their number of classes."""
        self.seen.zero_()
        for part in PARTS:
            setattr(self, part, None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningConfusion":
        for name, buffer in self.named_buffers():
            self._buffers[name] = moved(buffer, fn)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        make_saved(self, PARTS, state_dict, prefix, self.seen)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if self.tp is None and not (traced() or self.seen.is_meta) and self.seen > 0:
            self.reset()  # an average of nothing would be too small, and its slopes too steep
            warnings.warn(WITHOUT_SUMS, UserWarning, stacklevel=2)
