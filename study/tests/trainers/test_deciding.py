"""Probabilities of well-known classifiers, and the labels that rules make of them."""

import sys
import types
from functools import partial

import numpy as np
import pytest
from evalign_study import data
from evalign_study.data import Dataset
from evalign_study.records.run import Run
from evalign_study.trainers import deciding
from evalign_study.trainers.deciding import CUTOFFS, KEPT, PREDICT, TUNER, train_decided
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_predict

RUN = Run(dataset="mammography", variant="sound", method="decided_logistic_regression", network="")
FEW_THRESHOLDS = partial(TunedThresholdClassifierCV, thresholds=10)  # a tenth of the time


@pytest.fixture(params=[2, 3])
def made(request, monkeypatch):
    """Put made rows, each twice, in the place of a data set, and plain logistic regression."""
    classes = request.param
    random = np.random.default_rng(0)
    y = np.repeat(np.minimum(random.integers(0, classes + 3, 200), classes - 1), 2)
    X = np.repeat(random.normal(size=(200, 3)), 2, 0).astype(np.float32)
    X[:, 0] += y
    names = tuple(map(str, range(classes)))
    dataset = Dataset(X, y, names, np.repeat(np.arange(200), 2), None, data.card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    monkeypatch.setitem(deciding.MODELS, "logistic_regression", LogisticRegression)
    fake = types.ModuleType("optimal_cutoffs")
    fake.get_optimal_threshold = lambda y, p, **how: types.SimpleNamespace(predict=first)
    monkeypatch.setitem(sys.modules, "optimal_cutoffs", fake)
    monkeypatch.setattr(deciding, "TunedThresholdClassifierCV", FEW_THRESHOLDS)
    deciding.split_rows.cache_clear()
    yield dataset
    deciding.split_rows.cache_clear()


def first(probabilities):
    return np.zeros(len(probabilities), int)


def test_probabilities_are_of_models_that_have_not_seen_the_rows(made):
    found = deciding.probabilities(RUN)
    rows = deciding.split_rows(RUN.dataset, 0, None)
    assert all(len(np.unique(found.fold[rows.groups == g])) == 1 for g in np.unique(rows.groups))
    folds = [(np.flatnonzero(found.fold != k), np.flatnonzero(found.fold == k)) for k in range(5)]
    model = LogisticRegression()
    expected = cross_val_predict(model, rows.X, rows.y, cv=folds, method="predict_proba")
    np.testing.assert_allclose(found.known, expected, atol=1e-12)
    expected = model.fit(rows.X, rows.y).predict_proba(rows.X_test)
    np.testing.assert_allclose(found.test, expected, atol=1e-12)


def test_a_class_that_a_fold_lacks_has_probability_0():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2 * 2 + 1
    found = deciding._predicted(RUN, X, y, X, 4)  # of four classes, rows have 1 and 3
    assert (found[:, [0, 2]] == 0).all()
    expected = LogisticRegression().fit(X, y).predict_proba(X)
    np.testing.assert_allclose(found[:, [1, 3]], expected, atol=0.01)  # it scales the columns


def test_decisions_and_their_scores(made):
    picks = train_decided(RUN)["picks"]
    two = len(made.classes) == 2
    assert next(iter(picks)) == ("f1" if two else "f1_macro")
    decided = [PREDICT, "tuned", "expected"]
    more = [{CUTOFFS}, set(), set(), set()]
    for pick, rival in zip(picks.values(), more, strict=True):
        assert pick.keys() == {*decided, *rival, *({TUNER} if two else ())}
        assert all(told["seconds"] >= 0 for told in pick.values())
    rows = deciding.split_rows(RUN.dataset, 0, None)
    model = LogisticRegression().fit(rows.X, rows.y)
    how = {"average": "binary" if two else "macro"}
    expected = f1_score(rows.y_test, model.predict(rows.X_test), **how)
    assert next(iter(picks.values()))[PREDICT]["test"] == pytest.approx(expected, abs=1e-6)


def test_scikit_learns_tuner_finds_the_same_on_looked_up_probabilities(made):
    if len(made.classes) > 2:
        assert deciding._tuner(deciding.probabilities(RUN), "f1_macro") is None
        return
    found, rows = deciding.probabilities(RUN), deciding.split_rows(RUN.dataset, 0, None)
    folds = [(np.flatnonzero(found.fold != k), np.flatnonzero(found.fold == k)) for k in range(5)]
    tuner = FEW_THRESHOLDS(LogisticRegression(), scoring="f1", cv=folds)
    expected = tuner.fit(rows.X, rows.y).predict(rows.X_test)
    assert (deciding._tuner(found, "f1") == expected).mean() > 0.98  # rounding moves a threshold


def test_probabilities_near_1_stay_apart(made, monkeypatch, tmp_path):
    """In single precision they would be ties, of which some rivals label all rows or none."""

    class Sure(LogisticRegression):
        def predict_proba(self, X):
            p = np.zeros((len(X), len(self.classes_)))
            p[:, 1] = 1 - 1e-12 * np.arange(len(X))
            p[:, 0] = 1 - p[:, 1]
            return p

    monkeypatch.setitem(deciding.MODELS, "logistic_regression", Sure)
    monkeypatch.setenv(KEPT, str(tmp_path))
    for _ in range(2):  # the second time they are read
        test = deciding.probabilities(RUN).test
        assert len(np.unique(test[:, 1])) == len(test)
