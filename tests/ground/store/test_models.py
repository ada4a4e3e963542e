"""Models of scikit-learn: the same when opened, and no crash whatever a file says."""

import numpy as np
import pytest
from sklearn import ensemble
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import NODE_DTYPE

from evalign.store import archive, models
from evalign.store.files import StoreError
from tests.forged import forge, opened, put

DRAWN = np.random.default_rng(0)
CODES = DRAWN.choice(3, 200, p=[0.8, 0.16, 0.04])
X = DRAWN.normal(size=(200, 4)) + 2.5 * CODES[:, np.newaxis]
NAMES = np.array(["c", "a", "b"])[CODES]
FOREST = ensemble.ExtraTreesClassifier(2, random_state=0)
BOOSTING = ensemble.HistGradientBoostingClassifier(max_iter=2)
SAVED = [
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(MinMaxScaler((-1, 1)), GaussianNB()),
    CalibratedClassifierCV(LinearSVC(), cv=2),
    LinearDiscriminantAnalysis(),
    DummyClassifier(),
    DecisionTreeClassifier(random_state=0),
    ensemble.RandomForestClassifier(3, max_leaf_nodes=5, class_weight="balanced", random_state=0),
    FOREST,
    BOOSTING,
]


@pytest.mark.parametrize("model", SAVED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_same_probabilities(model, classes, tmp_path):
    archive.save(tmp_path / "model", model)  # also before it is fitted
    assert repr(archive.load(tmp_path / "model")) == repr(model)
    some = classes > CODES
    model.fit(X[some], NAMES[some]) if classes == 3 else model.fit(X[some], CODES[some])
    archive.save(tmp_path / "model", model)
    again = archive.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert repr(again.fit(X, CODES)) == repr(model)
    if hasattr(model, "tree_"):
        assert again.get_depth() == model.fit(X, CODES).get_depth()


class Mine(GaussianNB):
    """A classifier that nobody knows."""


def test_what_cannot_be_checked_is_not_saved(tmp_path):
    two = np.stack([CODES, CODES], 1)
    for model, text in [
        (SVC(), "only what it can check when it is opened. Got sklearn.svm._classes.SVC. Keep it"),
        (make_pipeline(Mine()), "Got tests.ground.store.test_models.Mine"),
        (CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2), "Got .*Isotonic"),
    ]:
        with pytest.raises(TypeError, match=text):
            archive.save(tmp_path / "model", model.fit(X, CODES))
    with pytest.raises(ValueError, match="one output"):
        archive.save(tmp_path / "model", ensemble.ExtraTreesClassifier(2).fit(X, two))
    categories = ensemble.HistGradientBoostingClassifier(max_iter=2, categorical_features=[0])
    with pytest.raises(ValueError, match=r"numbers to be saved, not categories. Put FrameEncoder"):
        archive.save(tmp_path / "model", categories.fit(np.abs(X.round()), CODES))
    assert not any(tmp_path.iterdir())


TREES = [
    ("left_child", 0, -2), ("left_child", 0, 0), ("left_child", 0, 10**6), ("left_child", -1, -3),
    ("left_child", -1, 1), ("right_child", 0, -1), ("right_child", 0, 1), ("feature", 0, -1),
    ("feature", 0, 4), ("feature", 0, 2**62),
]  # fmt: skip
BOOSTED = [
    ("left", 0, 0), ("left", 0, 2**31 - 1), ("right", 0, 10**6), ("is_leaf", 0, 1),
    ("is_leaf", -1, 0), ("feature_idx", 0, 4), ("feature_idx", 0, -1), ("is_categorical", 0, 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "place", "value"), [*TREES, *BOOSTED])
