"""Cross-entropy plus a metric of the confusion matrix: the default recipe."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import torch
from torch import Tensor

from evalign.aggregation import Ranks
from evalign.aggregation.running import keep, make_saved
from evalign.core.batch import Batch, Mean, Sums
from evalign.core.checks import complaint, require
from evalign.core.metrics import ClassMetric, Metric, MetricFunction, resolve
from evalign.core.rows import GivenRows, Task
from evalign.core.text import counted
from evalign.losses.base import AdditiveLoss
from evalign.losses.class_weights import check_length, class_vector
from evalign.losses.metric import MetricLoss
from evalign.losses.offsets import ODDS, PAIRS, Counts, checked_counts, offsets_of

AUTO: Final = "auto"
BALANCED: Final = "balanced"
NAMED = (AUTO, BALANCED)
LEARNED = ("counts", "offsets")  # buffers that have a size from the first batch on


class AlignedLoss(AdditiveLoss):
    r"""Cross-entropy(logits + offsets) + 1 − metric, differentiated at running statistics.

    A cost replaces 1 − metric.

    The cross-entropy gives every row a gradient and keeps probabilities:
    softmax(logits + offsets), or sigmoid(logits + offsets) for multilabel problems. The offsets
    (`metric_offsets`) make the argmax of the *logits* roughly the best decision for the metric. The
    metric term then works on the rows near that decision.

    Args:
        metric: as in `MetricLoss`.
        class_counts: the counts or shares of the classes in the training rows, (negative, positive)
            if binary, such a pair for each label if multilabel. None learns them from the training
            batches of all ranks: the offsets of a batch, and weights by counts, come from the
            batches before it.
        metric_weight: factor of the metric term; 0 leaves cross-entropy with its offsets.
        temperature: sharpness of the metric's step, see `MetricLoss`.
        momentum: weight of the new batch in the running statistics; 1 is the batch alone.
        class_weight: a factor per class (or label) of the cross-entropy, (negative, positive) if
            binary. As in `torch.nn.CrossEntropyLoss` the mean is weighted, so their scale does not
            matter. The cross-entropy is then that of logits + offsets + log(class_weight), so that
            logits and offsets keep their meaning. "balanced" takes 1 / counts. "auto" takes
            1 / √counts for pixels of exclusive classes, and no weights otherwise.
        label_smoothing: ε of the cross-entropy: the target is (1 − ε)·target + ε / classes.
        per_image: the metric is the mean over images, see `MetricLoss`; without running statistics.
        labels: the classes that count in the metric, e.g. all but the background; for metrics that
            are averages over classes.
        ranks: the processes whose rows are summed in both terms, see `MetricLoss`.

    `task`, `ignore_index`, `validate` and `class_dim` are those of every loss (`Loss`).

    Attributes:
        offsets: one per class or label, to add to logits before the softmax or sigmoid. For
            exclusive classes they are defined up to a constant. None before the first batch if they
            are learned. `load_state_dict` restores them.

    Examples:
        >>> loss = AlignedLoss("f1", [90, 10])
        >>> logits = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
        >>> loss(logits, torch.tensor([1, 0, 0])).backward()
        >>> loss.offsets.diff()  # F1 predicts positive above a probability of 0.275
        tensor([-0.9694], dtype=torch.float64)
    """

    class_counts: Tensor | None
    class_weight: Tensor | Literal["auto", "balanced"] | None
    counts: Tensor
    offsets: Tensor

    def __init__(
        self,
        metric: str | MetricFunction,
        class_counts: Counts | None = None,
        *,
        task: Task | None = None,
        metric_weight: float = 1.0,
        temperature: float = 0.2,
        momentum: float = 0.1,
        class_weight: Sequence[float] | Tensor | Literal["auto", "balanced"] | None = AUTO,
        label_smoothing: float = 0.0,
        per_image: bool = False,
        labels: Sequence[int] | None = None,
        ranks: Ranks = "all",
        ignore_index: int = -100,
        validate: bool = False,
        class_dim: int | None = None,
    ) -> None:
        # The inner loss reads rows in the same way: validation asks every part of a loss for it.
        rows = {"task": task, "ignore_index": ignore_index, "class_dim": class_dim}
        super().__init__(validate=validate, **rows)
        ok = isinstance(metric_weight, int | float) and 0 <= metric_weight < math.inf
        allowed = "be finite and not negative"
        require(ok, "AlignedLoss", "metric_weight", allowed, repr(metric_weight))
        ok = isinstance(label_smoothing, int | float) and 0 <= label_smoothing < 1
        require(ok, "AlignedLoss", "label_smoothing", "lie in [0, 1)", repr(label_smoothing))
        self.metric_weight = metric_weight
        self.label_smoothing = label_smoothing
        by_batch = per_image or momentum == 1
        self.metric_loss = MetricLoss(
            _with_labels(resolve(metric, owner="AlignedLoss"), labels),
            temperature=temperature,
            statistics="batch" if by_batch else "running",
            momentum=momentum,
            per_image=per_image,
            ranks=ranks,
            validate=validate,
            **rows,
        )
        if isinstance(class_weight, str):
            allowed, known = 'be "auto", "balanced", numbers or None', class_weight in NAMED
            require(known, "AlignedLoss", "class_weight", allowed, repr(class_weight))
            self.class_weight = class_weight
        else:
            if class_weight is not None:
                class_weight = class_vector("AlignedLoss", "class_weight", class_weight)
            self.register_buffer("class_weight", class_weight, persistent=False)
        offsets = None
        if class_counts is not None:
            class_counts, weight = checked_counts(class_counts), self.class_weight
            allowed = f"hold a number for each of the {len(class_counts)} classes"
            number = len(weight if isinstance(weight, Tensor) else class_counts)
            ok = number == len(class_counts)
            require(ok, "AlignedLoss", "class_weight", allowed, counted(number, "number"))
            self._check_balanced(pairs=class_counts.ndim == 2)
            with torch.device("cpu"):  # whatever the default device is
                offsets = offsets_of(self.metric_loss.metric, class_counts)
        self.register_buffer("class_counts", class_counts, persistent=False)
        self.register_buffer("counts", None)
        self.register_buffer("offsets", offsets)

    @property
    def temperature(self) -> Tensor:
        return self.metric_loss.temperature

    def set_temperature(self, temperature: float) -> None:
        """Change the sharpness in place, so that compiled graphs follow."""
        self.metric_loss.set_temperature(temperature)

    def fused(self, rows: GivenRows) -> Tensor | None:
        classes = 2 if rows.task == "binary" else rows.logits.shape[1]
        counts = self.counts if self.class_counts is None else self.class_counts
        known = counts is not None and counts.shape == (classes,) and rows.task != "multilabel"
        plain = known and not self.label_smoothing
        if not (plain and type(self) is AlignedLoss):  # a subclass may differ
            return None
        weight = self._weight(rows.pixels)
        if weight is not None and weight.shape != (classes,):
            return None
        learn = self._learn if self.class_counts is None else None
        odds = self._shift(weight).exp()
        return self.metric_loss.fused(rows, odds, self.metric_weight, learn, weight)

    def sums_from_batch(self, batch: Batch) -> Sums:
        self._check(batch)
        # Logits are widened once for both: a sum of half-precision gradients is rounded again.
        batch = replace(batch, given=batch.logits)
        return self._cross_entropy(batch), *self.metric_loss.sums_from_batch(batch)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        # One sum over the ranks for both.
        cross_entropy, *of_metric = self.metric_loss.of_all_ranks(sums)
        confusion = of_metric[-1].detach()
        metric = self.metric_weight * self.metric_loss.loss_of_all(tuple(of_metric))
        if self.metric_loss.learns() and self.class_counts is None:
            c, pairs = confusion, confusion.multilabel
            self._learn(torch.stack([c.negatives, c.actual], 1) if pairs else c.actual)
        return cross_entropy.value() + metric

    def _cross_entropy(self, batch: Batch) -> Mean:
        moved, weight = batch, self._weight(batch.pixels)
        if self.offsets is not None:
            # The weight of a label leaves its odds alone.
            shift = self._shift(weight if batch.task != "multilabel" else None)
            shift = shift.to(batch.logits)
            shift = shift[1] - shift[0] if batch.task == "binary" else shift
            moved = replace(batch, given=batch.logits + shift)
        log_p, aim, smoothing = moved.log_probabilities(), batch, self.label_smoothing
        if smoothing:
            even = 1 / (batch.num_classes if batch.task == "multiclass" else 2)
            of_class = batch.target_probabilities() if batch.task == "multiclass" else batch.target
            aim = replace(batch, target=(1 - smoothing) * of_class + smoothing * even)
        mean = aim.mean(log_p, torch.neg, weight)
        if weight is None:
            return mean
        return Mean(mean.sum, batch.mean(log_p, torch.ones_like, weight).sum)

    def _learn(self, here: Tensor) -> None:
        """Add the counts of a batch, and update the offsets."""
        for name, buffer in self.named_buffers(recurse=False):  # the logits may be elsewhere
            if buffer.device != here.device:
                setattr(self, name, buffer.to(here.device))
        counts = here.clone() if self.counts is None else self.counts + here
        keep(self, "counts", counts)
        offsets = offsets_of(self.metric_loss.metric, _positive(counts))
        none = counts.amax(-1) == 0  # of all classes, or of a label: then there is no offset yet
        keep(self, "offsets", torch.where(none, 0, offsets))

    def _known_counts(self) -> Tensor | None:
        """The given counts, or those of earlier batches if there were any."""
        if self.class_counts is not None or self.counts is None:
            return self.class_counts
        return _positive(self.counts)

    def _weight(self, pixels: bool) -> Tensor | None:
        """The weight of each class or label in the cross-entropy of pixels, or of other rows.

        The largest is 1: only ratios count, and sums of very small ones would be taken for 0.
        """
        given = self.class_weight
        if not isinstance(given, str):
            return None if given is None else given / given.amax()
        counts = self._known_counts() if given == BALANCED or pixels else None
        if counts is None:
            return None
        inverse = counts.amin() / counts
        return inverse if given == BALANCED else inverse.sqrt()

    def _shift(self, weight: Tensor | None) -> Tensor:
        """What the cross-entropy adds to the logits: offsets and log weights."""
        return self.offsets if weight is None else self.offsets + weight.log()

    def _check_balanced(self, *, pairs: bool) -> None:
        cure = "A label has its own two classes. Give a number for each label, or None."
        allowed = "be numbers or None for a multilabel problem"
        wrong = pairs and isinstance(self.class_weight, str) and self.class_weight == BALANCED
        require(not wrong, "AlignedLoss", "class_weight", allowed, repr(BALANCED), cure)

    def _check(self, batch: Batch) -> None:
        """Check that counts and weights fit the number of classes."""
        number, pairs = batch.num_classes, batch.task == "multilabel"
        if isinstance(self.class_weight, Tensor):
            check_length("AlignedLoss", "class_weight", self.class_weight, batch)
        self._check_balanced(pairs=pairs)
        shape = (number, 2) if pairs else (number,)
        if self.class_counts is None:
            if self.counts is not None:
                allowed = f"keep the {len(self.counts)} classes of the batches before"
                require(self.counts.shape == shape, "AlignedLoss", "logits", allowed, number)
            return
        given = self.class_counts
        allowed = f"hold a number for each of the {number} classes"
        cure, got = "", f"{len(given)} {'numbers' if given.ndim == 1 else 'pairs'}"
        if pairs:
            allowed = f"hold a pair (negative, positive) for each of the {number} labels"
            cure = PAIRS
        require(given.shape == shape, "AlignedLoss", "class_counts", allowed, got, cure)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        learned = LEARNED if self.class_counts is None else ()
        make_saved(self, learned, state_dict, prefix, self.temperature)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _positive(counts: Tensor) -> Tensor:
    """Counts with those of unseen classes raised to a small positive one."""
    most = counts.amax(-1, keepdim=True)
    return torch.where(most == 0, 1, counts.clamp(min=most / ODDS))


def _with_labels(metric: Metric, labels: Sequence[int] | None) -> Metric:
    """The metric restricted to some classes."""
    if labels is None:
        return metric
    allowed = "be None unless the metric is an average over classes that has no labels of its own"
    if not isinstance(metric, ClassMetric) or metric.average == "binary" or metric.labels:
        raise ValueError(complaint("AlignedLoss", "labels", allowed, f"{labels} for {metric.name}"))
    return replace(metric, labels=labels)
