"""The losses that the table of dense prediction compares, by name, for a class for each pixel."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from evalign import losses
from evalign_study.data import VOID
from evalign_study.refusals import require
from evalign_study.refuted.counted import CountedLoss, offsets_from_counts
from evalign_study.trainers.following import FOLLOWING, settings_of
from evalign_study.trainers.methods import Method

TARGET = "jaccard_macro"  # mIoU


class Pixels(NamedTuple):
    """What a loss may depend on, of the training images.

    Args:
        counts: the pixels of each class.
        around: the pixels of all images in which the class occurs.
    """

    counts: Tensor
    around: Tensor

    @classmethod
    def of(cls, y: Tensor, classes: int) -> "Pixels":
        """Count the pixels (images, height, width)."""
        first = torch.arange(len(y), device=y.device).view(-1, 1, 1) * (VOID + 1)
        each = (first + y).flatten().bincount(minlength=len(y) * (VOID + 1))
        each = each.view(len(y), -1)[:, :classes].double().cpu()
        sizes = each.sum(1, keepdim=True)
        return cls(each.sum(0).clamp(min=1), (sizes * (each > 0)).sum(0).clamp(min=1))

    @property
    def median_frequency(self) -> Tensor:
        """The weight of each class by Eigen and Fergus (ICCV 2015): the median frequency over its
        own, which is taken in images that have the class.
        """
        frequency = self.counts / self.around
        return frequency.median() / frequency


class Combined(nn.Module):
    """A sum of losses, of which each has a weight."""

    def __init__(self, parts: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.parts, self.weights = nn.ModuleList(parts), tuple(weights)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        values = (part(logits, target) for part in self.parts)
        return torch.stack([w * value for w, value in zip(self.weights, values, strict=True)]).sum()


class FocalTverskyLoss(nn.Module):
    """(1 − T)^(3/4), mean over classes, T = tp / (tp + 0.7 fn + 0.3 fp) of probabilities.

    Of Abraham and Khan (ISBI 2019), with their α and γ. Classes without a pixel in the batch are
    left out.
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        rows, y = logits.movedim(1, -1).flatten(0, -2), target.flatten()
        seen = (y != VOID).unsqueeze(1)
        p = rows.softmax(1) * seen
        g = nn.functional.one_hot(torch.where(seen.squeeze(1), y, 0), rows.shape[1]) * seen
        tp, missed, false = (p * g).sum(0), ((1 - p) * g).sum(0), (p * (1 - g)).sum(0)
        present = g.sum(0) > 0
        tversky = tp / (tp + 0.7 * missed + 0.3 * false).clamp(min=1e-6)
        # The root has an infinite slope at 0, which only a perfect class would reach.
        lost = (1 - tversky).clamp(min=1e-6) ** 0.75
        return (lost * present).sum() / present.sum().clamp(min=1)


def make(method: str, pixels: Pixels) -> Method:
    """Make a method for the pixels that it is to be trained on."""
    if method.startswith(FOLLOWING):
        return _following(method)
    allowed = f"be one of {', '.join(METHODS)}"
    require(method in METHODS, "make", "method", allowed, repr(method))
    return METHODS[method](pixels)


def _entropy(
    weighted: bool, part: Callable[[], nn.Module] | None, weight: float, pixels: Pixels
) -> Method:
    """Cross-entropy, with class weights or without, and a further part with a weight of its own.

    Weights are no part of probabilities: softmax(logits) / weight is proportional to them.
    """
    classes = pixels.median_frequency if weighted else None
    entropy = nn.CrossEntropyLoss(None if classes is None else classes.float(), ignore_index=VOID)
    loss = entropy if part is None else Combined([entropy, part()], [1, weight])
    return Method(loss, False, TARGET, 0.0 if classes is None else -classes.log().float())


def _focal_tversky(pixels: Pixels) -> Method:
    return Method(FocalTverskyLoss(), False, TARGET)


