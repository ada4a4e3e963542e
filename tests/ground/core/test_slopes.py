"""The closed slopes of every metric, against central differences of its value."""

import numpy as np
import pytest

from evalign import metrics
from evalign.core.confusion import Confusion
from evalign.core.constraints import RATES, parse
from evalign.core.metrics.slopes import Slopes, by_differences
from tests import tolerances

NAMED = [metrics.resolve(name) for name in metrics.names()]
OTHERS = [
    metrics.FBeta(beta=(0.5, 1, 2), average="macro"),
    metrics.FBeta(beta=(0.5, 1, 2), average="weighted"),
    metrics.FBeta(average="macro", labels=(0, 2)),
    metrics.Jaccard(average="micro", labels=(1, 2)),
    metrics.Specificity(average="micro"),
    metrics.Precision(average="weighted", labels=(0, 1)),
    metrics.Recall(average="macro", zero_division=np.nan),
    metrics.NegativePredictiveValue(average="weighted", zero_division=np.nan),
    metrics.ExpectedCost([[0, 1, 2], [5, 0, 1], [3, 3, 0]]),
    *RATES.values(),
    *(parse(f"{name}[2] >= 0.5")[0].metric for name in ("recall", "precision", "fpr", "npv")),
]


def is_for_two(metric: metrics.Metric) -> bool:
    return getattr(metric, "average", None) == "binary"


def matrices(classes: int, number: int = 4) -> np.ndarray:
    """Confusion matrices with unequal classes, in which every cell has rows."""
    rng = np.random.default_rng(classes)
    cells = rng.uniform(1, 20, (number, classes, classes))
    return cells * rng.uniform(0.2, 5, (number, classes, 1))


def differences(metric: metrics.Metric, matrix: np.ndarray) -> np.ndarray:
    """The slopes by the cells of one matrix, by central differences."""
    step = 1e-5 * matrix.sum()
    slopes = np.zeros_like(matrix)
    for cell in np.ndindex(*matrix.shape):
        moved = np.zeros_like(matrix)
        moved[cell] = step
        above = metric(Confusion.from_matrix(matrix + moved))
        below = metric(Confusion.from_matrix(matrix - moved))
        slopes[cell] = (above - below) / (2 * step)
    return slopes


OF_TWO = [(metric, 2) for metric in [*NAMED, *RATES.values()]]
OF_THREE = [(metric, 3) for metric in [*NAMED, *OTHERS] if not is_for_two(metric)]


@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=repr)
def test_slopes_are_those_of_the_value(metric, classes):
    several = matrices(classes)
    slopes = metric.slopes(Confusion.from_matrix(several)).of_matrix()
    for matrix, closed in zip(several, slopes, strict=True):
        expected = differences(metric, matrix)
        scale = max(np.abs(expected).max(), 1 / matrix.sum())  # one metric here is constant
        np.testing.assert_allclose(closed, expected, rtol=0, atol=tolerances.DIFFERENCES * scale)


@pytest.mark.parametrize("metric", [*NAMED, *OTHERS], ids=repr)
def test_a_leading_dimension_changes_no_digit(metric):
    classes = 2 if is_for_two(metric) else 3
    several = matrices(classes, 6)
    together = Confusion.from_matrix(several.reshape(2, 3, classes, classes))
    alone = [Confusion.from_matrix(matrix) for matrix in several]
    values = np.array([metric(c) for c in alone])
    np.testing.assert_allclose(metric(together).ravel(), values, rtol=tolerances.SAME)
    slopes = np.stack([metric.slopes(c).of_matrix() for c in alone])
    found = metric.slopes(together).of_matrix().reshape(slopes.shape)
    np.testing.assert_allclose(found, slopes, rtol=0, atol=tolerances.SAME * np.abs(slopes).max())


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize(
    "kind",
    [metrics.FBeta, metrics.Precision, metrics.Specificity, metrics.NegativePredictiveValue],
)
def test_slopes_of_labels(kind, average):
    metric = kind(average=average)
    rng = np.random.default_rng(0)
    tp, fp, fn, tn = rng.uniform(1, 20, (4, 5))
    c = Confusion(tp, tp + fp, tp + fn, tp + fp + fn + tn, multilabel=True)
    closed = metric.slopes(c)
    expected = by_differences(metric, c)
    for name in ("tp", "predicted", "actual"):
        np.testing.assert_allclose(
            getattr(closed, name), getattr(expected, name), rtol=0, atol=tolerances.DIFFERENCES
        )


@pytest.mark.parametrize("metric", [m for m in [*NAMED, *OTHERS] if not is_for_two(m)], ids=repr)
def test_slopes_are_finite_where_classes_are_missing(metric):
    matrix = np.zeros((3, 3))
    for cells in ([(0, 0)], [(0, 1)], [(0, 0), (1, 0)], [(0, 0), (1, 1)], []):
        for cell in cells:
            matrix[cell] = 4
        slopes = metric.slopes(Confusion.from_matrix(matrix)).of_matrix()
        assert np.isfinite(slopes).all()


@pytest.mark.parametrize("reads_matrix", [False, True])
def test_a_function_has_numerical_slopes(reads_matrix):
    def f1_macro(c):
        if reads_matrix:
            tp, predicted, actual = np.diagonal(c.matrix), c.matrix.sum(0), c.matrix.sum(1)
            return (2 * tp / (predicted + actual)).mean()
        return (2 * c.tp / (c.predicted + c.actual)).mean()

    metric, reference = metrics.resolve(f1_macro), metrics.resolve("f1_macro")
    c = Confusion.from_matrix(matrices(3))
    slopes, expected = metric.slopes(c).of_matrix(), reference.slopes(c).of_matrix()
    atol = tolerances.DIFFERENCES * np.abs(expected).max()
    np.testing.assert_allclose(slopes, expected, rtol=0, atol=atol)


def test_numerical_slopes_of_many_labels():
    """The step is a share of the rows of one label, however many labels stand beside it."""

    def f1_macro(c):
        return (2 * c.tp / (c.predicted + c.actual)).mean()

    tp, fp, fn, tn = np.random.default_rng(0).uniform(1, 20, (4, 300))
    c = Confusion(tp, tp + fp, tp + fn, tp + fp + fn + tn, multilabel=True)
    slopes, expected = metrics.resolve(f1_macro).slopes(c), metrics.resolve("f1_macro").slopes(c)
    atol = tolerances.DIFFERENCES * np.abs(expected.tp).max()
    for name in ("tp", "predicted", "actual"):
        closed = getattr(expected, name)
        np.testing.assert_allclose(getattr(slopes, name), closed, rtol=0, atol=atol)


def test_a_function_of_too_many_classes_is_told_the_cure():
    metric = metrics.resolve(lambda c: c.matrix[0, 0] / c.total)
    with pytest.raises(ValueError, match="named metric for more than 181 classes"):
        metric.slopes(Confusion.from_matrix(np.eye(200)))


def test_slopes_of_a_scale_follow_from_the_others():
    """Euler: a metric that more rows of the same shares do not change has Σ slope · sum = 0."""
    c = Confusion.from_matrix(matrices(3))
    for metric in NAMED:
        if not is_for_two(metric):
            slopes: Slopes = metric.slopes(c)
            along = (slopes.of_matrix() * c.matrix).sum((1, 2))
            np.testing.assert_allclose(along, 0, atol=tolerances.SAME)
