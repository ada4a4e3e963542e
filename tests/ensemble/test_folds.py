"""Folds that lack a class or a group."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evalign.estimators import out_of_fold

RNG = np.random.default_rng(0)


class XGBClassifier(LogisticRegression):
    """Refuses codes with gaps, as XGBoost's does."""

    def fit(self, X, y, sample_weight=None):
        codes = np.unique(y)
        if not np.array_equal(codes, np.arange(len(codes))):
            raise ValueError(f"Expected: {np.arange(len(codes))}, got {codes}")
        return super().fit(X, y, sample_weight)


def test_a_classifier_that_refuses_a_fold_without_a_class_is_told_why():
    """Inside a pipeline there is no telling what a row of weight 0 would teach the other steps."""
    y = np.repeat([0, 1, 2], [40, 3, 40])
    X, own = RNG.normal(size=(83, 2)), make_pipeline(StandardScaler(), XGBClassifier())
    with pytest.raises(ValueError, match="Expected") as refused:
        out_of_fold.trained(own, X, y, np.flatnonzero(y != 1), {})
    (note,) = refused.value.__notes__
    assert note.startswith("The training rows of this fold lack the classes [1]. If")
    with pytest.raises(ValueError, match="Expected") as refused:
        out_of_fold.trained(own, X, 2 * y, np.arange(83), {})
    assert not hasattr(refused.value, "__notes__")
