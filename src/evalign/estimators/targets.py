"""Labels: read, encoded as class codes, decoded, and scored. Weights and groups of rows."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from evalign.core.arrays import with_mean_one
from evalign.core.checks import require
from evalign.core.class_order import ClassOrder, without_order
from evalign.core.confusion import Confusion
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn, warn_of_one_hot
from evalign.core.metrics import Metric
from evalign.core.positive import check_positive
from evalign.core.values import weights_of_rows
from evalign.decisions.classes import ordered_categories, plain_labels
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

UNEVEN = np.array([[5.0, 2.0], [1.0, 9.0]])  # metrics of one class differ between the two


class Targets(NamedTuple):
    """The labels of a problem.

    Args:
        classes: the labels, sorted, in the order of the columns of all scores; if multilabel, the
            numbers of their columns.
        multilabel: whether a row may have several labels.
        columns: the names of the labels of a frame, if multilabel.
        pos_label: the positive class of two as it was given; None for none.
        order: the classes as a metric of costs or ordinal classes counts them; None if not given.
    """

    classes: np.ndarray
    multilabel: bool
    columns: list[str] | None = None
    pos_label: Any = None
    order: list[Any] | None = None

    @property
    def names(self) -> list[Any]:
        """The classes as Python values, which a rule can be saved with."""
        return _plain(self.columns or self.classes.tolist())

    @property
    def class_order(self) -> ClassOrder:
        """How a metric counts the classes."""
        order = None if self.order is None else _plain(self.order)
        pos_label = None if self.pos_label is None else _plain([self.pos_label])[0]
        return ClassOrder(len(self.classes), self.names, order, pos_label)

    def places(self, owner: str, metric: Metric) -> tuple[int, ...]:
        """The codes in the order in which the metric counts the classes."""
        if self.multilabel:
            return tuple(range(len(self.classes)))
        return self.class_order.places(owner, metric)

    def placed(self, owner: str, metric: Metric) -> Metric:
        """The metric of labels as codes: it knows the positive class and the order."""
        return metric if self.multilabel else self.class_order.placed(owner, metric)

    @property
    def of_codes(self) -> dict[str, Any]:
        """`pos_label` and `classes` for a classifier of codes; none where it needs none."""
        known = self.classes.tolist()
        roles: dict[str, Any] = {}
        if len(known) == 2 and not self.multilabel:
            roles["pos_label"] = self.class_order.positive
        if self.order is not None:
            roles["classes"] = [known.index(label) for label in self.order]
        return roles

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """The labels of codes."""
        return codes if self.multilabel else self.classes[codes]

    def decision(self, scores: np.ndarray) -> np.ndarray:
        """The `decision_function` of the rule's scores; for two classes (n,)."""
        if self.multilabel or scores.shape[1] != 2:
            return scores
        return scores[:, 1] - scores[:, 0]

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
        known = np.concatenate([self.classes, new])
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
        placed = self._with(new).placed(where, metric)
        return score_of(placed, codes, true, weight, len(self.classes) + len(new))

    def _with(self, new: np.ndarray) -> "Targets":
        """The same with classes that the fit did not know, which are the last."""
        if not len(new):
            return self
        order = None if self.order is None else [*self.order, *new.tolist()]
        return self._replace(classes=np.concatenate([self.classes, new]), order=order)


def read_targets(
    owner: str,
    y: Any,
    metric: Metric,
    pos_label: Any,
    known: np.ndarray | None = None,
    classes: Any = None,
) -> tuple[np.ndarray, Targets, np.ndarray]:
    """Checked labels (N,), or 0 and 1 of shape (N, L), what they are, and their codes.

    `known` are the classes of a classifier that is already fitted; `classes` are all labels in the
    order of the metric, of which some may have no rows.
    """
    order = ordered_categories(y) if classes is None else None
    cure = "fit requires y to be passed, but the target y is None."
    require(y is not None, owner, "y", "hold labels", "None", cure)
    columns, y = label_names(y), label_array(owner, y)
    many = y.ndim == 2 and y.shape[1] > 1
    y = indicators(owner, y) if many else column_or_1d(alike(owner, y), warn=True)
    assert_all_finite(y, input_name="y")
    require(len(y) > 0, owner, "y", "hold at least one row", "none")
    check_classification_targets(y)
    if many:
        for argument, value in {"pos_label": pos_label, "classes": classes}.items():
            require(value is None, owner, argument, "be None if multilabel", repr(value))
        warn_of_one_hot(owner, y, "y", else_pass="", kind=TrainingWarning)
        number = np.arange(y.shape[1])
        metric(perfect(len(number), multilabel=True))
        return y, Targets(number, True, columns), y
    seen = np.unique(y)
    labels = seen
    if known is not None:
        new = np.setdiff1d(seen, known)
        allowed = "hold labels that the fitted classifier knows"
        require(not len(new), owner, "y", allowed, new[:3].tolist())
        labels = np.asarray(known)
    if classes is not None:
        order = plain_labels(classes)
        labels = _with_lacking(owner, labels, order)
    elif order is not None:
        order = [label for label in order if label in labels.tolist()]
    got = f"one class, {labels.tolist()}"
    require(len(labels) > 1, owner, "y", "hold two classes or more", got)
    check_positive(owner, labels.tolist(), pos_label)
    without_order(metric)(perfect(len(labels)))  # raises if it is for two classes only
    if isinstance(pos_label, np.generic):
        pos_label = pos_label.item()
    targets = Targets(labels, False, None, pos_label, order)
    (codes,), _ = targets.encode(owner, y)
    targets.placed(owner, metric)  # raises if it needs an order of classes that nobody gave
    if pos_label is None and classes is None:
        warn_of_positive(metric, labels, codes)
    return y, targets, codes


def _plain(labels: list[Any]) -> list[Any]:
    """Labels as Python values, which JSON can hold: others than text and numbers are text."""
    return [label if isinstance(label, str | int | float) else str(label) for label in labels]


def _with_lacking(owner: str, labels: np.ndarray, classes: list[Any]) -> np.ndarray:
    """The labels, sorted, with the classes that no row has."""
    named = label_array(owner, classes)
    lacking = np.setdiff1d(labels, named).tolist() if _alike(labels, named) else labels.tolist()
    allowed = "name each class that occurs, each once"
    cure = f"It lacks {lacking[:3]}." if lacking else ""
    once = len(np.unique(named)) == len(named)
    require(not lacking and once, owner, "classes", allowed, named.tolist()[:8], cure)
    more = np.setdiff1d(named, labels)
    return labels if not len(more) else np.unique(np.concatenate([labels, more]))


def _alike(labels: np.ndarray, named: np.ndarray) -> bool:
    """Whether both are text, or neither."""
    return isinstance(labels.tolist()[0], str) == isinstance(named.tolist()[0], str)


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
