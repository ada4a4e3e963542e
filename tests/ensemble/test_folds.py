"""Folds that teach a network nothing."""

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier

from evalign import AlignedEnsemble
from evalign.estimator import held_out
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
    network = quick("f1", epochs=1, decision="argmax")
    pair = ["linear", ("net", network)]
    clf = AlignedEnsemble("f1", candidates=pair, cv=cv, decision="argmax", random_state=0)
    clf.fit(frame, y)
    assert isinstance(clf.models_["net"][1], DummyClassifier)
    assert clf.predict_proba(frame).shape == (200, 2)
