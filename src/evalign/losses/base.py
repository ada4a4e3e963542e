"""The base classes of losses: from rows to a scalar, for most of them by way of sums."""

from abc import ABC, abstractmethod
from inspect import signature
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor

from evalign.aggregation import Ranks, RankSum, RunningConfusion
from evalign.aggregation.running import Stateful
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.task import Task, check_task
from evalign.losses import outputs
from evalign.membership.batch import Batch, Mean, Sums
from evalign.membership.checks import check_temperature, traced
from evalign.membership.numerics import full_precision
from evalign.membership.rows import GivenRows, as_rows, check_types
from evalign.membership.soft_sets import Heaviside, check_step


class RowSettings(TypedDict, total=False):
    """How a loss reads its rows: the arguments of `Loss`, which every loss takes as `rows`."""

    task: Task | None
    ignore_index: int
    class_dim: int | None


class Loss(Stateful, ABC):
    """A scalar of (logits, target, sample_weight), computed in full precision.

    A subclass defines `value`. Its repr shows every argument of its constructor that it keeps as an
    attribute of the same name.

    Args:
        task: "binary", "multiclass" or "multilabel"; None infers it from shapes and dtypes, see
            `evalign.membership.rows`. Naming the task also declares that float targets are
            probabilities.
        ignore_index: target value of rows (or single labels) that do not count.
        class_dim: the dimension of the classes or labels in logits of more than two dimensions: 1,
            or -1 where they come last, as in tokens (B, T, C). None is 1, with a warning where
            either may be meant.
    """

    def __init__(
        self, *, task: Task | None = None, ignore_index: int = -100, class_dim: int | None = None
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_task(name, task)
        whole = isinstance(ignore_index, int)
        require(whole, name, "ignore_index", "be an integer", repr(ignore_index))
        require(class_dim in (None, 1, -1), name, "class_dim", "be 1, -1 or None", repr(class_dim))
        self.task: Task | None = task
        self.ignore_index = ignore_index
        self.class_dim = class_dim
        self._looked = False  # the first batch is checked for likely mistakes

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        num_items_in_batch: Tensor | int | Literal["not given"] | None = "not given",
    ) -> Tensor:
        """The loss of the batch; 0, still attached to the graph, when no row has weight.

        With `num_items_in_batch`, which the Trainer of Hugging Face passes, `logits` is the output
        of a model, and the loss is scaled as that Trainer expects.
        """
        if not isinstance(num_items_in_batch, str):
            logits = outputs.logits_of(logits)
            check_types(type(self).__name__, logits, target, sample_weight)
            logits, target = outputs.classes_second(logits, target)
            share = outputs.share_of_step(target, num_items_in_batch)
            value = self.of_rows(self.rows(logits, target, sample_weight, class_dim=1))
            return value * share.to(value.dtype)
        value = self.of_rows(self.rows(logits, target, sample_weight))
        return value.to(torch.promote_types(logits.dtype, torch.float32))

    def of_rows(self, rows: GivenRows) -> Tensor:
        """The loss of checked rows."""
        with full_precision(rows.logits):
            batch = Batch.of(rows)
            return self.value(batch).to(batch.weight.dtype)

    def rows(
        self,
        logits: Tensor,
        target: Tensor,
        sample_weight: Tensor | None = None,
        *,
        class_dim: int | None = None,
    ) -> GivenRows:
        """Check the rows. `class_dim`, if given, overrides that of the loss."""
        name = type(self).__name__
        eager = not traced()  # a graph must not depend on the number of calls
        if eager:
            self._check_precision()
        rows = as_rows(
            name,
            logits,
            target,
            task=self.task,
            sample_weight=sample_weight,
            ignore_index=self.ignore_index,
            class_dim=self.class_dim if class_dim is None else class_dim,
            look=eager and not self._looked,
        )
        self._looked |= eager
        return rows

    def learns(self) -> bool:
        """Whether this is a training call, in which other ranks and earlier batches count."""
        return self.training and torch.is_grad_enabled()

    @abstractmethod
    def value(self, batch: Batch) -> Tensor:
        """The loss of rows in canonical form; 0 when no row has weight."""

    def extra_repr(self) -> str:
        parameters = signature(type(self)).parameters.values()
        own = [each.name for each in parameters if each.kind != each.VAR_KEYWORD]
        names = dict.fromkeys([*own, *RowSettings.__annotations__])  # each once, in this order
        kept = [name for name in names if hasattr(self, name)]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in kept)

    def _check_precision(self) -> None:
        """Check that FSDP has not cast buffers to half precision, in which counts stop growing."""
        # By torch's own dictionary: `buffers` would take as long as a kernel in every call.
        kept = (x for x in self._buffers.values() if x is not None)
        got = next((x.dtype for x in kept if x.is_floating_point()), None)
        ok = got is None or got.itemsize >= 4
        cure = (
            "Mixed precision of FSDP has cast them: wrap the network alone, pass "
            "FSDP(..., ignored_modules=[loss]), or leave out its buffer_dtype."
        )
        require(ok, type(self).__name__, "buffers", "have their full precision", got, cure)


