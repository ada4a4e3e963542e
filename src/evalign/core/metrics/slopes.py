"""Partial derivatives of a metric by the sums of each class."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from evalign.core.arrays import library, where
from evalign.core.checks import complaint
from evalign.core.confusion import Confusion

# The derivatives of each sum of a class by its tp, predicted, actual and total mass.
OF_SUMS = {
    "tp": (1, 0, 0, 0),
    "fp": (-1, 1, 0, 0),
    "fn": (-1, 0, 1, 0),
    "tn": (1, -1, -1, 1),
    "predicted": (0, 1, 0, 0),
    "actual": (0, 0, 1, 0),
    "negatives": (0, 0, -1, 1),
    "rejected": (0, -1, 0, 1),
    "total_of_each": (0, 0, 0, 1),
}

# The step of central differences as a share of the total: the cube root of float64's rounding,
# where the errors of the formula and of the rounding are alike.
STEP = 2.0**-17
# Every sum takes two calls of the function, and of a matrix every cell.
MOST_CALLS = 2**16


@dataclass(frozen=True)
class Slopes:
    """The partial derivatives of a metric by tp, predicted and actual mass of each class, (..., C).

    Those by the cells of the matrix are `full` (..., C, C), for a metric that reads the matrix.
    The total of exclusive classes is the sum of their actual mass, and that of their predicted
    mass: the slopes by `actual` hold its part.
    """

    tp: Any
    predicted: Any
    actual: Any
    full: Any = None
    total: Any = None

    def times(self, weight: Any) -> Self:
        """The slopes of the sum over classes of weight times score."""
        return replace(
            self,
            tp=weight * self.tp,
            predicted=weight * self.predicted,
            actual=weight * self.actual,
            total=weight * self.total,
        )

    def gathered(self, multilabel: bool) -> Self:
        """The slopes with that by the total inside those by the actual mass.

        The total mass of a label is no sum of others, and is given.
        """
        if multilabel:
            return replace(self, total=None)
        return replace(self, actual=self.actual + self.total.sum(-1)[..., None], total=None)

    def of_matrix(self) -> Any:
        """The derivatives by the cells of the matrix (..., C, C)."""
        xp = library(self.tp)
        size = self.tp.shape[-1]
        diagonal = xp.eye(size, dtype=self.tp.dtype)
        if xp is not np:
            diagonal = diagonal.to(self.tp.device)
        slopes = self.tp[..., None] * diagonal + self.actual[..., None]
        slopes = slopes + self.predicted[..., None, :]
        return slopes if self.full is None else slopes + self.full


def of_scale(c: Confusion, tp: Any, predicted: Any, actual: Any, full: Any = None) -> Slopes:
    """The slopes of a metric that multiplying all sums, and the total, does not change.

    By Euler's theorem the slope by the total follows from the others.
    """
    by_total = (tp * c.tp + predicted * c.predicted + actual * c.actual).sum(-1)
    if full is not None:
        by_total = by_total + (full * c.matrix).sum((-2, -1))
    empty = c.total == 0
    by_total = -by_total / where(empty, 1.0, c.total)
    return Slopes(tp, predicted, actual + by_total[..., None], full)


def by_differences(metric: Callable[[Confusion], Any], c: Confusion) -> Slopes:
    """Slopes by central differences in NumPy, one Confusion at a time."""
    leading = c.tp.shape[:-1]
    if leading:
        parts = [
            by_differences(metric, c.map(lambda x, at=at: x[at])) for at in np.ndindex(*leading)
        ]
        stacked = {
            name: np.stack([getattr(part, name) for part in parts])
            for name in ("tp", "predicted", "actual", "full")
            if getattr(parts[0], name) is not None
        }
        return Slopes(**{k: v.reshape(*leading, *v.shape[1:]) for k, v in stacked.items()})
    calls = 2 * (c.tp.size * 3 if c.full is None else c.full.size)
    if calls > MOST_CALLS:
        most = int((MOST_CALLS / 2) ** 0.5) if c.full is not None else MOST_CALLS // 6
        allowed = f"be a named metric for more than {most} classes, or have slopes of its own"
        cure = (
            "Derive a class from evalign.metrics.MatrixMetric with the method "
            "slopes(confusion), or decide by a named metric."
        )
        name = getattr(metric, "name", repr(metric))
        raise ValueError(complaint("fit_decision", "metric", allowed, name, cure))
    step = STEP * max(float(np.max(c.total)), np.finfo(float).tiny)

    def slope(changed: Callable[[float], Confusion]) -> float:
        difference = float(metric(changed(step))) - float(metric(changed(-step)))
        return difference / (2 * step)

    if c.full is not None:
        cells = np.zeros(c.full.shape)
        for cell in np.ndindex(*c.full.shape):
            cells[cell] = slope(
                lambda by, cell=cell: Confusion.from_matrix(_plus(c.full, cell, by))
            )
        zeros = np.zeros(c.tp.shape)
        return Slopes(zeros, zeros, zeros, cells)

    def by_class(sums: str) -> np.ndarray:
        def changed(k: int, by: float) -> Confusion:
            moved = {sums: _plus(getattr(c, sums), k, by)}
            if sums == "actual" and not c.multilabel:
                moved["total"] = c.total + by
            return replace(c, **moved)

        return np.array([slope(lambda by, k=k: changed(k, by)) for k in range(c.tp.size)])

    return Slopes(by_class("tp"), by_class("predicted"), by_class("actual"))


def _plus(array: np.ndarray, at: Any, by: float) -> np.ndarray:
    moved = array.copy()
    moved[at] += by
    return moved
