"""Cross-entropy whose argmax is the metric's decision, plus the metric: the default recipe."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.aggregation import Ranks, RunningConfusion
from evalign.aggregation.running import keep
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction
from evalign.core.task import Task
from evalign.kernels import KernelSettings
from evalign.losses.base import RowSettings
from evalign.losses.class_weights import check_length, class_vector
from evalign.losses.metric import MetricLoss
from evalign.losses.offsets import ODDS, half_skilled, metric_offsets, positive, with_pseudo_rows
from evalign.losses.route import by_kernel
from evalign.membership import soft_sets
from evalign.membership.batch import Batch, Mean, Sums
from evalign.membership.checks import signed
from evalign.membership.numerics import full_precision
from evalign.membership.rows import GivenRows
from evalign.membership.soft_confusion import summed

AUTO: Final = "auto"
BALANCED: Final = "balanced"
METRIC_WEIGHT = 0.3  # of every task


class AlignedLoss(MetricLoss):
    r"""Cross-entropy(logits + offsets) + metric_weight · (1 − metric).

    The offsets make the argmax of the *logits* the decision for the metric, and keep probabilities:
    softmax(logits + offsets), or sigmoid(logits + offsets) for multilabel problems. They follow the
    classifier: from the slopes of the metric at a running Confusion of the training rows come the
    odds from which predicting a class pays (`metric_offsets`). A batch is given the offsets that
    the batches before left. Precision, recall, specificity and negative predictive value
    have no optimum inside: their offsets are those of a classifier that is right half of the time.

    A cost replaces 1 − metric.

    Args:
        metric: as in `MetricLoss`.
        class_shares: the shares (or counts) of the classes among the rows to come, where a sampler
            changes those of training; (negative, positive) if binary, such a pair for each label
            if multilabel. None: the rows to come are like those of training.
        metric_weight: factor of the metric term; "auto" is 0.3, and 0 leaves cross-entropy with
            its offsets.
        class_weight: a factor per class (or label) of the cross-entropy, (negative, positive) if
            binary; "balanced" is 1 / counts; "auto" is 1 / √counts for pixels of exclusive classes,
            else None. The mean is weighted, as in `torch.nn.CrossEntropyLoss`. Logits and offsets
            keep their meaning: the cross-entropy is that of logits + offsets + log(class_weight).
        label_smoothing: ε of the cross-entropy: the target is (1 − ε)·target + ε / classes.
        temperature: sharpness of the metric's step, see `MetricLoss`.
        momentum: weight of the new batch in the running Confusion; 1 is the batch alone.
        per_image: the metric is the mean over images, see `MetricLoss`; the offsets follow the
            Confusion of all images.
        ranks: the processes whose rows are summed in both terms, see `MetricLoss`.
        rows: `task`, `ignore_index` and `class_dim`, as in `Loss`.

    Attributes:
        offsets: one per class or label, to add to logits before the softmax or sigmoid. For
            exclusive classes they are defined up to a constant. None before the first batch.
        score: the metric of the argmax of recent training rows, for logs; NaN before the first
            batch.

    Examples:
        >>> loss = AlignedLoss("f1")
        >>> logits = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
        >>> loss(logits, torch.tensor([1, 0, 0])).backward()
        >>> loss.score  # of two rows that are labelled 1, one is
        tensor(0.6667, dtype=torch.float64)
    """

    has_kernels = True
    learned = ("counts", "offsets")
    class_shares: Tensor | None
    class_weight: Tensor | Literal["auto", "balanced"] | None
    counts: Tensor
    offsets: Tensor

    def __init__(
        self,
        metric: str | MetricFunction,
        *,
        class_shares: Sequence[float] | Sequence[Sequence[float]] | Tensor | None = None,
        metric_weight: float | Literal["auto"] = AUTO,
        class_weight: Sequence[float] | Tensor | Literal["auto", "balanced"] | None = AUTO,
        label_smoothing: float = 0.0,
        temperature: float = 0.2,
        momentum: float = 0.1,
        per_image: bool = False,
        ranks: Ranks = "all",
        **rows: Unpack[RowSettings],
    ) -> None:
        how: dict[str, Any] = {"temperature": temperature, "per_image": per_image, "ranks": ranks}
        super().__init__(metric, **how, **rows)
        metric_weight = METRIC_WEIGHT if metric_weight == AUTO else metric_weight
        ok = isinstance(metric_weight, int | float) and 0 <= metric_weight < math.inf
        allowed = 'be "auto", or finite and not negative'
        require(ok, "AlignedLoss", "metric_weight", allowed, repr(metric_weight))
        ok = isinstance(label_smoothing, int | float) and 0 <= label_smoothing < 1
        require(ok, "AlignedLoss", "label_smoothing", "lie in [0, 1)", repr(label_smoothing))
        self.metric_weight = metric_weight
        self.label_smoothing = label_smoothing
        self.momentum = momentum
        self.running = RunningConfusion(momentum, "AlignedLoss")
        if isinstance(class_weight, str):
            allowed, known = 'be "auto", "balanced", numbers or None', (AUTO, BALANCED)
            ok = class_weight in known
            require(ok, "AlignedLoss", "class_weight", allowed, repr(class_weight))
            self.class_weight = class_weight
        else:
            if class_weight is not None:
                class_weight = class_vector("AlignedLoss", "class_weight", class_weight)
            self.register_buffer("class_weight", class_weight, persistent=False)
        if class_shares is not None:
            class_shares = class_vector("AlignedLoss", "class_shares", class_shares, pairs=True)
        self.register_buffer("class_shares", class_shares, persistent=False)
        for name in self.learned:
            self.register_buffer(name, None)
        self._cross: tuple[Any, ...] = (None, None, None)

    @property
    def score(self) -> Tensor:
        seen = self.running.seen
        if self.running.sums is None:
            return torch.full_like(seen, torch.nan)
        like = half_skilled(self.counts, matrix=self.metric.needs_matrix)
        return torch.where(seen == 0, torch.nan, self.metric(self.running.hard_average(like)))

    def whole(self, rows: GivenRows, cross: Tensor | None = None) -> Tensor:
        self._check(rows)
        if self.counts is None:
            classes = _classes(rows)
            shape = (classes, 2) if rows.task == "multilabel" else (classes,)
            self.counts = self.running.seen.new_zeros(shape)
            self.offsets = self.counts.new_zeros(classes)
            self.to(rows.logits.device)
        value = super().whole(rows, self._cross_of(rows))
        if self.learns() and not self.metric.inner_optimum:  # else the kernel has updated them
            self._follow(half_skilled(self.counts), self.counts)
        return value

    def sums_of(self, rows: GivenRows) -> Sums:
        self._check(rows)
        kernel, rows = by_kernel(self, rows, whole=False), self._as_to_come(rows)
        with full_precision(rows.logits):
            if not kernel:
                return self.sums_from_batch(Batch.of(rows))
            settings = self._settings(rows)
            of_metric, sums = self.kernel_sums(rows, settings)
            smooth = self.label_smoothing and rows.logits.is_cuda
            cross = self._cross_entropy(Batch.of(rows)) if smooth else sums.cross
        return _mean(cross, sums.soft, settings.factor), *of_metric, sums.hard

    def sums_from_batch(self, batch: Batch) -> Sums:
        # Logits are widened once for both: a sum of half-precision gradients is rounded again.
        batch = replace(batch, given=batch.logits)
        labels = soft_sets.hard(batch)
        hard = summed(batch, labels, matrix=self.metric.needs_matrix)
        of_metric = super().sums_from_batch(batch)
        _, factor = self._adjustment(batch.task, pixels=batch.pixels)
        return _mean(self._cross_entropy(batch), of_metric[-1], factor), *of_metric, hard

    def _cross_entropy(self, batch: Batch) -> Tensor:
        """Its sum over the rows."""
        shift, factor = self._adjustment(batch.task, pixels=batch.pixels)
        moved, smoothing = batch, self.label_smoothing
        if shift is not None:
            shift = shift.to(batch.logits)
            shift = shift[1] - shift[0] if batch.task == "binary" else shift
            moved = replace(batch, given=batch.logits + shift)
        if batch.task == "multiclass" and batch.target.ndim == 1:
            factor = None if factor is None else factor.to(moved.logits)
            how = {"weight": factor, "label_smoothing": smoothing, "reduction": "none"}
            return (batch.weight * F.cross_entropy(moved.logits, batch.target, **how)).sum()
        if smoothing:
            even = 1 / (batch.num_classes if batch.task == "multiclass" else 2)
            batch = replace(batch, target=(1 - smoothing) * batch.target + smoothing * even)
        return batch.mean(moved.log_probabilities(), torch.neg, factor).sum

    def loss_from_sums(self, sums: Sums) -> Tensor:
        # One sum over the ranks for both terms.
        cross_entropy, *of_metric, hard = self.of_all_ranks(sums)
        soft = of_metric[-1]
        empty = soft.total.sum() == 0
        point = self._learn(soft, hard) if self.learns() else soft
        metric = of_metric[0].value() if self.per_image else self._loss(point, empty)[0]
        return cross_entropy.value() + self.metric_weight * metric

    def _learn(self, soft: Confusion, hard: Confusion) -> Confusion:
        """Move the statistics. Return the Confusion at which the metric is differentiated."""
        counts, ratio = _masses(soft.detach()), self._ratio()
        if ratio is not None:  # rows are weighed as those to come, and counted as they were seen
            counts = counts / ratio
        counts = keep(self, "counts", counts if self.counts is None else self.counts + counts)
        point, labels = self.running.with_hard(soft, hard)
        inner, matrix = self.metric.inner_optimum, labels.full is not None
        at = with_pseudo_rows(labels, counts) if inner else half_skilled(counts, matrix=matrix)
        self._follow(at, counts)
        return point

    def _follow(self, at: Confusion, counts: Tensor) -> None:
        """Take the offsets from the slopes of the metric; a batch with NaN leaves them."""
        new = metric_offsets(self.metric, at, counts)
        old = torch.zeros_like(new) if self.offsets is None else self.offsets
        keep(self, "offsets", torch.where(new.isfinite(), new, old))

    def _ratio(self) -> Tensor | None:
        """The share of each class (or of a label's two) to come, over the share seen so far."""
        if self.class_shares is None or self.counts is None:
            return None
        seen = positive(self.counts)
        shares = (x / x.sum(-1, keepdim=True) for x in (self.class_shares, seen))
        return torch.div(*shares).clamp(1 / ODDS, ODDS)

    def _as_to_come(self, rows: GivenRows) -> GivenRows:
        """Rows that weigh as those to come, each by the ratio of its class."""
        ratio = self._ratio()
        if ratio is None:
            return rows
        target = signed(rows.target)
        target = target.masked_fill(target == rows.ignore_index, 0)
        if rows.indices:
            weight = ratio[target.long()]
        else:
            absent, present = ratio.view(-1, 2, *[1] * (target.ndim - 2)).unbind(1)
            weight = torch.lerp(absent, present, target.to(ratio))
        if rows.weight is not None:
            given = rows.weight.to(ratio)
            weight = weight * (given.unsqueeze(1) if rows.task == "multilabel" else given)
        return rows._replace(weight=weight)

    def _adjustment(self, task: Task, *, pixels: bool) -> tuple[Tensor | None, Tensor | None]:
        """What the cross-entropy adds to the logits: offsets and log factors; and the factors.

        There is a factor for each class (or for a label's two). It takes the ratio of the rows'
        weights back. The largest weight of a class is 1: only ratios count, and sums of very small
        ones would be taken for 0.
        """
        factor, ratio, counts = self.class_weight, self._ratio(), self.counts
        if isinstance(factor, str):
            root = self.root_of_counts(pixels=pixels)
            factor = positive(counts) ** -root if root and counts is not None else None
        if factor is not None:
            factor = factor / factor.amax()
            factor = factor.unsqueeze(1).expand(-1, 2) if task == "multilabel" else factor
        if ratio is not None:
            factor = 1 / ratio if factor is None else factor / ratio
        if factor is None:
            return self.offsets, None
        log = factor.log()
        log = log[:, 1] - log[:, 0] if task == "multilabel" else log
        return log if self.offsets is None else self.offsets + log, factor

    def _settings(self, rows: GivenRows) -> KernelSettings:
        shift, factor = self._adjustment(rows.task, pixels=rows.pixels)
        if shift is None:  # before the first batch
            shift = self.temperature.new_zeros(_classes(rows))
        return KernelSettings(self.temperature, shift, factor, self.label_smoothing)

    def root_of_counts(self, *, pixels: bool) -> float:
        """The power of 1 / counts that the class weights are; 0 where they are not."""
        if not isinstance(self.class_weight, str):
            return 0.0
        return 1.0 if self.class_weight == BALANCED else 0.5 * pixels

    def _cross_of(self, rows: GivenRows) -> Tensor | None:
        """What a GPU's kernels read of it; kept, unless others than they have moved the state."""
        given = isinstance(self.class_weight, Tensor)
        if not (given or self.root_of_counts(pixels=rows.pixels)):
            return self.offsets
        now = [x.is_inference() or x._version for x in (self.counts, self.offsets)], rows.pixels
        counts, before, cross = self._cross
        if counts is not self.counts or before != now:
            cross = self._settings(rows).cross
            self._cross = self.counts, now, cross
        return cross

    def _check(self, rows: GivenRows) -> None:
        """Check that shares and weights fit the classes, and bring the state to the logits."""
        number, pairs, weight = _classes(rows), rows.task == "multilabel", self.class_weight
        if isinstance(weight, Tensor):
            check_length("AlignedLoss", "class_weight", weight, number)
        elif pairs:
            cure = "A label has its own two classes. Give a number for each label, or None."
            allowed = "be numbers or None for a multilabel problem"
            require(weight != BALANCED, "AlignedLoss", "class_weight", allowed, repr(weight), cure)
        shape = (number, 2) if pairs else (number,)
        counts, shares = self.counts, self.class_shares
        if counts is not None:
            allowed = f"keep the task and the {len(counts)} classes of the batches before"
            require(counts.shape == shape, "AlignedLoss", "logits", allowed, number)
            if counts.device != rows.logits.device:  # the loss was left on another one
                self.to(rows.logits.device)
        if shares is not None:
            got = tuple(shares.shape)
            allowed = f"have shape {shape}, " + (
                "a pair (absent, present) for each label" if pairs else "one number for each class"
            )
            require(got == shape, "AlignedLoss", "class_shares", allowed, f"shape {got}")
            whole = rows.indices or rows.task != "multiclass"
            allowed = "be None for rows of class probabilities"
            require(whole, "AlignedLoss", "class_shares", allowed, "shares")


def _classes(rows: GivenRows) -> int:
    """The number of classes, or of labels."""
    return 2 if rows.task == "binary" else rows.logits.shape[1]


def _masses(c: Confusion) -> Tensor:
    """The actual mass of every class, or of the absence and presence of every label."""
    return torch.stack([c.negatives, c.actual], 1) if c.multilabel else c.actual


def _mean(cross: Tensor, c: Confusion, factor: Tensor | None) -> Mean:
    """The cross-entropy as a mean over the rows of a Confusion, whose classes have factors."""
    masses = _masses(c)
    return Mean(cross, (masses if factor is None else masses * factor.to(masses)).sum())
