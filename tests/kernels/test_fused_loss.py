"""Whole losses as one function, on the CPU, against `core`, autograd and torch's average."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from evalign import Confusion, MetricLoss, metrics
from evalign.kernels.closed import Sums, closed_form, value_and_slopes
from evalign.losses import fused
from tests import tolerances
from tests.kernels.fused_loss import (
    STEMS,
    aligned,
    assert_one_is_as_several,
    counting_in_part,
    metric_names,
    pairs,
    rows_of,
    separately,
)

ZERO_DIVISION = (0.0, 1.0, torch.nan)
ROWS = (
    lambda: MetricLoss("f1_macro"),
    lambda: aligned("multiclass"),
    lambda: aligned("multiclass", class_weight=[3.0, 1.0, 0.2, 5.0]),
)
NEAR = {"rtol": 0, "atol": tolerances.SAME}


def assert_same(make, *batches, atol=tolerances.SAME):
    assert_one_is_as_several(*pairs(make), batches, atol=atol)


@pytest.fixture
def calls(monkeypatch):
    """Count how often a loss was one function."""
    count = []
    forward = fused._forward_on_cpu
    monkeypatch.setattr(fused, "_forward_on_cpu", lambda *x: count.append(1) or forward(*x))
    return count


def ordinary_and_hostile(classes=4):
    """Yield rows as they come, and rows where some classes have no score."""
    logits, target, weight = rows_of("multiclass", classes=classes)
    yield logits, target, weight
    certain = logits.clone()
    certain[:, 1] = -1e4
    yield certain, target, weight  # class 1 is neither true nor predicted
    yield logits, torch.zeros_like(target), weight  # one class alone is true
    certain = torch.zeros_like(logits)
    certain[:, 0] = 1e4
    yield certain, target, weight  # one class alone is predicted
    yield certain, torch.zeros_like(target), None  # and also true
    yield logits, torch.full_like(target, -100), weight  # no rows
    yield logits[:0], target[:0], None


# The metric in closed form.


@pytest.mark.parametrize("zero_division", ZERO_DIVISION)
@pytest.mark.parametrize("name", [*metric_names("multiclass"), *STEMS])
def test_metrics(name, zero_division):
    batches = ordinary_and_hostile(classes=2 if name in STEMS else 4)
    assert_same(lambda: MetricLoss(name, zero_division=zero_division), *batches)


@pytest.mark.parametrize("name", metric_names("multiclass"))
def test_a_class_that_counts_in_part(name):
    assert_same(lambda: MetricLoss(name), counting_in_part())


def random_confusion(classes, generator):
    matrix = 10 * torch.rand(classes, classes, generator=generator, dtype=torch.float64)
    if classes > 2:
        matrix[2] = 0  # a class without true rows, which counts in part
        matrix[:, 2] *= 1e-3
        matrix[3], matrix[:, 3] = 0, 0  # and one that is not there at all
    c = Confusion.from_matrix(matrix)
    rows = torch.tensor(40.0, dtype=torch.float64)
    return Confusion(c.tp.clone(), c.predicted, c.actual, c.total, rows=rows)


@pytest.mark.parametrize("zero_division", ZERO_DIVISION)
@pytest.mark.parametrize("classes", [2, 5])
def test_slopes_are_those_of_autograd(classes, zero_division):
    c = random_confusion(classes, torch.Generator().manual_seed(classes))
    numbers = Sums(*(x.numpy() for x in (c.tp, c.predicted, c.actual)), float(c.total), 40.0)
    c.tp.requires_grad_()
    c.predicted.requires_grad_()
    names = metric_names("multiclass") + (list(STEMS) if classes == 2 else [])
    for name in names:
        metric = replace(metrics.resolve(name), zero_division=zero_division)
        form = closed_form(metric)
        assert form is not None, name
        expected = metric(c)
        parts = torch.autograd.grad(expected, (c.tp, c.predicted), materialize_grads=True)
        slopes = torch.stack(parts).numpy()
        value, ours = value_and_slopes(form, numbers)
        np.testing.assert_allclose(value, expected.item(), rtol=0, atol=tolerances.SAME)
        ours, slopes = (_by_label(each, numbers.actual > 0) for each in (ours, slopes))
        np.testing.assert_allclose(ours, slopes, rtol=0, atol=tolerances.SAME, err_msg=name)


def _by_label(slopes, occurs):
    """What a label gains for a row of each true class, beside the mean of all labels.

    A row gives away all its weight: one number more for all labels changes nothing.
    """
    gains = (slopes[1] + np.diag(slopes[0]))[occurs]
    return gains - gains.mean(1, keepdims=True)


@pytest.mark.parametrize("name", ["matthews_corrcoef", "cohen_kappa"])
def test_slopes_of_very_heavy_rows(name):
    c, form = (
        random_confusion(2, torch.Generator().manual_seed(0)),
        closed_form(metrics.resolve(name)),
    )
    assert form is not None
    slopes = []
    for scale in (1.0, 1e200):
        tp, predicted, actual = (scale * x.numpy() for x in (c.tp, c.predicted, c.actual))
        slopes.append(
            scale * value_and_slopes(form, Sums(tp, predicted, actual, actual.sum(), 40))[1]
        )
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=tolerances.SAME)


class Half(metrics.FBeta):
    """A metric of a user, who builds on one of ours."""

    def score(self, c):
        return super().score(c) / 2


def test_without_a_closed_form(calls):
    """They are computed by `core`'s path, with the same checks, and learn."""
    own = lambda c: (c.tp / c.actual.clamp(min=1)).mean()  # noqa: E731
    logits, target, weight = rows_of("multiclass")
    for metric in (
        "g_mean",
        "fowlkes_mallows_macro",
        metrics.FBeta(average="macro", labels=(0, 2)),
        metrics.FBeta(beta=[1, 2, 1, 0.5], average="macro"),
        metrics.CohenKappa(weights="linear"),
        Half(average="macro"),
        own,
    ):
        leaf = logits.clone().requires_grad_()
        MetricLoss(metric)(leaf, target, sample_weight=weight).backward()
        assert leaf.grad.abs().sum() > 0
    assert not calls
    MetricLoss("f1_macro")(logits, target)
    assert calls


