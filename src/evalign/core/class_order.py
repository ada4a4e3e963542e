"""How a metric counts the classes of the columns of some scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from evalign.core.checks import complaint, require
from evalign.core.constraints import Constraint, OfClass
from evalign.core.metrics import ClassMetric, MatrixMetric, Metric
from evalign.core.metrics.function import FunctionMetric
from evalign.core.metrics.in_order import InOrder
from evalign.core.positive import place_of_positive


@dataclass(frozen=True)
class ClassOrder:
    """The classes of some columns, which of two is positive, and the order of ordinal ones.

    Args:
        number: how many classes there are.
        names: the classes in the order of the columns; None for 0, 1, …
        order: the same classes as a metric counts them by their place (costs, ordinal classes);
            None if nobody gave an order.
        pos_label: the positive class of two; None for the one of `place_of_positive`.
    """

    number: int
    names: Sequence[Any] | None = None
    order: Sequence[Any] | None = None
    pos_label: Any = None

    @property
    def labels(self) -> list[Any]:
        """The classes in the order of the columns."""
        return list(range(self.number)) if self.names is None else list(self.names)

    @property
    def positive(self) -> int:
        """The column of the positive class of two."""
        return place_of_positive(self.labels, self.pos_label, self.order)

    def places(self, owner: str, metric: Metric) -> tuple[int, ...]:
        """The columns in the order in which the metric counts the classes."""
        everything = tuple(range(self.number))
        own = getattr(metric, "order", None)
        order = self.order if own is None else own
        if metric.ordered or (isinstance(metric, FunctionMetric) and self.number > 2):
            if order is None:
                self._check_order_is_known(owner, metric)
                return everything
            labels = self.labels
            require(
                len(order) == self.number and all(label in labels for label in order),
                owner,
                "classes" if own is None else "order of the metric",
                f"name each of the {self.number} classes once, {labels[:8]}",
                list(order)[:8],
            )
            return tuple(labels.index(label) for label in order)
        alike = isinstance(metric, MatrixMetric) or (
            isinstance(metric, ClassMetric) and metric.average != "binary"
        )
        if self.number != 2 or alike:
            return everything
        return (1 - self.positive, self.positive)

    def placed(self, owner: str, metric: Metric) -> Metric:
        """The metric for Confusions whose classes are in the order of the columns."""
        if isinstance(metric, OfClass):
            about_positive = metric.index is None and self.number == 2
            return replace(metric, index=self.positive) if about_positive else metric
        places = self.places(owner, metric)
        metric = without_order(metric)
        return metric if list(places) == sorted(places) else InOrder(metric, places)

    def placed_constraint(self, owner: str, constraint: Constraint) -> Constraint:
        """The constraint for such Confusions."""
        return replace(constraint, metric=self.placed(owner, constraint.metric))

    def _check_order_is_known(self, owner: str, metric: Metric) -> None:
        """Refuse classes named by text, which nobody has ordered, for a metric that orders them."""
        text = any(isinstance(label, str) for label in self.labels)
        symmetric = self.number == 2 and not metric.name.startswith("expected_cost")
        if not text or symmetric:
            return
        shown = ", ".join(f'"{label}"' for label in self.labels[:8])
        allowed = f"give the order of classes that are text, for {metric.name.split('[')[0]}"
        cure = f"Name them from the first to the last, as in classes=[{shown}] if that is it."
        raise ValueError(complaint(owner, "classes", allowed, "none", cure))


def without_order(metric: Metric) -> Metric:
    """The metric that counts the classes as they come."""
    return (
        metric if getattr(metric, "order", None) is None else replace(cast(Any, metric), order=None)
    )
