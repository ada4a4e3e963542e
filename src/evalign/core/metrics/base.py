"""What every metric is: a function of a Confusion, with bounds, slopes and a name."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from evalign.core import stairs
from evalign.core.arrays import is_numpy
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics.slopes import Slopes, by_differences

MetricFunction = Callable[[Confusion], Any]


class Metric(ABC):
    """A function of a Confusion that returns a number, and what training asks about it.

    Of a Confusion with leading dimensions it returns an array of these dimensions.

    Attributes:
        greater_is_better: whether its loss is 1 − metric. A cost is its own loss.
        bounds: the least and the greatest value it can have.
        needs_matrix: whether it reads the d × d matrix. Most read the O(classes) sums only.
        nan_if_undefined: whether NaN means that no class has a score, and not that logits are NaN.
        double: whether float32 memberships are too coarse for it, so that losses use float64.
        ordered: whether it counts classes by their place: costs, or ordinal classes.
        inner_optimum: whether the best threshold lies between all and none. The slopes of other
            metrics, such as recall, lead to one of the ends.
    """

    greater_is_better: bool = True
    bounds: tuple[float, float] = (-math.inf, math.inf)
    needs_matrix: bool = False
    nan_if_undefined: bool = False
    double: bool = False
    ordered: bool = False
    inner_optimum: bool = True

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in tables. With default settings, `resolve(name)` is the metric again."""

    @abstractmethod
    def __call__(self, c: Confusion) -> Any:
        """The metric of this confusion."""

    def slopes(self, c: Confusion) -> Slopes:
        """Its partial derivatives by the sums of each class.

        Named metrics have closed forms. Others are differentiated: by autograd if the Confusion
        holds tensors, otherwise by central differences.
        """
        return by_differences(self, c) if is_numpy(c.tp) else stairs.slopes_by_autograd(self, c)

    def _settle(self, **attributes: object) -> None:
        """Set attributes at construction, after which a metric is frozen."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)


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


class MatrixMetric(NamedMetric):
    """One number of the whole confusion matrix; not defined for multilabel problems.

    Args:
        zero_division: the value where it is 0/0.
    """

    @abstractmethod
    def value(self, c: Confusion) -> Any:
        """The metric, `zero_division` where it is undefined."""

    def __call__(self, c: Confusion) -> Any:
        allowed = "come from mutually exclusive classes"
        cure = 'Use an averaged metric such as "f1_macro" or "jaccard_micro".'
        require(not c.multilabel, type(self).__name__, "confusion", allowed, c.size, cure)
        return self.value(c)
