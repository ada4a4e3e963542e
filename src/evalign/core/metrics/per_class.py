"""Metrics of one class against the rest, with the averages of `ClassMetric`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evalign.core.checks import numbers, require
from evalign.core.confusion import Confusion
from evalign.core.metrics.base import ClassMetric
from evalign.core.numerics import ZERO, constant, part_of, safe_ratio, safe_sqrt

# At the ends it is precision or recall to the last digit; squares far beyond would overflow.
BETAS = "lie from 1e-9 to 1e9"


def known_beta(beta: float) -> bool:
    return 1e-9 <= beta <= 1e9


class Precision(ClassMetric):
    """tp / (tp + fp)."""

    stem = "precision"
    inner_optimum = False

    def score(self, c: Confusion) -> Tensor:
        return safe_ratio(c.tp, c.predicted, self.zero_division)


class Recall(ClassMetric):
    """tp / (tp + fn)."""

    stem = "recall"
    inner_optimum = False

    def score(self, c: Confusion) -> Tensor:
        return safe_ratio(c.tp, c.actual, self.zero_division)


class Specificity(ClassMetric):
    """tn / (tn + fp)."""

    stem = "specificity"
    inner_optimum = False

    def score(self, c: Confusion) -> Tensor:
        return safe_ratio(part_of(c.negatives, c.tn), c.negatives, self.zero_division)


def _surely_rejected(c: Confusion) -> Tensor:
    """The rejected mass, a difference of sums, set to 0 where it is no more than rounding error."""
    noise = 8 * torch.finfo(c.rejected.dtype).eps * c.total
    return torch.where(c.rejected <= noise, 0, c.rejected)  # NaN stays visible


class NegativePredictiveValue(ClassMetric):
    """tn / (tn + fn). A membership near 1 in float32 says little of its complement: use float64."""

    stem = "npv"
    double = True
    inner_optimum = False

    def score(self, c: Confusion) -> Tensor:
        rejected = _surely_rejected(c)
        return safe_ratio(part_of(rejected, c.tn), rejected, self.zero_division)


@dataclass(frozen=True, kw_only=True)
class FBeta(ClassMetric):
    """(1 + β²) tp / (β² (tp + fn) + tp + fp), with one β or one per class.

    β is how many times recall matters more than precision: β = 5 prefers recall, β = 0.25
    precision.
    """

    beta: float | Sequence[float] = 1.0

    stem = "f1"

    def __post_init__(self) -> None:
        super().__post_init__()
        found = numbers(self.beta)
        betas, per_class = found.flatten().tolist(), found.ndim == 1
        ok = found.ndim < 2 and betas != [] and all(map(known_beta, betas))
        require(ok, "FBeta", "beta", BETAS, self.beta)
        pooled = per_class and self.average == "micro"
        allowed, cure = 'not be "micro" with a beta per class', "Use one beta for all."
        require(not pooled, "FBeta", "average", allowed, '"micro"', cure)
        beta, stem = (tuple(betas), "f1") if per_class else (betas[0], f"f{betas[0]:g}")
        self._settle(beta=beta, stem=stem)

    def score(self, c: Confusion) -> Tensor:
        beta = self.beta
        if isinstance(beta, Sequence):
            allowed = f"be one number or one per class ({c.num_classes})"
            require(len(beta) == c.num_classes, "FBeta", "beta", allowed, f"{len(beta)} numbers")
            beta = constant(beta, c.tp)
        square = beta**2
        return safe_ratio((1 + square) * c.tp, square * c.actual + c.predicted, self.zero_division)


class Jaccard(ClassMetric):
    """tp / (tp + fp + fn)."""

    stem = "jaccard"

    def score(self, c: Confusion) -> Tensor:
        return safe_ratio(c.tp, c.predicted + c.actual - c.tp, self.zero_division)


class _Skill(ClassMetric):
    """A rate among positives plus one among negatives, minus 1; undefined if either rate is."""

    bounds = (-1.0, 1.0)

    def _skill(self, c: Confusion, positives: Tensor, negatives: Tensor) -> Tensor:
        undefined = (positives < ZERO) | (negatives < ZERO)
        skill = safe_ratio(c.tp, positives) + safe_ratio(part_of(negatives, c.tn), negatives) - 1
        return torch.where(undefined, self.zero_division, skill)


class Informedness(_Skill):
    """Recall + specificity − 1 (Youden's J)."""

    stem = "informedness"

    def score(self, c: Confusion) -> Tensor:
        return self._skill(c, c.actual, c.negatives)


class Markedness(_Skill):
    """Precision + negative predictive value − 1."""

    stem = "markedness"
    double = True
    inner_optimum = False  # precision gains more by a high threshold than the other part loses

    def score(self, c: Confusion) -> Tensor:
        return self._skill(c, c.predicted, _surely_rejected(c))


class FowlkesMallows(ClassMetric):
    """√(precision · recall)."""

    stem = "fowlkes_mallows"

    def score(self, c: Confusion) -> Tensor:
        geometric_mean = safe_sqrt(c.predicted) * safe_sqrt(c.actual)
        return safe_ratio(c.tp, geometric_mean, self.zero_division)
