"""Metrics and constraints of tensors: their values are those of NumPy, and autograd's slopes ours.

What the values are is tested in `tests/ground/core`, without PyTorch.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from evalign import Confusion, metrics
from evalign.core.constraints import RATES, OfClass, parse
from evalign.core.metrics.function import FunctionMetric
from evalign.core.metrics.slopes import by_autograd
from tests import tolerances

NAMED = [*map(metrics.resolve, metrics.names()), *RATES.values()]
OTHERS = [
    metrics.FBeta(beta=(0.5, 1, 2), average="macro"),
    metrics.FBeta(beta=(0.5, 1, 2), average="weighted"),
    metrics.FBeta(average="macro", labels=(0, 2)),
    metrics.Jaccard(average="micro", labels=(1, 2)),
    metrics.NegativePredictiveValue(average="weighted", labels=(0, 1)),
    metrics.ExpectedCost([[0, 1, 2], [5, 0, 1], [3, 3, 0]]),
    *(parse(f"{name}[2] >= 0.5")[0].metric for name in ("recall", "fpr", "npv", "informedness")),
]
ZERO_DIVISIONS = (0.0, 1.0, math.nan)


def name_of(value):
    """A name that is the same in every process: that of a function has its address otherwise."""
    return value.name if isinstance(value, FunctionMetric) else repr(value)


def is_for_two(metric):
    return getattr(metric, "average", None) == "binary"


OF_TWO = [(metric, 2) for metric in NAMED]
OF_THREE = [(metric, 3) for metric in [*NAMED, *OTHERS] if not is_for_two(metric)]
OF_LABELS = [x for x in NAMED if isinstance(x, metrics.ClassMetric) and not is_for_two(x)]


def with_zero_division(metric, value):
    if isinstance(metric, OfClass):
        return replace(metric, metric=replace(metric.metric, zero_division=value))
    return replace(metric, zero_division=value)


def matrices(classes, number=4):
    """Confusion matrices with unequal classes, in which every cell has rows."""
    random = np.random.default_rng(classes)
    cells = random.uniform(1, 20, (number, classes, classes))
    return cells * random.uniform(0.2, 5, (number, classes, 1))


def degenerate(classes):
    """Matrices without rows, of one or two cells, without a true or a predicted class."""
    cells = np.eye(classes**2).reshape(-1, classes, classes)
    without = 1 - np.eye(classes)
    return np.concatenate(
        [
            np.zeros((1, classes, classes)),
            *(cells, 1e-20 * cells, 4 * cells + 1e9 * cells[:1]),
            *(without[:, :, None] * without, without[:, None] * np.ones((classes, 1))),
        ]
    )


def assert_close(ours, theirs, tolerance, scale=1.0):
    """Check that tensors equal arrays or other tensors, up to a share of the largest value."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == theirs.dtype == np.float64
    largest = max(np.abs(theirs).max(), scale)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * largest)


# Values.


@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=name_of)
def test_values_are_those_of_numpy(metric, classes):
    several = np.concatenate([matrices(classes), degenerate(classes)])
    tensors = torch.from_numpy(several)
    for zero_division in ZERO_DIVISIONS:
        one = with_zero_division(metric, zero_division)
        of_arrays = one(Confusion.from_matrix(several))
        of_tensors = one(Confusion.from_matrix(tensors))
        assert of_tensors.shape == (len(several),)
        assert of_tensors.dtype == torch.float64
        np.testing.assert_allclose(of_tensors, of_arrays, rtol=0, atol=tolerances.FEW_ULPS)
    alone = [one(Confusion.from_matrix(matrix)) for matrix in tensors]
    assert {value.shape for value in alone} == {()}
    np.testing.assert_allclose(torch.stack(alone), of_arrays, rtol=0, atol=tolerances.FEW_ULPS)


@pytest.mark.parametrize("metric", OF_LABELS, ids=name_of)
def test_values_of_labels_are_those_of_numpy(metric):
    tp, fp, fn, tn = np.random.default_rng(0).integers(0, 3, (4, 50, 5)).astype(float)
    c = Confusion(tp, tp + fp, tp + fn, tp + fp + fn + tn, multilabel=True)
    of_tensors = metric(c.map(torch.from_numpy))
    np.testing.assert_allclose(of_tensors, metric(c), rtol=0, atol=tolerances.FEW_ULPS)


@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=name_of)
def test_what_is_not_a_number_stays_visible(metric, classes):
    both = torch.ones(2, classes, classes, dtype=torch.float64)
    both[1] = math.nan
    assert metric(Confusion.from_matrix(both)).isnan().tolist() == [False, True]


