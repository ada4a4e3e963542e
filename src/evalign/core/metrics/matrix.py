"""Metrics of the whole matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from evalign.core.checks import numbers, require
from evalign.core.confusion import Confusion
from evalign.core.metrics.base import MatrixMetric
from evalign.core.numerics import constant, part_of, safe_ratio, safe_sqrt


class Accuracy(MatrixMetric):
    """Σ tp / total."""

    stem = "accuracy"

    def value(self, c: Confusion) -> Tensor:
        return safe_ratio(c.tp.sum(), c.total, self.zero_division)


class BalancedAccuracy(MatrixMetric):
    """Mean recall over the classes that have true rows."""

    stem = "balanced_accuracy"

    def value(self, c: Confusion) -> Tensor:
        recalls = safe_ratio(c.tp, c.actual).sum()
        return safe_ratio(recalls, (c.actual != 0).sum(), self.zero_division)


class GMean(MatrixMetric):
    """Geometric mean of the recalls of the classes that have true rows.

    Its slope is infinite at a recall of 0, so recalls are kept above √(smallest float).
    """

    stem = "g_mean"

    def value(self, c: Confusion) -> Tensor:
        recall = safe_ratio(c.tp, c.actual, fill=1.0)  # log 1 = 0 for a class without rows
        logs = recall.clamp(min=torch.finfo(recall.dtype).tiny ** 0.5).log()
        classes = (c.actual != 0).sum()
        mean = torch.where((recall == 0).any(), 0, safe_ratio(logs.sum(), classes).exp())
        return torch.where(classes == 0, self.zero_division, mean)


class MatthewsCorrcoef(MatrixMetric):
    """Correlation of the true and the predicted class (Gorodkin's R_K; for two classes, MCC).

    With t, p the shares of the classes and a the accuracy: (a − Σ t p) / √((1 − Σ t²)(1 − Σ p²)).
    """

    stem = "matthews_corrcoef"
    bounds = (-1.0, 1.0)

    def value(self, c: Confusion) -> Tensor:
        # Differences of counts first, shares of the total second: then rare classes keep their
        # digits and no product overflows.
        share = safe_ratio(torch.ones_like(c.total), c.total)
        # tp·tn − fp·fn is tp·total − actual·predicted without its cancellation.
        tn, fn = part_of(c.rejected, c.tn), part_of(c.rejected, c.fn)
        covariance = (share * c.tp * (share * tn) - share * c.fp * (share * fn)).sum()
        variance_true = (share * c.actual * (share * c.negatives)).sum()
        variance_predicted = (share * c.predicted * (share * c.rejected)).sum()
        # Below the rounding of the covariance the quotient is noise and its slope unbounded.
        noise = 8 * torch.finfo(covariance.dtype).eps
        undefined = (variance_true <= noise) | (variance_predicted <= noise)  # NaN stays visible
        root = safe_sqrt(torch.where(undefined, 0, variance_true * variance_predicted))
        return safe_ratio(covariance, root, self.zero_division)


@dataclass(frozen=True, kw_only=True)
class CohenKappa(MatrixMetric):
    """1 − observed / expected disagreement, plain or weighted by the distance of ordinal classes.

    Args:
        weights: None, "linear" (|i − j|) or "quadratic" ((i − j)²); the weighted forms need the
            d × d matrix.
        zero_division: the score where all rows are of one class and predicted as it, which is 0/0.
    """

    weights: Literal["linear", "quadratic"] | None = None

    stem = "cohen_kappa"
    bounds = (-1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.weights in (None, "linear", "quadratic")
        allowed = 'be None, "linear" or "quadratic"'
        require(known, "CohenKappa", "weights", allowed, repr(self.weights))
        if self.weights is not None:
            self._settle(stem=f"cohen_kappa_{self.weights}", needs_matrix=True)

    def value(self, c: Confusion) -> Tensor:
        t = safe_ratio(c.actual, c.total)
        p = safe_ratio(c.predicted, c.total)
        if self.weights is None:
            # By fp, not by fn: of rows predicted as one class, actual − tp may be rounding alone.
            observed = safe_ratio(c.fp.sum(), c.total)
            expected = (t * safe_ratio(c.rejected, c.total)).sum()
            noise = 8 * torch.finfo(expected.dtype).eps  # of the two differences
            expected = torch.where(expected <= noise, 0, expected)  # NaN stays visible
        else:
            classes = torch.arange(c.num_classes, dtype=t.dtype, device=t.device)
            power = 2 if self.weights == "quadratic" else 1
            distance = (classes.unsqueeze(1) - classes).abs() ** power
            observed = (distance * safe_ratio(c.matrix, c.total)).sum()
            expected = (distance * t.unsqueeze(1) * p).sum()
        return safe_ratio(expected - observed, expected, self.zero_division)


@dataclass(frozen=True)
class ExpectedCost(MatrixMetric):
    """Σ cost ∘ matrix / total, the mean cost of a decision: rows of `cost` true, columns predicted.

    It is its own loss. A perfect classifier costs what the diagonal says, usually 0.
    """

    cost: Sequence[Sequence[float]]

    stem = "expected_cost"
    greater_is_better = False
    needs_matrix = True

    def __post_init__(self) -> None:
        super().__post_init__()
        cost = numbers(self.cost)
        square = cost.ndim == 2 and cost.shape[0] == cost.shape[1] and bool(cost.isfinite().all())
        allowed = "be a square matrix of finite numbers"
        require(square, "ExpectedCost", "cost", allowed, self.cost)
        bounds = cost.min().item(), cost.max().item()
        self._settle(cost=tuple(map(tuple, cost.tolist())), bounds=bounds)

    @property
    def name(self) -> str:
        return f"{self.stem}{list(map(list, self.cost))}"

    def value(self, c: Confusion) -> Tensor:
        size = len(self.cost)
        allowed = f"have a row and a column for each of the {c.num_classes} classes"
        require(size == c.num_classes, "ExpectedCost", "cost", allowed, f"{size} x {size}")
        cost = constant(self.cost, c.tp)
        return safe_ratio((cost * c.matrix).sum(), c.total, self.zero_division)
