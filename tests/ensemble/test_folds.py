"""Folds that lack a class, or teach a network nothing."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from evalign import AlignedDecisionCV, AlignedEnsemble
from evalign.estimator import FrameEncoder, held_out
from tests.estimator.models import quick

RNG = np.random.default_rng(0)


def test_rows_without_anything_to_learn():
    """In one of the folds a column is constant, of which a network makes nothing."""
    frame = pd.DataFrame({"a": np.where(np.arange(200) < 100, RNG.normal(size=200), 1.0)})
    y = (frame["a"].to_numpy() > 0.5).astype(int)
    y[100:] = np.arange(100) % 2
    half = np.arange(100)
    model = held_out.trained(quick("f1", epochs=1), frame, y, half + 100, {})
    assert isinstance(model, DummyClassifier)
    np.testing.assert_allclose(model.predict_proba(frame[:3]), 0.5)
    weighted = {"sample_weight": 1.0 + 2 * y}
    model = held_out.trained(quick("f1", epochs=1), frame, y, half + 100, weighted)
    np.testing.assert_allclose(model.predict_proba(frame[:1]), [[0.25, 0.75]])
    cv = [(half, half + 100), (half + 100, half)]
    model = make_pipeline(FrameEncoder(), LinearSVC())
    scored = AlignedDecisionCV(model, "f1", decision="argmax", cv=cv)
    assert np.isfinite(scored.fit(frame, y).cv_results_["rule_scores"]).all()
    network = quick("f1", epochs=1, decision="argmax")
    pair = ["linear", ("net", network)]
    clf = AlignedEnsemble("f1", candidates=pair, cv=cv, decision="argmax", random_state=0)
    clf.fit(frame, y)
    assert isinstance(clf.models_["net"][1], DummyClassifier)
    assert clf.predict_proba(frame).shape == (200, 2)


def test_a_network_that_is_trained_on_one_group():
    X = RNG.normal(size=(120, 2))
    y, network = (X[:, 0] > 0).astype(int), quick("f1", epochs=1, decision="argmax")
    clf = AlignedEnsemble("f1", candidates=[("net", network)], cv=2, decision="argmax")
    clf.fit(X, y, groups=np.arange(120) % 2)
    assert [len(model.history_) for model in clf.models_["net"]] == [1, 1]


class XGBClassifier(LogisticRegression):
    """Refuses codes with gaps, as XGBoost's does."""

    def fit(self, X, y, sample_weight=None):
        codes = np.unique(y)
        if not np.array_equal(codes, np.arange(len(codes))):
            raise ValueError(f"Expected: {np.arange(len(codes))}, got {codes}")
        return super().fit(X, y, sample_weight)


class XGBRFClassifier(XGBClassifier):
    """XGBoost's forest is one of its classifiers."""


@pytest.mark.parametrize("kind", [XGBClassifier, XGBRFClassifier])
@pytest.mark.parametrize("weighted", [False, True])
def test_codes_without_gaps(weighted, kind):
    """A class in the middle that a fold lacks is there, but teaches nothing."""
    y = np.repeat([0, 1, 2], [40, 3, 40])
    X = RNG.normal(size=(83, 2)) + y[:, None]
    weight = {"sample_weight": 1.0 + np.arange(83) % 3} if weighted else {}
    rows = np.flatnonzero(y != 1)
    model = held_out.trained(kind(), X, y, rows, weight)
    assert model.classes_.tolist() == [0, 1, 2]
    some = {name: values[rows] for name, values in weight.items()}
    alone = LogisticRegression().fit(X[rows], y[rows], **some)
    found = model.predict_proba(X)
    assert found[:, 1].max() < 0.05
    assert np.corrcoef(found[:, 2], alone.predict_proba(X)[:, 1])[0, 1] > 0.99
    one = held_out.trained(XGBClassifier(), X, y, rows[:40], weight)  # all of class 0
    assert isinstance(one, DummyClassifier)


def test_a_classifier_that_refuses_a_fold_without_a_class_is_told_why():
    """Inside a pipeline there is no telling what a row of weight 0 would teach the other steps."""
    y = np.repeat([0, 1, 2], [40, 3, 40])
    X, own = RNG.normal(size=(83, 2)), make_pipeline(StandardScaler(), XGBClassifier())
    with pytest.raises(ValueError, match="Expected") as refused:
        held_out.trained(own, X, y, np.flatnonzero(y != 1), {})
    (note,) = refused.value.__notes__
    assert note.startswith("The training rows of this fold lack the classes [1]. If")
    with pytest.raises(ValueError, match="Expected") as refused:
        held_out.trained(own, X, 2 * y, np.arange(83), {})
    assert not hasattr(refused.value, "__notes__")
