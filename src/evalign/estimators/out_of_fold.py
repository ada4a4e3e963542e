"""Scores of any scikit-learn classifier for rows that it was not trained on, in one form."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params, _num_samples, has_fit_parameter

from evalign.core.checks import complaint, require
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn
from evalign.core.text import counted
from evalign.tables.split import strata, stratified_folds
from evalign.tables.warnings import FEW_ROWS, DataWarning

Method = Literal["predict_proba", "decision_function"]
Split = tuple[np.ndarray, np.ndarray]  # training rows, held-out rows
OWNER = "AlignedDecisionCV"
# A rule is fitted anew without each fold: with more folds than this, it gets new ones.
RULE_FOLDS, MOST_FOLDS = 5, 10
# How far the score of a class that the classifier never saw lies below the row's other scores. As
# log-odds, e^-10 is rarer than any class that can be estimated from rows.
UNKNOWN = 10.0


@dataclass(frozen=True, eq=False)
class OutOfFoldScores:
    """Scores of labelled rows, each by a classifier that was not trained on the row.

    Args:
        values: (N, C), or (N, L) if multilabel: probabilities, or scores that are log-odds up to a
            factor and offsets.
        method: the classifier's method that gave them.
        y: class codes (N,), or indicators (N, L).
        weight: (N,), or None.
        fold: for each row the fold in which it is scored, by a rule fitted to the other folds.
        row: the row's number in the table.
        groups: of a constraint on the gap between groups, or None.
        offsets: what to add to values that are logits for probabilities, or None.
    """

    values: np.ndarray
    method: Method
    y: np.ndarray
    weight: np.ndarray | None
    fold: np.ndarray
    row: np.ndarray
    groups: np.ndarray | None = None
    offsets: np.ndarray | None = None

    @classmethod
    def gathered(
        cls,
        values: list[np.ndarray],
        method: Method,
        codes: np.ndarray,
        weight: np.ndarray | None,
        parts: list[Split],
        *,
        groups: np.ndarray | None = None,
        constraint_groups: np.ndarray | None = None,
        seed: int = 0,
    ) -> "OutOfFoldScores":
        """The scores of all folds, in the order of the table.

        `values` are of the held-out rows of each of the `parts`; all else is of the table. The rows
        of one of the `groups` are scored together; the seed is that of new folds.
        """
        row = np.concatenate([rows for _, rows in parts])
        fold = np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts])
        order = np.argsort(row)
        row, fold = row[order], fold[order]
        if not 1 < len(parts) <= MOST_FOLDS:
            own, fold = None if groups is None else groups[row], np.zeros_like(row)
            own = None if own is None or len(np.unique(own)) == 1 else own  # cannot be divided
            new = stratified_folds(strata(codes[row]), RULE_FOLDS, groups=own, seed=seed)
            for number, (_, held) in enumerate(new):
                fold[held] = number
        weight, constraint_groups = (
            None if x is None else x[row] for x in (weight, constraint_groups)
        )
        scores = np.concatenate(values)[order]
        return cls(scores, method, codes[row], weight, fold, row, constraint_groups)

    @property
    def multilabel(self) -> bool:
        return self.y.ndim == 2

    @property
    def minority_rows(self) -> int:
        """Weighted rows outside of the most frequent class; if multilabel, summed over labels."""
        y = self.y if self.weight is None else self.y[self.weight > 0]
        if not self.multilabel:
            return len(y) - int(np.bincount(y, minlength=1).max())
        present = y.sum(0)
        return int(np.minimum(present, len(y) - present).sum())

    @property
    def argument(self) -> dict[str, Any]:
        """The argument of a rule that takes these values."""
        return as_argument(self.values, self.method)

    def take(self, rows: np.ndarray) -> "OutOfFoldScores":
        """Some of the rows, by a mask or by their positions."""
        names = ("values", "y", "weight", "fold", "row", "groups")
        given = {name: getattr(self, name) for name in names}
        return replace(self, **{k: None if x is None else x[rows] for k, x in given.items()})


def as_argument(values: np.ndarray, method: Method) -> dict[str, Any]:
    """The argument of a rule that takes these values."""
    return {"probabilities" if method == "predict_proba" else "logits": values}


def splits(
    owner: str,
    cv: Any,
    X: Any,
    y: np.ndarray,
    codes: np.ndarray,
    groups: np.ndarray | None,
    seed: int,
) -> list[Split]:
    """Training rows and held-out rows of each fold; no folds if there are too few rows.

    A number of folds is lowered where the rows do not suffice for it. A class with fewer rows than
    folds is missing from some of them.
    """
    if groups is not None:
        number = len(np.unique(groups))
        require(number > 1, owner, "groups", "name at least two groups", number)
    if isinstance(cv, Integral):
        require(int(cv) > 1, owner, "cv", "be at least 2 folds", cv)
        return stratified_folds(strata(codes), int(cv), groups=groups, seed=seed)
    splitter: Any = check_cv(cv, y, classifier=True)
    parts = [(row_numbers(a), row_numbers(b)) for a, b in splitter.split(X, y, groups)]
    # Without splits, the rule would be fitted to rows that the classifier was trained on.
    empty = not parts or any(not len(rows) or not len(held) for rows, held in parts)
    allowed, cure = "give splits with rows on both sides", "A generator runs out: use a list."
    require(not empty, owner, "cv", allowed, f"{len(parts)} splits", cure)
    times = np.bincount(np.concatenate([held for _, held in parts])).max()
    got = f"one that is held out {times} times"
    require(times == 1, owner, "cv", "hold out no row more than once", got)
    return parts


def row_numbers(part: Any) -> np.ndarray:
    """The numbers of the rows of one side of a split, which may be a mask of all rows."""
    rows = np.asarray(part)
    return np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)


def fit_arguments(estimator: Any, **given: np.ndarray | None) -> dict[str, np.ndarray]:
    """The arguments that its `fit` takes of those given, by their names there.

    A pipeline passes them on to its last step.
    """
    prefix, model = "", estimator
    if isinstance(model, Pipeline):
        prefix, model = f"{model.steps[-1][0]}__", model.steps[-1][1]
    here = {name: x for name, x in given.items() if x is not None}
    taken = {f"{prefix}{name}": x for name, x in here.items() if has_fit_parameter(model, name)}
    if "sample_weight" in here and f"{prefix}sample_weight" not in taken:
        text = f"{type(model).__name__}.fit takes no sample_weight: the weights are for the rule."
        warn(text, TrainingWarning)
    return taken


def trained(estimator: Any, X: Any, y: Any, rows: np.ndarray, params: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on some of the rows.

    If they are all of one class, a classifier that predicts it takes its place: most classifiers
    refuse such rows.
    """
    several = y.ndim == 2 or len(np.unique(y[rows])) > 1
    params = _check_method_params(X, params, indices=rows)
    X, y = _safe_indexing(X, rows), _safe_indexing(y, rows)
    if not several:
        return DummyClassifier(strategy="prior").fit(X, y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", FEW_ROWS, DataWarning)  # fewer than in the table
        model: Any = clone(estimator)
        return model.fit(X, y, **params)


def scoring_method(estimator: Any) -> Method:
    """The classifier's method that gives scores."""
    if hasattr(estimator, "predict_proba"):
        return "predict_proba"
    if hasattr(estimator, "decision_function"):
        # With three classes there are three pairs, whose columns would be taken for the classes'.
        for name, value in estimator.get_params().items():
            pairs = name.endswith("decision_function_shape") and value == "ovo"
            require(not pairs, OWNER, "estimator", f'have {name}="ovr"', '"ovo"')
        return "decision_function"
    allowed = "be a classifier with predict_proba or decision_function"
    raise TypeError(complaint(OWNER, "estimator", allowed, type(estimator).__name__))


def class_scores(
    estimator: Any,
    X: Any,
    method: Method,
    classes: np.ndarray,
    *,
    multilabel: bool = False,
) -> np.ndarray:
    """Scores by a fitted classifier, with a column for each of the classes, in their order."""
    known = estimator.classes_
    if not multilabel and len(known) == 1:  # some classifiers refuse to score a single class
        given = np.full((_num_samples(X), 1), float(method == "predict_proba"))
    else:
        given = getattr(estimator, method)(X)
    if multilabel:
        return _label_scores(given, known, len(classes))
    values = np.array(given, dtype=np.float64)
    if values.ndim == 1:
        values = np.stack([np.zeros_like(values), values], 1)
    allowed = f"give a column for each of the {len(known)} classes it was fitted on"
    got, name = counted(values.shape[1], "column"), type(estimator).__name__
    require(values.shape[1] == len(known), name, method, allowed, got)
    place = {label: column for column, label in enumerate(classes.tolist())}
    lowest = 0.0 if method == "predict_proba" else values.min(1, keepdims=True) - UNKNOWN
    columns = np.broadcast_to(lowest, (len(values), len(classes))).copy()
    columns[:, [place[label] for label in known.tolist()]] = values
    return columns


def _label_scores(given: Any, known: Any, labels: int) -> np.ndarray:
    """A column per label. Forests and `MultiOutputClassifier` give a list of arrays instead."""
    if not isinstance(given, list):
        values = np.array(given, dtype=np.float64)
        allowed = f"give a column for each of the {labels} labels"
        require(values.shape[1:] == (labels,), OWNER, "estimator", allowed, values.shape)
        return values
    columns = [
        _positive(np.array(part, dtype=np.float64), own)
        for part, own in zip(given, known, strict=True)
    ]
    return np.stack(columns, 1)


def _positive(values: np.ndarray, known: Sequence[Any]) -> np.ndarray:
    """The column of class 1 of a label, whose classes may be 0 alone or 1 alone."""
    if values.ndim == 1:  # a decision function
        return values
    found = [column for column, label in enumerate(known) if label == 1]
    return values[:, found[0]] if found else np.zeros(len(values))
