"""The rows that an ensemble is given: as they came for some candidates, as numbers for others."""

from typing import Any, cast

import numpy as np
from scipy import sparse
from sklearn.utils import _safe_indexing

from evalign.core.checks import require
from evalign.ensemble.candidates import OWNER
from evalign.ensemble.training import LabelledTable
from evalign.estimator.frames import Features, read
from evalign.estimator.rows import learn_features, read_labelled, weights
from evalign.estimator.targets import Targets, read_targets


def read_table(
    ensemble: Any, X: Any, y: Any, sample_weight: Any, groups: Any
) -> tuple[LabelledTable, Targets, Features]:
    """The rows of `fit` without those of weight 0, what their labels are, and their columns."""
    given, labels = read_labelled(ensemble, X, y, reset=True)
    cure = "Use AlignedClassifier, or AlignedDecisionCV around a classifier that takes several."
    one, got = labels.ndim == 1, f"several, of shape {labels.shape}"
    require(one, OWNER, "y", "hold one label per row", got, cure)
    weight = None if sample_weight is None else weights(sample_weight, len(labels))
    everything = np.ones(len(labels)) if weight is None else weight
    features = learn_features(OWNER, given, everything)
    X, matrix = _both(X, features.matrix(OWNER, given), features)
    groups = None if groups is None else np.asarray(groups)
    if groups is not None:
        allowed = f"hold a value for each of the {len(labels)} rows"
        require(groups.shape == labels.shape, OWNER, "groups", allowed, groups.shape)
    counted = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
    if weight is not None and len(counted) < len(weight):
        X, matrix = cast(Any, _safe_indexing(X, counted)), matrix[counted]
        labels, weight = labels[counted], weight[counted]
        groups = None if groups is None else groups[counted]
    _, labels, targets, codes = read_targets(ensemble, matrix, labels)
    return LabelledTable(X, matrix, labels, codes, weight, groups, counted), targets, features


def read_rows(ensemble: Any, X: Any, features: Features) -> tuple[Any, np.ndarray]:
    """Rows without labels, with the columns of `fit`: as they came, and as numbers."""
    allowed = "be a frame with the columns of fit"
    require(hasattr(X, "columns") or not features.named, OWNER, "X", allowed, type(X).__name__)
    return _both(X, features.matrix(OWNER, read(ensemble, X, reset=False)), features)


def _both(X: Any, numbers: Any, features: Features) -> tuple[Any, np.ndarray]:
    """The rows as they came where `fit` was given a frame, and as numbers."""
    matrix = numbers.toarray() if sparse.issparse(numbers) else numbers
    return X if features.named else matrix, matrix
