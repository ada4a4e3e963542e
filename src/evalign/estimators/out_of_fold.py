"""Scores of any scikit-learn classifier for rows that it was not trained on, in one form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import _num_samples

from evalign.core.checks import complaint, require
from evalign.core.text import counted

Method = Literal["predict_proba", "decision_function"]
Split = tuple[np.ndarray, np.ndarray]  # training rows, held-out rows
OWNER = "AlignedDecisionCV"
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
        fold: the fold of each row.
        row: the row's number in the table. A splitter may hold out a row several times.
    """

    values: np.ndarray
    method: Method
    y: np.ndarray
    weight: np.ndarray | None
    fold: np.ndarray
    row: np.ndarray

    @property
    def multilabel(self) -> bool:
        return self.y.ndim == 2

    @property
    def minority_rows(self) -> int:
        """Rows outside of the most frequent class; if multilabel, summed over the labels.

        A row counts once, however often it was held out, and not at all if it has no weight.
        """
        rows = np.unique(self.row, return_index=True)[1]
        if self.weight is not None:
            rows = rows[self.weight[rows] > 0]
        y = self.y[rows]
        if not self.multilabel:
            return len(y) - int(np.bincount(y, minlength=1).max())
        present = y.sum(0)
        return int(np.minimum(present, len(y) - present).sum())

    def take(self, rows: np.ndarray) -> "OutOfFoldScores":
        """Some of the rows, by a mask or by their positions."""
        parts = {name: getattr(self, name)[rows] for name in ("values", "y", "fold", "row")}
        return replace(self, **parts, weight=None if self.weight is None else self.weight[rows])


def as_argument(values: np.ndarray, method: Method) -> dict[str, Any]:
    """The argument of a rule that takes these values."""
    return {"probabilities" if method == "predict_proba" else "logits": values}


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
    multilabel: bool,
    owner: str = OWNER,
    argument: str = "estimator",
) -> np.ndarray:
    """Scores by a fitted classifier, with a column for each of the classes, in their order.

    Errors call the classifier the `argument` of its `owner`.
    """
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
    got = f"{counted(values.shape[1], 'column')} of {method}"
    require(values.shape[1] == len(known), owner, argument, allowed, got)
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