# The running average.


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetricLoss("f1_macro", statistics="running", momentum=0.3),
        lambda: MetricLoss("matthews_corrcoef", statistics="running"),
        lambda: MetricLoss("f1_macro", statistics="running", zero_division=torch.nan),
        lambda: aligned("multiclass"),
    ],
)
@pytest.mark.parametrize("order", ["good first", "NaN first", "empty first"])
def test_running_average(make, order):
    good = [rows_of("multiclass", seed=seed) for seed in range(3)]
    logits, target, weight = good[0]
    empty = logits, torch.full_like(target, -100), weight
    broken = logits.clone(), target, weight
    broken[0][1, 2] = torch.nan
    batches = [good[0], empty, broken, good[1], good[2]]
    if order != "good first":
        batches.insert(0, broken if order == "NaN first" else empty)
    assert_same(make, *batches)


# Steps and rows.


@pytest.mark.parametrize("heaviside", ["linear", "sigmoid"])
@pytest.mark.parametrize("temperature", [1e-3, 0.2, 0.4])
def test_steps(heaviside, temperature):
    settings = {"heaviside": heaviside, "temperature": temperature}
    batches = [rows_of("multiclass", images=images) for images in (False, True)]
    # A ramp of T = 1e-3 rises by some hundred in p, and so does its rounding.
    atol = tolerances.SAME if temperature > 0.1 else tolerances.REFERENCE
    assert_same(lambda: MetricLoss("f1_macro", **settings), *batches, atol=atol)


