"""The base classes of metrics: averaging over classes, undefined scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from evalign.core.checks import complaint, numbers, require
from evalign.core.confusion import Confusion
from evalign.core.numerics import constant, safe_ratio

Average = Literal["binary", "macro", "micro", "weighted"]
MetricFunction = Callable[[Confusion], Tensor]
_PROBED_CLASSES = 64  # enough for functions that name a class by its index


class Metric(ABC):
    """A function of a Confusion that returns a scalar tensor, and what training asks about it.

    Attributes:
        greater_is_better: whether its loss is 1 − metric. A cost is its own loss.
        bounds: the least and the greatest value it can have.
        needs_matrix: whether it reads the d × d matrix. Most read the O(classes) sums only.
        nan_if_undefined: whether NaN means that no class has a score, and not that logits are NaN.
        double: whether float32 memberships are too coarse for it, so that losses use float64.
        inner_optimum: whether the best threshold lies between all and none. The slopes of other
            metrics, such as recall, lead to one of the ends.
    """

    greater_is_better: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)
    needs_matrix: bool = False
    nan_if_undefined: bool = False
    double: bool = False
    inner_optimum: bool = True

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in tables. With default settings, `resolve(name)` is the metric again."""

    @abstractmethod
    def __call__(self, c: Confusion) -> Tensor:
        """The metric of this confusion."""

    def _settle(self, **attributes: object) -> None:
        """Set attributes at construction, after which a metric is frozen."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A user's function from a Confusion to a scalar tensor.

    It may declare `greater_is_better` and `needs_matrix` as attributes. Without the second, it is
    called once, at construction, with a Confusion that has no matrix. Errors name the `owner`.
    """

    function: MetricFunction
    owner: str = field(default="FunctionMetric", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _takes_one_argument(self.function):
            allowed = "be a name, a metric or a function of one Confusion"
            cure = 'Of a function of labels, such as scikit-learn\'s, give the name: "f1_macro".'
            raise TypeError(complaint(self.owner, "metric", allowed, repr(self.function), cure))
        greater_is_better = getattr(self.function, "greater_is_better", True)
        self._settle(greater_is_better=greater_is_better, needs_matrix=self._reads_matrix())

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, c: Confusion) -> Tensor:
        return self._scalar(self.function(c), c)

    def _scalar(self, score: object, c: Confusion) -> Tensor:
        if not isinstance(score, Tensor) or score.ndim:
            shape = f"shape {tuple(getattr(score, 'shape', ()))} for {c.num_classes} classes"
            got = shape if isinstance(score, Tensor) else type(score).__name__
            cure = "Reduce it with .mean() or .sum(), and do not call .item()."
            raise TypeError(complaint(self.owner, "metric", "return a scalar tensor", got, cure))
        return score

    def _reads_matrix(self) -> bool:
        """Whether the function reads the matrix. A vector is refused here, before any training."""
        declared = getattr(self.function, "needs_matrix", None)
        if declared is not None:
            return declared
        probe = replace(Confusion.from_matrix(1 + torch.eye(_PROBED_CLASSES)), full=None)
        try:
            score = self.function(probe)
        except Exception:  # it asked for the matrix, or is written for another number of classes
            return True
        self._scalar(score, probe)
        return False


def _takes_one_argument(function: Any) -> bool:
    try:  # of a module, such as torch's losses, by its forward
        signature(getattr(function, "forward", function)).bind(None)
    except (TypeError, ValueError):  # a built-in function may have no signature
        return False
    return not (isinstance(function, type) or hasattr(function, "compute"))  # as torchmetrics has


