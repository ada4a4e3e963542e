"""Metrics of one class against the rest, with the averages of `ClassMetric`."""

from collections.abc import Sequence
from dataclasses import dataclass

from evalign.core.checks import numbers, require
from evalign.core.confusion import Confusion
from evalign.core.metrics.averages import ClassMetric, Quotient

# At the ends it is precision or recall to the last digit; squares far beyond would overflow.
BETAS = "lie from 1e-9 to 1e9"

RECALL = Quotient({"tp": 1}, {"actual": 1})
SPECIFICITY = Quotient({"tn": 1}, {"negatives": 1})


def known_beta(beta: float) -> bool:
    return 1e-9 <= beta <= 1e9


class Precision(ClassMetric):
    """tp / (tp + fp)."""

    stem = "precision"
    inner_optimum = False

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"tp": 1}, {"predicted": 1}),)


class Recall(ClassMetric):
    """tp / (tp + fn)."""

    stem = "recall"
    inner_optimum = False

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (RECALL,)


class Specificity(ClassMetric):
    """tn / (tn + fp)."""

    stem = "specificity"
    inner_optimum = False

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (SPECIFICITY,)


class NegativePredictiveValue(ClassMetric):
    """tn / (tn + fn). A membership near 1 in float32 says little of its complement: use float64."""

    stem = "npv"
    double = True
    inner_optimum = False

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"tn": 1}, {"rejected": 1}),)


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
        betas = numbers(self.beta)
        allowed_numbers = betas.ndim < 2 and betas.size > 0 and all(map(known_beta, betas.flat))
        require(allowed_numbers, "FBeta", "beta", BETAS, self.beta)
        if betas.ndim == 0:
            beta = float(betas)
            self._settle(beta=beta, stem=f"f{beta:g}")
            return
        allowed = 'not be "micro" with a beta per class'
        pooled = self.average == "micro"
        require(not pooled, "FBeta", "average", allowed, '"micro"', "Use one beta for all.")
        self._settle(beta=tuple(betas.tolist()), stem="f1", ordered=True)

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        if isinstance(self.beta, int | float):
            square = self.beta**2
            return (Quotient({"tp": 1 + square}, {"actual": square, "predicted": 1}),)
        require(
            len(self.beta) == c.num_classes,
            "FBeta",
            "beta",
            f"be one number or one per class ({c.num_classes})",
            f"{len(self.beta)} numbers",
        )
        squares = tuple(beta**2 for beta in self.beta)
        over = {"tp": tuple(1 + square for square in squares)}
        return (Quotient(over, {"actual": squares, "predicted": 1}),)


class Jaccard(ClassMetric):
    """tp / (tp + fp + fn)."""

    stem = "jaccard"

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"tp": 1}, {"predicted": 1, "actual": 1, "tp": -1}),)


class Informedness(ClassMetric):
    """Recall + specificity − 1 (Youden's J); undefined if either is."""

    stem = "informedness"
    bounds = (-1.0, 1.0)
    shift = -1.0

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (RECALL, SPECIFICITY)
