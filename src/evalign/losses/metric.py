"""Any metric of the confusion matrix as a loss."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from evalign.aggregation import Ranks, RankSum, RunningConfusion
from evalign.core import membership
from evalign.core.batch import Batch, Mean, Sums
from evalign.core.checks import check_temperature, require, thresholds_tensor
from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, MatrixMetric, MetricFunction, resolve
from evalign.core.rows import GivenRows, Task
from evalign.kernels import soft_confusion
from evalign.kernels.closed import closed_form
from evalign.losses.base import AdditiveLoss
from evalign.losses.fused import FusedLoss
from evalign.losses.temperature import fill_temperature, register_temperature


class MetricLoss(AdditiveLoss):
    r"""1 − metric of the soft confusion matrix (EAST; BtG for binary and multilabel problems).

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics`, or
            any function of a `Confusion` that returns a scalar tensor. A cost
            (`greater_is_better` false) is its own loss.
        temperature: sharpness of the step, in (0, 0.4]; a buffer, so it is saved and moved with
            the module. Change it with `set_temperature`.
        heaviside: "linear" (EAST eq. 4), "sigmoid" (BtG, k = 2 / temperature), or a function
            (p, threshold) -> H of fixed sharpness.
        threshold: for binary tasks one number (default 0.5) or several, over which the loss is
            averaged; for multilabel tasks one number or one per label. Multiclass tasks have a
            dynamic threshold and take none.
        zero_division: score of a class where the metric is 0/0 (0, 1, or NaN to leave it out), for
            metrics given by name.
        statistics: "batch" or "running": take the gradient of the metric at a moving average of
            the Confusion, so that classes absent from most batches still count. This is done in
            training mode with gradients only. The average is in the state dict. A new temperature
            does not reset it: it forgets by itself.
        momentum: weight of the new batch in the average, in (0, 1].
        per_image: average the metric over images, instead of taking the metric of all rows
            together. Images are the first dimension of the logits; if there are no pixels, each row
            is an image, and a multilabel "f1_micro" is the samples-averaged F1. An image weighs as
            much as the mean weight of its rows. Rows of weight 0 are left out, and with a
            `zero_division` of NaN so are images where the metric is undefined. Absent classes are
            those of each image (`ClassMetric`).
        ranks: "all" sums over the processes of `torch.distributed` when it is initialised, in
            training mode with gradients only, so that the gradient that DDP averages is that of all
            rows together; "own" sums over this process alone; or the process group to sum over.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).

    Examples:
        >>> loss = MetricLoss("f1_macro")
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]], requires_grad=True)
        >>> value = loss(logits, torch.tensor([0, 2]))
        >>> value.backward()
    """

    temperature: Tensor
    threshold: Tensor | None

    def __init__(
        self,
        metric: str | MetricFunction,
        *,
        task: Task | None = None,
        temperature: float = 0.2,
        heaviside: membership.Heaviside = "linear",
        threshold: float | Sequence[float] | Tensor | None = None,
        zero_division: float | None = None,
        statistics: Literal["batch", "running"] = "batch",
        momentum: float = 0.1,
        per_image: bool = False,
        ranks: Ranks = "all",
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        super().__init__(
            task=task, ignore_index=ignore_index, validate=validate, class_dim=class_dim
        )
        register_temperature(self, temperature, heaviside)
        self.heaviside: membership.Heaviside = heaviside
        self.metric = resolve(metric, zero_division=zero_division, owner="MetricLoss")
        if threshold is not None:
            threshold = thresholds_tensor("MetricLoss", "threshold", threshold)
        self.register_buffer("threshold", threshold, persistent=False)
        known = statistics in ("batch", "running")
        allowed = 'be "batch" or "running"'
        require(known, "MetricLoss", "statistics", allowed, repr(statistics))
        running = statistics == "running"
        several = self.threshold is not None and self.threshold.ndim == 1
        allowed = "be one number with running statistics"
        require(not (several and running), "MetricLoss", "threshold", allowed, f"{threshold}")
        allowed = 'be "batch" with per_image: the metric of an image is its own'
        ok = not (running and per_image)
        require(ok, "MetricLoss", "statistics", allowed, repr(statistics))
        self.per_image = per_image
        self.statistics = statistics
        self.momentum = momentum
        self.over_ranks = RankSum(ranks)
        average = RunningConfusion(momentum)  # made in any case, to check the momentum
        self.running = average if running else None

    @property
    def ranks(self) -> Ranks:
        return self.over_ranks.ranks

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        fill_temperature(self, temperature)

    def fused(
        self,
        rows: GivenRows,
        odds: Tensor | None = None,
        metric_weight: float = 1.0,
        learn: Callable[[Tensor], None] | None = None,
        class_weight: Tensor | None = None,
    ) -> Tensor | None:
        """The loss as one function; with the cross-entropy of logits + log(odds), if given."""
        # A subclass may compute something else.
        form = closed_form(self.metric) if type(self) is MetricLoss else None
        if form is None or callable(self.heaviside) or self.per_image:
            return None
        learns = self.learns()
        loss = FusedLoss(
            self.metric,
            form,
            self.temperature,
            self.heaviside == "sigmoid",
            self.threshold,
            odds,
            class_weight,
            metric_weight,
            learn if learns else None,
            self.over_ranks if learns else None,
            self.running if learns else None,
        )
        if not loss.covers(rows):
            return None
        check_temperature("MetricLoss", self.temperature, validate=self.validate)
        return loss(rows)

    def sums_from_batch(self, batch: Batch) -> Sums:
        check_temperature("MetricLoss", self.temperature, validate=self.validate)
        tau = self.threshold
        if batch.task == "binary" and tau is not None and tau.ndim == 1:
            allowed = "be one number with per_image in a binary task"
            require(not self.per_image, "MetricLoss", "threshold", allowed, f"{len(tau)} of them")
            return tuple(self._confusion(batch, one) for one in tau)
        if self.per_image:
            return self._of_images(batch)
        return (self._confusion(batch, tau),)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        return self.loss_of_all(self.of_all_ranks(sums))

    def of_all_ranks(self, sums: Sums) -> Sums:
        """The sums over the ranks, in training. A loss with more sums passes them along."""
        return self.over_ranks(sums) if self.learns() else sums

    def loss_of_all(self, sums: Sums) -> Tensor:
        """The loss of sums over all ranks."""
        if self.per_image:
            return sums[0].value()
        empty = sums[0].total.sum() == 0
        if self.learns() and self.running is not None:
            sums = tuple(self.running(confusion) for confusion in sums)
        losses = [self._loss(confusion, empty)[0] for confusion in sums]
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def _confusion(self, batch: Batch, threshold: Tensor | None) -> Confusion:
        return soft_confusion(
            "MetricLoss",
            batch,
            temperature=self.temperature,
            heaviside=self.heaviside,
            threshold=threshold,
            matrix=self.metric.needs_matrix,
        )

    def _of_images(self, batch: Batch) -> tuple[Mean, Confusion]:
        """The mean loss of the images that have a score, and the sums over all images."""

        def of_image(logits: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
            c = self._confusion(Batch(batch.task, logits, target, weight), self.threshold)
            size = weight.sum() / (weight > 0).sum().clamp(min=1)
            loss, nothing = self._loss(c, c.total.sum() == 0)
            size = torch.where(nothing, 0, size)
            return size * loss, size, c.tp, c.predicted, c.actual, c.total

        rows = batch.given, batch.target, batch.weight
        number = max(1, batch.images)
        images = [x.unflatten(0, (number, len(x) // number)) for x in rows]
        try:
            of_images = torch.vmap(of_image)(*images)
        except RuntimeError:
            if isinstance(self.metric, ClassMetric | MatrixMetric):
                raise
            # A user's function with a Python `if` on values.
            of_images = map(torch.stack, zip(*map(of_image, *images), strict=True))
        loss, sizes, *sums = (x.sum(0) for x in of_images)
        return Mean(loss, sizes.to(loss)), Confusion(*sums, multilabel=batch.task == "multilabel")

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
        return torch.where(nothing, torch.zeros_like(loss), loss), nothing
