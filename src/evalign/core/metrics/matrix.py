"""Metrics of the whole matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evalign.core.arrays import constant, library, part_of, safe_ratio, safe_sqrt, where
from evalign.core.checks import numbers, require
from evalign.core.confusion import ROUNDINGS, Confusion
from evalign.core.metrics.base import MatrixMetric
from evalign.core.metrics.slopes import Slopes, of_scale


class Accuracy(MatrixMetric):
    """Σ tp / total."""

    stem = "accuracy"

    def value(self, c: Confusion) -> Any:
        return safe_ratio(c.tp.sum(-1), c.total, self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        one = library(c.tp).ones_like(c.tp)
        by_tp = safe_ratio(one, c.total[..., None])
        return of_scale(c, by_tp, 0 * one, 0 * one)


class BalancedAccuracy(MatrixMetric):
    """Mean recall over the classes that have true rows."""

    stem = "balanced_accuracy"

    def value(self, c: Confusion) -> Any:
        recalls = safe_ratio(c.tp, c.actual).sum(-1)
        return safe_ratio(recalls, (c.actual != 0).sum(-1), self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        one = library(c.tp).ones_like(c.tp)
        classes = (c.actual != 0).sum(-1)[..., None]
        by_tp = safe_ratio(safe_ratio(one, c.actual), classes)
        by_actual = -by_tp * safe_ratio(c.tp, c.actual)
        return Slopes(by_tp, 0 * one, by_actual)


class GMean(MatrixMetric):
    """Geometric mean of the recalls of the classes that have true rows.

    Its slope is infinite at a recall of 0, so recalls are kept above √(smallest float).
    """

    stem = "g_mean"

    def value(self, c: Confusion) -> Any:
        xp = library(c.tp)
        recall = safe_ratio(c.tp, c.actual, fill=1.0)  # log 1 = 0 for a class without rows
        logs = xp.log(recall.clip(xp.finfo(recall.dtype).tiny ** 0.5))
        classes = (c.actual != 0).sum(-1)
        mean = xp.exp(safe_ratio(logs.sum(-1), classes))
        mean = where((recall == 0).any(-1), 0.0, mean)
        return where(classes == 0, self.zero_division, mean)

    def slopes(self, c: Confusion) -> Slopes:
        # The logarithm is a mean of log tp − log actual. Where the value is 0, so are the slopes.
        one = library(c.tp).ones_like(c.tp)
        classes = (c.actual != 0).sum(-1)
        share = safe_ratio(where(classes == 0, 0.0, self.value(c)), classes)[..., None]
        by_tp = where(c.actual == 0, 0.0, share * safe_ratio(one, c.tp))
        by_actual = -share * safe_ratio(one, c.actual)
        return Slopes(by_tp, 0 * one, by_actual)


class MatthewsCorrcoef(MatrixMetric):
    """Correlation of the true and the predicted class (Gorodkin's R_K; for two classes, MCC).

    With t, p the shares of the classes and a the accuracy: (a − Σ t p) / √((1 − Σ t²)(1 − Σ p²)).
    """

    stem = "matthews_corrcoef"
    bounds = (-1.0, 1.0)

    def value(self, c: Confusion) -> Any:
        covariance, variance_true, variance_predicted, undefined = self._moments(c)
        root = safe_sqrt(where(undefined, 0.0, variance_true * variance_predicted))
        return safe_ratio(covariance, root, self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        _, variance_true, variance_predicted, undefined = self._moments(c)
        defined = where(undefined, 0.0, variance_true * variance_predicted)
        one = library(defined).ones_like(defined)
        by_covariance = safe_ratio(one, safe_sqrt(defined))[..., None]
        value = where(undefined, 0.0, self.value(c))[..., None]
        share = _one_over_total(c)
        true = share * c.actual
        predicted = share * c.predicted
        # The slope of 1 − Σ p² by p is −2 p, and that of the quotient by it −½ value / (1 − Σ p²).
        by_predicted = value * safe_ratio(predicted, variance_predicted[..., None])
        by_actual = value * safe_ratio(true, variance_true[..., None])
        return of_scale(
            c,
            tp=share * by_covariance * library(c.tp).ones_like(c.tp),
            predicted=share * (by_predicted - by_covariance * true),
            actual=share * (by_actual - by_covariance * predicted),
        )

    def _moments(self, c: Confusion) -> tuple[Any, Any, Any, Any]:
        """The covariance, both variances, and whether a variance is nothing but rounding."""
        # Differences of counts first, shares of the total second: then rare classes keep their
        # digits and no product overflows.
        share = _one_over_total(c)
        # tp·tn − fp·fn is tp·total − actual·predicted without its cancellation.
        tn = part_of(c.rejected, c.tn)
        fn = part_of(c.rejected, c.fn)
        covariance = (share * c.tp * (share * tn) - share * c.fp * (share * fn)).sum(-1)
        variance_true = (share * c.actual * (share * c.negatives)).sum(-1)
        variance_predicted = (share * c.predicted * (share * c.rejected)).sum(-1)
        # Below the rounding of the covariance the quotient is noise and its slope unbounded.
        noise = ROUNDINGS * library(covariance).finfo(covariance.dtype).eps
        undefined = (variance_true <= noise) | (variance_predicted <= noise)  # NaN stays visible
        return covariance, variance_true, variance_predicted, undefined


@dataclass(frozen=True, kw_only=True)
class CohenKappa(MatrixMetric):
    """1 − observed / expected disagreement, plain or weighted by the distance of ordinal classes.

    Args:
        weights: None, "linear" (|i − j|) or "quadratic" ((i − j)²); the weighted forms need the
            d × d matrix.
        order: the classes from the lowest to the highest, by their names in a rule, an estimator
            and `score`, by their indices in a loss; None for the order that the classes have there.
        zero_division: the score where all rows are of one class and predicted as it, which is 0/0.
    """

    weights: Literal["linear", "quadratic"] | None = None
    order: Sequence[Any] | None = None

    stem = "cohen_kappa"
    bounds = (-1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.weights in (None, "linear", "quadratic")
        allowed = 'be None, "linear" or "quadratic"'
        require(known, "CohenKappa", "weights", allowed, repr(self.weights))
        if self.weights is not None:
            self._settle(stem=f"cohen_kappa_{self.weights}", needs_matrix=True, ordered=True)
        if self.order is not None:
            self._settle(order=tuple(np.asarray(self.order, dtype=object).tolist()))

    def value(self, c: Confusion) -> Any:
        observed, expected = self._disagreements(c)
        return safe_ratio(expected - observed, expected, self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        # κ = 1 − O / E, so dκ = ((1 − κ) dE − dO) / E.
        observed, expected = self._disagreements(c)
        one = library(expected).ones_like(expected)
        by_observed = -safe_ratio(one, expected)[..., None]
        by_expected = (safe_ratio(observed, expected) * safe_ratio(one, expected))[..., None]
        share = _one_over_total(c)
        true = share * c.actual
        predicted = share * c.predicted
        ones = library(c.tp).ones_like(c.tp)
        if self.weights is None:  # O = 1 − Σ tp, E = 1 − Σ t p
            return of_scale(
                c,
                tp=-by_observed * share * ones,
                predicted=-by_expected * share * true,
                actual=-by_expected * share * predicted,
            )
        distance = self._distance(c)
        return of_scale(
            c,
            tp=0 * ones,
            predicted=by_expected * share * (true @ distance),
            actual=by_expected * share * (predicted @ distance),
            full=(by_observed * share)[..., None] * distance,
        )

    def _disagreements(self, c: Confusion) -> tuple[Any, Any]:
        """The observed disagreement, and the expected one of independent labels."""
        true = safe_ratio(c.actual, c.total[..., None])
        if self.weights is None:
            # By fp, not by fn: of rows predicted as one class, actual − tp may be rounding alone.
            observed = safe_ratio(c.fp.sum(-1), c.total)
            expected = (true * safe_ratio(c.rejected, c.total[..., None])).sum(-1)
            noise = ROUNDINGS * library(expected).finfo(expected.dtype).eps  # of both differences
            return observed, where(expected <= noise, 0.0, expected)  # NaN stays visible
        predicted = safe_ratio(c.predicted, c.total[..., None])
        distance = self._distance(c)
        observed = (distance * safe_ratio(c.matrix, c.total[..., None, None])).sum((-2, -1))
        return observed, ((true @ distance) * predicted).sum(-1)

    def _distance(self, c: Confusion) -> Any:
        """The distance of each pair of classes, (C, C)."""
        ranks = list(range(c.num_classes))
        if self.order is not None:
            require(
                sorted(map(str, self.order)) == sorted(map(str, ranks)),
                "CohenKappa",
                "order",
                f"hold the class indices from 0 to {c.num_classes - 1}, as no classes are named",
                list(self.order),
            )
            ranks = [self.order.index(place) for place in ranks]
        classes = constant(tuple(ranks), c.tp)
        distance = abs(classes[:, None] - classes)
        return distance**2 if self.weights == "quadratic" else distance


@dataclass(frozen=True)
class ExpectedCost(MatrixMetric):
    """Σ cost ∘ matrix / total, the mean cost of a decision: rows of `cost` true, columns predicted.

    It is its own loss. A perfect classifier costs what the diagonal says, usually 0.
    """

    cost: Sequence[Sequence[float]]

    stem = "expected_cost"
    greater_is_better = False
    needs_matrix = True
    ordered = True

    def __post_init__(self) -> None:
        super().__post_init__()
        cost = numbers(self.cost)
        square = cost.ndim == 2 and cost.shape[0] == cost.shape[1] and cost.size > 0
        ok = square and bool(np.isfinite(cost).all())
        require(ok, "ExpectedCost", "cost", "be a square matrix of finite numbers", self.cost)
        self._settle(
            cost=tuple(map(tuple, cost.tolist())),
            bounds=(cost.min().item(), cost.max().item()),
        )

    @property
    def name(self) -> str:
        return f"{self.stem}{list(map(list, self.cost))}"

    def value(self, c: Confusion) -> Any:
        cost = self._cost(c)
        return safe_ratio((cost * c.matrix).sum((-2, -1)), c.total, self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        zeros = 0 * library(c.tp).ones_like(c.tp)
        share = _one_over_total(c)
        return of_scale(c, zeros, zeros, zeros, full=share[..., None] * self._cost(c))

    def _cost(self, c: Confusion) -> Any:
        """The costs as an array, if they are of as many classes."""
        require(
            len(self.cost) == c.num_classes,
            "ExpectedCost",
            "cost",
            f"have a row and a column for each of the {c.num_classes} classes",
            f"{len(self.cost)} x {len(self.cost)}",
        )
        return constant(self.cost, c.tp)


def _one_over_total(c: Confusion) -> Any:
    """1 / total beside the classes, (..., 1); 0 where there are no rows."""
    return safe_ratio(1.0, c.total[..., None])