def test_nodes_that_are_no_tree(tmp_path, field, place, value):
    """Compiled code would follow them out of the tree, or for ever."""
    one = (field, place, value) in TREES
    model, dtype = (FOREST, NODE_DTYPE) if one else (BOOSTING, PREDICTOR_RECORD_DTYPE)
    archive.save(tmp_path / "model", model.fit(X, CODES))
    state, arrays = opened(tmp_path / "model")
    nodes = next(arrays[name] for name in arrays if name.endswith("/nodes"))
    nodes.view(models.packed(dtype)[0])[field][place] = value
    forge(tmp_path / "model", state, arrays)
    with pytest.raises(StoreError, match=r"cannot be opened: .*tree [^\n]*$"):
        archive.load(tmp_path / "model")


TREE, DUMMY, FIRST = DecisionTreeClassifier(), DummyClassifier(), "+.estimators_.0"
WRONG = [
    (FOREST, f"{FIRST}.+.tree_.+.width", 400), (FOREST, f"{FIRST}.+.tree_.+.width", -1),
    (FOREST, f"{FIRST}.+.tree_", 3), (FOREST, f"{FIRST}.+.tree_.+.fields", "[]"),
    (FOREST, f"{FIRST}.+.n_features_in_", 400),
    (FOREST, f"{FIRST}.+.n_classes_", 10**9), (FOREST, FIRST, 3), (FOREST, "+.n_jobs", 10**5),
    (FOREST, "+.n_features_in_", 400), (FOREST, "+.n_classes_", 10**9), (FOREST, "+.n_outputs_", 2),
    (FOREST, "+.classes_", ...), (TREE, "+.classes_", ...), (TREE, "+.n_features_in_", 400),
    (BOOSTING, "+.n_trees_per_iteration_", 10**9), (BOOSTING, "+.classes_", ...),
    (BOOSTING, "+._predictors.0.0", 3), (BOOSTING, "+._in_fit", True),
    (BOOSTING, "+._preprocessor", 3), (BOOSTING, "+._preprocess_X", 3),
    (BOOSTING, "+.is_categorical_", [True]), (DUMMY, "+.n_classes_", 10**9),
]  # fmt: skip


@pytest.mark.parametrize(("model", "where", "value"), WRONG)
def test_numbers_that_do_not_fit_together(tmp_path, model, where, value):
    archive.save(tmp_path / "model", model.fit(X, CODES))
    put(tmp_path / "model", where, value)
    with pytest.raises(StoreError, match=r"cannot be opened: [^\n]*$"):
        archive.load(tmp_path / "model")


@pytest.mark.parametrize("model", [FOREST, BOOSTING])
def test_trees_without_nodes_or_with_others(tmp_path, model):
    archive.save(tmp_path / "model", model.fit(X, CODES))
    state, arrays = opened(tmp_path / "model")
    first = next(name for name in arrays if name.endswith("/nodes"))
    size = models.packed(NODE_DTYPE if model is FOREST else PREDICTOR_RECORD_DTYPE)[0].itemsize
    for change in (
        lambda w: w[:0], lambda w: w[:-1], lambda w: w[:-size], lambda w: w.astype(float),
        lambda w: w.reshape(-1, size),
    ):  # fmt: skip
        forge(tmp_path / "model", state, arrays | {first: change(arrays[first])})
        with pytest.raises(StoreError, match="cannot be opened"):
            archive.load(tmp_path / "model")


def test_other_arrays_are_harmless(tmp_path):
    """What numpy computes is an error or other numbers, never a crash."""
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, CODES)
    archive.save(tmp_path / "model", model)
    state, arrays = opened(tmp_path / "model")
    for name in arrays:
        for changed in (arrays[name][:0], np.zeros((2, 2, 2)), np.full(1, np.nan)):
            forge(tmp_path / "model", state, arrays | {name: changed})
            try:
                found = archive.load(tmp_path / "model").predict_proba(X)
            except (ValueError, IndexError):
                continue
            assert found.shape[0] == len(X)


def test_a_chain_of_nodes_is_a_tree():
    """Of depth 3, and as deep as it has inner nodes."""
    left, right = np.array([1, -1, 3, -1, 5, -1, -1]), np.array([2, -1, 4, -1, 6, -1, -1])
    models.check_nodes(left, right, left == -1, np.zeros(7, int), 1)
    assert models.depth_of(left, right) == 3
