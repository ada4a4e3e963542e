"""The loss before its offsets followed the classifier: they came from given class counts.

Records of the methods `aligned_*`, `own_*` and others like them were trained with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from evalign import Confusion
from evalign.core.checks import require
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.losses import MetricLoss
from evalign.membership.batch import Batch, Mean, Sums
from evalign.membership.checks import tensor_of_numbers

SKILL = 0.5  # of the assumed classifier: the share of rows that it knows; it guesses the others
ODDS = 1e4  # the largest odds


class CountedLoss(MetricLoss):
    """Cross-entropy(logits + offsets) + metric_weight · (1 − metric), with offsets from counts.

    Args:
        metric: as in `MetricLoss`.
        counts: the training rows of each class; a pair (absent, present) for each label.
        metric_weight: factor of the metric term.
        momentum: weight of the new batch in the running statistics; 1 is the batch alone.
        class_weight: a factor per class of the cross-entropy; "balanced" is 1 / counts; "auto" is
            1 / √counts for pixels, else None. The mean is weighted, and the cross-entropy is that
            of logits + offsets + log(class_weight).
        per_image: the metric is the mean over images, without running statistics.
        settings: further arguments of `MetricLoss`.
    """

    counts: Tensor
    offsets: Tensor
    class_weight: Tensor | Literal["auto", "balanced"] | None

    def __init__(
        self,
        metric: str | MetricFunction,
        counts: Sequence[float] | Sequence[Sequence[float]] | Tensor,
        *,
        metric_weight: float = 1.0,
        momentum: float = 0.1,
        class_weight: Sequence[float] | Tensor | Literal["auto", "balanced"] | None = "auto",
        per_image: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            metric,
            momentum=None if per_image or momentum == 1 else momentum,
            per_image=per_image,
            ranks="own",
            **settings,
        )
        self.metric_weight = metric_weight
        counts = tensor_of_numbers(counts)
        ok = counts.ndim in (1, 2) and bool((counts > 0).all())
        require(ok, "CountedLoss", "counts", "be positive, of each class or label", counts)
        self.register_buffer("counts", counts, persistent=False)
        self.register_buffer("offsets", offsets_from_counts(self.metric, counts))
        if class_weight is None or isinstance(class_weight, str):
            self.class_weight = class_weight
        else:
            self.register_buffer("class_weight", tensor_of_numbers(class_weight), persistent=False)

    def sums_from_batch(self, batch: Batch) -> Sums:
        return self._cross_entropy(batch), *super().sums_from_batch(batch)

    def loss_from_sums(self, sums: Sums) -> Tensor:
        cross_entropy, *of_metric = sums
        metric = super().loss_from_sums(tuple(of_metric))
        return cross_entropy.value() + self.metric_weight * metric

    def _cross_entropy(self, batch: Batch) -> Mean:
        weight = self._weight(pixels=batch.pixels)
        shift = self.offsets if weight is None else self.offsets + weight.log()
        shift = shift.to(batch.logits)
        shift = shift[1] - shift[0] if batch.task == "binary" else shift
        log_p = replace(batch, given=batch.logits + shift).log_probabilities()
        mean = batch.mean(log_p, torch.neg, weight)
        if weight is None:
            return mean
        return Mean(mean.sum, batch.mean(log_p, torch.ones_like, weight).sum)

    def _weight(self, *, pixels: bool) -> Tensor | None:
        """The factor of each class, of which the largest is 1; None for no factors."""
        weight = self.class_weight
        if isinstance(weight, Tensor):
            return weight / weight.amax()
        if weight is None or not (weight == "balanced" or pixels):
            return None
        inverse = self.counts.amin() / self.counts
        return inverse if weight == "balanced" else inverse.sqrt()


def offsets_from_counts(metric: str | Metric, counts: Tensor) -> Tensor:
    """The log-odds against the most frequent class from which predicting a class pays.

    The slopes of the metric are taken at the Confusion of a classifier that knows half of the rows
    and guesses the others by the shares of the classes.

    Examples:
        >>> offsets_from_counts("f1", torch.tensor([90.0, 10.0])).exp()
        tensor([1.0000, 0.3793])
    """
    metric, shares = resolve(metric), counts / counts.sum(-1, keepdim=True)
    gain, cost = (_of_labels if counts.ndim == 2 else _of_classes)(metric, shares)
    odds = cost / gain
    odds = torch.where(odds.isnan() | (odds < 0), 1, odds)  # 0 / 0 of the most frequent class
    return odds.clamp(1 / ODDS, ODDS).log()


def _of_classes(metric: Metric, shares: Tensor) -> tuple[Tensor, Tensor]:
    """What predicting j instead of the most frequent class m gains, and what it costs."""
    known = torch.eye(len(shares), dtype=shares.dtype)
    matrix = shares.unsqueeze(1) * (SKILL * known + (1 - SKILL) * shares)
    (slopes,) = _slopes(lambda matrix: metric(Confusion.from_matrix(matrix)), matrix)
    own, m = slopes.diagonal(), shares.argmax()
    return own - slopes[:, m], own[m] - slopes[m]


def _of_labels(metric: Metric, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The gain of predicting a label where it is true, and the cost where it is false."""
    shares = shares[:, 1]

    def score(tp: Tensor, predicted: Tensor) -> Tensor:
        return metric(Confusion(tp, predicted, shares, torch.ones_like(shares), multilabel=True))

    right = shares * (SKILL + (1 - SKILL) * shares)
    by_tp, by_predicted = _slopes(score, right, shares)
    return by_tp + by_predicted, -by_predicted


def _slopes(score: Callable[..., Tensor], *at: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.clone().requires_grad_() for x in at]
    with torch.enable_grad():
        return torch.autograd.grad(score(*leaves), leaves, materialize_grads=True)
