"""Scores of one class against the rest, and their averages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, get_args

from evalign.core.arrays import (
    ZERO,
    constant,
    detached,
    library,
    part_of,
    safe_ratio,
    where,
)
from evalign.core.checks import numbers, require
from evalign.core.confusion import Confusion
from evalign.core.metrics.base import NamedMetric
from evalign.core.metrics.slopes import OF_SUMS, Slopes

Average = Literal["binary", "macro", "micro", "weighted"]


@dataclass(frozen=True)
class Quotient:
    """A score of each class: a weighted sum of its sums over another.

    Both name sums of a `Confusion` with their factors: recall is {"tp": 1} over {"actual": 1}.
    """

    over: Mapping[str, Any]
    under: Mapping[str, Any]

    def denominator(self, c: Confusion) -> Any:
        return _weighted(c, self.under)

    def value(self, c: Confusion, fill: float) -> Any:
        numerator = _weighted(c, self.over)
        denominator = self.denominator(c)
        if self.over.keys() != {"tp"}:  # the others are differences, perhaps of rounding alone
            numerator = part_of(denominator, numerator)
        return safe_ratio(numerator, denominator, fill)

    def slopes(self, c: Confusion) -> list[Any]:
        """By tp, predicted, actual and total of the class; 0 where it is undefined.

        (n / d)′ = (n′ − (n / d) d′) / d, and n′ and d′ are constants.
        """
        denominator = self.denominator(c)
        value = self.value(c, 0.0)
        inverse = safe_ratio(library(denominator).ones_like(denominator), denominator)
        return [
            inverse * (_coefficient(c, self.over, by) - value * _coefficient(c, self.under, by))
            for by in range(4)
        ]


def _weighted(c: Confusion, factors: Mapping[str, Any]) -> Any:
    """The sum of the named sums, each times its factor."""
    terms = []
    for name, factor in factors.items():
        sums = getattr(c, name)
        terms.append(sums if factor == 1 else _beside(factor, sums) * sums)
    return reduce(add, terms)


def _coefficient(c: Confusion, factors: Mapping[str, Any], by: int) -> Any:
    """The derivative of such a sum by the class's tp, predicted, actual or total."""
    terms = (_beside(factor, c.tp) * OF_SUMS[name][by] for name, factor in factors.items())
    return reduce(add, terms)


def _beside(factor: Any, like: Any) -> Any:
    """A factor, or one for each class as an array."""
    return constant(factor, like) if isinstance(factor, tuple) else factor


