"""The labels that a classifier around others is given: read, counted, given back as they came."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, column_or_1d, indexable
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, resolve
from evalign.estimator.answers import OWNER, Split
from evalign.estimator.evidence import score_of
from evalign.estimator.positive import warn_of_positive
from evalign.training import TrainingWarning


class Targets(NamedTuple):
    """The labels of a problem.

    Args:
        classes: the labels, sorted; of several labels a row, the numbers of their columns.
        order: the places in `classes` of the rule's classes: of two, the positive one is the last.
        multilabel: whether there are several labels a row.
    """

    classes: np.ndarray
    order: np.ndarray
    multilabel: bool

    @property
    def names(self) -> list[str | int]:
        """The rule's classes, as JSON can hold them."""
        labels = self.classes[self.order].tolist()
        return [label if type(label) in (str, int) else str(label) for label in labels]

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The labels of the rule's codes."""
        return codes if self.multilabel else self.classes[self.order][codes]

    def encode(self, *labels: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """The codes of labels, and labels that are not among the classes, which have the last."""
        if self.multilabel:
            given = [indicators(each) for each in labels]
            allowed = f"have {len(self.classes)} columns"
            for each in given:
                ok = each.shape[1] == len(self.classes)
                require(ok, OWNER, "y", allowed, each.shape[1])
            return given, self.classes[:0]
        given = [column_or_1d(each) for each in labels]
        new = np.setdiff1d(np.concatenate(given), self.classes)
        known = np.concatenate([self.classes[self.order], new])
        place = np.argsort(known)
        return [place[np.searchsorted(known, each, sorter=place)] for each in given], new

    def score(
        self, owner: str, metric: Metric, labels: np.ndarray, y: Any, weight: np.ndarray | None
    ) -> float:
        """The metric of predicted labels, or minus the metric if it is a cost."""
        (codes, true), new = self.encode(labels, y)
        try:
            return score_of(metric, codes, true, weight, len(self.classes) + len(new))
        except ValueError as error:
            if not len(new):
                raise
            allowed = f"hold the classes of fit, {self.classes.tolist()}, for this metric"
            text = complaint(f"{owner}.score", "y", allowed, new[:3].tolist())
            raise ValueError(text) from error


def read_targets(classifier: Any, X: Any, y: Any) -> tuple[Any, np.ndarray, Targets, np.ndarray]:
    """Rows that can be indexed, their labels, what these are, and their codes.

    `classifier` is the estimator with its arguments, of which `metric` and `pos_label` are read.
    """
    owner = type(classifier).__name__
    cure = "fit requires y to be passed, but the target y is None."
    require(y is not None, owner, "y", "hold labels", "None", cure)
    if not sparse.issparse(y):
        assert_all_finite(_array(owner, y), input_name="y")
    y = indicators(y) if type_of_target(y, input_name="y") == "multilabel-indicator" else y
    X, y = indexable(X, y)
    y = np.asarray(y)
    if y.ndim != 2 or y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    metric = resolve(classifier.metric, owner=owner)
    if y.ndim == 2:
        several = type_of_target(y).startswith("multilabel")
        allowed = "hold a label per row, or 0 and 1 for several labels a row"
        require(several, owner, "y", allowed, f"{type_of_target(y)} data")
        number = np.arange(y.shape[1])
        allowed, got = "be None for several labels a row", repr(classifier.pos_label)
        require(classifier.pos_label is None, owner, "pos_label", allowed, got)
        return X, y, Targets(number, number, True), y
    classes = np.unique(y)
    model = getattr(classifier, "estimator", None)
    fixed = classifier.cv == "prefit" if isinstance(classifier.cv, str) else False
    if model is not None and (fixed or isinstance(model, FrozenEstimator)):
        known = np.asarray(model.classes_)
        new = np.setdiff1d(classes, known)
        allowed = "hold labels that the fitted classifier knows"
        require(not len(new), owner, "y", allowed, new[:3].tolist())
        classes = known
    order = np.arange(len(classes))
    if classifier.pos_label is not None:
        labels = classes.tolist()
        ok = classifier.pos_label in labels and len(labels) <= 2
        allowed = f"be None, or one of two classes; y holds {labels[:3]}"
        require(ok, owner, "pos_label", allowed, repr(classifier.pos_label))
        order = order if classifier.pos_label == labels[-1] else order[::-1]
    targets = Targets(classes, order, False)
    (codes,), _ = targets.encode(y)
    if len(classes) > 1:
        metric(Confusion.from_matrix(torch.eye(len(classes))))  # complains if it is for two
        if classifier.pos_label is None:
            warn_of_positive(metric, classes, codes)
    return X, y, targets, codes


def _array(owner: str, y: Any) -> np.ndarray:
    """Labels as an array. Refuse what numpy would stumble over, or make strings of."""
    try:
        array = np.asarray(y)
    except ValueError as error:  # lists of different lengths
        allowed = "hold a label per row, or 0 and 1 of shape (N, L) for several labels a row"
        cure = "MultiLabelBinarizer().fit_transform(y) of scikit-learn makes 0 and 1 of lists."
        got = "lists of different lengths"
        raise ValueError(complaint(owner, "y", allowed, got, cure)) from error
    require(array.ndim == 0 or len(array) > 0, owner, "y", "hold at least one row", "none")
    if array.ndim == 1 and (array.dtype == object or isinstance(y, list)):
        labels = array if array.dtype == object else y
        gaps = sum(label is None for label in labels)
        cure = "Remove these rows, or give them a label."
        require(not gaps, owner, "y", "hold a label in every row", f"None in {gaps} rows", cure)
        kinds = {isinstance(label, str) for label in labels}
        cure = "Make strings of all: np.array(y).astype(str)."
        got = "strings and other values"
        require(len(kinds) == 1, owner, "y", "hold strings or numbers, not both", got, cure)
    return array


def indicators(y: Any) -> np.ndarray:
    """0 and 1 of shape (N, L), dense."""
    return (y.toarray() if sparse.issparse(y) else np.asarray(y)).astype(np.int64)


def warn_of_lost(targets: Targets, codes: np.ndarray, parts: list[Split]) -> None:
    """Warn of classes of which one fold holds all rows, so that its classifier never saw them."""
    if targets.multilabel:
        return
    everything = np.unique(codes)
    lost = {code for rows, _ in parts for code in np.setdiff1d(everything, codes[rows]).tolist()}
    if lost:
        names = [targets.names[code] for code in sorted(lost)]
        text = (
            f"Of the classes {names[:3]} a fold holds all rows, so that its classifier never saw "
            "them. Give more rows of them, merge them with others, or use fewer folds."
        )
        warnings.warn(text, TrainingWarning, stacklevel=3)