def _dice() -> nn.Module:
    return losses.DiceLoss(task="multiclass", ignore_index=VOID)


def _lovasz() -> nn.Module:
    return losses.LovaszSoftmaxLoss(task="multiclass", ignore_index=VOID)


def _metric(*, per_image: bool = False) -> nn.Module:
    return losses.MetricLoss(
        TARGET,
        momentum=None if per_image else 0.1,
        per_image=per_image,
        ranks="own",
        task="multiclass",
        ignore_index=VOID,
    )


class WeightedOffsetsLoss(CountedLoss):
    """Our loss with the offsets for the metric of weighted pixels, not for that of pixels as they
    are: log(class_weight) is then a part of them.
    """

    def __init__(self, metric: str, counts: Tensor, *, class_weight: Any, **settings: Any) -> None:
        super().__init__(metric, counts, class_weight=class_weight, **settings)
        weight = 1 / counts if isinstance(class_weight, str) else class_weight
        self.offsets = offsets_from_counts(self.metric, counts * weight) - weight.log()


def _aligned(
    weights: str | None,
    weight: float,
    pixels: Pixels,
    *,
    temperature: float = 0.2,
    made: type[CountedLoss] = WeightedOffsetsLoss,
) -> Method:
    """Our loss with its offsets and running statistics: without class weights, or with some."""
    named: dict[str | None, Any] = {
        "median": pixels.median_frequency,
        "root": pixels.counts**-0.5,
    }
    loss = made(
        TARGET,
        pixels.counts,
        metric_weight=weight,
        class_weight=named.get(weights, weights),
        temperature=temperature,
        task="multiclass",
        ignore_index=VOID,
    )
    return Method(loss, False, TARGET, loss.offsets.float())


def _following(method: str) -> Method:
    """Our loss with offsets that follow the classifier, for mIoU or as its name ends."""
    settings, end = settings_of(method)
    metric = end or TARGET
    loss = losses.AlignedLoss(metric, ranks="own", task="multiclass", ignore_index=VOID, **settings)
    return Method(loss, False, metric, None)


RIVALS: dict[str, Callable[[Pixels], Method]] = {
    "cross_entropy": partial(_entropy, False, None, 0),
    "weighted": partial(_entropy, True, None, 0),
    "dice": partial(_entropy, False, _dice, 1),
    "lovasz": partial(_entropy, False, _lovasz, 1),
    "weighted_dice": partial(_entropy, True, _dice, 1),
    "weighted_lovasz": partial(_entropy, True, _lovasz, 1),
    "focal_tversky": _focal_tversky,
}
# Forms of ours that were compared before one was chosen, each with several weights of the metric.
WEIGHTS = (1, 3, 10)
FORMS: dict[str, Callable[[float], Callable[[Pixels], Method]]] = {
    "aligned": lambda weight: partial(_aligned, None, weight, made=CountedLoss),
    "weighted_aligned": lambda weight: partial(_aligned, "median", weight),
    "balanced": lambda weight: partial(_aligned, "balanced", weight),
    "balanced_wide": lambda weight: partial(_aligned, "balanced", weight, temperature=0.4),
    "root": lambda weight: partial(_aligned, "root", weight),
    "own_median": lambda weight: partial(_aligned, "median", weight, made=CountedLoss),
    "own_balanced": lambda weight: partial(_aligned, "balanced", weight, made=CountedLoss),
    "own_root": lambda weight: partial(_aligned, "auto", weight, made=CountedLoss),
    "running": lambda weight: partial(_entropy, False, _metric, weight),
    "weighted_running": lambda weight: partial(_entropy, True, _metric, weight),
    "weighted_per_image": lambda weight: partial(
        _entropy, True, partial(_metric, per_image=True), weight
    ),
}
CANDIDATES = {f"{form}_{w}": made(w) for form, made in FORMS.items() for w in WEIGHTS}
METHODS = RIVALS | CANDIDATES
