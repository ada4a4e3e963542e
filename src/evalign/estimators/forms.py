"""The rows that an ensemble is given, in the forms that its candidates read."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from evalign.core.checks import require
from evalign.core.metrics import Metric
from evalign.estimators.candidates import OWNER
from evalign.estimators.rows import learn_features
from evalign.estimators.targets import Targets, read_targets, row_groups, row_weights
from evalign.tables.features import Features, Given, read
from evalign.tables.labels import label_array
from evalign.tables.values import within_float32


class TableForms(NamedTuple):
    """Rows in all the forms that candidates read.

    Args:
        given: as they came.
        matrix: the same as numbers, within the range of float32.
    """

    given: Any
    matrix: np.ndarray

    def take(self, rows: np.ndarray) -> "TableForms":
        """Some of the rows, by their numbers."""
        return TableForms(_safe_indexing(self.given, rows), self.matrix[rows])


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The training rows of an ensemble, without those of weight 0.

    Args:
        rows: in all forms.
        y: the original labels.
        codes: the labels' codes, of two the positive one last.
        weight: a weight per row, or None.
        groups: a group per row, or None; likewise `constraint_groups`.
        counted: the positions of the rows in the original table.
        given: the number of rows of the original table.
    """

    rows: TableForms
    y: np.ndarray
    codes: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None
    constraint_groups: np.ndarray | None
    counted: np.ndarray
    given: int


def read_table(
    ensemble: Any,
    metric: Metric,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    constraint_groups: Any,
) -> tuple[LabelledTable, Targets, Features]:
    """The rows of `fit`, what their labels are, and their columns."""
    shape = () if y is None else label_array(OWNER, y).shape
    cure = "Use AlignedClassifier, or AlignedDecisionCV around a classifier that takes several."
    one, got = shape[1:] in ((), (1,)), f"several, of shape {shape}"
    require(one, OWNER, "y", "hold one label per row", got, cure)
    y, targets, codes = read_targets(OWNER, y, metric, ensemble.pos_label)
    given = read(ensemble, X, reset=True)
    weight = row_weights(OWNER, sample_weight, len(y))
    features, some = learn_features(OWNER, given, y, weight)
    parts = [codes, weight, row_groups(OWNER, groups, len(y))]
    parts.append(row_groups(OWNER, constraint_groups, len(y), "constraint_groups"))
    rows, counted = _forms(X, given, features), np.flatnonzero(some)
    kept: list[Any] = [None if part is None else part[counted] for part in parts]
    rows = rows if some.all() else rows.take(counted)
    codes, weight, groups, constraint_groups = kept
    more = (codes, weight, groups, constraint_groups, counted, len(y))
    return LabelledTable(rows, y[counted], *more), targets, features


def read_rows(ensemble: Any, X: Any, features: Features) -> TableForms:
    """Rows without labels, with the columns of `fit`."""
    allowed = "be a frame with the columns of fit"
    require(hasattr(X, "columns") or not features.named, OWNER, "X", allowed, type(X).__name__)
    return _forms(X, read(ensemble, X, reset=False), features, warn=True)


def _forms(X: Any, given: Given, features: Features, *, warn: bool = False) -> TableForms:
    """The rows in all forms. An array of numbers, or a frame without names, is numbers in all."""
    matrix = features.matrix(OWNER, given, warn=warn)
    matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
    numbers = within_float32(matrix)
    if not features.named:
        return TableForms(matrix, numbers)
    # In the order of fit, by which a candidate may go. A column that is left out may be absent.
    frame = nw.from_native(X, eager_only=True)
    frame = frame.select([name for name in features.given if name in frame.columns])
    return TableForms(frame.to_native(), numbers)
