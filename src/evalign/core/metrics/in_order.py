"""A metric that counts the classes in another order than a Confusion has them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evalign.core.confusion import Confusion
from evalign.core.metrics.base import Metric
from evalign.core.metrics.slopes import Slopes


@dataclass(frozen=True)
class InOrder(Metric):
    """The metric of a Confusion whose classes are put into another order first.

    `places[k]` is the place in the Confusion of the class that the metric counts as class k. A
    metric of two classes is so told which of them is positive, and an ordinal one which is lowest.
    """

    metric: Metric
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        inner = self.metric
        self._settle(
            greater_is_better=inner.greater_is_better,
            bounds=inner.bounds,
            needs_matrix=inner.needs_matrix,
            nan_if_undefined=inner.nan_if_undefined,
            double=inner.double,
            inner_optimum=inner.inner_optimum,
        )

    @property
    def name(self) -> str:
        return self.metric.name

    def __call__(self, c: Confusion) -> Any:
        return self.metric(self._reordered(c))

    def slopes(self, c: Confusion) -> Slopes:
        slopes = self.metric.slopes(self._reordered(c))
        back = np.argsort(self.places).tolist()
        return replace(
            slopes,
            tp=slopes.tp[..., back],
            predicted=slopes.predicted[..., back],
            actual=slopes.actual[..., back],
            full=None if slopes.full is None else slopes.full[..., back, :][..., back],
        )

    def _reordered(self, c: Confusion) -> Confusion:
        places = list(self.places)
        return replace(
            c,
            tp=c.tp[..., places],
            predicted=c.predicted[..., places],
            actual=c.actual[..., places],
            full=None if c.full is None else c.full[..., places, :][..., places],
        )
