"""The models of scikit-learn that can be saved: those that are safe to use whatever a file says.

Most compute with numpy alone, which checks its own indices. Trees are followed by compiled code
that checks nothing, so that their nodes are checked here before such code sees them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn import calibration, ensemble, preprocessing, tree
from sklearn._loss.loss import HalfBinomialLoss, HalfMultinomialLoss
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC
from sklearn.tree._tree import NODE_DTYPE, Tree
from sklearn.utils.validation import _is_fitted

from evalign.store.archive import register

NUMPY_ALONE = (
    calibration.CalibratedClassifierCV,
    calibration._CalibratedClassifier,
    calibration._SigmoidCalibration,
    preprocessing.LabelEncoder,
    preprocessing.MinMaxScaler,
    preprocessing.RobustScaler,
    preprocessing.StandardScaler,
    GaussianNB,
    LinearDiscriminantAnalysis,
    LinearSVC,
    LogisticRegression,
    Pipeline,
    DummyClassifier,
    _BinMapper,
)
Array = np.ndarray
ONE_TREE = (tree.DecisionTreeClassifier, tree.ExtraTreeClassifier)


def register_estimator(kind: Any, check: Callable[[Any], None] | None = None) -> None:
    """Make an estimator savable by its attributes, fitted or not.

    The check raises a ValueError if a fitted one is not safe to use. It is called before saving
    too, so that nothing is saved that could not be opened.
    """

    def checked(model: Any) -> Any:
        if hasattr(model, "n_classes_"):
            ok = model.n_outputs_ == 1 and model.n_classes_ == len(model.classes_)
            require(ok, "a model must have one output, and as many classes as it names")
        if check is not None and _is_fitted(model):
            check(model)
        return model

    def rebuild(state: dict[str, Any]) -> Any:
        model = kind.__new__(kind)
        hidden = [name for name in state if callable(getattr(kind, name, None))]
        require(not hidden, f"attributes must not hide the methods {hidden}")
        getattr(model, "__setstate__", vars(model).update)(dict(state))
        return checked(model)

    register(kind, lambda model: checked(model).__getstate__(), rebuild)


def require(ok: Any, text: str) -> None:
    if not ok:
        raise ValueError(text)


def check_nodes(left: Array, right: Array, leaf: Array, feature: Array, width: int) -> None:
    """Check that nodes are a tree: each but the first is the child of one node before it."""
    inner = np.flatnonzero(~leaf)
    children = np.concatenate([left[inner], right[inner]]).astype(np.int64)
    later = (children > np.tile(inner, 2)).all()
    once = np.array_equal(np.sort(children), np.arange(1, len(leaf)))
    require(len(leaf) > 0 and later and once, "the nodes of a tree are not a tree")
    known = (feature[inner] >= 0) & (feature[inner] < width)
    require(known.all(), f"a tree splits on a column beyond the {width} of its table")


def depth_of(left: Array, right: Array) -> int:
    depth, level = -1, np.zeros(1, dtype=np.int64)
    while len(level):
        depth, inner = depth + 1, level[left[level] != -1]
        level = np.concatenate([left[inner], right[inner]])
    return depth


@cache
def packed(dtype: np.dtype) -> tuple[np.dtype, str]:
    """The dtype without padding, and its text."""
    fields = np.dtype([(name, dtype[name]) for name in dtype.names or ()])
    return fields, str(fields)


def as_bytes(nodes: Array, **more: Any) -> dict[str, Any]:
    """All fields as one array: a forest would have thousands of arrays."""
    fields, text = packed(nodes.dtype)
    return more | {"nodes": nodes.astype(fields).view(np.uint8), "fields": text}


def as_nodes(state: dict[str, Any], dtype: np.dtype) -> Array:
    nodes, (fields, text) = state["nodes"], packed(dtype)
    same = state["fields"] == text and nodes.ndim == 1
    require(same, "a tree is of another version of scikit-learn")
    return nodes.view(fields).astype(dtype)


def rebuild_tree(state: dict[str, Any]) -> Tree:
    nodes, values, width = as_nodes(state, NODE_DTYPE), state["values"], state["width"]
    left, right = nodes["left_child"], nodes["right_child"]
    check_nodes(left, right, left == -1, nodes["feature"], width)
    require(values.shape[:2] == (len(nodes), 1) and values.ndim == 3, "a tree has other values")
    found: Any = Tree(width, np.array([values.shape[2]], dtype=np.intp), 1)
    about = {"max_depth": depth_of(left, right), "node_count": len(nodes)}
    found.__setstate__(about | {"nodes": nodes, "values": values})
    return found


def check_tree(model: Any) -> None:
    ok = type(model.tree_) is Tree and model.tree_.n_features == model.n_features_in_
    require(ok, "a tree is of other columns")


def check_forest(model: Any) -> None:
    for one in model.estimators_:
        ok = type(one) in ONE_TREE and one.n_features_in_ == model.n_features_in_
        require(ok, "a tree does not fit into its forest")
    require((model.n_jobs or 0) <= 256, "a forest must ask for at most 256 jobs, or threads")


def rebuild_predictor(state: dict[str, Any]) -> TreePredictor:
    none = np.zeros((0, 8), dtype=np.uint32)  # sets of categories
    return TreePredictor(as_nodes(state, PREDICTOR_RECORD_DTYPE), none, none)


def check_boosting(model: Any) -> None:
    numbers = model._preprocessor is None and not np.any(model.is_categorical_)
    cure = "Put FrameEncoder before it in a pipeline."
    require(numbers, f"boosted trees must ask for numbers to be saved, not categories. {cure}")
    classes, width = len(model.classes_), model.n_features_in_
    ok = model.n_trees_per_iteration_ == (1 if classes == 2 else classes)
    require(ok and "_in_fit" not in vars(model), "boosted trees must be fitted, one for each class")
    for one in (one for trees in model._predictors for one in trees):
        require(type(one) is TreePredictor, "boosted trees must be trees")
        nodes = one.nodes
        leaf, feature = nodes["is_leaf"] != 0, nodes["feature_idx"]
        check_nodes(nodes["left"], nodes["right"], leaf, feature, width)
        require(not nodes["is_categorical"].any(), "a tree splits on categories")


for each in NUMPY_ALONE:
    register_estimator(each)
for each in ONE_TREE:
    register_estimator(each, check_tree)
register_estimator(ensemble.ExtraTreesClassifier, check_forest)
register_estimator(ensemble.RandomForestClassifier, check_forest)
register_estimator(ensemble.HistGradientBoostingClassifier, check_boosting)
register(Tree, lambda one: as_bytes(**one.__getstate__(), width=one.n_features), rebuild_tree)
register(TreePredictor, lambda one: as_bytes(one.nodes), rebuild_predictor)
register(HalfBinomialLoss, lambda _: {}, lambda _: HalfBinomialLoss())
register(
    HalfMultinomialLoss,
    lambda one: {"n_classes": one.n_classes},
    lambda x: HalfMultinomialLoss(**x),
)
