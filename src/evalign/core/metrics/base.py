"""The base classes of metrics: averaging over classes, undefined scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import ClassVar, Literal, get_args

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

    `resolve` makes one from a name or a user's function.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in tables. With the default settings, `resolve(name)` is the metric again."""

    @property
    def greater_is_better(self) -> bool:
        """Whether it becomes the loss 1 − metric. A cost is its own loss."""
        return True

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value it can have."""
        return -math.inf, math.inf

    @property
    def needs_matrix(self) -> bool:
        """Whether it reads the d × d matrix. Most read the O(classes) sums only."""
        return False

    @property
    def nan_if_undefined(self) -> bool:
        """Whether a NaN means that no class has a score, and not that the logits are NaN."""
        return False

    @abstractmethod
    def __call__(self, c: Confusion) -> Tensor:
        """The metric of this confusion."""


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A user's function of a Confusion. Its result is checked to be a scalar tensor.

    The function may declare `greater_is_better` and `needs_matrix` as attributes. To find out the
    second, it is otherwise called once, at construction, with a Confusion that has no matrix.

    Args:
        function: from a `Confusion` to a scalar tensor.
        owner: the name that errors give as the owner of the argument.
    """

    function: MetricFunction
    owner: str = field(default="FunctionMetric", repr=False, compare=False)
    _reads_matrix: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = "be a name, a metric or a function of one Confusion"
        cure = 'Of a function of labels, such as scikit-learn\'s, give the name: "f1_macro".'
        of_torchmetrics = hasattr(self.function, "update") and hasattr(self.function, "compute")
        try:
            if not callable(self.function) or isinstance(self.function, type) or of_torchmetrics:
                raise TypeError
            with suppress(ValueError):  # a built-in function may have no signature
                # Modules, such as torch's losses, are called with whatever their forward takes.
                signature(getattr(self.function, "forward", self.function)).bind(None)
        except TypeError:
            got = repr(self.function)
            raise TypeError(complaint(self.owner, "metric", allowed, got, cure)) from None
        object.__setattr__(self, "_reads_matrix", self._probe())

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def greater_is_better(self) -> bool:
        return getattr(self.function, "greater_is_better", True)

    @property
    def needs_matrix(self) -> bool:
        return self._reads_matrix

    def __call__(self, c: Confusion) -> Tensor:
        score = self.function(c)
        self._check_scalar(score, c)
        return score

    def _probe(self) -> bool:
        """Whether the function reads the matrix. A vector is refused here, before any training."""
        declared = getattr(self.function, "needs_matrix", None)
        if declared is not None:
            return declared
        probe = replace(Confusion.from_matrix(1 + torch.eye(_PROBED_CLASSES)), full=None)
        try:
            result = self.function(probe)
        except Exception:  # it asked for the matrix, or is written for another number of classes
            return True
        self._check_scalar(result, probe)
        return False

    def _check_scalar(self, score: object, c: Confusion) -> None:
        if isinstance(score, Tensor) and score.ndim == 0:
            return
        got = type(score).__name__
        if isinstance(score, Tensor):
            got = f"shape {tuple(score.shape)} for {c.num_classes} classes"
        cure = "Reduce it with .mean() or .sum(), and do not call .item()."
        raise TypeError(complaint(self.owner, "metric", "return a scalar tensor", got, cure))


@dataclass(frozen=True)
class Minimize(FunctionMetric):
    """A function of a Confusion whose smaller values are better: it becomes its own loss."""

    owner: str = field(default="Minimize", repr=False, compare=False)

    @property
    def greater_is_better(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class ClassMetric(Metric):
    """A score per class (one against the rest), averaged as in scikit-learn.

    Args:
        average: "binary" (class 1 of two), "macro", "micro", "weighted" by the actual mass, or
            None for the vector of scores.
        labels: the classes that count. By default, as in scikit-learn, those with true or
            predicted rows (a class that does not occur does not pull the average down), and every
            label of a multilabel problem. A class without true rows that is predicted softly counts
            in an average as much as it has predicted rows, at most 1; in a micro average, this is
            its share of the rows, those that are not predicted as it being true negatives.
            No gradient flows through how much a class counts.
        zero_division: the score where it is 0/0; NaN leaves the class out of the average.
    """

    average: Average | None = "binary"
    labels: tuple[int, ...] | None = None
    zero_division: float = 0.0

    stem: ClassVar[str]  # the name of the binary form; "_macro" and the like are appended

    def __post_init__(self) -> None:
        name = type(self).__name__
        allowed = f"be one of {', '.join(get_args(Average))} or None"
        known = self.average is None or self.average in get_args(Average)
        require(known, name, "average", allowed, repr(self.average))
        _check_zero_division(name, self.zero_division)
        if self.labels is not None:
            found = numbers(self.labels)
            whole = found.ndim == 1 and len(found) > 0 and bool((found == found.round()).all())
            ok = whole and len(found.unique()) == len(found)
            require(ok, name, "labels", "hold class indices, each once", self.labels)
            object.__setattr__(self, "labels", tuple(map(int, found.tolist())))

    @property
    def name(self) -> str:
        return self.stem if self.average == "binary" else f"{self.stem}_{self.average}"

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def nan_if_undefined(self) -> bool:
        return self.zero_division not in (0, 1)  # not isnan, which breaks compiled graphs

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

        By default a class without true rows counts as much as it has predicted rows of mean weight,
        at most 1. So it comes and goes without a jump, and counts as in scikit-learn at T → 0. The
        slope of that is left out: it rewards predicting no class that the batch lacks.
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

    def _check_binary(self, c: Confusion) -> None:
        got = f"{c.num_classes} {'labels' if c.multilabel else 'classes'}"
        cure = f"Use {self.stem}_macro, {self.stem}_micro or {self.stem}_weighted"
        cure += "; if dimension 1 holds no labels, logits.unsqueeze(1)." if c.multilabel else "."
        binary = c.num_classes == 2 and not c.multilabel
        require(binary, self.stem, "classes", "be two", got, cure)


@dataclass(frozen=True, kw_only=True)
class MatrixMetric(Metric):
    """One number of the whole confusion matrix; not defined for multilabel problems.

    Args:
        zero_division: the value where it is 0/0.
    """

    zero_division: float = 0.0

    stem: ClassVar[str]  # the name without its settings

    def __post_init__(self) -> None:
        _check_zero_division(type(self).__name__, self.zero_division)

    @property
    def name(self) -> str:
        return self.stem

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def nan_if_undefined(self) -> bool:
        return self.zero_division not in (0, 1)

    @abstractmethod
    def value(self, c: Confusion) -> Tensor:
        """The metric, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Tensor:
        allowed, got = "come from mutually exclusive classes", f"{c.num_classes} labels"
        cure = 'Use an averaged metric such as "f1_macro" or "jaccard_micro".'
        require(not c.multilabel, type(self).__name__, "confusion", allowed, got, cure)
        return self.value(c)


def _check_zero_division(owner: str, value: float) -> None:
    ok = value in (0, 1) or value != value  # NaN alone differs from itself
    require(ok, owner, "zero_division", "be 0, 1 or nan", repr(value))
