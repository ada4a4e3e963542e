"""What losses share: one way in, one scalar out, and for most of them sums in between."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from evalign.core.batch import Batch, Mean, Sums, Task, as_batch, check_task, check_types
from evalign.core.checks import check_temperature, require
from evalign.core.membership import Heaviside, check_step
from evalign.core.numerics import full_precision, moved


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
            batch = self.batch(logits, target, sample_weight)
            value = zero_if_empty(self.value(batch), batch.weight.sum())
            return value.to(batch.weight.dtype)

    def batch(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> Batch:
        """What came, checked, as rows in canonical form."""
        return as_batch(
            type(self).__name__,
            logits,
            target,
            task=self.task,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            validate=self.validate,
        )

    @abstractmethod
    def value(self, batch: Batch) -> Tensor:
        """The loss of rows in canonical form; finite, whatever it is, when no row has weight."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Loss":
        # Buffers are settings, not weights: .half() must not make 0.19995 of a temperature of 0.2.
        exact = dict(self.named_buffers(recurse=False))
        self._buffers.update(dict.fromkeys(exact))
        super()._apply(fn, recurse)
        self._buffers.update({name: moved(buffer, fn) for name, buffer in exact.items()})
        return self


def zero_if_empty(value: Tensor, mass: Tensor) -> Tensor:
    """The value, and 0 where no row has weight."""
    return torch.where(mass == 0, torch.zeros_like(value), value)


class AdditiveLoss(Loss):
    """A function of sums over rows, so that the rows may come in parts (`exact_backward`)."""

    def forward(
        self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        sums = self.sums(logits, target, sample_weight=sample_weight)
        with full_precision(logits):
            return self.loss_from_sums(sums).to(torch.promote_types(logits.dtype, torch.float32))

    def sums(self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Sums:
        """What these rows add to the sums."""
        check_types(type(self).__name__, logits, target, sample_weight)
        with full_precision(logits):
            return self.sums_from_batch(self.batch(logits, target, sample_weight))

    @abstractmethod
    def sums_from_batch(self, batch: Batch) -> Sums:
        """The sums of rows in canonical form."""

    @abstractmethod
    def loss_from_sums(self, sums: Sums) -> Tensor:
        """The loss of all rows that were summed; 0 where none has weight."""


class MeanLoss(AdditiveLoss):
    """A mean over rows."""

    def sums_from_batch(self, batch: Batch) -> tuple[Mean]:
        return (self.mean(batch),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return sums[0].value()

    @abstractmethod
    def mean(self, batch: Batch) -> Mean:
        """The mean over these rows."""


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

    def batch(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None) -> Batch:
        # The buffer may have been loaded or filled with anything.
        check_temperature(type(self).__name__, self.temperature, validate=self.validate)
        return super().batch(logits, target, sample_weight)

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        check_temperature(type(self).__name__, temperature)
        self.temperature.fill_(temperature)