@dataclass(frozen=True, kw_only=True)
class ClassMetric(NamedMetric):
    """A score per class (one against the rest), averaged as in scikit-learn.

    A subclass names the `quotients` whose sum is the score, plus `shift`; a metric of another form
    overrides `score`, and is then differentiated by numbers.

    Args:
        average: "binary" (class 1 of two), "macro", "micro", "weighted" by the actual mass, or
            None for the vector of scores.
        labels: the classes that count. By default, as in scikit-learn, those with true or
            predicted rows, and every label of a multilabel problem. A class without true rows that
            is predicted softly counts by its number of predicted rows, at most 1; in a micro
            average by that share of its rows. No gradient flows through how much a class counts.
        zero_division: the score where it is 0/0; NaN leaves the class out of the average.
    """

    average: Average | None = "binary"
    labels: tuple[int, ...] | None = None

    shift: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        allowed = f"be one of {', '.join(get_args(Average))} or None"
        known = (None, *get_args(Average))
        require(self.average in known, name, "average", allowed, repr(self.average))
        if self.labels is not None:
            indices = numbers(self.labels)
            labels = [int(index) for index in indices.ravel()]
            ok = (
                indices.ndim == 1
                and labels == indices.tolist()
                and len(set(labels)) == len(labels) > 0
            )
            require(ok, name, "labels", "hold class indices, each once", self.labels)
            self._settle(labels=tuple(labels))

    @property
    def name(self) -> str:
        return self.stem if self.average == "binary" else f"{self.stem}_{self.average}"

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        """The quotients whose sum is the score of a class."""
        raise NotImplementedError

    def score(self, c: Confusion) -> Any:
        """The score of every class, `zero_division` where it is undefined."""
        quotients = self.quotients(c)
        if len(quotients) == 1:
            return quotients[0].value(c, self.zero_division)
        value = sum(each.value(c, 0.0) for each in quotients) + self.shift
        undefined = sum(each.denominator(c) < ZERO for each in quotients) > 0
        return where(undefined, self.zero_division, value)

    def __call__(self, c: Confusion) -> Any:
        if self.average == "binary":
            self._check_two(c)
            return self.score(c)[..., 1]
        if self.average is None:
            score = self.score(c)
            if self.labels is None:
                return score
            self._check_labels(c)
            return score[..., constant(self.labels, c.tp, dtype="int64")]
        if self.average == "micro":
            return self.score(self._pooled(c))[..., 0]
        score, counted = self._defined(c)
        weight = self._weight(c, counted)
        return safe_ratio((weight * score).sum(-1), weight.sum(-1), self.zero_division)

    def slopes(self, c: Confusion) -> Slopes:
        if type(self).score is not ClassMetric.score or self.average is None:
            return super().slopes(c)
        if self.average == "micro":
            counted = self._counted(c)
            one_class = self.slopes_of_classes(self._pooled(c))
            of_each = one_class.times(counted != 0)
            return replace(of_each, total=counted * one_class.total).gathered(c.multilabel)
        of_classes = self.slopes_of_classes(c)
        if self.average == "binary":
            self._check_two(c)
            return of_classes.times(constant((0.0, 1.0), c.tp)).gathered(c.multilabel)
        score, counted = self._defined(c)
        weight = self._weight(c, counted)
        mass = weight.sum(-1)[..., None]
        share = safe_ratio(weight, mass)
        slopes = of_classes.times(share)
        if self.average == "weighted":
            # The weights of the average are actual masses, and change with them.
            mean = (share * score).sum(-1)[..., None]
            support = (counted * c.actual).sum(-1)[..., None]
            by_weight = where(support == 0, 0.0, safe_ratio(counted, mass) * (score - mean))
            slopes = replace(slopes, actual=slopes.actual + by_weight)
        return slopes.gathered(c.multilabel)

    def slopes_of_classes(self, c: Confusion) -> Slopes:
        """The slopes of the score of each class by its own sums."""
        by_quotient = [each.slopes(c) for each in self.quotients(c)]
        undefined = sum(each.denominator(c) < ZERO for each in self.quotients(c)) > 0
        tp, predicted, actual, total = (
            where(undefined, 0.0, sum(slopes)) for slopes in zip(*by_quotient, strict=True)
        )
        return Slopes(tp, predicted, actual, total=total)

    def _pooled(self, c: Confusion) -> Confusion:
        """The sums over the classes that count, as those of one label."""
        counted = self._counted(c)
        # The total by shares: else a trace of mass would bring all true negatives of a class.
        total = (counted * c.total_of_each).sum(-1)[..., None]
        counts = counted != 0
        tp, predicted, actual = (
            (counts * sums).sum(-1)[..., None] for sums in (c.tp, c.predicted, c.actual)
        )
        return Confusion(tp, predicted, actual, total, multilabel=True)

    def _defined(self, c: Confusion) -> tuple[Any, Any]:
        """The scores, and how much each class counts: not at all where a NaN says so."""
        score = self.score(c)
        counted = self._counted(c)
        if self.nan_if_undefined:
            known = c.tp + c.predicted
            undefined = (score != score) & (known == known)  # NaN logits stay visible
            score = where(undefined, 0.0, score)
            counted = where(undefined, 0.0, counted)
        return score, counted

    def _weight(self, c: Confusion, counted: Any) -> Any:
        """The weight of each class in the average."""
        if self.average != "weighted":
            return counted
        support = counted * c.actual
        # A plain mean if no class that counts has true rows.
        return where(support.sum(-1)[..., None] == 0, counted, support)

    def _counted(self, c: Confusion) -> Any:
        """How much each class counts: 1 or 0, or between them if it has soft predictions alone.

        A class thus comes and goes without a jump. A gradient through this would reward never
        predicting a class that the batch lacks.
        """
        if self.labels is not None:
            self._check_labels(c)
            chosen = tuple(float(k in self.labels) for k in range(c.num_classes))
            return constant(chosen, c.tp)
        one = library(c.tp).ones_like(c.tp)
        if c.rows is None:
            mass = c.total if c.multilabel else c.actual + c.predicted
            return one * (mass != 0)
        rows = detached(c.predicted * safe_ratio(c.rows, c.total)[..., None])
        return where(c.actual != 0, one, rows.clip(None, 1))

    def _check_two(self, c: Confusion) -> None:
        cure = f"Use {self.stem}_macro, {self.stem}_micro or {self.stem}_weighted."
        require(c.two, self.stem, "classes", "be two", c.size, cure)

    def _check_labels(self, c: Confusion) -> None:
        ok = all(0 <= label < c.num_classes for label in self.labels or ())
        allowed = f"be classes from 0 to {c.num_classes - 1}"
        require(ok, type(self).__name__, "labels", allowed, self.labels)
