"""Confusions at the edge: values and slopes of every metric are finite, and nothing warns.

In NumPy 0/0 warns, and a warning is an error here.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from evalign import Confusion, metrics
from evalign.core.constraints import RATES, OfClass, parse
from tests import tolerances

NAMED = [*map(metrics.resolve, metrics.names()), *RATES.values()]
OTHERS = [
    metrics.ExpectedCost([[0, 1, 2], [5, 0, 1], [3, 3, 0]]),
    metrics.FBeta(beta=(0.5, 1, 2), average="weighted"),
    metrics.Recall(average="macro", labels=(0, 2)),
    metrics.Specificity(average="micro", labels=(1,)),
    parse("recall[1] >= 0.5")[0].metric,
    parse("npv[0] >= 0.5")[0].metric,
]
ZERO_DIVISIONS = (0.0, 1.0, math.nan)


def with_zero_division(metric, value):
    if isinstance(metric, OfClass):
        return replace(metric, metric=replace(metric.metric, zero_division=value))
    return replace(metric, zero_division=value)


def is_for_two(metric):
    return getattr(metric, "average", None) == "binary"


def degenerate(classes):
    """Matrices without rows, and with one, two or three cells that have any."""
    cells = [(k, j) for k in range(classes) for j in range(classes)]
    chosen = [[], *([cell] for cell in cells)]
    chosen += [[cells[0], cell] for cell in cells[1:]]
    chosen += [[cells[0], cells[-1], cell] for cell in cells[1:-1]]
    for number, filled in enumerate(chosen):
        matrix = np.zeros((classes, classes))
        for cell in filled:
            matrix[cell] = [3, 1e-6, 1e9, 1e-20][number % 4]
        yield matrix


OF_TWO = [(metric, 2) for metric in NAMED]
OF_THREE = [(metric, 3) for metric in [*NAMED, *OTHERS] if not is_for_two(metric)]
OF_LABELS = [x for x in NAMED if isinstance(x, metrics.ClassMetric) and not is_for_two(x)]


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=repr)
def test_values_and_slopes_of_degenerate_matrices(metric, classes, zero_division):
    metric = with_zero_division(metric, zero_division)
    several = np.stack([*degenerate(classes)])
    low, high = metric.bounds
    together = metric(Confusion.from_matrix(several))
    for matrix, value in zip(several, together, strict=True):
        c = Confusion.from_matrix(matrix)
        alone = metric(c)
        assert alone.shape == ()
        assert alone.dtype == np.float64
        assert alone == pytest.approx(value, rel=tolerances.SAME, nan_ok=True)
        if math.isnan(alone):
            assert math.isnan(zero_division)
        else:
            assert low <= alone <= high
        assert np.isfinite(metric.slopes(c).of_matrix()).all()


@pytest.mark.parametrize("zero_division", ZERO_DIVISIONS)
@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=repr)
def test_what_is_not_a_number_stays_visible(metric, classes, zero_division):
    """As of a network that diverged: nothing but NaN, also in matrices that stand beside others."""
    metric = with_zero_division(metric, zero_division)
    of_nan = np.full((classes, classes), np.nan)
    assert math.isnan(metric(Confusion.from_matrix(of_nan)))
    metric.slopes(Confusion.from_matrix(of_nan))
    both = Confusion.from_matrix(np.stack([1 + np.eye(classes), of_nan]))
    assert np.isnan(metric(both)).tolist() == [False, True]
    metric.slopes(both)


@pytest.mark.parametrize("metric", OF_LABELS, ids=repr)
def test_labels_without_rows(metric):
    """A label that is always or never true or predicted, or has no weight, or only NaN."""
    none, some, every = np.zeros(4), np.array([0, 2.0, 4, 3]), np.full(4, 4.0)
    for predicted in (none, some, every):
        for actual in (none, some, every):
            for total in (every, np.array([0, 4.0, 4, 4])):
                tp = np.minimum(np.minimum(predicted, actual), total)
                sums = (np.minimum(x, total) for x in (predicted, actual))
                c = Confusion(tp, *sums, total, multilabel=True)
                assert np.isfinite(metric(c))
                slopes = metric.slopes(c)
                assert np.isfinite([slopes.tp, slopes.predicted, slopes.actual]).all()
    assert np.isnan(metric(c * np.nan))


def test_a_function_that_divides_by_nothing_warns_of_nothing():
    metric = metrics.resolve(lambda c: (c.tp / c.actual).mean())
    assert math.isnan(metric(Confusion.from_matrix([[0, 0], [1, 1]])))
    assert metric(Confusion.from_matrix([[1, 0], [1, 1]])) == 0.75


def test_a_gap_of_groups_without_rows():
    (constraint,) = parse("gap(recall) <= 0.25")
    both = Confusion.from_matrix(np.stack([1 + np.eye(2), np.zeros((2, 2))]))
    one = Confusion.from_matrix(np.stack([[[2, 0], [1, 1]], [[2, 0], [0, 0]]]))
    np.testing.assert_allclose(constraint.value(both, [both, one]), [2 / 3 - 1 / 2, 0])
    np.testing.assert_allclose(constraint.slack(both, [one, one]), 0.25)
    assert np.isnan(constraint.value(both * np.array(np.nan), [both, one])).all()
