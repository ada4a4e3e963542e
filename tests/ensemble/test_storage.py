"""Ensembles that are saved and loaded, and folders that somebody made."""

import copy
import hashlib
import io
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from evalign import AlignedEnsemble, metrics
from evalign.ensemble.storage import _check_trees
from evalign.estimator import AlignedClassifier
from evalign.training import CheckpointError, TrainingWarning, checkpoint
from tests.estimator.models import imbalanced, quick

X, Y = imbalanced(240, classes=3)
NAMES = np.array(["c", "a", "b"])[Y]
TREE = "sklearn.tree._tree.Tree"


def mean_f1(confusion):
    return metrics.resolve("f1_macro")(confusion)


@pytest.fixture(scope="module")
def fitted():
    candidates = [
        "linear",
        ("few trees", HistGradientBoostingClassifier(max_iter=3)),
        ("forest of mine", ExtraTreesClassifier(5, random_state=0)),
        ("network", AlignedClassifier(epochs=1, device="cpu", random_state=0, decision="argmax")),
    ]
    clf = AlignedEnsemble(candidates=candidates, cv=2, decision="argmax", random_state=0)
    return clf.fit(X, NAMES)


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "ensemble"
    fitted.save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "ensemble")


def changed(folder, **changes):
    """Change the state of an ensemble, with its checksums."""
    tree = checkpoint.load(folder / "ensemble")
    checkpoint.save(folder / "ensemble", tree | changes)


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
        "linear", "few trees", "forest of mine", "network",
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


def test_a_network_with_functions_is_not_saved(tmp_path):
    own = [("mine", quick(epochs=1, decision="argmax"))]
    clf = AlignedEnsemble(candidates=own, cv=2, decision="argmax").fit(X, Y)
    with pytest.raises(ValueError, match=r"without functions to be saved. Got \['network'\] of"):
        clf.save(tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_an_error_leaves_the_old_one(fitted, folder, monkeypatch):
    def full(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(skops.io, "dumps", full)
    with pytest.raises(OSError, match="disk full"):
        fitted.save(folder)
    assert AlignedEnsemble.load(folder).weights_ == fitted.weights_
    assert sorted(path.name for path in folder.parent.iterdir()) == ["ensemble"]


@pytest.mark.parametrize(
    "changes",
    [
        {"estimator": "AlignedClassifier"},
        {"candidates": 3},
        {"candidates": [["linear", False, False, 10**9]]},
        {"weights": {"nosuch": 1.0}},
        {"weights": {"linear": -1.0}},
        {"classes": ["b", "a", "c"]},
        {"order": [0, 0, 1]},
        {"rules": {}},
        {"rule": None},
        {"features": {"given": ["a"], "named": True, "columns": [], "left_out": {}}},
        {"arguments": {"metric": "f1_macro", "candidates": ["linear"], "nosuch": 1}},
        {"files": {}},
        {"results": 3, "left_out": 3},
    ],
    ids=lambda changes: ", ".join(f"{k}={str(v)[:20]}" for k, v in changes.items()),
)
def test_a_forged_state_is_refused_in_one_line(folder, changes):
    changed(folder, **changes)
    with pytest.raises(CheckpointError) as refused:
        AlignedEnsemble.load(folder)
    assert "\n" not in str(refused.value)


def test_a_changed_model_is_refused(folder):
    path = folder / "models" / "0-0.skops"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match=r"0-0.skops has changed since it was written"):
        AlignedEnsemble.load(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"is not as AlignedEnsemble.save writes it"):
        AlignedEnsemble.load(folder)


def put(folder, data):
    """Another model, with its checksum."""
    (folder / "models" / "0-0.skops").write_bytes(data)
    files = checkpoint.load(folder / "ensemble")["files"]
    changed(folder, files=files | {"0-0": hashlib.sha256(data).hexdigest()})


class Mine(GaussianNB):
    """A classifier that nobody knows."""


def test_types_that_are_not_trusted(folder):
    """A tree of somebody is not, where its place in the model is not known."""
    names = {Mine: f"{Mine.__module__}.Mine", DecisionTreeClassifier: TREE}
    for kind, name in names.items():
        put(folder, skops.io.dumps(kind().fit(X, Y)))
        with pytest.raises(CheckpointError, match="If you trust them: load") as refused:
            AlignedEnsemble.load(folder)
        assert name in str(refused.value)
        AlignedEnsemble.load(folder, trusted=[name])


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_model_that_is_larger_unpacked(folder, monkeypatch, method):
    monkeypatch.setattr("evalign.ensemble.storage.MAX_MODEL_BYTES", 10**6)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("bomb", bytes(2 * 10**6))
    put(folder, packed.getvalue())
    with pytest.raises(CheckpointError, match=r"bytes unpacked|packed in a way"):
        AlignedEnsemble.load(folder)


def test_trees_that_lead_out_of_themselves():
    forest = ExtraTreesClassifier(2, random_state=0).fit(X, Y)
    boosting = HistGradientBoostingClassifier(max_iter=2).fit(X, Y)
    for model in (forest, boosting):
        _check_trees(model)
    tree = forest.estimators_[1].tree_
    state = copy.deepcopy(tree.__getstate__())
    for name, value, why in [
        ("left_child", 10**6, "leaves the tree"),
        ("right_child", 0, "leaves the tree"),
        ("feature", 99, "column that does not exist"),
    ]:
        nodes = state["nodes"].copy()
        nodes[name][0] = value
        tree.__setstate__(state | {"nodes": nodes})
        with pytest.raises(ValueError, match=why):
            _check_trees(forest)
    for name, value, why in [
        ("left", 10**6, "leaves the tree"),
        ("feature_idx", 4, "column that does not exist"),
        ("is_categorical", 1, "splits on categories"),
    ]:
        nodes = boosting._predictors[1][0].nodes
        before = nodes[name][0]
        nodes[name][0] = value
        with pytest.raises(ValueError, match=why):
            _check_trees(boosting)
        nodes[name][0] = before


def test_trees_that_ask_for_categories_are_not_saved(tmp_path):
    """`load` opens none, so that the folder would be lost."""
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(NAMES)})
    trees = HistGradientBoostingClassifier(max_iter=2)
    clf = AlignedEnsemble(candidates=[("trees", trees)], cv=2, decision="argmax", random_state=0)
    with pytest.raises(ValueError, match=r"Got categories: 'trees'. Put FrameEncoder before it"):
        clf.fit(frame, Y).save(tmp_path / "model")
    assert not any(tmp_path.iterdir())
