"""Labels: read, encoded as class codes, decoded, and scored. Weights and groups of rows."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from evalign.core.arrays import with_mean_one
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn, warn_of_one_hot
from evalign.core.metrics import Metric
from evalign.core.values import weights_of_rows
from evalign.decisions.inputs import group_values
from evalign.estimators.evidence import perfect, score_of
from evalign.estimators.out_of_fold import Split
from evalign.tables.labels import (
    alike,
    check_names,
    indicators,
    label_array,
    label_names,
    refuse_gaps,
)

TIE = np.finfo(float).tiny  # positive, for a tie that the last class wins
UNEVEN = np.array([[5.0, 2.0], [1.0, 9.0]])  # metrics of one class differ between the two


class Targets(NamedTuple):
    """The labels of a problem.

    Args:
        classes: the labels, sorted; if multilabel, the numbers of their columns.
        order: the rule's classes as positions in `classes`: of two, the positive one is the last.
        multilabel: whether a row may have several labels.
        columns: the names of the labels of a frame, if multilabel.
    """

    classes: np.ndarray
    order: np.ndarray
    multilabel: bool
    columns: list[str] | None = None

    @property
    def ordered(self) -> np.ndarray:
        """The labels in the order of the rule's classes."""
        return self.classes[self.order]

    @property
    def names(self) -> list[str | int]:
        """The rule's classes, as strings or integers."""
        labels = self.columns or self.ordered.tolist()
        return [label if type(label) in (str, int) else str(label) for label in labels]

    def sorted(self, columns: np.ndarray) -> np.ndarray:
        """Columns of the rule's classes, in the order of `classes`."""
        return columns[:, np.argsort(self.order)]

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The labels of the rule's codes."""
        return codes if self.multilabel else self.ordered[codes]

    def decision(self, scores: np.ndarray) -> np.ndarray:
        """The `decision_function` of the rule's scores, in the order of `classes`.

        For two classes it is (n,). The rule breaks ties in favour of its first class; where that is
        the last of `classes`, a tie is positive.
        """
        if self.multilabel:
            return scores
        if scores.shape[1] != 2:
            return self.sorted(scores)
        lead = scores[:, 1] - scores[:, 0]
        return lead if self.order[0] == 0 else np.where(lead == 0, TIE, -lead)

    def encode(self, owner: str, *labels: Any) -> tuple[list[np.ndarray], np.ndarray]:
        """The codes of labels, and the labels that are not among the classes, coded last."""
        if self.multilabel:
            for each in labels:
                check_names(owner, label_names(each), self.columns)
            given = [indicators(owner, each) for each in labels]
            allowed = f"have {len(self.classes)} columns"
            for each in given:
                ok = each.shape[1] == len(self.classes)
                require(ok, owner, "y", allowed, each.shape[1])
            return given, self.classes[:0]
        given = [column_or_1d(label_array(owner, each)) for each in labels]
        for each in given:
            refuse_gaps(owner, each)
            ok = isinstance(self.classes[0], str) == all(isinstance(one, str) for one in each[:1])
            allowed = f"hold labels of the type of those of fit, {self.classes[:3].tolist()}"
            require(ok, owner, "y", allowed, each[:3].tolist())
        new = np.setdiff1d(np.concatenate(given), self.classes)
        known = np.concatenate([self.ordered, new])
        place = np.argsort(known)
        return [place[np.searchsorted(known, each, sorter=place)] for each in given], new

    def score(
        self, owner: str, metric: Metric, labels: np.ndarray, y: Any, weight: np.ndarray | None
    ) -> float:
        """The metric of predicted labels, negated if it is a cost."""
        where = f"{owner}.score"
        (codes, true), new = self.encode(where, labels, y)
        allowed = f"hold a label for each of the {len(codes)} rows"
        require(len(true) == len(codes), where, "y", allowed, len(true))
        return score_of(metric, codes, true, weight, len(self.classes) + len(new))