def test_beta_per_class_may_be_a_tensor():
    expected = metrics.FBeta(beta=[1.0, 2.0, 0.5], average="macro")
    assert metrics.FBeta(beta=torch.tensor([1.0, 2.0, 0.5]), average="macro") == expected
    assert type(metrics.FBeta(beta=torch.tensor(2.0)).beta) is float


def test_g_mean_of_a_class_without_hits_is_exactly_zero():
    """In float32, where the eighth root of the smallest recall would not be small."""
    right = torch.eye(8)
    right[3, 3], right[3, 4] = 0, 1
    c = Confusion.from_matrix(right)
    assert metrics.GMean()(c) == 0
    assert metrics.GMean()(c.to(dtype=torch.float32)) == 0


@pytest.mark.parametrize("kind", ["Specificity", "NegativePredictiveValue", "Informedness"])
def test_rates_of_tiny_masses_stay_within_their_bounds(kind):
    """Their mass is a difference of large sums, and may be rounding alone."""
    metric = getattr(metrics, kind)(average=None)
    low, high = metric.bounds
    for seed in range(32):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(1000, 2, generator=generator, dtype=torch.float64)
        logits[:, 1] += [0, 8, 20, 28][seed % 4]
        weight = torch.rand(1000, generator=generator, dtype=torch.float64) + 0.5
        weight[0] = [1e-12, 1e-9, 1e-13, 1][seed // 4 % 4]
        target = (torch.arange(1000) > 0).long()
        score = metric(Confusion.from_logits(logits, target, sample_weight=weight))
        assert ((score >= low) & (score <= high)).all()


# Slopes.


def slopes_of_cells(metric, several):
    """The slopes by the cells of each matrix, by autograd."""
    leaf = several.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(metric(Confusion.from_matrix(leaf)).sum(), leaf)
    return slopes


@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=name_of)
def test_slopes_are_those_of_autograd(metric, classes):
    several = matrices(classes)
    tensors = torch.from_numpy(several)
    closed = metric.slopes(Confusion.from_matrix(tensors)).of_matrix()
    of_arrays = metric.slopes(Confusion.from_matrix(several)).of_matrix()
    expected = slopes_of_cells(metric, tensors)
    for matrix, ours, of_array, theirs in zip(several, closed, of_arrays, expected, strict=True):
        scale = 1 / matrix.sum()  # one metric here is constant
        assert_close(ours, theirs, tolerances.SAME, scale)
        assert_close(ours, of_array, tolerances.SAME, scale)


@pytest.mark.parametrize(("metric", "classes"), [*OF_TWO, *OF_THREE], ids=name_of)
def test_slopes_are_finite_at_the_edge(metric, classes):
    several = torch.from_numpy(degenerate(classes))
    for zero_division in ZERO_DIVISIONS:
        one = with_zero_division(metric, zero_division)
        closed = one.slopes(Confusion.from_matrix(several)).of_matrix()
        assert closed.isfinite().all()
        of_arrays = one.slopes(Confusion.from_matrix(several.numpy())).of_matrix()
        for ours, theirs in zip(closed, of_arrays, strict=True):
            assert_close(ours, theirs, tolerances.SAME)
        assert slopes_of_cells(one, several).isfinite().all()


@pytest.mark.parametrize("metric", OF_LABELS, ids=name_of)
def test_slopes_of_labels_are_those_of_autograd(metric):
    tp, fp, fn, tn = np.random.default_rng(0).uniform(1, 20, (4, 6, 5))
    c = Confusion(tp, tp + fp, tp + fn, tp + fp + fn + tn, multilabel=True)
    tensors = c.map(torch.from_numpy)
    closed, of_arrays, expected = (
        metric.slopes(tensors),
        metric.slopes(c),
        by_autograd(metric, tensors),
    )
    for name in ("tp", "predicted", "actual"):
        assert_close(getattr(closed, name), getattr(expected, name), tolerances.SAME)
        assert_close(getattr(closed, name), getattr(of_arrays, name), tolerances.SAME)


SOFT = [metric for metric, _ in OF_THREE if not metric.needs_matrix]


