"""Labels: read, encoded as class codes, decoded, and scored."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, column_or_1d, compute_class_weight, indexable
from sklearn.utils.multiclass import check_classification_targets

from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.confusion import Confusion
from evalign.core.input_warnings import warn_of_one_hot
from evalign.core.metrics import Metric, resolve
from evalign.estimators.evidence import score_of
from evalign.estimators.out_of_fold import Split
from evalign.estimators.positive import check_positive, oriented, warn_of_positive
from evalign.estimators.rows import weights
from evalign.tables.labels import alike, indicators, label_array, refuse_gaps
from evalign.training import TrainingWarning

TIE = np.finfo(float).tiny  # positive, for a tie that the last class wins


class Targets(NamedTuple):
    """The labels of a problem.

    Args:
        classes: the labels, sorted; if multilabel, the numbers of their columns.
        order: the rule's classes as positions in `classes`: of two, the positive one is the last.
        multilabel: whether a row may have several labels.
    """

    classes: np.ndarray
    order: np.ndarray
    multilabel: bool

    @classmethod
    def of(cls, y: np.ndarray) -> tuple["Targets", np.ndarray]:
        """The targets of labels (N,), or of 0 and 1 (N, L), and their codes."""
        if y.ndim == 2:
            number = np.arange(y.shape[1])
            return cls(number, number, True), y
        classes, codes = np.unique(y, return_inverse=True)
        return cls(classes, np.arange(len(classes)), False), codes

    @property
    def names(self) -> list[str | int]:
        """The rule's classes, as strings or integers."""
        labels = self.classes[self.order].tolist()
        return [label if type(label) in (str, int) else str(label) for label in labels]

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The labels of the rule's codes."""
        return codes if self.multilabel else self.classes[self.order][codes]

    def decision(self, scores: np.ndarray) -> np.ndarray:
        """The `decision_function` of the rule's scores, in the order of `classes`.

        For two classes it is (n,). The rule breaks ties in favour of its first class; where that is
        the last of `classes`, a tie is positive.
        """
        if self.multilabel:
            return scores
        if scores.shape[1] != 2:
            return scores[:, np.argsort(self.order)]
        lead = scores[:, 1] - scores[:, 0]
        return lead if self.order[0] == 0 else np.where(lead == 0, TIE, -lead)

    def encode(self, owner: str, *labels: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """The codes of labels, and the labels that are not among the classes, coded last."""
        if self.multilabel:
            given = [indicators(owner, each) for each in labels]
            allowed = f"have {len(self.classes)} columns"
            for each in given:
                ok = each.shape[1] == len(self.classes)
                require(ok, owner, "y", allowed, each.shape[1])
            return given, self.classes[:0]
        given = [column_or_1d(each) for each in labels]
        new = np.setdiff1d(np.concatenate(given), self.classes)
        known = np.concatenate([self.classes[self.order], new])
        place = np.argsort(known)
        return [place[np.searchsorted(known, each, sorter=place)] for each in given], new

    def score(
        self, owner: str, metric: Metric, labels: np.ndarray, y: Any, weight: np.ndarray | None
    ) -> float:
        """The metric of predicted labels, negated if it is a cost."""
        where = f"{owner}.score"
        if not self.multilabel:
            y = column_or_1d(label_array(owner, y))
            refuse_gaps(where, y)
            alike = isinstance(self.classes[0], str) == all(isinstance(each, str) for each in y[:1])
            allowed = f"hold labels of the type of those of fit, {self.classes[:3].tolist()}"
            require(alike, where, "y", allowed, y[:3].tolist())
        (codes, true), new = self.encode(owner, labels, y)
        allowed = f"hold a label for each of the {len(codes)} rows"
        require(len(true) == len(codes), where, "y", allowed, len(true))
        try:
            return score_of(metric, codes, true, weight, len(self.classes) + len(new))
        except ValueError as error:
            if not len(new):
                raise
            allowed = f"hold the classes of fit, {self.classes.tolist()}, for this metric"
            text = complaint(where, "y", allowed, new[:3].tolist())
            raise ValueError(text) from error

    def check_metric(self, metric: Metric) -> None:
        """Refuse a metric that is not for these labels, such as one for two classes given three."""
        if self.multilabel:
            one = torch.ones(len(self.classes))
            metric(Confusion(one, one, one, 2 * one, multilabel=True))
        else:
            metric(Confusion.from_matrix(torch.eye(len(self.classes))))


def read_targets(classifier: Any, X: Any, y: Any) -> tuple[Any, np.ndarray, Targets, np.ndarray]:
    """Rows that can be indexed, their labels, the targets, and the codes of the labels.

    `classifier` is the estimator, whose arguments `metric`, `pos_label` and `cv` are read.
    """
    owner = type(classifier).__name__
    cure = "fit requires y to be passed, but the target y is None."
    require(y is not None, owner, "y", "hold labels", "None", cure)
    refuse_masked(owner, "X", X)
    y = label_array(owner, y)
    many = y.ndim == 2 and y.shape[1] > 1
    y = indicators(owner, y) if many else column_or_1d(alike(owner, y), warn=True)
    assert_all_finite(y, input_name="y")
    require(len(y) > 0, owner, "y", "hold at least one row", "none")
    X, y = indexable(X, y)
    check_classification_targets(y)
    metric = resolve(classifier.metric, owner=owner)
    if y.ndim == 2:
        allowed, got = "be None if multilabel", repr(classifier.pos_label)
        require(classifier.pos_label is None, owner, "pos_label", allowed, got)
        warn_of_one_hot(owner, torch.from_numpy(y), "y", else_pass="", kind=TrainingWarning)
        return X, y, *Targets.of(y)
    classes = np.unique(y)
    model = getattr(classifier, "estimator", None)
    fixed = classifier.cv == "prefit" if isinstance(classifier.cv, str) else False
    if model is not None and (fixed or isinstance(model, FrozenEstimator)):
        known = np.asarray(model.classes_)
        new = np.setdiff1d(classes, known)
        allowed = "hold labels that the fitted classifier knows"
        require(not len(new), owner, "y", allowed, new[:3].tolist())
        classes = known
    refuse_one_class(owner, classes)
    order = np.arange(len(classes))
    if classifier.pos_label is not None:
        check_positive(owner, classifier.pos_label, classes)
        order = order if classifier.pos_label == classes[-1] else order[::-1]
    targets = Targets(classes, order, False)
    (codes,), _ = targets.encode(owner, y)
    targets.check_metric(metric)
    if classifier.pos_label is None:
        warn_of_positive(metric, classes, codes)
    return X, y, targets, codes


def read_classes(
    classifier: Any, y: np.ndarray, sample_weight: Any
) -> tuple[Targets, np.ndarray, Metric, np.ndarray | None]:
    """The targets, codes, metric and class weights of `AlignedClassifier.fit`.

    Class weights are None if multilabel. Rows of weight 0 do not count for balanced classes.

    Args:
        classifier: the estimator.
        y: what `read_labelled` returned.
        sample_weight: as it was given.
    """
    owner, (targets, codes) = type(classifier).__name__, Targets.of(y)
    classes, many = targets.classes, targets.multilabel
    for name, cure in {"pos_label": "", "class_weight": WEIGHTS}.items() if many else ():
        value = getattr(classifier, name)
        require(value is None, owner, name, "be None if multilabel", repr(value), cure)
    if not many:
        refuse_one_class(owner, classes)
    metric = resolve(oriented(classifier.metric, classifier.pos_label, classes), owner=owner)
    targets.check_metric(metric)
    if many:
        warn_of_one_hot(owner, torch.from_numpy(y), "y", else_pass="", kind=TrainingWarning)
        return targets, codes, metric, None
    if classifier.pos_label is None:
        warn_of_positive(metric, classes, codes)
    counted = y[weights(owner, sample_weight, len(y)) > 0]
    counted = np.append(counted, np.setdiff1d(classes, counted))  # each class has at least one row
    factors = compute_class_weight(classifier.class_weight, classes=classes, y=counted)
    ok, got = bool((np.isfinite(factors) & (factors >= 0)).all()), repr(classifier.class_weight)
    require(ok, owner, "class_weight", "hold finite weights, not negative", got)
    return targets, codes, metric, factors


WEIGHTS = "Give the rows a sample_weight."


def refuse_one_class(owner: str, classes: np.ndarray) -> None:
    got = f"one class, {classes.tolist()}"
    require(len(classes) > 1, owner, "y", "hold two classes or more", got)


def warn_of_lost(targets: Targets, codes: np.ndarray, parts: list[Split]) -> None:
    """Warn of classes all of whose rows are in one fold, so that its classifier never saw them."""
    if targets.multilabel:
        return
    everything = np.unique(codes)
    lost = {code for rows, _ in parts for code in np.setdiff1d(everything, codes[rows]).tolist()}
    if lost:
        names = [targets.names[code] for code in sorted(lost)]
        cure = "Give more rows of them, merge them with others, or use fewer folds."
        text = (
            f"All rows of the classes {names[:3]} are in one fold, whose classifier never saw "
            f"them. {cure}"
        )
        warnings.warn(text, TrainingWarning, stacklevel=4)
