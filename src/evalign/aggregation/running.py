"""Moving average of Confusions over batches, for classes missing from most batches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.arrays import sum_dtype
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.membership.numerics import moved


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


class Stateful(nn.Module):
    """A Module whose buffers are settings and sums: they keep their digits, and may have no size.

    Attributes:
        learned: the buffers that are None until the first batch gives them their size.
    """

    learned: tuple[str, ...] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Stateful":
        # .half() must not make 0.19995 of a temperature of 0.2.
        exact = dict(self.named_buffers(recurse=False))
        self._buffers.update(dict.fromkeys(exact))
        super()._apply(fn, recurse)
        self._buffers.update({name: moved(buffer, fn) for name, buffer in exact.items()})
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name in self.learned:  # torch does not load into None
            saved, like = state_dict.get(prefix + name), next(self.buffers())
            kind = {"device": like.device, "dtype": sum_dtype(like)}
            setattr(self, name, None if saved is None else torch.zeros_like(saved, **kind))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class RunningConfusion(Stateful):
    """Exponential moving average of Confusions, with bias correction.

    The result has the value of the average C̄ and the gradient of the batch C: C̄ + (C − stop(C)). A
    metric of it is differentiated at the average with respect to this batch, without the factor of
    the momentum. Batches without rows and batches with a logit that is not finite leave the average
    unchanged; the loss of the latter is NaN.

    One vector holds all sums: those of a Confusion (tp, predicted, actual, total and the matrix, if
    there is one), what hard labels have of their own beside it, and the number of rows.

    Args:
        momentum: the weight of the new batch, in (0, 1]; 1 is the batch alone.
        owner: the loss that errors name.
    """

    seen: Tensor
    sums: Tensor | None
    learned = ("sums",)

    def __init__(self, momentum: float, owner: str = "MetricLoss") -> None:
        super().__init__()
        allowed = "lie in (0, 1], the weight of the new batch"
        ok = isinstance(momentum, int | float) and 0 < momentum <= 1
        require(ok, owner, "momentum", allowed, repr(momentum))
        self.momentum = momentum
        self.owner = owner
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))  # 1 − (1 − momentum)^k
        self.register_buffer("sums", None)  # its size is that of the first batch

    def forward(self, confusion: Confusion) -> Confusion:
        """Add the batch to the average."""
        return self.with_hard(confusion, None)[0]

    def with_hard(self, soft: Confusion, hard: Confusion | None) -> tuple[Confusion, Confusion]:
        """Add the batch to both averages, of soft and of hard labels."""
        parts = _parts(soft, hard)
        now, m = torch.cat([part.flatten() for part in parts]).detach(), self.momentum
        before, seen = self._ready(now), self.seen
        # The total of a batch of finite sums is positive unless it has no rows.
        counts = (soft.total.detach().sum() != 0) & now.sum().isfinite()
        sums = keep(self, "sums", torch.where(counts, before.lerp(now, m), before))
        seen = keep(self, "seen", torch.where(counts, seen + m * (1 - seen), seen))
        # Before any batch counts there is no average; a first one that is NaN is visible.
        mean = torch.where(seen == 0, now, sums / seen).split([part.numel() for part in parts])
        gradients = iter([x - x.detach() for x in soft.tensors()])  # with NaN of the batch
        point = _confusion(mean, soft).map(lambda x: x + next(gradients))
        return point, _confusion(mean, soft, hard)

    def hard_average(self, like: Confusion) -> Confusion:
        """The average of hard labels so far, in the shapes of another Confusion."""
        assert self.sums is not None
        sizes = [part.numel() for part in _parts(like, like)]
        parts = (self.sums / self.seen)[: sum(sizes)].split(sizes)
        return _confusion(parts, like, like)

    def sums_for(self, classes: int, like: Tensor, *, multilabel: bool, hard: bool) -> Tensor:
        """The vector that a kernel updates in place, made before the first batch."""
        number = classes * (3 + 2 * hard) + (classes if multilabel else 2)
        sums = self.sums
        if sums is None or len(sums) != number or sums.device != like.device:
            sums = self.sums = self._ready(like.new_empty(number, dtype=self.seen.dtype))
        return sums

    def _ready(self, now: Tensor) -> Tensor:
        """The sums before this batch, where it is."""
        if self.seen.device != now.device:
            self._apply(lambda x: x.to(now.device))
        if self.sums is None:
            return torch.zeros_like(now)
        allowed, cure = "keep the classes and the metric of the batches before", "Make a new loss."
        got = f"{now.numel()} sums, not {self.sums.numel()}"
        require(self.sums.shape == now.shape, self.owner, "logits", allowed, got, cure)
        return self.sums

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if self.sums is None:  # an average begins anew without its sums: else it would be too small
            self.seen.zero_()


def _parts(soft: Confusion, hard: Confusion | None) -> list[Tensor]:
    """The tensors of a Confusion, and of hard labels all but the actual mass; the rows last."""
    own = [] if hard is None else [hard.tp, hard.predicted, hard.full]
    parts = [soft.tp, soft.predicted, soft.actual, soft.total, soft.full, *own, soft.rows]
    return [part for part in parts if part is not None]


def _confusion(
    parts: tuple[Tensor, ...], soft: Confusion, hard: Confusion | None = None
) -> Confusion:
    """The Confusion in these `_parts`; that of hard labels if they are given."""
    tp, predicted, actual, total, *rest = parts
    full = None if soft.full is None else rest.pop(0).view_as(soft.full)
    if hard is None:
        rows = None if soft.rows is None else rest[-1].view(())
    else:
        tp, predicted, rows = rest[0], rest[1], None
        full = None if full is None else rest[2].view_as(full)
    tp, predicted = tp.view_as(soft.tp), predicted.view_as(soft.tp)
    actual, total = actual.view_as(soft.actual), total.view_as(soft.total)
    return Confusion(tp, predicted, actual, total, full, soft.multilabel, rows)
