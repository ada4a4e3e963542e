"""What metrics share: averaging over classes, undefined scores, direction."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.numerics import constant, safe_ratio

Average = Literal["binary", "macro", "micro", "weighted"]
MetricFunction = Callable[[Confusion], Tensor]


def check_function(owner: str, metric: object) -> None:
    """A metric that is no name must be a function of one argument."""
    allowed = "be a name, a metric or a function of one Confusion"
    cure = 'Of a function of labels, such as scikit-learn\'s, give the name: "f1_macro".'
    try:
        if not callable(metric) or isinstance(metric, type):
            raise TypeError
        with suppress(ValueError):  # a built-in function tells nothing of its arguments
            signature(metric).bind(None)
    except TypeError:
        raise TypeError(complaint(owner, "metric", allowed, repr(metric), cure)) from None


@dataclass(frozen=True, kw_only=True)
class ClassMetric(ABC):
    """A score per class (one against the rest), averaged as in scikit-learn.

    Args:
        average: "binary" (class 1 of two), "macro", "micro", "weighted" by the actual mass, or
            None for the vector of scores.
        labels: the classes that count. By default, as in scikit-learn, those with true or
            predicted mass (a class that does not occur does not pull the average down), and every
            label of a multilabel problem.
        zero_division: the score where it is 0/0; NaN leaves the class out of the average.
    """

    average: Average | None = "binary"
    labels: tuple[int, ...] | None = None
    zero_division: float = 0.0

    greater_is_better: ClassVar[bool] = True
    needs_matrix: ClassVar[bool] = False
    stem: ClassVar[str]  # the name of the binary form; "_macro" and the like are appended

    def __post_init__(self) -> None:
        name = type(self).__name__
        allowed = f"be one of {', '.join(get_args(Average))} or None"
        known = self.average is None or self.average in get_args(Average)
        require(known, name, "average", allowed, repr(self.average))
        _check_zero_division(name, self.zero_division)
        if self.labels is not None:
            integers = not isinstance(self.labels, str) and all(
                label == int(label) for label in self.labels
            )
            require(integers, name, "labels", "hold class indices", self.labels)
            object.__setattr__(self, "labels", tuple(int(label) for label in self.labels))

    @abstractmethod
    def score(self, c: Confusion) -> Tensor:
        """The score of every class, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Tensor:
        if self.average == "binary":
            self._check_binary(c)
            return self.score(c)[1]
        if self.average is None:
            score = self.score(c)
            return score if self.labels is None else score.index_select(0, self._indices(c))
        counted = self._counted(c)
        if self.average == "micro":
            pooled = ((counted * x).sum(0, keepdim=True) for x in (c.tp, c.predicted, c.actual))
            tp, predicted, actual = pooled
            total = (counted * c.total).sum(0, keepdim=True)
            return self.score(Confusion(tp, predicted, actual, total, multilabel=True))[0]
        score = self.score(c)
        if self.zero_division not in (0, 1):  # NaN; asked so because isnan breaks compiled graphs
            undefined = score.isnan() & ~(c.tp + c.predicted).isnan()  # NaN logits stay visible
            counted, score = torch.where(undefined, 0, counted), torch.where(undefined, 0, score)
        weight = counted
        if self.average == "weighted":  # a plain mean if no class that counts has true rows
            support = counted * c.actual
            weight = torch.where(support.sum() == 0, counted, support)
        return safe_ratio((weight * score).sum(), weight.sum(), self.zero_division)

    def _counted(self, c: Confusion) -> Tensor:
        """1 for the classes that count, 0 for the others."""
        if self.labels is None:
            mass = c.total if c.multilabel else c.actual + c.predicted
            return (mass != 0).to(c.tp.dtype)
        return torch.zeros_like(c.tp).index_fill(0, self._indices(c), 1)

    def _indices(self, c: Confusion) -> Tensor:
        labels = self.labels or ()
        ok = all(0 <= label < c.num_classes for label in labels)
        allowed = f"be classes from 0 to {c.num_classes - 1}"
        require(ok, type(self).__name__, "labels", allowed, self.labels)
        return constant(labels, c.tp, dtype=torch.int64)

    def _check_binary(self, c: Confusion) -> None:
        kind = "labels" if c.multilabel else "classes"
        allowed = f'be "macro", "micro" or "weighted" for {c.num_classes} {kind}'
        cure = f'Use average="macro", by name "{self.stem}_macro".'
        binary = c.num_classes == 2 and not c.multilabel
        require(binary, type(self).__name__, "average", allowed, '"binary"', cure)


@dataclass(frozen=True, kw_only=True)
class MatrixMetric(ABC):
    """One number of the whole confusion matrix; not defined for multilabel problems."""

    zero_division: float = 0.0

    greater_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_zero_division(type(self).__name__, self.zero_division)

    @property
    def needs_matrix(self) -> bool:
        return False

    @abstractmethod
    def value(self, c: Confusion) -> Tensor:
        """The metric, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Tensor:
        allowed, got = "come from mutually exclusive classes", f"{c.num_classes} labels"
        cure = 'Use an averaged metric such as "f1_macro" or "jaccard_micro".'
        require(not c.multilabel, type(self).__name__, "confusion", allowed, got, cure)
        return self.value(c)


@dataclass(frozen=True)
class Minimize:
    """A function of a Confusion whose smaller values are better: it becomes its own loss."""

    function: MetricFunction

    greater_is_better: ClassVar[bool] = False

    def __call__(self, c: Confusion) -> Tensor:
        return self.function(c)


def _check_zero_division(owner: str, value: float) -> None:
    ok = value in (0, 1) or value != value  # NaN alone differs from itself
    require(ok, owner, "zero_division", "be 0, 1 or nan", repr(value))
