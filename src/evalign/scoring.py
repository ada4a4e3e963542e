"""The metric of predicted labels, from arrays, lists or tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, refuse_masked, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, Metric, MetricFunction, resolve
from evalign.core.metrics.base import FunctionMetric
from evalign.core.values import weights_of_rows

OWNER = "score"
INTEGER = "integer"  # or bool
OF_SCORES = "If these are scores of the classes, use .argmax(1)."


def score(
    metric: str | MetricFunction,
    predictions: Any,
    target: Any,
    *,
    sample_weight: Any = None,
    classes: Sequence[Any] | None = None,
    pos_label: Any = None,
) -> float:
    """The metric of predicted labels, equal to scikit-learn's function of the same name.

    The predictions come first, as logits do in a loss; scikit-learn has the true labels first.
    Swapped, a recall is a precision: pass them by name.

    Labels are integers, bools or strings, one per row; if multilabel, bools or 0 and 1 of shape
    (N, L). Rows of weight 0 are left out.

    Args:
        metric: a name, a metric or a function of a `Confusion`, see `metrics.resolve`.
        predictions: the predicted labels: a list, a numpy array, a pandas column or a tensor.
        target: the true labels, in the same shape.
        sample_weight: a weight per row.
        classes: all classes in their order; by default those that occur, sorted. Needed for a
            metric that depends on the order of the classes (a cost matrix, a β per class, an
            ordinal kappa) if a class does not occur or the order is not the sorted one.
        pos_label: the positive class of two, for metrics like "f1"; by default the last of
            `classes`, such as 1 of (0, 1), or "yes" of ("no", "yes").

    Examples:
        >>> score("f1_macro", [0, 2, 1, 2], [0, 2, 2, 2])
        0.6
        >>> score("recall", ["spam", "ham", "ham"], ["spam", "ham", "spam"])
        0.5
        >>> score("precision", ["spam", "ham", "ham"], ["spam", "ham", "spam"], pos_label="ham")
        0.5
    """
    metric = resolve(metric, owner=OWNER)
    given, true = _labels("predictions", predictions), _labels("target", target)
    allowed = f"have the shape of target, {true.shape}"
    require(given.shape == true.shape, OWNER, "predictions", allowed, given.shape, OF_SCORES)
    weight = None
    if sample_weight is not None:
        weight = weights_of_rows(OWNER, sample_weight, len(true))
        counted = weight > 0
        given, true, weight = given[counted.numpy()], true[counted.numpy()], weight[counted]
        if len(weight) and not isinstance(metric, FunctionMetric):
            # Only ratios count. The lightest is 1, because a sum below 1e-19 is 0 to a metric,
            # unless the heaviest would overflow.
            weight = weight / weight.amin().clamp(min=1e-200 * weight.amax())
    if true.ndim == 2:
        given, true, number = *_indicators(given, true, classes, pos_label), None
    else:
        codes, number = _codes(metric, given, true, classes, pos_label)
        given, true = np.split(codes, 2)
    confusion = Confusion.from_predictions(
        torch.from_numpy(given),
        torch.from_numpy(true),
        num_classes=number,
        sample_weight=weight,
        matrix=metric.needs_matrix,
    )
    return metric(confusion).item()


def _array(argument: str, values: Any) -> np.ndarray:
    refuse_masked(OWNER, argument, values)
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # numpy has no bfloat16
    return np.asarray(values)


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
        return array
    wrong = array[~((array == np.floor(array)) & (np.abs(array) < 2**53))]  # also NaN
    if len(wrong):
        cure = "For scores, use .argmax(1) for classes, or > 0.5 for two classes or labels."
        raise TypeError(complaint(OWNER, argument, "hold labels", f"{wrong[0]:g}", cure))
    return array.astype(np.int64)


def _indicators(
    given: np.ndarray, true: np.ndarray, classes: object, pos_label: object
) -> tuple[np.ndarray, np.ndarray]:
    """A column of bools per label."""
    for argument, value in {"classes": classes, "pos_label": pos_label}.items():
        allowed = "be None for a multilabel problem, whose labels are the columns"
        require(value is None, OWNER, argument, allowed, value)
    for argument, array in {"predictions": given, "target": true}.items():
        wrong = array[~np.isin(array, (0, 1))]
        allowed = "hold 0 and 1 only, as it has a column per label"
        require(not len(wrong), OWNER, argument, allowed, wrong[:1].tolist(), OF_SCORES)
    return given.astype(bool), true.astype(bool)


def _codes(
    metric: Metric, given: np.ndarray, true: np.ndarray, classes: Any, pos_label: Any
) -> tuple[np.ndarray, int]:
    """The position of every label among the classes, predictions first, and how many there are."""
    kinds = [INTEGER if x.dtype.kind in "biu" else x.dtype.type.__name__ for x in (given, true)]
    allowed = f"hold labels of the type of target, {kinds[1]}"
    require(kinds[0] == kinds[1], OWNER, "predictions", allowed, kinds[0])
    whole = kinds[0] == INTEGER
    labels = np.concatenate([x.astype(np.int64) if whole else x for x in (given, true)])
    found = np.unique(labels)
    if classes is not None:
        found, occur = _array("classes", classes), found.tolist()
        unknown = [label for label in occur if label not in found.tolist()]
        ok = not unknown and len(np.unique(found)) == len(found)
        allowed = "hold every class that occurs, each once"
        cure = f"It lacks {unknown[:3]}. Rows of sample_weight 0 are left out." if unknown else ""
        require(ok, OWNER, "classes", allowed, found.tolist(), cure)
    elif whole and np.isin(found, (0, 1)).all():
        found = np.array([0, 1])
    if pos_label is not None:
        allowed = f"be one of two classes, here of {found.tolist()}"
        ok = len(found) == 1 or (len(found) == 2 and pos_label in found.tolist())
        require(ok, OWNER, "pos_label", allowed, repr(pos_label))
        return (labels == pos_label).astype(np.int64), 2
    # As in scikit-learn, a single integer class is the negative one, unless it is 1.
    positive = isinstance(metric, ClassMetric) and metric.average == "binary"
    ok = whole or len(found) > 1 or not positive
    allowed, cure = "name both classes where only one occurs", 'As in classes=["no", "yes"].'
    require(ok, OWNER, "classes", allowed, classes, cure)
    order = np.argsort(found)
    return order[np.searchsorted(found, labels, sorter=order)], max(2, len(found))
