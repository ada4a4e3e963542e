"""The ways of a call, which make no difference: kernels of the CPU against `core` and autograd."""

import math

import pytest
import torch
from torch.testing import assert_close

from evalign import AlignedLoss, MetricLoss, metrics
from evalign.kernels import cpu, labels
from evalign.losses import route
from tests import tolerances
from tests.contract.cases import data
from tests.kernels.agreement import random_batch
from tests.kernels.fused_loss import (
    aligned,
    assert_one_is_as_several,
    counting_in_part,
    pairs,
    rows_of,
    separately,
)

ROWS = (
    lambda: MetricLoss("f1_macro"),
    lambda: aligned("multiclass"),
    lambda: aligned("multiclass", class_weight=[3.0, 1.0, 0.2, 5.0]),
    lambda: aligned("multiclass", class_shares=[0.1, 0.4, 0.3, 0.2]),
    lambda: aligned("multiclass", class_weight=[3.0, 1.0, 0.2, 5.0], label_smoothing=0.1),
)
NEAR = {"rtol": 0, "atol": tolerances.SAME}


def assert_same(make, *batches, atol=tolerances.SAME):
    assert_one_is_as_several(*pairs(make), batches, atol=atol)


@pytest.fixture
def calls(monkeypatch):
    """Count how often the kernel ran."""
    count = []
    forward = cpu.forward
    monkeypatch.setattr(cpu, "forward", lambda *x: count.append(1) or forward(*x))
    return count


@pytest.fixture(params=["in one block", "in several blocks"])
def blocks(request, monkeypatch):
    """Compute all rows at once, and a few at a time."""
    if request.param == "in several blocks":
        monkeypatch.setattr(cpu, "BLOCK", 60)
        monkeypatch.setattr(labels, "BLOCK", 60)


def ordinary_and_hostile():
    """Yield rows as they come, and rows where some classes have no score."""
    logits, target, weight = rows_of("multiclass")
    yield logits, target, weight
    yield counting_in_part()
    certain = logits.clone()
    certain[:, 1] = -1e4
    yield certain, target, weight  # class 1 is neither true nor predicted
    yield logits, torch.zeros_like(target), weight  # one class alone is true
    certain = torch.zeros_like(logits)
    certain[:, 0] = 1e4
    yield certain, target, weight  # one class alone is predicted
    yield logits, torch.full_like(target, -100), weight  # no rows
    yield logits[:0], target[:0], None


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("make", ROWS)
def test_kernel_and_core_give_one_loss(make, calls):
    assert_same(make, *ordinary_and_hostile())
    assert calls


def labelled(task):
    """Rows and images, probabilities, large logits, bool targets, and nothing."""
    logits, target, weight = rows_of(task, images=True)
    probable = (0.7 * target + 0.1).where(target >= 0, -100)
    batches = [rows_of(task, seed=seed) for seed in range(2)]
    batches += [(logits, target, weight), (logits, probable, weight)]
    batches += [(50 * logits, target, None), (logits, target == 1, None)]
    return [*batches, (logits, torch.full_like(target, -100), weight)]


@pytest.mark.parametrize(
    ("temperature", "atol"),
    [(0.01, tolerances.SAME), (0.2, tolerances.SAME), (0.4, tolerances.SLIVER)],
)
@pytest.mark.parametrize("task", ["binary", "multilabel"])
@pytest.mark.usefixtures("blocks")
def test_kernel_of_labels_and_core_give_one_loss(task, temperature, atol, monkeypatch):
    ran, forward = [], labels.forward
    monkeypatch.setattr(labels, "forward", lambda *x: ran.append(1) or forward(*x))
    names = ["f1_macro", "matthews_corrcoef"] if task == "binary" else ["f1_macro", "npv_micro"]
    several = (2,) if task == "binary" else (4, 2)
    shares = torch.arange(1, 1 + math.prod(several)).view(several)
    weight = [3.0, 1.0, 0.2, 5.0][: several[0]]
    common = {"temperature": temperature, "task": task}
    for metric in names:
        makes = [lambda **more: MetricLoss(metric, **common, **more)]  # noqa: B023
        smooth = {"class_weight": weight, "label_smoothing": 0.1}
        for settings in ({}, smooth, {"class_shares": shares}):
            makes.append(lambda settings=settings: AlignedLoss(metric, **common, **settings))  # noqa: B023
        for make in makes:
            assert_same(make, *labelled(task), atol=atol)
    assert len(ran) > 20
    # What is infinite is core's: 0 · ∞ is 0 there.
    logits, target, weight = rows_of(task)
    logits.view(-1)[torch.where(target.view(-1) == 0)[0][0]] = -torch.inf
    ran.clear()
    assert AlignedLoss(names[0], **common)(logits.requires_grad_(), target).isfinite()
    assert not ran