def layouts():
    logits, target, weight = rows_of("multiclass", images=True)
    view = torch.stack([logits, logits], -1)[..., 0]
    assert not view.is_contiguous()
    rows, of_row, of_weight = rows_of("multiclass")
    return {
        "images": (logits, target, weight),
        "channels last": (
            logits.contiguous(memory_format=torch.channels_last),
            target,
            weight,
        ),
        "a view with gaps": (view, target, None),
        "one weight an image": (logits, target, weight[:, 0, 0]),
        "transposed": (rows.t().contiguous().t(), of_row, of_weight),
        "every second row": (rows[::2], of_row[::2], of_weight[::2]),
        "integer weights": (rows, of_row, (10 * of_weight).long()),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("make", ROWS)
def test_layouts(make, layout):
    assert_same(make, layouts()[layout])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", ROWS)
def test_precisions(make, dtype):
    """The same logits in float64, but for what the computation and the gradient's type round."""
    logits, target, weight = rows_of("multiclass", dtype=dtype)
    ours, exact = logits.requires_grad_(), logits.detach().double().requires_grad_()
    value = make()(ours, target, sample_weight=weight)
    expected = separately(make(), exact, target, weight.double())
    assert value.dtype == torch.float32
    assert_close(value.double(), expected, rtol=0, atol=tolerances.FLOAT32)
    (gradient,) = torch.autograd.grad(value, ours)
    (expected,) = torch.autograd.grad(expected, exact)
    assert gradient.dtype == dtype
    half = torch.finfo(dtype).eps  # a number is rounded by half of it, and float16 ends at 6e-8
    assert_close(gradient.double(), expected, rtol=half, atol=tolerances.FLOAT32)


def test_bytes_as_targets():
    logits, target, weight = rows_of("multiclass", images=True)
    target = torch.where(target == -100, 255, target)
    loss, twin = pairs(lambda: MetricLoss("f1_macro", ignore_index=255))
    assert_one_is_as_several(loss, twin, [(logits, target.byte(), weight)], atol=tolerances.SAME)
    assert_close(loss(logits, target.byte()), loss(logits, target), rtol=0, atol=0)
    # −100 is not 156.
    target[target == 255] = 0
    wide = torch.zeros(len(logits), 200, *logits.shape[2:], dtype=logits.dtype)
    target[0, 0, 0] = 156
    assert_same(lambda: MetricLoss("f1_macro"), (wide + target.unsqueeze(1), target.byte(), None))


def test_a_class_ruled_out_beside_a_cross_entropy():
    """A row without weight may have its class ruled out, and other rows do not see it."""
    logits, target, weight = rows_of("multiclass")
    target[target == -100] = 0
    logits[3, target[3]] = -torch.inf
    weight[3] = 0
    for make in ROWS[1:]:
        assert_same(make, (logits, target, weight))


# What happens between and after the passes.


@pytest.mark.parametrize(
    "make",
    [
        *ROWS,
        lambda: MetricLoss("matthews_corrcoef", heaviside="sigmoid"),
        lambda: MetricLoss("f1_macro", statistics="running"),
    ],
)
def test_second_derivative(make):
    loss, twin = pairs(make)
    for seed in range(2):  # the second batch is not the average
        logits, target, weight = rows_of("multiclass", seed=seed)
        leaf, other = (logits.clone().requires_grad_() for _ in range(2))
        ours = squared_slope(loss(leaf, target, sample_weight=weight), leaf)
        theirs = squared_slope(separately(twin, other, target, weight), other)
        assert theirs[1].abs().max() > 1e-6  # there is one
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, **NEAR)


def squared_slope(loss, logits):
    (slope,) = torch.autograd.grad(3 * loss, logits, create_graph=True)
    return slope.detach(), torch.autograd.grad(slope.square().sum(), logits)[0]


@pytest.mark.parametrize("again", [False, True])
def test_temperature_of_the_forward_pass_holds(again):
    logits, target, weight = rows_of("multiclass")
    logits.requires_grad_()
    loss = aligned("multiclass").eval()
    expected, value = (loss(logits, target, sample_weight=weight) for _ in range(2))
    (expected,) = torch.autograd.grad(expected, logits, create_graph=again)
    loss.metric_loss.set_temperature(0.01)
    assert torch.equal(torch.autograd.grad(value, logits, create_graph=again)[0], expected)


@pytest.mark.parametrize("changed", ["logits", "target", "weight"])
def test_rows_changed_before_the_backward_pass_are_refused(changed):
    logits, target, weight = rows_of("multiclass")
    leaf = logits.requires_grad_()
    logits = leaf * 1
    value = MetricLoss("f1_macro")(logits, target, sample_weight=weight)
    with torch.no_grad():
        {"logits": logits, "target": target, "weight": weight}[changed].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


# What `core` computes.


class Named(torch.Tensor):
    """A subclass, which may not hold its numbers as torch does."""


def test_subclasses_transforms_and_compilers_take_cores_path(calls):
    logits, target, _ = rows_of("multiclass")
    loss = MetricLoss("f1_macro")
    expected = loss(logits, target)
    assert calls
    calls.clear()
    value = loss(logits.as_subclass(Named), target)
    assert_close(value.as_subclass(torch.Tensor), expected, **NEAR)
    mapped = torch.func.vmap(loss)(logits.unsqueeze(0), target.unsqueeze(0))
    assert_close(mapped[0], expected, **NEAR)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert_close(compiled(logits, target), expected, **NEAR)
    assert not calls
