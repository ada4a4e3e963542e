"""The gradient of a whole batch in the memory of one micro-batch.

A metric does not decompose over micro-batches, but its sums do. Pass one adds them up without a
graph. The loss is differentiated once, at the total. Pass two back-propagates the linear loss
Σ ⟨∂L/∂C, C_i⟩, whose gradient over all micro-batches is that of the whole batch.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from evalign.core.checks import complaint
from evalign.membership.batch import Sums


class ExactAccumulation:
    """The two passes of `exact_backward`, for a training loop of your own.

    Both passes draw the same random numbers (dropout), on the CPU and on CUDA, if their forward
    calls are the same. Batch normalisation sees micro-batches, and updates its averages twice.

    Args:
        loss: the loss to differentiate, in training mode.

    Examples:
        >>> from evalign import MetricLoss
        >>> model = nn.Linear(4, 3)
        >>> parts = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
        >>> exact = ExactAccumulation(MetricLoss("f1_macro"))
        >>> with exact.counting():
        ...     for x, y in parts:
        ...         exact.count(model(x), y)
        >>> with exact.replaying():
        ...     for x, y in parts:
        ...         exact.loss(model(x), y).backward()
        >>> 0 < exact.value.item() < 1  # of all forty rows
        True
    """

    value: Tensor
    _before: Any

    def __init__(self, loss: Any) -> None:
        if not (hasattr(loss, "sums") and hasattr(loss, "loss_from_sums")):
            allowed = "be a function of sums over rows, with the methods sums and loss_from_sums"
            got, cure = type(loss).__name__, "MetricLoss is one."
            raise TypeError(complaint("exact_backward", "loss", allowed, got, cure))
        self._of = self._before = loss  # _before: as it is until pass one has taught it something
        self._total: Sums = ()
        self._slopes: list[Tensor] = []
        self._now = ""  # the current pass
        self._rng: tuple[Tensor, list[Tensor]]

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Pass one: `count` every micro-batch, without a graph."""
        self._total, self._slopes, self._now = (), [], "counting"
        self._rng = torch.get_rng_state(), torch.cuda.get_rng_state_all()
        try:
            with torch.no_grad():
                yield
        finally:
            self._now = ""
        if not self._total:
            raise ValueError(complaint("exact_backward", "microbatches", "not be empty", "none"))
        total = tuple(part.map(lambda x: x.detach().requires_grad_()) for part in self._total)
        # A copy with statistics of its own, which shares what takes a gradient.
        loss = self._of
        tensors = chain(loss.parameters(), loss.buffers()) if isinstance(loss, nn.Module) else ()
        self._before = copy.deepcopy(loss, {id(x): x for x in tensors if x.requires_grad})
        with torch.enable_grad():
            value = self._of.loss_from_sums(total)
        leaves = [tensor for part in total for tensor in part.tensors()]
        slopes = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        self._slopes, self.value = list(slopes), value.detach()

    def count(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> None:
        """Add the sums of a micro-batch."""
        self._require("count", "counting")
        sums = self._of.sums(logits, target, sample_weight=sample_weight)
        pairs = zip(self._total, sums, strict=True) if self._total else ()
        self._total = tuple(a + b for a, b in pairs) or sums

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Pass two: back-propagate `loss` of every micro-batch."""
        if not self._slopes:
            raise RuntimeError("ExactAccumulation: pass one, `counting`, comes before `replaying`.")
        torch.set_rng_state(self._rng[0])
        torch.cuda.set_rng_state_all(self._rng[1])
        self._now = "replaying"
        try:
            yield
        finally:
            self._now = ""

    def loss(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Σ ⟨∂L/∂C, C_i⟩: its gradients add up to that of the loss; its value has no meaning."""
        self._require("loss", "replaying")
        sums = self._before.sums(logits, target, sample_weight=sample_weight)
        pairs = zip(self._slopes, (x for part in sums for x in part.tensors()), strict=True)
        return torch.stack([(slope * x).sum() for slope, x in pairs]).sum()

    def _require(self, method: str, name: str) -> None:
        if self._now != name:
            raise RuntimeError(f"ExactAccumulation: call `{method}` inside `with {name}()`.")


def exact_backward(
    loss: Any,
    model: nn.Module,
    microbatches: Sequence[tuple[Tensor, ...]],
    *,
    scaler: torch.amp.GradScaler | None = None,
) -> Tensor:
    """Back-propagate the loss of all micro-batches together, one at a time in memory.

    The gradient equals that of the whole batch up to rounding, at the cost of a second forward
    pass. Under DDP gradients are averaged over the ranks with the last micro-batch, and
    `MetricLoss` sums over the ranks as well; every rank needs at least one micro-batch.

    Args:
        loss: `MetricLoss`, a pointwise loss, or any module with their methods `sums` and
            `loss_from_sums`, in training mode.
        model: maps x to logits. Autocast around the call covers it.
        microbatches: a list of (x, target) or (x, target, sample_weight), read twice.
        scaler: gradient scaler, for float16.

    Returns:
        The loss of the whole batch, without a graph.
    """
    listed = isinstance(microbatches, list | tuple)
    for part in microbatches if listed else [microbatches]:
        parted = listed and isinstance(part, list | tuple)
        if not (parted and len(part) in (2, 3)):
            allowed = "be a list of (x, target) or (x, target, sample_weight), read twice"
            got = f"a {type(part).__name__}" + (f" of {len(part)}" if parted else "")
            raise TypeError(complaint("exact_backward", "microbatches", allowed, got))
    if not isinstance(model, nn.Module):
        allowed, got = "be a torch.nn.Module, from x to logits", type(model).__name__
        cure = "Around other calls write the two passes out, with ExactAccumulation."
        raise TypeError(complaint("exact_backward", "model", allowed, got, cure))
    warn_of_batch_statistics("exact_backward", model)
    exact = ExactAccumulation(loss)
    no_sync = getattr(model, "no_sync", nullcontext)  # DDP and FSDP have one
    with exact.counting(), no_sync():
        for x, *rest in microbatches:
            exact.count(model(x), *rest)
    with exact.replaying():
        for i, (x, *rest) in enumerate(microbatches):
            with nullcontext() if i == len(microbatches) - 1 else no_sync():
                value = exact.loss(model(x), *rest)
                (value if scaler is None else scaler.scale(value)).backward()
    return exact.value


def warn_of_batch_statistics(owner: str, model: nn.Module) -> None:
    """Warn about batch normalisation in training mode, which sees parts of the batch twice."""
    if any(isinstance(m, _BatchNorm) and m.training for m in model.modules()):
        text = (
            f"{owner}: the model has batch statistics in training mode. They are those of a "
            "micro-batch, not of the whole batch, and their averages are updated twice. Put those "
            "layers in eval mode, or use GroupNorm or LayerNorm."
        )
        warnings.warn(text, UserWarning, stacklevel=3)