def read_targets(
    owner: str, y: Any, metric: Metric, pos_label: Any, known: np.ndarray | None = None
) -> tuple[np.ndarray, Targets, np.ndarray]:
    """Checked labels (N,), or 0 and 1 of shape (N, L), what they are, and their codes.

    `known` are the classes of a classifier that is already fitted.
    """
    cure = "fit requires y to be passed, but the target y is None."
    require(y is not None, owner, "y", "hold labels", "None", cure)
    columns, y = label_names(y), label_array(owner, y)
    many = y.ndim == 2 and y.shape[1] > 1
    y = indicators(owner, y) if many else column_or_1d(alike(owner, y), warn=True)
    assert_all_finite(y, input_name="y")
    require(len(y) > 0, owner, "y", "hold at least one row", "none")
    check_classification_targets(y)
    if many:
        allowed, got = "be None if multilabel", repr(pos_label)
        require(pos_label is None, owner, "pos_label", allowed, got)
        warn_of_one_hot(owner, y, "y", else_pass="", kind=TrainingWarning)
        number = np.arange(y.shape[1])
        metric(perfect(len(number), multilabel=True))
        return y, Targets(number, number, True, columns), y
    classes = np.unique(y)
    if known is not None:
        new = np.setdiff1d(classes, known)
        allowed = "hold labels that the fitted classifier knows"
        require(not len(new), owner, "y", allowed, new[:3].tolist())
        classes = np.asarray(known)
    got = f"one class, {classes.tolist()}"
    require(len(classes) > 1, owner, "y", "hold two classes or more", got)
    order = np.arange(len(classes))
    if pos_label is not None:
        ok = pos_label in classes.tolist() and len(classes) <= 2
        allowed = f"be None, or one of two classes; y holds {classes[:3].tolist()}"
        require(ok, owner, "pos_label", allowed, repr(pos_label))
        order = order if pos_label == classes[-1] else order[::-1]
    metric(perfect(len(classes)))  # raises if it is for two classes only
    targets = Targets(classes, order, False)
    (codes,), _ = targets.encode(owner, y)
    if pos_label is None:
        warn_of_positive(metric, classes, codes)
    return y, targets, codes


def warn_of_positive(metric: Metric, classes: np.ndarray, codes: np.ndarray) -> None:
    """Warn if the positive class was not chosen and is the frequent one.

    F1 and the like are usually about the rare class. A class called 1 is positive everywhere.
    """
    if len(classes) != 2 or classes[1] in (1, "1") or codes.mean() <= 0.5:
        return
    score = metric(Confusion.from_matrix(UNEVEN))
    if np.isclose(score, metric(Confusion.from_matrix(UNEVEN[::-1, ::-1]))):
        return  # it treats both classes alike
    first, positive = classes.tolist()
    text = (
        f"{metric.name} takes {positive!r}, the last of the two classes, as the positive one, and "
        f"{codes.mean():.0%} of the rows have it. Give pos_label={first!r} if you mean the other "
        f"one, or pos_label={positive!r}."
    )
    warn(text, TrainingWarning)


def warn_of_lost(targets: Targets, codes: np.ndarray, parts: list[Split]) -> None:
    """Warn of classes all of whose rows are held out at once, so that a classifier lacks them."""
    if targets.multilabel:
        return
    everything = np.unique(codes)
    lost = {code for rows, _ in parts for code in np.setdiff1d(everything, codes[rows]).tolist()}
    if lost:
        names = [targets.names[code] for code in sorted(lost)]
        cure = "Give more rows of them, merge them with others, or use other folds or groups."
        text = f"All rows of the classes {names[:3]} are held out at once, and a classifier"
        warn(f"{text} never saw them. {cure}", TrainingWarning)


def row_groups(owner: str, groups: Any, rows: int, argument: str = "groups") -> np.ndarray | None:
    """A group per row, integers or strings; None if there are none."""
    return None if groups is None else group_values(owner, groups, (rows,), argument)


def row_weights(
    owner: str, sample_weight: Any, rows: int, *, given: bool = False
) -> np.ndarray | None:
    """A weight per row, with a mean of 1 or as it was given; None if there are none."""
    if sample_weight is None:
        return None
    weight = weights_of_rows(owner, sample_weight, rows)
    some = bool(weight.any())
    require(some, owner, "sample_weight", "be above zero in at least one row", "zeros")
    return weight if given else with_mean_one(weight)