@pytest.mark.parametrize("order", ["good first", "NaN first", "empty first"])
@pytest.mark.parametrize("make", [lambda: MetricLoss("f1_macro", momentum=0.3), *ROWS[1:]])
def test_state_of_several_batches(make, order):
    good = [rows_of("multiclass", seed=seed) for seed in range(3)]
    logits, target, weight = good[0]
    empty = logits, torch.full_like(target, -100), weight
    broken = logits.clone(), target, weight
    broken[0][3, 2] = torch.nan
    batches = [good[0], empty, broken, good[1], good[2]]
    if order != "good first":
        batches.insert(0, broken if order == "NaN first" else empty)
    assert_same(make, *batches)


def test_a_metric_of_the_user_and_others_without_a_closed_form(calls):
    own = lambda c: (c.tp / c.actual.clamp(min=1)).mean()  # noqa: E731
    for metric in ("g_mean", metrics.FBeta(average="macro", labels=(0, 2)), own):
        assert_same(lambda: AlignedLoss(metric), rows_of("multiclass"))  # noqa: B023
    assert calls


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


@pytest.mark.usefixtures("blocks")
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


def squared_slope(loss, logits):
    (slope,) = torch.autograd.grad(3 * loss, logits, create_graph=True)
    return slope.detach(), torch.autograd.grad(slope.square().sum(), logits)[0]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_second_derivative_is_cores(task, calls):
    loss, twin = pairs(lambda: aligned(task))
    logits, target, weight = rows_of(task)
    leaf, other = (logits.clone().requires_grad_() for _ in range(2))
    value = loss(leaf, target, sample_weight=weight)
    with pytest.raises(RuntimeError, match="pass a sample_weight that requires a gradient"):
        value.backward(create_graph=True)
    calls.clear()
    loss, twin = pairs(lambda: aligned(task))
    value = loss(leaf, target, sample_weight=weight.clone().requires_grad_())
    assert not calls
    ours = squared_slope(value, leaf)
    theirs = squared_slope(separately(twin, other, target, weight), other)
    assert theirs[1].abs().max() > 1e-6  # there is one
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, **NEAR)


def test_temperature_of_the_forward_pass_holds():
    logits, target, weight = rows_of("multiclass")
    logits.requires_grad_()
    loss = aligned("multiclass").eval()
    expected, value = (loss(logits, target, sample_weight=weight) for _ in range(2))
    (expected,) = torch.autograd.grad(expected, logits)
    loss.set_temperature(0.01)
    assert torch.equal(torch.autograd.grad(value, logits)[0], expected)


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


@pytest.mark.parametrize(
    ("data_of", "settings"),
    [
        ("probabilities", {"metric": "f1_macro", "task": "multiclass"}),
        ("multiclass", {"metric": metrics.CohenKappa(weights="linear")}),
        ("multiclass", {"metric": "f1_macro", "heaviside": "sigmoid"}),
    ],
    ids=["class probabilities", "full matrix", "another step"],
)
def test_what_core_computes(data_of, settings, calls):
    logits, target = data("multiclass" if data_of == "probabilities" else data_of)
    if data_of == "probabilities":
        target = torch.nn.functional.one_hot(target).double()
    MetricLoss(**settings)(logits.requires_grad_(), target).backward()
    assert not calls
    assert logits.grad.abs().sum() > 0


def test_gradient_of_the_weights_is_cores(calls):
    logits, target = data("multiclass")
    weight = torch.ones(len(target), dtype=torch.float64, requires_grad=True)
    MetricLoss("f1_macro")(logits, target, sample_weight=weight).backward()
    assert not calls
    assert weight.grad.abs().sum() > 0


def test_keeps_one_of_the_size_of_the_logits():
    """Cross-entropy does the same; the kernels of a GPU keep none, see `tests/device`."""
    logits, target, *_ = random_batch(64, 500, dtype=torch.float32)
    logits.requires_grad_()
    kept = {}

    def keep(x):
        kept[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        MetricLoss("f1_macro")(logits, target)
    kept.pop(logits.untyped_storage().data_ptr())
    assert sum(kept.values()) < 64 * 500 + 20 * 64 + 50 * 500  # and numbers a row, and a class


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


@pytest.mark.parametrize("metric", ["jaccard_macro", metrics.Recall(average="macro", labels=(3,))])
def test_large_images_one_by_one(metric, calls, monkeypatch):
    monkeypatch.setattr(route, "LARGE", 10)
    settings = {"per_image": True, "label_smoothing": 0.1}
    for make in (
        lambda: MetricLoss(metric, per_image=True),
        lambda: AlignedLoss(metric, **settings),
    ):
        assert_same(make, *(rows_of("multiclass", images=True, seed=seed) for seed in range(2)))
    assert len(calls) == 12
    for task in ("binary", "multilabel"):
        make = lambda: MetricLoss("f1_macro", per_image=True, task=task)  # noqa: B023, E731
        assert_same(make, rows_of(task, images=True))
