"""`score`: the metric of predicted labels, from arrays, lists or tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalign.core import stairs
from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.class_order import ClassOrder
from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, Metric, MetricFunction, resolve
from evalign.core.metrics.function import FunctionMetric
from evalign.core.values import weights_of_rows

OWNER = "score"
INTEGER = "integer"  # or bool
OF_SCORES = "If these are scores of the classes, use .argmax(1)."


def score(
    metric: str | MetricFunction,
    *,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
    classes: Sequence[Any] | None = None,
    pos_label: Any = None,
    ignore_index: int | None = None,
) -> float:
    """The metric of predicted labels, equal to scikit-learn's function of the same name.

    The labels are passed by name, because two orders are in use: swapped, a recall is a precision.
    They are integers, bools or strings, one per row; if multilabel, bools or 0 and 1 of shape
    (N, L). Rows of weight 0 are left out.

    Args:
        metric: a name, a metric or a function of a `Confusion`, see `metrics.resolve`.
        y_true: the true labels: a list, a numpy array, a pandas column or a tensor.
        y_pred: the predicted labels, in the same shape.
        sample_weight: a weight per row.
        classes: all classes in their order; by default those that occur, sorted. Another label is
            an error. Needed for a metric that depends on the order of the classes (a cost matrix, a
            β per class, an ordinal kappa) if a class does not occur or the order is not the sorted
            one.
        pos_label: the positive class of two, for metrics like "f1"; by default the last of
            `classes`, such as 1 of (0, 1), or "yes" of ("no", "yes").
        ignore_index: the true label of rows (or of single entries, if multilabel) that do not
            count. None counts all, and refuses -100, by which losses ignore rows.

    Examples:
        >>> score("f1_macro", y_true=[0, 2, 2, 2], y_pred=[0, 2, 1, 2])
        0.6
        >>> true, predicted = ["spam", "ham", "spam"], ["spam", "ham", "ham"]
        >>> score("recall", y_true=true, y_pred=predicted)
        0.5
        >>> score("precision", y_true=true, y_pred=predicted, pos_label="ham")
        0.5
        >>> score("accuracy", y_true=[0, 1, 255], y_pred=[0, 1, 1], ignore_index=255)
        1.0
    """
    metric = resolve(metric, owner=OWNER)
    true = _labels("y_true", y_true)
    predicted = _labels("y_pred", y_pred)
    allowed = f"have the shape of y_true, {true.shape}"
    require(predicted.shape == true.shape, OWNER, "y_pred", allowed, predicted.shape, OF_SCORES)
    ignored = true == (-100 if ignore_index is None else ignore_index)
    classes_only = ignore_index is not None or not ignored.any()
    cure = "Leave them out by ignore_index=-100."
    require(classes_only, OWNER, "y_true", "hold classes only", -100, cure)
    counted = ~ignored.reshape(len(true), -1).all(1)
    weight = None
    if sample_weight is not None:
        weight = weights_of_rows(OWNER, sample_weight, len(true))
        counted &= weight > 0
        weight = weight[counted]
        if len(weight) and not isinstance(metric, FunctionMetric):
            # Only ratios count. The lightest is 1, because a sum below 1e-19 is 0 to a metric,
            # unless the heaviest would overflow.
            weight = weight / max(weight.min(), 1e-200 * weight.max())
    allowed = "leave a row with a label and a weight"
    require(counted.any(), OWNER, "y_true", allowed, "none")
    true = true[counted]
    predicted = predicted[counted]
    multilabel = true.ndim == 2
    number = None
    if multilabel:
        _check_indicators(true, predicted, ignore_index, classes, pos_label)
    else:
        own = getattr(metric, "order", None)
        classes = own if classes is None else classes
        codes, names = _codes(metric, true, predicted, classes, pos_label)
        if len(names) > 1:
            order = None if classes is None else names
            metric = ClassOrder(len(names), names, order, names[-1]).placed(OWNER, metric)
        number = max(2, len(names))
        true, predicted = np.split(codes, 2)
    confusion = Confusion.from_predictions(
        predicted.astype(np.int64),
        true.astype(np.int64),
        num_classes=number,
        task="multilabel" if multilabel else None,
        sample_weight=weight,
        ignore_index=-100 if ignore_index is None or not multilabel else ignore_index,
        matrix=metric.needs_matrix,
    )
    return metric(confusion).item()


def _array(argument: str, values: Any) -> np.ndarray:
    refuse_masked(OWNER, argument, values)
    if stairs.is_tensor(values):
        values = stairs.label_tensor(OWNER, argument, values, cure="")
    return np.asarray(stairs.as_numpy(values))


def _labels(argument: str, values: Any) -> np.ndarray:
    """Labels (N,) or indicators (N, L): integers, bools or strings."""
    array = _array(argument, values)
    array = array.ravel() if array.ndim == 2 and array.shape[1] == 1 else array
    allowed = "have shape (N,), or (N, L) if multilabel, with at least one row"
    cure = "If every position has a label, use .flatten()."
    require(array.ndim in (1, 2) and len(array) > 0, OWNER, argument, allowed, array.shape, cure)
    if array.dtype == object:
        kinds = sorted({type(label).__name__ for label in array.flat})
        require(len(kinds) == 1, OWNER, argument, "hold labels of one type", ", ".join(kinds))
        array = np.array(array.tolist())
    if array.dtype.kind != "f":
        are_labels = array.dtype.kind in "biuSU" and (
            array.dtype != np.uint64 or array.max() < 2**63
        )
        allowed = "hold integers below 2**63, bools or strings"
        require(are_labels, OWNER, argument, allowed, f"dtype {array.dtype}")
        return array
    array = array.astype(np.float64)  # half precision has no number as large as 2**53
    whole = (array == np.floor(array)) & (np.abs(array) < 2**53)
    wrong = array[~whole]  # also NaN
    if len(wrong):
        cure = "For scores, use .argmax(1) for classes, or > 0.5 for two classes or labels."
        raise TypeError(complaint(OWNER, argument, "hold labels", f"{wrong[0]:g}", cure))
    return array.astype(np.int64)


def _check_indicators(
    true: np.ndarray,
    predicted: np.ndarray,
    ignore_index: int | None,
    classes: object,
    pos_label: object,
) -> None:
    """Check the columns of a multilabel problem."""
    for argument, value in {"classes": classes, "pos_label": pos_label}.items():
        allowed = "be None for a multilabel problem, whose labels are the columns"
        require(value is None, OWNER, argument, allowed, value)
    indicators = {"y_pred": predicted, "y_true": true[true != ignore_index]}
    for argument, array in indicators.items():
        wrong = array[~np.isin(array, (0, 1))]
        allowed = "hold 0 and 1 only, as it has a column per label"
        require(not len(wrong), OWNER, argument, allowed, wrong[:1].tolist(), OF_SCORES)


def _codes(
    metric: Metric, true: np.ndarray, predicted: np.ndarray, classes: Any, pos_label: Any
) -> tuple[np.ndarray, list[Any]]:
    """The position of every label among the classes, true ones first, and the classes."""
    kind = _kind(true)
    allowed = f"hold labels of the type of y_true, {kind}"
    require(_kind(predicted) == kind, OWNER, "y_pred", allowed, _kind(predicted))
    whole = kind == INTEGER
    labels = np.concatenate([x.astype(np.int64) if whole else x for x in (true, predicted)])
    occurring = np.unique(labels)
    names = occurring
    if classes is not None:
        names = _array("classes", classes)
        _check_classes(names, occurring)
    elif whole and np.isin(names, (0, 1)).all():
        names = np.array([0, 1])
    if pos_label is not None:
        _check_positive(pos_label, names, whole=whole)
        if classes is None or not metric.ordered:  # costs stay in the order of the classes
            return (labels == pos_label).astype(np.int64), [False, True]
    # As in scikit-learn, a single integer class is the negative one, unless it is 1.
    binary = isinstance(metric, ClassMetric) and metric.average == "binary"
    both_known = whole or len(names) > 1 or not binary
    allowed = "name both classes where only one occurs"
    require(both_known, OWNER, "classes", allowed, classes, 'As in classes=["no", "yes"].')
    order = np.argsort(names)
    return order[np.searchsorted(names, labels, sorter=order)], names.tolist()


def _kind(labels: np.ndarray) -> str:
    """The type of labels in words."""
    return INTEGER if labels.dtype.kind in "biu" else labels.dtype.type.__name__


def _check_classes(names: np.ndarray, occurring: np.ndarray) -> None:
    """Check that the named classes are different, and all that occur."""
    unknown = [label for label in occurring.tolist() if label not in names.tolist()]
    complete = not unknown and len(np.unique(names)) == len(names)
    allowed = "hold every class that occurs, each once"
    cure = f"It lacks {unknown[:3]}: add them, or leave such rows out." if unknown else ""
    require(complete, OWNER, "classes", allowed, names.tolist(), cure)


def _check_positive(pos_label: Any, names: np.ndarray, *, whole: bool) -> None:
    """Check that the positive class is one of two; where one occurs, it may be the other."""
    if len(names) == 2:
        is_class = pos_label in names.tolist()
    else:
        is_class = len(names) == 1 and isinstance(pos_label, str) != whole
    allowed = f"be one of two classes, here of {names.tolist()}"
    require(is_class, OWNER, "pos_label", allowed, repr(pos_label))
