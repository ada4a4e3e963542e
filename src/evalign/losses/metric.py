"""Any metric of the confusion matrix as a loss."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, Unpack

import torch
from torch import Tensor

from evalign.aggregation import Ranks
from evalign.core.arrays import safe_ratio, sum_dtype
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, MatrixMetric, MetricFunction, resolve
from evalign.kernels import KernelSettings
from evalign.kernels.closed import closed_form
from evalign.kernels.sums import KernelSums, kernel_sums
from evalign.losses.base import RowSettings, RunningLoss, SteppedLoss
from evalign.losses.route import WholeLoss, by_kernel
from evalign.membership import soft_sets
from evalign.membership.batch import Batch, Mean, Sums
from evalign.membership.checks import check_temperature, thresholds_tensor
from evalign.membership.numerics import at_once, full_precision
from evalign.membership.rows import GivenRows
from evalign.membership.soft_confusion import summed


class MetricLoss(RunningLoss, SteppedLoss):
    r"""1 − metric of the soft confusion matrix (EAST; BtG for binary and multilabel problems).

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics`, or
            any function of a `Confusion` that returns a scalar tensor. A cost
            (`greater_is_better` false) is its own loss.
        temperature: sharpness of the step, in (0, 0.4]; a buffer, so it is saved and moved with
            the module. Change it with `set_temperature`.
        heaviside: "linear" (EAST eq. 4), "sigmoid" (BtG, k = 2 / temperature), or a function
            (p, threshold) -> H of fixed sharpness.
        threshold: one number (default 0.5), or for multilabel tasks one per label. Multiclass tasks
            have a dynamic threshold and take none.
        momentum: weight of the new batch, in (0, 1], in a moving average of the Confusion at which
            the gradient is taken, so that classes absent from most batches still count. None is
            the batch alone. The average is used in training mode with gradients only, and is in the
            state dict. A new temperature does not reset it: it forgets by itself.
        per_image: average the metric over images, instead of taking the metric of all rows
            together. Images are the first dimension of the logits; if there are no pixels, each row
            is an image, and a multilabel "f1_micro" is the samples-averaged F1. An image weighs as
            much as the mean weight of its rows. Rows of weight 0 are left out, and with a
            `zero_division` of NaN so are images where the metric is undefined. Absent classes are
            those of each image (`ClassMetric`).
        ranks: "all" sums over the processes of `torch.distributed` when it is initialised, in
            training mode with gradients only, so that the gradient that DDP averages is that of all
            rows together; "own" sums over this process alone; or the process group to sum over.
        rows: `task`, `ignore_index` and `class_dim`, as in `Loss`.

    Examples:
        >>> loss = MetricLoss("f1_macro")
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]], requires_grad=True)
        >>> value = loss(logits, torch.tensor([0, 2]))
        >>> value.backward()
    """

    has_kernels = True  # of this class: a subclass may compute something else
    threshold: Tensor | None

    def __init__(
        self,
        metric: str | MetricFunction,
        *,
        temperature: float = 0.2,
        heaviside: soft_sets.Heaviside = "linear",
        threshold: float | Sequence[float] | Tensor | None = None,
        momentum: float | None = None,
        per_image: bool = False,
        ranks: Ranks = "all",
        **rows: Unpack[RowSettings],
    ) -> None:
        super().__init__(momentum, ranks, **rows)
        name = type(self).__name__
        self.set_step(heaviside, temperature)
        self.metric = resolve(metric, owner=name)
        self.closed_form = closed_form(self.metric)
        if threshold is not None:
            threshold = thresholds_tensor(name, "threshold", threshold)
        self.register_buffer("threshold", threshold, persistent=False)
        if momentum is not None:
            allowed = "be None with per_image: the metric of an image is its own"
            require(not per_image, name, "momentum", allowed, repr(momentum))
        self.per_image = per_image

    def rows(self, *args: Any, **settings: Any) -> GivenRows:
        rows = super().rows(*args, **settings)
        if self.metric.double:
            rows = rows._replace(logits=rows.logits.to(sum_dtype(rows.logits)))
        return rows

    def of_rows(self, rows: GivenRows) -> Tensor:
        if by_kernel(self, rows, whole=True):
            check_temperature(type(self).__name__, self.temperature)
            return self.whole(rows)
        with full_precision(rows.logits):
            value = self.loss_from_sums(self.sums_of(rows))
            return value.to(torch.promote_types(rows.logits.dtype, torch.float32))

    def whole(self, rows: GivenRows, cross: Tensor | None = None) -> Tensor:
        """The loss as one function of a GPU; `cross` is of `AlignedLoss`."""
        value: Any = WholeLoss.apply(rows.logits, rows, cross, self, self.learns())
        return value

    def sums_of(self, rows: GivenRows) -> Sums:
        check_temperature(type(self).__name__, self.temperature)
        if not by_kernel(self, rows, whole=False):
            return super().sums_of(rows)
        return self.kernel_sums(rows, KernelSettings(self.temperature))[0]

    def kernel_sums(self, rows: GivenRows, settings: KernelSettings) -> tuple[Sums, KernelSums]:
        """The sums of the metric by a kernel, and all sums of the batch."""
        if not self.per_image:
            sums = kernel_sums(rows, settings)
            return (sums.soft,), sums
        images = [kernel_sums(image, settings) for image in rows.images()]
        each = []
        for c, *_ in images:
            assert c.rows is not None  # `by_kernel` says so
            each.append(self._of_image(c, safe_ratio(c.total, c.rows)))
        loss, size = (torch.stack(x).sum() for x in zip(*each, strict=True))
        sums = KernelSums(*(reduce(add, parts) for parts in zip(*images, strict=True)))
        return (Mean(loss, size), sums.soft), sums

    def sums_from_batch(self, batch: Batch) -> Sums:
        return self._of_images(batch) if self.per_image else (self._confusion(batch),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        sums = self.of_all_ranks(sums)
        if self.per_image:
            return sums[0].value()
        empty = sums[0].total.sum() == 0
        return self._loss(self.over_batches(sums[0]), empty)[0]

    def _confusion(self, batch: Batch) -> Confusion:
        soft = soft_sets.of_batch(
            type(self).__name__,
            batch,
            temperature=self.temperature,
            heaviside=self.heaviside,
            threshold=self.threshold,
        )
        return summed(batch, soft, matrix=self.metric.needs_matrix)

    def _of_images(self, batch: Batch) -> tuple[Mean, Confusion]:
        """The mean loss of the images that have a score, and the sums over all images."""

        def of_image(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
            c = self._confusion(Batch(batch.task, logits, target, weight))
            size = weight.sum() / (weight > 0).sum().clamp(min=1)
            return *self._of_image(c, size), *c.tensors()

        rows = batch.given, batch.target, batch.weight
        number = max(1, batch.images)
        images = [x.unflatten(0, (number, len(x) // number)) for x in rows]
        sums = (x.sum(0) for x in at_once(of_image, *images))
        loss, sizes, tp, predicted, actual, total, *rest = sums
        full = rest.pop(0) if self.metric.needs_matrix else None
        many = batch.task == "multilabel"
        pooled = Confusion(tp, predicted, actual, total, full, many, *rest)
        return Mean(loss, sizes.to(loss)), pooled

    def _of_image(self, c: Confusion, size: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of an image times its size, and its size: 0 if it has no score."""
        loss, nothing = self._loss(c, c.total.sum() == 0)
        size = torch.where(nothing, 0, size)
        return size * loss, size

    def _loss(self, confusion: Confusion, empty: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and whether there is nothing to learn from these rows: then it is 0."""
        if not isinstance(self.metric, ClassMetric | MatrixMetric):
            # Without rows a user's function would divide by zero. Its value is not used then.
            confusion = confusion.map(lambda x: torch.where(empty, 1, x))
        score = self.metric(confusion)
        loss = 1 - score if self.metric.greater_is_better else score
        nothing = empty
        if self.metric.nan_if_undefined:
            # Without a score of any class there is nothing to learn. NaN in the rows stays visible.
            unknown = (confusion.predicted + confusion.actual).sum().isnan()
            nothing = empty | (score.isnan() & ~unknown)
        return loss.masked_fill(nothing, 0), nothing
