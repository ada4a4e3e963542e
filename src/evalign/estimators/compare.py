"""Train every method on the same folds."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.utils import _safe_indexing, check_consistent_length

from evalign.estimators.summary import PLAIN, TUNED, FoldScore
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, resolve
from evalign.estimators import AlignedClassifier, FrameEncoder
from evalign.estimators.positive import oriented
from evalign.estimators.rows import row_groups, row_weights
from evalign.estimators.targets import Targets
from evalign.tables.labels import label_array
from evalign.tables.values import within_float32

OWNER = "compare"


class Candidate(NamedTuple):
    """A method of the comparison: a model and a decision."""

    model: str
    decision: Literal["argmax", "tuned"]


METHODS = {
    PLAIN: Candidate("cross_entropy", "argmax"),
    TUNED: Candidate("cross_entropy", "tuned"),
    "EAST (argmax)": Candidate("east", "argmax"),  # as in the paper
    "aligned (tuned)": Candidate("aligned", "tuned"),
    "random forest (argmax)": Candidate("random_forest", "argmax"),
    "gradient boosting (argmax)": Candidate("gradient_boosting", "argmax"),
}


def compare(
    classifier: AlignedClassifier,
    X: Any,
    y: Any,
    *,
    methods: Sequence[str] = tuple(METHODS),
    folds: int = 5,
    seeds: Iterable[int] = range(3),
    groups: Any = None,
    sample_weight: Any = None,
) -> Iterator[FoldScore]:
    """Train every method on the same stratified folds, once per seed, and yield their scores.

    Arguments are checked at once. Each training runs when its record is asked for.

    Args:
        classifier: the metric and the settings of all networks; its recipe, decision and
            random_state are replaced. With a constraint, all methods must be tuned.
        X: rows, as `AlignedClassifier` takes them. The trees see what `FrameEncoder` makes of them,
            fitted anew on the training rows of each fold.
        y: the class of each row. Every fold must hold every class.
        methods: some of `METHODS`. The two of cross-entropy share one training.
        folds: their number.
        seeds: each seed gives other folds, initial weights and trees.
        groups: a value per row; the rows of a group stay in one fold.
        sample_weight: a weight per row, for training and for the score. Only ratios count; rows of
            weight 0 are left out.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(200, weights=[0.8], random_state=0)
        >>> classifier = AlignedClassifier("f1", epochs=2)
        >>> methods = ["cross-entropy (argmax)", "random forest (argmax)"]
        >>> for record in compare(classifier, X, y, methods=methods, folds=2, seeds=[0]):
        ...     print(record.method, record.fold)
        cross-entropy (argmax) 0
        random forest (argmax) 0
        cross-entropy (argmax) 1
        random forest (argmax) 1
    """
    check_consistent_length(X, y)
    y = label_array(OWNER, y)
    require(y.ndim == 1, OWNER, "y", "hold one class per row", f"shape {y.shape}")
    groups = row_groups(OWNER, groups, len(y))
    weight = None if sample_weight is None else row_weights(OWNER, sample_weight, y)
    if weight is not None:
        rows = np.flatnonzero(weight)
        X, y, weight = _safe_indexing(X, rows), y[rows], weight[rows]
        groups = None if groups is None else groups[rows]
    classes, y = np.unique(y, return_inverse=True)
    require(len(classes) > 1, OWNER, "y", "hold two classes or more", classes.tolist())
    methods = tuple(methods)
    unknown = [method for method in methods if method not in METHODS]
    require(not unknown, OWNER, "methods", f"be some of {', '.join(METHODS)}", unknown)
    require(folds >= 2, OWNER, "folds", "be at least 2", folds)
    seeds = list(seeds)
    differ = 0 < len(seeds) == len(set(seeds))
    require(differ, OWNER, "seeds", "be different numbers, at least one", seeds)
    if classifier.constraint is not None:
        free = [method for method in methods if METHODS[method].decision == "argmax"]
        allowed = f"be tuned ones for {classifier.constraint!r}, which labels by argmax do not keep"
        require(not free, OWNER, "methods", allowed, free)
    metric = oriented(classifier.metric, classifier.pos_label, classes)
    metric = resolve(metric, owner=OWNER)
    Targets.of(y)[0].check_metric(metric)
    splits = _splits(y, classes, groups, folds, seeds)
    return _records(classifier, metric, _Rows(X, y, classes, groups, weight), methods, splits)


class _Rows(NamedTuple):
    """All rows, with the codes of their classes. Groups and weights may be None."""

    X: Any
    y: np.ndarray
    classes: np.ndarray
    groups: np.ndarray | None
    weight: np.ndarray | None


class _Split(NamedTuple):
    seed: int
    fold: int
    training: np.ndarray
    test: np.ndarray


def _splits(
    y: np.ndarray,
    classes: np.ndarray,
    groups: np.ndarray | None,
    folds: int,
    seeds: Iterable[int],
) -> list[_Split]:
    """Split so that every fold has every class, or refuse."""
    counts = np.bincount(y)
    allowed = f"be at most {counts.min()}, the rows of the rarest class"
    require(folds <= counts.min(), OWNER, "folds", allowed, folds)
    if groups is not None:
        number, least = len(np.unique(groups)), max(3, folds)
        require(number >= least, OWNER, "groups", f"name at least {least} groups", number)
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splits = []
    for seed in seeds:
        parts = kind(folds, shuffle=True, random_state=seed).split(y, y, groups)
        splits += [_Split(seed, fold, *part) for fold, part in enumerate(parts)]
    for split in splits:
        scarce = int(np.bincount(y[split.test], minlength=len(counts)).argmin())
        allowed, got = "leave every class in every fold", f"no class {classes[scarce]} in one"
        require(scarce in y[split.test], OWNER, "groups", allowed, got, "Use fewer folds.")
    return splits


def _records(
    classifier: AlignedClassifier,
    metric: Metric,
    rows: _Rows,
    methods: Sequence[str],
    splits: Sequence[_Split],
) -> Iterator[FoldScore]:
    models = dict.fromkeys(METHODS[method].model for method in methods)
    for split in splits:
        given = [_safe_indexing(rows.X, part) for part in (split.training, split.test)]
        encoder = FrameEncoder().fit(given[0])
        numbers = [_numbers(encoder.transform(X)) for X in given]
        for name in models:
            rules = {m: METHODS[m].decision for m in methods if METHODS[m].model == name}
            decision = "tuned" if "tuned" in rules.values() else "argmax"
            model = _model(name, decision, classifier, split.seed)
            X_training, X_test = given if isinstance(model, AlignedClassifier) else numbers
            start = time.perf_counter()
            _fit(model, X_training, rows, split.training)
            seconds = time.perf_counter() - start
            for method, rule in rules.items():
                score = _score(metric, rows, split.test, _codes(model, rule, rows.classes, X_test))
                yield FoldScore(method, split.seed, split.fold, score, seconds)


def _model(name: str, decision: str, classifier: AlignedClassifier, seed: int) -> Any:
    if name == "random_forest":
        return RandomForestClassifier(random_state=seed)
    if name == "gradient_boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    network: Any = clone(classifier)
    return network.set_params(recipe=name, decision=decision, random_state=seed)


def _fit(model: Any, X: Any, rows: _Rows, training: np.ndarray) -> None:
    arguments = {}
    if rows.groups is not None and isinstance(model, AlignedClassifier):
        arguments["groups"] = rows.groups[training]
    if rows.weight is not None:
        arguments["sample_weight"] = rows.weight[training]
    model.fit(X, rows.classes[rows.y[training]], **arguments)


def _codes(model: Any, decision: str, classes: np.ndarray, X: Any) -> np.ndarray:
    # The columns are the classes: every training part holds all of them.
    if decision == "tuned":
        return np.searchsorted(classes, model.predict(X))
    return model.predict_proba(X).argmax(1)


def _score(metric: Metric, rows: _Rows, test: np.ndarray, codes: np.ndarray) -> float:
    weight = None if rows.weight is None else torch.from_numpy(rows.weight[test])
    confusion = Confusion.from_predictions(
        torch.from_numpy(codes),
        torch.from_numpy(rows.y[test]),
        num_classes=rows.y.max() + 1,
        sample_weight=weight,
        matrix=metric.needs_matrix,
    )
    return metric(confusion).item()


def _numbers(X: Any) -> np.ndarray:
    # Gradient boosting takes dense rows only.
    return within_float32(X.toarray() if sparse.issparse(X) else X)