@pytest.mark.parametrize("metric", SOFT, ids=name_of)
def test_slopes_of_a_soft_confusion_are_those_of_autograd(metric):
    """Of a class without true rows, which counts by its predicted rows, that is a constant."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(12, 3, generator=generator, dtype=torch.float64)
    logits[:, 2] -= 4
    c = Confusion.from_logits(logits, torch.tensor([0, 1, 1, 0] * 3))
    assert 0 < c.predicted[2] < 1
    # The total is the sum of the actual masses and of the predicted ones. Which of them has its
    # slope is a convention, of which a cell, that is in both, knows nothing.
    closed, expected = metric.slopes(c).of_matrix(), by_autograd(metric, c).of_matrix()
    assert_close(closed, expected, tolerances.SAME)


@pytest.mark.parametrize("kind", ["MatthewsCorrcoef", "CohenKappa"])
def test_predictions_of_one_class_up_to_rounding_have_no_slope(kind):
    """Disagreement of 1e-16 is none, and a quotient by it would be noise with a steep slope."""
    predicted = torch.tensor([100 - 1.5e-14, 3e-14], dtype=torch.float64, requires_grad=True)
    tp, actual = torch.tensor([[100.0, 0.0]] * 2, dtype=torch.float64)
    if kind == "MatthewsCorrcoef":  # that of one true class would be undefined by itself
        tp, actual = (torch.tensor(x, dtype=torch.float64) for x in ([60.0, 8e-16], [60.0, 40.0]))
    value = getattr(metrics, kind)(zero_division=1.0)(
        Confusion(tp, predicted, actual, actual.sum())
    )
    (slope,) = torch.autograd.grad(value, predicted)
    assert value == 1
    assert (slope == 0).all()


# A user's function, which gets tensors where a loss calls it.


def f1_of_sums(c):
    return (2 * c.tp / (c.predicted + c.actual)).mean()


def f1_of_cells(c):
    cells = c.matrix
    return (2 * cells.diagonal() / (cells.sum(0) + cells.sum(1))).mean()


@pytest.mark.parametrize("function", [f1_of_sums, f1_of_cells])
def test_a_function_of_either_library(function):
    metric, reference = metrics.resolve(function), metrics.resolve("f1_macro")
    assert metric.needs_matrix == (function is f1_of_cells)
    several = matrices(3)
    of_arrays, of_tensors = (Confusion.from_matrix(x) for x in (several, torch.from_numpy(several)))
    expected = reference(of_tensors)
    assert_close(metric(of_tensors), expected, tolerances.SAME)
    assert_close(metric(of_arrays), expected, tolerances.SAME)
    slopes = reference.slopes(of_tensors).of_matrix()
    assert_close(metric.slopes(of_tensors).of_matrix(), slopes, tolerances.SAME)
    assert_close(metric.slopes(of_arrays).of_matrix(), slopes, tolerances.DIFFERENCES)


def test_a_function_of_tensors_alone_is_a_metric_of_tensors():
    metric = metrics.resolve(lambda c: c.tp.double().sum() / c.total.clamp(min=1), owner="fit")
    assert not metric.needs_matrix
    assert metric(Confusion.from_matrix(torch.eye(3))) == 1
    with pytest.raises(TypeError, match="a function that works on NumPy arrays too"):
        metric(Confusion.from_matrix(np.eye(3)))


def test_a_function_of_arrays_alone_is_a_metric_of_arrays():
    metric = metrics.resolve(lambda c: c.tp.astype(float).sum() / c.total, owner="fit")
    assert metric(Confusion.from_matrix(np.eye(3))) == 1
    with pytest.raises(TypeError, match="a function that works on tensors too"):
        metric(Confusion.from_matrix(torch.eye(3)))


def test_a_function_without_a_gradient_is_told():
    metric = metrics.resolve(lambda c: c.tp.detach().sum() / 9)
    with pytest.raises(ValueError, match=r"^metric must be differentiable: .* Do not call"):
        metric.slopes(Confusion.from_matrix(torch.eye(3)))


# What PyTorch traces.


# A graph of all of them takes half a minute, and each way to compute one is among these.
SOME_OF_TWO = [metrics.resolve(name) for name in ("f1", "informedness", "accuracy", "g_mean")]
SOME_OF_THREE = [
    *map(
        metrics.resolve,
        ("f2_macro", "npv_micro", "jaccard_weighted", "balanced_accuracy", "matthews_corrcoef"),
    ),
    metrics.Recall(average="macro", zero_division=math.nan),
    metrics.CohenKappa(),
    metrics.CohenKappa(weights="quadratic"),
    *OTHERS[1:3],
    *OTHERS[-3:],
]
FUNCTIONS = [metrics.resolve(f1_of_sums), metrics.resolve(f1_of_cells)]
COMPILED = [
    pytest.param(2, SOME_OF_TWO, id="two classes"),
    pytest.param(3, SOME_OF_THREE, id="three classes"),
]
ALL_COMPILED = [
    pytest.param(2, [metric for metric, _ in OF_TWO], marks=pytest.mark.slow, id="all of two"),
    pytest.param(3, [metric for metric, _ in OF_THREE], marks=pytest.mark.slow, id="all of three"),
]


@pytest.mark.parametrize(
    ("classes", "measured"),
    [*COMPILED, *ALL_COMPILED, pytest.param(3, FUNCTIONS, id="functions")],
)
def test_metrics_compile_to_one_graph(classes, measured):
    @torch.compile(fullgraph=True, backend="eager")
    def values(matrix):
        c = Confusion.from_matrix(matrix)
        return torch.stack([metric(c) for metric in measured])

    for matrix in torch.from_numpy(matrices(classes, 2)):
        leaf = matrix.requires_grad_()
        compiled = values(leaf)
        (slopes,) = torch.autograd.grad(compiled.sum(), leaf)
        c = Confusion.from_matrix(leaf)
        expected = torch.stack([metric(c) for metric in measured])
        assert_close(compiled.detach(), expected.detach(), tolerances.FEW_ULPS)
        (of_expected,) = torch.autograd.grad(expected.sum(), leaf)
        assert_close(slopes, of_expected, tolerances.SAME)


@pytest.mark.parametrize(("classes", "measured"), COMPILED)
def test_slopes_compile_to_one_graph(classes, measured):
    @torch.compile(fullgraph=True, backend="eager")
    def slopes(matrix):
        c = Confusion.from_matrix(matrix)
        return torch.stack([metric.slopes(c).of_matrix() for metric in measured])

    (matrix,) = torch.from_numpy(matrices(classes, 1))
    c = Confusion.from_matrix(matrix)
    expected = torch.stack([metric.slopes(c).of_matrix() for metric in measured])
    assert_close(slopes(matrix), expected, tolerances.SAME)


@pytest.mark.parametrize(
    ("metric", "classes"), [*OF_TWO, *OF_THREE, *((metric, 3) for metric in FUNCTIONS)], ids=name_of
)
def test_metrics_under_vmap(metric, classes):
    several = torch.from_numpy(matrices(classes))
    if metric not in FUNCTIONS:  # which divide by the rows of each class
        several = torch.cat([several, torch.from_numpy(degenerate(classes))])

    def value(matrix):
        return metric(Confusion.from_matrix(matrix))

    def slopes(matrix):
        return metric.slopes(Confusion.from_matrix(matrix)).of_matrix()

    together = Confusion.from_matrix(several)
    assert_close(torch.vmap(value)(several), metric(together), tolerances.FEW_ULPS)
    expected = metric.slopes(together).of_matrix()
    assert_close(torch.vmap(slopes)(several), expected, tolerances.SAME)
    of_gradient = torch.vmap(torch.func.grad(value))(several[:4])
    assert_close(of_gradient, expected[:4], tolerances.SAME)


# Constraints.


def test_a_slack_has_a_slope():
    matrix = torch.tensor([[5.0, 2.0], [1.0, 4.0]], requires_grad=True)
    (constraint,) = parse("recall >= 0.9")
    (slope,) = torch.autograd.grad(constraint.slack(Confusion.from_matrix(matrix)), matrix)
    # recall = tp / (fn + tp): by fn −tp / 25, by tp fn / 25
    assert slope.flatten().tolist() == pytest.approx([0, 0, -4 / 25, 1 / 25])


def test_a_gap_has_a_slope_without_nan():
    several = torch.tensor([[[5.0, 2], [1, 4]], [[3, 2], [3, 3]], [[4, 2], [0, 0]]])
    several.requires_grad_()
    parts = [Confusion.from_matrix(matrix) for matrix in several]
    (constraint,) = parse("gap(recall) <= 0.1")
    (slope,) = torch.autograd.grad(constraint.slack(sum(parts), parts), several)
    # The gap is 4/5 − 3/6; the slack falls with the first recall and rises with the second.
    expected = [[0, 0, 4 / 25, -1 / 25], [0, 0, -3 / 36, 3 / 36], [0, 0, 0, 0]]
    assert slope.flatten(1).tolist() == [pytest.approx(row) for row in expected]
    assert constraint.slack(sum(parts) * torch.nan, parts).isnan()


@pytest.mark.parametrize(
    "text", ["recall[2] >= 0.5", "gap(recall[2]) <= 0.5", "gap(f1_macro) <= 1"]
)
def test_slacks_are_those_of_numpy(text):
    (constraint,) = parse(text)
    parts = [Confusion.from_matrix(x) for x in (matrices(3), matrices(3)[::-1].copy())]
    expected = constraint.slack(parts[0], parts)
    tensors = [part.map(torch.tensor) for part in parts]
    assert_close(constraint.slack(tensors[0], tensors), expected, tolerances.FEW_ULPS)
