"""The rows that an ensemble is given, in the forms that its candidates read."""

from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from evalign.core.checks import require
from evalign.estimators.candidates import OWNER
from evalign.estimators.training import LabelledTable, TableForms
from evalign.estimators.rows import learn_features, read_labelled, row_groups, row_weights
from evalign.estimators.targets import Targets, read_targets
from evalign.tables.features import Features, Given, read
from evalign.tables.values import TypedTable, within_float32


def read_table(
    ensemble: Any, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[LabelledTable, Targets, Features]:
    """The rows of `fit` without those of weight 0, what their labels are, and their columns."""
    given, labels = read_labelled(ensemble, X, y, reset=True)
    cure = "Use AlignedClassifier, or AlignedDecisionCV around a classifier that takes several."
    one, got = labels.ndim == 1, f"several, of shape {labels.shape}"
    require(one, OWNER, "y", "hold one label per row", got, cure)
    weight = None if sample_weight is None else row_weights(OWNER, sample_weight, labels)
    everything = np.ones(len(labels)) if weight is None else weight
    features = learn_features(OWNER, given, labels, everything)
    rows = _forms(X, given, features)
    groups = row_groups(OWNER, groups, len(labels))
    _, labels, targets, codes = read_targets(ensemble, rows.matrix, labels)
    counted = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
    if weight is not None and len(counted) < len(weight):
        rows, weight = rows.take(counted), weight[counted]
        labels, codes = labels[counted], codes[counted]
        groups = None if groups is None else groups[counted]
    return LabelledTable(rows, labels, codes, weight, groups, counted), targets, features


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
        return TableForms(matrix, matrix, numbers)
    # In the order of fit, by which a candidate may go. A column that is left out may be absent.
    frame = nw.from_native(X, eager_only=True)
    frame = frame.select([name for name in features.given if name in frame.columns])
    assert isinstance(given, TypedTable)  # as a frame with names is read
    return TableForms(frame.to_native(), features.judged(OWNER, given), numbers)
