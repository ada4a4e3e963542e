"""Ensembles that are saved and loaded, and files that somebody made."""

import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB

import evalign
from evalign import AlignedDecisionCV, AlignedEnsemble, metrics
from evalign.estimators import TrainingWarning
from evalign.store.files import StoreError
from tests.forged import put
from tests.ground.made import imbalanced

X, Y = imbalanced(240, classes=3)
NAMES = np.array(["c", "a", "b"])[Y]


def mean_f1(confusion):
    return metrics.resolve("f1_macro")(confusion)


@pytest.fixture(scope="module")
def fitted():
    candidates = [
        "linear",
        ("few trees", HistGradientBoostingClassifier(max_iter=3)),
        ("forest of mine", ExtraTreesClassifier(5, random_state=0)),
        ("bayes", GaussianNB()),
    ]
    clf = AlignedEnsemble(candidates=candidates, cv=2, decision="argmax", random_state=0)
    return clf.fit(X, NAMES)


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "ensemble"
    fitted.save(path)
    return path


def test_what_is_loaded_is_what_was_saved(fitted, saved):
    loaded = AlignedEnsemble.load(saved)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.weights_ == fitted.weights_
    assert loaded.left_out_ == fitted.left_out_
    assert loaded.gain_ == fitted.gain_
    assert loaded.cv_results_.keys() == fitted.cv_results_.keys()
    np.testing.assert_equal(loaded.cv_results_, fitted.cv_results_)
    assert [one if isinstance(one, str) else one[0] for one in loaded.candidates] == [
        "linear", "few trees", "forest of mine", "bayes",
    ]  # fmt: skip
    assert loaded.candidates[2][1].n_estimators == 5
    assert loaded.get_params()["random_state"] == 0
    alone = loaded.only("few trees")
    np.testing.assert_array_equal(alone.predict(X), fitted.only("few trees").predict(X))


def test_a_candidate_that_learnt_nothing_in_its_first_fold(tmp_path):
    """A constant stands in for it there, which is not what was given."""
    order = np.argsort(Y, kind="stable")
    cv = [(np.arange(20), np.arange(20, 240)), (np.arange(20, 240), np.arange(20))]
    own = [("bayes", GaussianNB(var_smoothing=0.1))]
    clf = AlignedEnsemble(candidates=own, cv=cv, decision="argmax", n_jobs=np.int64(1))
    with pytest.warns(TrainingWarning, match="never saw them"):
        clf.fit(X[order], Y[order])
    assert isinstance(clf.models_["bayes"][0], DummyClassifier)
    clf.save(tmp_path / "saved")
    loaded = AlignedEnsemble.load(tmp_path / "saved")
    assert loaded.n_jobs == 1
    assert repr(loaded.candidates[0][1]) == repr(own[0][1])


def test_a_metric_that_is_not_a_name_is_given_again(tmp_path):
    clf = AlignedEnsemble(mean_f1, candidates=["linear"], cv=2, decision="argmax").fit(X, Y)
    clf.save(tmp_path / "one")
    with pytest.raises(ValueError, match=r"metric of AlignedEnsemble.load must be given"):
        AlignedEnsemble.load(tmp_path / "one")
    loaded = AlignedEnsemble.load(tmp_path / "one", metric=mean_f1)
    assert loaded.score(X, Y) == clf.score(X, Y)


def test_own_models_of_frames_are_saved(tmp_path):
    """A splitter is not."""
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(NAMES)})
    own, folds = [("bayes", GaussianNB())], StratifiedKFold(2)
    clf = AlignedEnsemble(candidates=own, cv=folds, decision="argmax", random_state=0)
    clf.fit(frame, Y).save(tmp_path / "model")
    loaded = evalign.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(frame), clf.predict_proba(frame))
    assert loaded.cv is None


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("arguments.nosuch", 1),
        ("arguments", 3),
        ("fitted.models_", {}),
        ("fitted.models_", 3),
        ("fitted.models_.linear", []),
        ("fitted.models_.linear", [3]),
        ("fitted.weights_", {"nosuch": 1.0}),
        ("fitted.weights_", {"linear": -1.0}),
        ("fitted.weights_", {}),
        ("fitted.classes", {"$labels": ["b", "a", "c"]}),
        ("fitted.classes", {"$labels": ["a", "b"]}),
        ("fitted.order", [0, 0, 1]),
        ("fitted.rules_", {}),
        ("fitted.rule", None),
        ("fitted.features_", {"given": ["a"], "named": True, "columns": [], "left_out": {}}),
        ("fitted.cv_results_", 3),
        ("fitted.left_out_", 3),
    ],
    ids=str,
)
def test_a_forged_state_is_refused_in_one_line(saved, tmp_path, where, value):
    path = shutil.copy(saved, tmp_path / "ensemble")
    put(path, f"+.{where}", value)
    with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
        AlignedEnsemble.load(path)


def test_models_of_other_classes_are_refused(saved, tmp_path):
    path = shutil.copy(saved, tmp_path / "ensemble")
    put(path, "+.fitted.models_.forest of mine.0.+.classes_", {"$labels": ["x"]})
    with pytest.raises(StoreError, match="cannot be opened"):
        AlignedEnsemble.load(path)


OPENED_ELSEWHERE = """
import sys
from evalign.estimators.ensemble import AlignedEnsemble
import numpy as np

opened = AlignedEnsemble.load(sys.argv[1])
print(opened.predict(np.load(sys.argv[2])).tolist())
"""


def test_an_estimator_inside_of_another_is_opened_in_a_new_process(tmp_path):
    """Where nothing has imported the inner one."""
    inner = [("tuned", AlignedDecisionCV(GaussianNB(), cv=2))]
    clf = AlignedEnsemble(candidates=inner, cv=2, decision="argmax").fit(X, Y)
    clf.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    command = [sys.executable, "-c", OPENED_ELSEWHERE, tmp_path / "model", tmp_path / "X.npy"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(clf.predict(X).tolist())