@dataclass(frozen=True)
class Minimize(FunctionMetric):
    """A function of a Confusion whose smaller values are better: it becomes its own loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle(greater_is_better=False)


@dataclass(frozen=True, kw_only=True)
class NamedMetric(Metric):
    """A metric that has a name and a value for 0/0."""

    zero_division: float = 0.0

    stem: ClassVar[str]  # the name without its average
    bounds = (0.0, 1.0)

    def __post_init__(self) -> None:
        value, defined = self.zero_division, self.zero_division in (0, 1)
        ok = defined or value != value  # NaN alone differs from itself
        require(ok, type(self).__name__, "zero_division", "be 0, 1 or nan", repr(value))
        self._settle(nan_if_undefined=not defined)

    @property
    def name(self) -> str:
        return self.stem


@dataclass(frozen=True, kw_only=True)
class ClassMetric(NamedMetric):
    """A score per class (one against the rest), averaged as in scikit-learn.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        allowed = f"be one of {', '.join(get_args(Average))} or None"
        known = (None, *get_args(Average))
        require(self.average in known, name, "average", allowed, repr(self.average))
        if self.labels is not None:
            found = numbers(self.labels)
            labels = found.long().flatten().tolist()
            ok = found.ndim == 1 and labels == found.tolist() and len({*labels}) == len(labels) > 0
            require(ok, name, "labels", "hold class indices, each once", self.labels)
            self._settle(labels=tuple(labels))

    @property
    def name(self) -> str:
        return self.stem if self.average == "binary" else f"{self.stem}_{self.average}"

    @abstractmethod
    def score(self, c: Confusion) -> Tensor:
        """The score of every class, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Tensor:
        if self.average == "binary":
            cure = f"Use {self.stem}_macro, {self.stem}_micro or {self.stem}_weighted."
            require(c.two, self.stem, "classes", "be two", c.size, cure)
            return self.score(c)[1]
        if self.average is None:
            score = self.score(c)
            return score if self.labels is None else score.index_select(0, self._indices(c))
        counted = self._counted(c)
        if self.average == "micro":
            # The total by shares: else a trace of mass would bring all true negatives of a class.
            total = (counted * c.total).sum(0, keepdim=True)
            counted = counted != 0
            pooled = ((counted * x).sum(0, keepdim=True) for x in (c.tp, c.predicted, c.actual))
            tp, predicted, actual = pooled
            return self.score(Confusion(tp, predicted, actual, total, multilabel=True))[0]
        score = self.score(c)
        if self.nan_if_undefined:
            undefined = score.isnan() & ~(c.tp + c.predicted).isnan()  # NaN logits stay visible
            counted, score = torch.where(undefined, 0, counted), torch.where(undefined, 0, score)
        weight = counted
        if self.average == "weighted":  # a plain mean if no class that counts has true rows
            support = counted * c.actual
            weight = torch.where(support.sum() == 0, counted, support)
        return safe_ratio((weight * score).sum(), weight.sum(), self.zero_division)

    def _counted(self, c: Confusion) -> Tensor:
        """How much each class counts: 1 or 0, or between them if it has soft predictions alone.

        A class thus comes and goes without a jump. A gradient through this would reward never
        predicting a class that the batch lacks.
        """
        if self.labels is not None:
            return torch.zeros_like(c.tp).index_fill(0, self._indices(c), 1)
        if c.rows is None:
            mass = c.total if c.multilabel else c.actual + c.predicted
            return (mass != 0).to(c.tp.dtype)
        rows = c.predicted.detach() * safe_ratio(c.rows, c.total)
        return torch.where(c.actual != 0, 1, rows.clamp(max=1))

    def _indices(self, c: Confusion) -> Tensor:
        labels = self.labels or ()
        ok = all(0 <= label < c.num_classes for label in labels)
        allowed = f"be classes from 0 to {c.num_classes - 1}"
        require(ok, type(self).__name__, "labels", allowed, self.labels)
        return constant(labels, c.tp, dtype=torch.int64)


class MatrixMetric(NamedMetric):
    """One number of the whole confusion matrix; not defined for multilabel problems.

    Args:
        zero_division: the value where it is 0/0.
    """

    @abstractmethod
    def value(self, c: Confusion) -> Tensor:
        """The metric, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Tensor:
        allowed = "come from mutually exclusive classes"
        cure = 'Use an averaged metric such as "f1_macro" or "jaccard_micro".'
        require(not c.multilabel, type(self).__name__, "confusion", allowed, c.size, cure)
        return self.value(c)
