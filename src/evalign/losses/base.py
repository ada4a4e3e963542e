"""What all losses share: one way in, one scalar out."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.batch import Batch, Task, as_batch, check_task, check_types
from evalign.core.checks import check_temperature, require
from evalign.core.membership import Heaviside, check_step
from evalign.core.numerics import full_precision


class Loss(nn.Module):
    """A scalar of (logits, target, sample_weight), computed in full precision.

    Args:
        task: "binary", "multiclass" or "multilabel"; None infers it from shapes and dtypes, see
            `evalign.core.batch`. Naming the task also declares that float targets are
            probabilities.
        ignore_index: target value of rows (or single labels) that do not count.
        validate: check values even where that costs a device synchronisation, and that logits are
            finite. Without it values are checked on eager CPU tensors only.
    """

    def __init__(
        self, *, task: Task | None = None, ignore_index: int = -100, validate: bool = False
    ) -> None:
        super().__init__()
        check_task(type(self).__name__, task)
        whole = isinstance(ignore_index, int)
        require(whole, type(self).__name__, "ignore_index", "be an integer", repr(ignore_index))
        self.task: Task | None = task
        self.ignore_index = ignore_index
        self.validate = validate

    def forward(
        self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss of the batch; 0, still attached to the graph, when no row has weight."""
        check_types(type(self).__name__, logits, target, sample_weight)
        with full_precision(logits):
            batch = as_batch(
                type(self).__name__,
                logits,
                target,
                task=self.task,
                sample_weight=sample_weight,
                ignore_index=self.ignore_index,
                validate=self.validate,
            )
            value = self.value(batch).to(batch.logits.dtype)
            return torch.where(batch.weight.sum() == 0, torch.zeros_like(value), value)

    @abstractmethod
    def value(self, batch: Batch) -> Tensor:
        """The loss of rows in canonical form; finite, whatever it is, when no row has weight."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Loss":
        # Buffers are settings, not weights: .half() must not turn a temperature of 0.2 into
        # 0.19995. Only their device follows; a device without float64 holds them in float32.
        exact = dict(self.named_buffers(recurse=False))
        for name, buffer in exact.items():
            self._buffers[name] = buffer.float()
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            moved: Any = self._buffers[name]
            if buffer.is_meta:  # no value to keep, and to_empty brings none
                self._buffers[name] = moved.double()
            elif moved.device.type != "mps":
                self._buffers[name] = buffer.to(moved.device)
        return self


class SoftSetLoss(Loss):
    """A loss of soft-set memberships: it has a step (`heaviside`) and a temperature.

    Args:
        temperature: sharpness of the step, in (0, 0.4]; a buffer, so it is saved and moved with
            the module. Change it with `set_temperature`.
        heaviside: "linear" (EAST eq. 4), "sigmoid" (BtG, k = 2 / temperature), or a function
            (p, threshold) -> H of fixed sharpness.
    """

    temperature: Tensor

    def __init__(
        self,
        *,
        temperature: float,
        heaviside: Heaviside,
        task: Task | None,
        ignore_index: int,
        validate: bool,
    ) -> None:
        super().__init__(task=task, ignore_index=ignore_index, validate=validate)
        check_step(type(self).__name__, heaviside, temperature)
        self.heaviside: Heaviside = heaviside
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def forward(
        self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        # The buffer may have been loaded or filled with anything.
        check_temperature(type(self).__name__, self.temperature, validate=self.validate)
        return super().forward(logits, target, sample_weight=sample_weight)

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        check_temperature(type(self).__name__, temperature)
        self.temperature.fill_(temperature)
