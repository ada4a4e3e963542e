"""`AlignedClassifier` as a candidate of `AlignedEnsemble`."""

import pickle

import numpy as np
import pytest

from evalign import AlignedClassifier, AlignedEnsemble
from evalign.estimators.candidates import build
from tests.estimator.models import quick
from tests.ground.made import imbalanced

X, Y = imbalanced(240)


def test_networks():
    network = quick("f1", epochs=3, decision="expected")
    candidates = ["linear", ("small", network)]
    clf = AlignedEnsemble("f1", candidates=candidates, cv=2, time_limit=600).fit(X, Y)
    assert list(clf.models_) == ["linear", "small"]
    clf = pickle.loads(pickle.dumps(clf))
    assert clf.predict(X).shape == Y.shape
    assert build(["network"], "f1", "aligned", 400, 0, {})["network"].metric == "f1"


def test_with_torch_nothing_is_left_out():
    clf = AlignedEnsemble("f1", cv=2, decision="argmax", random_state=0).fit(X, Y)
    assert clf.left_out_ == {}


def test_it_is_saved_and_opened(tmp_path):
    network = AlignedClassifier(epochs=1, device="cpu", random_state=0, decision="argmax")
    candidates = ["linear", ("network", network)]
    clf = AlignedEnsemble(candidates=candidates, cv=2, decision="argmax", random_state=0)
    clf.fit(X, Y).save(tmp_path / "ensemble")
    loaded = AlignedEnsemble.load(tmp_path / "ensemble")
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    alone = loaded.only("network")
    np.testing.assert_array_equal(alone.predict(X), clf.only("network").predict(X))


def test_a_network_with_functions_is_not_saved(tmp_path):
    own = [("mine", quick(epochs=1, decision="argmax"))]
    clf = AlignedEnsemble(candidates=own, cv=2, decision="argmax").fit(X, Y)
    with pytest.raises(TypeError, match=r"without functions. Got \['network'\] of AlignedClassif"):
        clf.save(tmp_path / "one")
    assert not (tmp_path / "one").exists()
