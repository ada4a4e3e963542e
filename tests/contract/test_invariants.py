"""The invariants of every loss."""

import copy
import pickle

import pytest
import torch

from evalign import MetricLoss
from tests import dtype_tolerances, tolerances
from tests.contract.cases import (
    CASES,
    CLASSES,
    LOSS_CASES,
    METRIC_CASES,
    data,
    perfect,
    probabilities,
)
from tests.contract.cases import MODULE_CASES as MODULES


def holds(cases, invariant):
    """List the cases for which the invariant holds."""
    return pytest.mark.parametrize(
        "case", [c for c in cases if invariant not in c.exempt], ids=repr
    )


def value_and_gradient(loss, logits, target, **kwargs):
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, target, **kwargs)
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


def assert_same(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def hostile_batches(task, dtype):
    """Yield finite inputs at the edge: saturated, tied, of one class or row, of mixed sizes."""
    logits, target = data(task, dtype=dtype)
    most = 1e4 if dtype != torch.float64 else 1e6
    one_class = torch.zeros_like(target)
    yield "plain", logits, target
    yield "saturated right", most * logits.sign(), target
    yield "saturated wrong", -perfect(task, target, dtype).detach() * 10, target
    yield "tied", torch.zeros_like(logits), target
    yield "tied pairs", logits.round(), target
    yield "one class", logits, one_class
    yield "one class, saturated", most * logits.sign(), one_class
    yield "one class, perfect", perfect(task, one_class, dtype).detach(), one_class
    yield "one row", logits[:1], target[:1]
    for gap in (80, 92, 100):  # where the smallest probabilities turn subnormal in float32
        rare = logits.clone()
        rare[..., 0] -= gap
        yield f"a gap of {gap}", rare, target
    yield (
        "mixed magnitudes",
        logits * torch.logspace(-6, 4, len(logits)).to(dtype).view(-1, *[1] * (logits.ndim - 1)),
        target,
    )


# Logits in half precision are computed in float32, as is tested below; a float64 goes further.
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float64, marks=pytest.mark.slow),
        torch.float32,
        pytest.param(torch.float16, marks=pytest.mark.slow),
        pytest.param(torch.bfloat16, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_value_and_gradient_are_finite(case, dtype):
    loss = case.make()
    for name, logits, target in hostile_batches(case.task, dtype):
        value, gradient = value_and_gradient(loss, logits, target)
        assert value.isfinite(), name
        assert gradient.isfinite().all(), name
        assert gradient.dtype == dtype


# Between them lies 0.2, the default, as above.
SLOW = [pytest.param(temperature, marks=pytest.mark.slow) for temperature in (1e-9, 0.4)]


@pytest.mark.parametrize("temperature", [1e-30, *SLOW])
@pytest.mark.parametrize("case", [*METRIC_CASES, LOSS_CASES[0]], ids=repr)
def test_finite_at_the_ends_of_the_temperature(case, temperature):
    """The test is in float32, the narrower of the two types that a loss computes in."""
    loss = case.make(temperature=temperature)
    for name, logits, target in hostile_batches(case.task, torch.float32):
        value, gradient = value_and_gradient(loss, logits, target)
        assert value.isfinite(), name
        assert gradient.isfinite().all(), name


@holds(CASES, "perfect")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_perfect_prediction_gives_zero(case, dtype):
    _, target = data(case.task)
    value = case.make()(perfect(case.task, target, dtype), target)
    assert value.item() == pytest.approx(0, abs=dtype_tolerances.PERFECT[dtype])


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_nothing_to_learn_from_gives_zero_attached_to_the_graph(case):
    logits, target = data(case.task)
    weightless = torch.zeros(len(logits))
    for batch in [(logits[:0], target[:0], None), (logits, target, weightless)]:
        leaf = batch[0].clone().requires_grad_()
        value = case.make()(leaf, batch[1], sample_weight=batch[2])
        assert value.item() == 0
        value.backward()
        assert (leaf.grad == 0).all()
    if case.task == "multiclass":  # rows of class probabilities, all ignored
        assert case.make(task=case.task)(logits, torch.full_like(logits, -100)).item() == 0


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_ignored_rows_are_as_good_as_absent(case):
    logits, target = data(case.task)
    target = target.long() if case.task == "multiclass" else target.double()
    ignored = target.clone()
    ignored[::3] = -100
    keep = torch.arange(len(logits)) % 3 != 0
    loss = case.make()
    fewer, gradient_of_fewer = value_and_gradient(loss, logits[keep], target[keep])
    for padding in (torch.nan, -torch.inf):  # as those of tokens that are masked out
        spoilt = torch.where(keep.view(-1, *[1] * (logits.ndim - 1)), logits, padding)
        for y, weight in ((ignored, None), (target, keep.double())):
            value, gradient = value_and_gradient(loss, spoilt, y, sample_weight=weight)
            assert_same((value, gradient[keep]), (fewer, gradient_of_fewer), tolerances.SAME)
            assert (gradient[~keep] == 0).all()
    ignored[:] = -100
    assert loss(logits, ignored).item() == 0


@holds([c for c in CASES if c.task != "binary"], "classes")
def test_order_of_classes_does_not_matter(case):
    logits, target = data(case.task)
    order = torch.tensor([2, 0, 1])
    renamed = order.argsort()[target] if case.task == "multiclass" else target[:, order]
    value, gradient = value_and_gradient(case.make(), logits, target)
    other, other_gradient = value_and_gradient(case.make(), logits[:, order], renamed)
    assert_same((value, gradient[:, order]), (other, other_gradient), tolerances.SAME)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_weight_k_is_k_copies(case):
    logits, target = data(case.task)
    copies = torch.arange(len(logits)) % 4
    value, gradient = value_and_gradient(case.make(), logits, target, sample_weight=copies)
    repeated = torch.arange(len(logits)).repeat_interleave(copies)
    other, spread = value_and_gradient(case.make(), logits[repeated], target[repeated])
    collected = torch.zeros_like(gradient).index_add(0, repeated, spread)
    assert_same((value, gradient), (other, collected), tolerances.SAME)


@pytest.mark.parametrize("scale", [1e-21, 1e15])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_only_ratios_of_weights_count(case, scale):
    logits, target = data(case.task, dtype=torch.float32)
    weight = torch.linspace(0.5, 2, len(logits))
    expected = value_and_gradient(case.make(), logits, target, sample_weight=weight)
    found = value_and_gradient(case.make(), logits, target, sample_weight=scale * weight)
    assert_same(found, expected, tolerances.FLOAT32)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_upstream_gradient(case):
    logits, target = data(case.task)
    _, gradient = value_and_gradient(case.make(), logits, target)
    _, scaled = value_and_gradient(lambda *batch: -3 * case.make()(*batch), logits, target)
    torch.testing.assert_close(scaled, -3 * gradient, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_half_precision_logits_are_computed_in_float32(case, dtype):
    """The same number as for the rounded logits in float32: nothing is lost inside."""
    logits, target = data(case.task, dtype=dtype)
    value, gradient = value_and_gradient(case.make(), logits, target)
    wide, wide_gradient = value_and_gradient(case.make(), logits.float(), target)
    assert value.dtype == torch.float32
    assert_same((value, gradient), (wide, wide_gradient.to(dtype)), 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_autocast_changes_nothing(case, dtype):
    """That includes a probabilistic target, whose d × d matrix is a product that autocast would
    take.
    """
    logits, target = data(case.task, dtype=torch.float32)
    soft = torch.nn.functional.one_hot(target, CLASSES) if case.task == "multiclass" else target
    for given, task in [(target, None), (soft.float(), case.task)]:
        loss = case.make(task=task)

        def under_autocast(*batch, loss=loss):
            with torch.autocast("cpu", dtype=dtype):
                return loss(*batch)

        plain = value_and_gradient(loss, logits, given)
        assert_same(value_and_gradient(under_autocast, logits, given), plain, 0)


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_spatial_dimensions_are_rows(case):
    logits, target = data(case.task)
    weight = torch.arange(len(logits), dtype=torch.float64)
    flat = case.make()(logits, target, sample_weight=weight)
    grid = logits.unflatten(0, (2, 3, 4)).movedim(-1, 1) if logits.ndim == 2 else None
    if case.task == "multiclass":
        spatial = grid, target.view(2, 3, 4)
    elif case.task == "multilabel":
        spatial = grid, target.unflatten(0, (2, 3, 4)).movedim(-1, 1)
    else:
        spatial = logits.view(2, 1, 3, 4), target.view(2, 1, 3, 4)
    value = case.make()(*spatial, sample_weight=weight.view(2, 3, 4))
    torch.testing.assert_close(value, flat, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_vmap(case):
    batches = [data(case.task, seed=seed) for seed in range(3)]
    logits, target = (torch.stack(parts) for parts in zip(*batches, strict=True))
    loss = case.make()
    mapped = torch.func.vmap(torch.func.grad_and_value(loss))(logits, target)
    one_by_one = [value_and_gradient(loss, *batch) for batch in batches]
    values, gradients = (torch.stack(parts) for parts in zip(*one_by_one, strict=True))
    assert_same(mapped, (gradients, values), tolerances.SAME)


def test_nan_in_a_target_is_not_hidden_where_values_are_not_read():
    """As on a GPU, and here in a function that torch.func transforms."""
    hidden = []
    for case in MODULES:
        logits, target = data(case.task)
        target = torch.tensor(probabilities(case.task, target))
        target[2] = torch.nan
        value = torch.func.vmap(case.make(task=case.task))(logits[None], target[None])
        hidden += [] if value.isnan().all() else [case]
    assert not hidden


# A graph takes a second, so of each file of losses one is compiled, of metrics one with the whole
# matrix; for a release, all.
LAST = {type(case.make()).__module__: case for case in MODULES}
LAST[MetricLoss.__module__] = next(case for case in MODULES if case.id == "expected_cost")


@pytest.mark.parametrize(
    "case",
    [
        case if case in LAST.values() else pytest.param(case, marks=pytest.mark.slow)
        for case in MODULES
    ],
    ids=repr,
)
def test_compiles_as_one_graph(case):
    torch._dynamo.reset()
    logits, target = data(case.task)
    loss = case.make()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    weight = torch.ones(len(logits), dtype=torch.float64)
    eager = value_and_gradient(loss, logits, target, sample_weight=weight)
    graph = value_and_gradient(compiled, logits, target, sample_weight=weight)
    assert_same(graph, eager, tolerances.SAME)


# Compiling for unknown sizes takes seconds, so only one loss is tried.
@pytest.mark.parametrize(
    "case",
    [
        case if repr(case) == "f1_macro-multiclass" else pytest.param(case, marks=pytest.mark.slow)
        for case in MODULES
    ],
    ids=repr,
)
def test_compiles_as_one_graph_for_all_batch_sizes(case):
    torch._dynamo.reset()
    loss = case.make()
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (12, 18):
        logits, target = data(case.task, rows=rows)
        eager = value_and_gradient(loss, logits, target)
        assert_same(value_and_gradient(compiled, logits, target), eager, tolerances.SAME)


# WMWLoss compares all pairs of rows, 67 million here.
@pytest.mark.parametrize("case", [c for c in CASES if not c.id.startswith("wmw")], ids=repr)
def test_float32_on_many_rows_with_a_rare_class(case):
    """Sums of 8,192 rows, of which the last class has five."""
    logits, target = data(case.task, rows=8_192)
    if case.task == "multiclass":
        target = torch.where(target == CLASSES - 1, 0, target)
        target[:5] = CLASSES - 1
    narrow, gradient = value_and_gradient(case.make(), logits.float(), target)
    wide, expected = value_and_gradient(case.make(), logits.float().double(), target)
    assert narrow.item() == pytest.approx(wide.item(), abs=tolerances.FLOAT32)
    error = (gradient - expected).norm() / expected.norm()
    assert error < tolerances.FLOAT32_GRADIENT


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_no_look_at_values(case):
    """Tensors without values pass through, so nothing waits for a device."""
    logits, target = (x.to("meta") for x in data(case.task))
    assert case.make().to("meta")(logits, target).shape == ()


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_copies_keep_the_loss(case):
    logits, target = data(case.task)
    loss = case.make()
    if hasattr(loss, "set_temperature"):
        loss.set_temperature(0.05)
    expected = loss(logits, target)
    restored = case.make()
    restored.load_state_dict(loss.state_dict())
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), restored, loss.half()):
        assert torch.equal(other(logits, target), expected)


# The second is the whole compiler, whose C++ takes a quarter of a minute where no cache has it.
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_new_temperature_does_not_make_a_new_graph(backend):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    logits, target = data("multiclass", rows=64, dtype=torch.float32)
    loss = MetricLoss("f1_macro")
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for temperature in (0.2, 0.05):
        loss.set_temperature(temperature)
        eager = value_and_gradient(loss, logits, target)
        assert_same(value_and_gradient(compiled, logits, target), eager, tolerances.FLOAT32)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
