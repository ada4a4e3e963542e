"""A user's function of a Confusion as a metric."""

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from evalign.core import stairs
from evalign.core.arrays import is_numpy, library
from evalign.core.checks import complaint
from evalign.core.confusion import Confusion
from evalign.core.metrics.base import Metric, MetricFunction

NUMBERS = (np.ndarray, np.generic, float, int)
PROBED_CLASSES = 64  # enough for functions that name a class by its index


@dataclass(frozen=True)
class FunctionMetric(Metric):
    """A user's function from one Confusion to a number.

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

    def __call__(self, c: Confusion) -> Any:
        leading = c.tp.shape[:-1]
        if not leading:
            return self._of_one(c)
        values = [self._of_one(c.map(lambda x, at=at: x[at])) for at in np.ndindex(*leading)]
        return library(c.tp).stack(values).reshape(leading)

    def _of_one(self, c: Confusion) -> Any:
        try:
            value = self._returned(c)
        except (AttributeError, TypeError) as error:
            of = "NumPy arrays" if is_numpy(c.tp) else "tensors"
            allowed = f"be a function that works on {of} too, which this call gives it"
            cure = "Use operators and what both libraries share, as in c.tp.sum() / c.total."
            message = complaint(self.owner, "metric", allowed, f"{error!r}", cure)
            raise TypeError(message) from error
        return self._scalar(value, c)

    def _returned(self, c: Confusion) -> Any:
        """What the function returns; of arrays too 0/0 is NaN without a warning."""
        if not is_numpy(c.tp):
            return self.function(c)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.function(c)

    def _scalar(self, score: Any, c: Confusion) -> Any:
        """The number that the function returned, in the library of the Confusion."""
        if is_numpy(c.tp):
            score = stairs.as_numpy(score)
            scalar = np.ndim(score) == 0 and isinstance(
                score, np.ndarray | np.generic | float | int
            )
        else:
            scalar = stairs.is_tensor(score) and score.ndim == 0
        if not scalar:
            shape = getattr(score, "shape", None)
            got = type(score).__name__
            if shape is not None:
                got = f"shape {tuple(shape)} for {c.num_classes} classes"
            cure = "Reduce it with .mean() or .sum(), and do not call .item()."
            raise TypeError(complaint(self.owner, "metric", "return one number", got, cure))
        return np.float64(score) if is_numpy(c.tp) else score

    def _reads_matrix(self) -> bool:
        """Whether the function reads the matrix. A vector is refused here, before any training."""
        declared = getattr(self.function, "needs_matrix", None)
        if declared is not None:
            return declared
        probe = replace(Confusion.from_matrix(1 + np.eye(PROBED_CLASSES)), full=None)
        probes = [probe, *stairs.as_tensors(probe)]
        for each in probes:
            try:
                score = self._returned(each)
            except Exception:  # the matrix, the other library, or another number of classes
                continue
            self._scalar(score, each)
            return False
        return True


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
