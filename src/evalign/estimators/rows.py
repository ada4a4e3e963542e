"""The rows of a table that an ensemble or a network learns from: read, weighted and split."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_consistent_length

from evalign.core.metrics import Metric
from evalign.estimators.targets import Targets, read_targets, row_groups, row_weights
from evalign.tables.features import Features, read
from evalign.tables.values import TypedTable
from evalign.tables.warnings import warn_of_few


class LabelledRows(NamedTuple):
    """The rows that an ensemble or a network learns from: those of a weight above 0.

    Args:
        X: the matrix of `Features`, dense or sparse.
        y: class codes, or 0 and 1 (N, L).
        weight: a weight per row.
        groups: a value per row, or None; rows of one value stay together.
        constraint_groups: those of a constraint on the gap between groups, or None.
        number: the row's number in the table.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None = None
    constraint_groups: np.ndarray | None = None
    number: Any = None

    def take(self, rows: np.ndarray) -> "LabelledRows":
        """Some of the rows, by a mask or by their positions."""
        kept: Any = (None if part is None else part[rows] for part in self)
        return LabelledRows(*kept)


def read_rows(
    owner: str,
    estimator: Any,
    metric: Metric,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    constraint_groups: Any,
) -> tuple[LabelledRows, Targets, Features]:
    """The rows of `fit`, what their labels are, and their columns.

    Columns are learnt from the rows of weight above 0. Warn if classes of a table have few.
    """
    y, targets, codes = read_targets(
        owner, y, metric, estimator.pos_label, classes=estimator.classes
    )
    given, number = read(type(estimator)(), X, reset=True), len(y)
    weight = row_weights(owner, sample_weight, number)
    weight = np.ones(number) if weight is None else weight
    groups = row_groups(owner, groups, number)
    constraint_groups = row_groups(owner, constraint_groups, number, "constraint_groups")
    check_consistent_length(given, y)
    counted = weight > 0
    if not counted.all():
        given = given.take(counted) if isinstance(given, TypedTable) else given[counted]
    if isinstance(given, TypedTable) and y.ndim == 1:
        warn_of_few("training", *np.unique(y[counted], return_inverse=True))
    features = Features.learn(owner, given)
    parts = (codes, weight, groups, constraint_groups, np.arange(number))
    parts: Any = (None if part is None else part[counted] for part in parts)
    return LabelledRows(features.matrix(owner, given), *parts), targets, features
