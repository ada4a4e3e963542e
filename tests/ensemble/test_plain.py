"""Where the evidence is against a blend, and folds that teach a network nothing."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from evalign import AlignedEnsemble
from evalign.estimator import held_out
from evalign.training import TrainingWarning
from tests.estimator.models import quick

ROWS = 600
RNG = np.random.default_rng(0)
Y = (RNG.random(ROWS) < 0.3).astype(int)
WRONG = RNG.random(ROWS) < 0.1
X = np.stack([Y, np.where(WRONG, 1 - Y, Y)], 1).astype(float)


class Answer(ClassifierMixin, BaseEstimator):
    """Gives the class that a column names this probability."""

    def __init__(self, column, sure):
        self.column = column
        self.sure = sure

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        positive = np.where(X[:, self.column] == 1, self.sure, 1 - self.sure)
        return np.stack([1 - positive, positive], 1)


# The first is always right and hardly sure, so that a likelihood asks for the second.
PAIR = [("right", Answer(0, 0.51)), ("sure", Answer(1, 0.9))]


def test_a_candidate_that_is_clearly_ahead_by_argmax_is_used():
    clf = AlignedEnsemble("f1", candidates=PAIR, cv=5, random_state=0)
    with pytest.warns(TrainingWarning, match="right with argmax was clearly better than the blend"):
        clf.fit(X, Y)
    assert clf.weights_ == {"right": 1.0}
    assert clf.rule_.decision == "argmax"
    assert clf.score(X, Y) == 1
    assert clf.cv_results_["rule_score"][-1] == 1
    assert clf.gain_ == {"value": 0, "low": 0, "high": 0, "against": "right"}


def test_a_constraint_is_kept_where_argmax_would_be_better():
    given = {"candidates": PAIR, "cv": 5, "random_state": 0}
    clf = AlignedEnsemble("f1", constraint="recall >= 0.5", **given).fit(X, Y)
    assert clf.rule_.constraint == "recall >= 0.5"
    assert clf.gain_["high"] < 0


def test_rows_without_anything_to_learn(recwarn):
    """In one of the folds a column is constant, of which a network makes nothing."""
    frame = pd.DataFrame({"a": np.where(np.arange(200) < 100, RNG.normal(size=200), 1.0)})
    y = (frame["a"].to_numpy() > 0.5).astype(int)
    y[100:] = np.arange(100) % 2
    half = np.arange(100)
    model = held_out.trained(quick("f1", epochs=1), frame, y, half + 100, {})
    assert isinstance(model, DummyClassifier)
    np.testing.assert_allclose(model.predict_proba(frame[:3]), 0.5)
    cv = [(half, half + 100), (half + 100, half)]
    network = quick("f1", epochs=1, decision="argmax")
    clf = AlignedEnsemble("f1", candidates=["linear", ("net", network)], cv=cv, random_state=0)
    clf.fit(frame, y)
    assert isinstance(clf.models_["net"][1], DummyClassifier)
    assert clf.predict_proba(frame).shape == (200, 2)
