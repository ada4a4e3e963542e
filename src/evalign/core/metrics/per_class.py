"""Metrics of one class against the rest, with the averages of `ClassMetric`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evalign.core.checks import numbers, require
from evalign.core.confusion import Confusion
from evalign.core.metrics.base import ClassMetric
from evalign.core.numerics import ZERO, constant, part_of, safe_ratio

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


class NegativePredictiveValue(ClassMetric):
    """tn / (tn + fn). A membership near 1 in float32 says little of its complement: use float64."""

    stem = "npv"
    double = True
    inner_optimum = False

    def score(self, c: Confusion) -> Tensor:
        # A difference of sums is 0 where it is no more than rounding error; NaN stays visible.
        noise = 8 * torch.finfo(c.rejected.dtype).eps * c.total
        rejected = torch.where(c.rejected <= noise, 0, c.rejected)
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


class Informedness(ClassMetric):
    """Recall + specificity − 1 (Youden's J); undefined if either is."""

    stem = "informedness"
    bounds = (-1.0, 1.0)

    def score(self, c: Confusion) -> Tensor:
        undefined = (c.actual < ZERO) | (c.negatives < ZERO)
        recall = safe_ratio(c.tp, c.actual)
        specificity = safe_ratio(part_of(c.negatives, c.tn), c.negatives)
        return torch.where(undefined, self.zero_division, recall + specificity - 1)