class SteppedLoss(Loss):
    """A loss whose step has a temperature: a buffer, saved and moved with it."""

    temperature: Tensor

    def set_step(self, heaviside: Heaviside, temperature: float) -> None:
        """Check and keep the step, at construction."""
        check_step(type(self).__name__, heaviside, temperature)
        self.heaviside: Heaviside = heaviside
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float64))

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        check_temperature(type(self).__name__, temperature)
        self.temperature.fill_(temperature)


class AdditiveLoss(Loss):
    """A function of sums over rows, so that the rows may come in parts (`exact_backward`)."""

    def value(self, batch: Batch) -> Tensor:
        return self.loss_from_sums(self.sums_from_batch(batch))

    def sums(self, logits: Tensor, target: Tensor, *, sample_weight: Tensor | None = None) -> Sums:
        """The sums of these rows, to be added to those of others."""
        return self.sums_of(self.rows(logits, target, sample_weight))

    def sums_of(self, rows: GivenRows) -> Sums:
        """The sums of checked rows."""
        with full_precision(rows.logits):
            return self.sums_from_batch(Batch.of(rows))

    @abstractmethod
    def sums_from_batch(self, batch: Batch) -> Sums:
        """The sums of rows in canonical form."""

    @abstractmethod
    def loss_from_sums(self, sums: Sums) -> Tensor:
        """The loss of all summed rows; 0 if none has weight."""


class RunningLoss(AdditiveLoss):
    """A function of the sums of all ranks, perhaps averaged over batches: in training alone.

    Args:
        momentum: the weight of the new batch in the average; None for the batch alone.
        ranks: whose rows are summed, see `RankSum`.
        rows: how rows are read, see `Loss`.
    """

    def __init__(self, momentum: float | None, ranks: Ranks, **rows: Unpack[RowSettings]) -> None:
        super().__init__(**rows)
        name = type(self).__name__
        self.momentum = momentum
        self.over_ranks = RankSum(ranks, name)
        self.running = None if momentum is None else RunningConfusion(momentum, name)

    @property
    def ranks(self) -> Ranks:
        return self.over_ranks.ranks

    def of_all_ranks(self, sums: Sums) -> Sums:
        """The sums over the ranks, in training."""
        return self.over_ranks(sums) if self.learns() else sums

    def over_batches(self, confusion: Confusion) -> Confusion:
        """The average over batches, in training."""
        if self.running is None or not self.learns():
            return confusion
        return self.running(confusion)


class MeanLoss(AdditiveLoss):
    """A weighted mean over rows."""

    @abstractmethod
    def mean(self, batch: Batch) -> Mean:
        """The mean over these rows, as its two sums."""

    def sums_from_batch(self, batch: Batch) -> Sums:
        return (self.mean(batch),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return sums[0].value()


def zero_if_empty(value: Tensor, mass: Tensor) -> Tensor:
    """The value, or 0 if no row has weight."""
    return value.masked_fill(mass == 0, 0)
