"""The Triton kernels against `core`, in Triton's interpreter; run by `test_fused.py`.

Without a GPU a kernel is a Python program, so tiles and batches are small.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

from evalign import AlignedLoss, Confusion, MetricLoss, metrics
from evalign.aggregation import RankSum
from evalign.kernels import fused
from evalign.kernels.fused import plan
from evalign.losses import aligned as aligned_loss
from evalign.losses import metric
from evalign.membership.rows import GivenRows
from tests import tolerances
from tests.kernels.agreement import (
    assert_agrees,
    assert_in_range,
    by_fused,
    hostile_logits,
    random_batch,
    run,
)
from tests.kernels.fused_loss import (
    aligned,
    assert_one_is_as_several,
    counting_in_part,
    hard_to_average,
    pairs,
    rows_of,
)

# numpy's, which the interpreter computes with; a GPU does not say so either.
pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]


def slow(*values):
    """Values of a parameter that only a release needs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def reduced_by_halves(self, parts, reduce=interpreter.ReduceOps.generic_reduce):
    """Combine halves of a tile, as a GPU does; the interpreter goes through all its numbers."""
    if self.axis is None or not self.keep_dims:
        return reduce(self, parts)
    while parts[0].shape[self.axis] > 1:
        halves = [np.split(part.handle.data, 2, self.axis) for part in parts]
        types = [part.dtype for part in parts]
        first, second = (map(self.to_tensor, x, types) for x in zip(*halves, strict=True))
        parts = self.combine_fn.fn(*first, *second)
    return list(parts)


def type_of_numpy(dtype, find=interpreter._get_np_dtype, found={}):  # noqa: B006
    name = str(dtype.scalar)
    if name not in found:
        found[name] = find(dtype)
    return found[name]


# None of this is taken back: this process has no other use of Triton.
@pytest.fixture(autouse=True, scope="module")
def faster_interpreter():
    """Spare the interpreter what it does anew for every call or number, most of its time."""
    interpreter.ReduceOps.generic_reduce = reduced_by_halves
    interpreter._get_np_dtype = type_of_numpy
    patch, patched = interpreter._patch_lang, set()

    def once(function):
        if function.__module__ not in patched:
            patched.add(function.__module__)
            patch(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once


@pytest.fixture(autouse=True)
def no_plans(monkeypatch):
    """Make plans anew: those of another test may have other tiles."""
    monkeypatch.setattr(fused, "current", lambda device: nullcontext())
    monkeypatch.setattr(plan, "_plans", {})


@pytest.mark.parametrize(("rows", "classes"), [(70, 3), (2, 37), (0, 4), (0, 20), (2, 5), (1, 600)])
def test_agrees(rows, classes):
    """Several rows in a tile, or one row."""
    assert_agrees(by_fused, random_batch(rows, classes), 0.2)


# The interpreter cuts bfloat16 off where a GPU rounds; that type is tested on a GPU alone.
@pytest.mark.parametrize("dtype", [slow(torch.float64), torch.float32, torch.float16])
@pytest.mark.parametrize("classes", [slow(3), 20])
def test_precisions_and_temperatures(classes, dtype):
    for temperature in (1e-9, 0.4):
        assert_agrees(by_fused, random_batch(2, classes, dtype=dtype), temperature)


@pytest.mark.parametrize("name", hostile_logits(torch.float64))
def test_hostile_logits(name):
    _, *rest = random_batch(6, 5, dtype=torch.float32)
    batch = hostile_logits(torch.float32)[name], *rest
    unique = name not in ("equal", "whole numbers", "saturated")
    assert_agrees(by_fused, batch, 0.2, gradient=unique)


def test_near_ties_stay_in_range():
    assert_in_range(by_fused, 1e-9, rests=(0.29,))


@pytest.mark.parametrize("classes", [4, 37])
def test_mistakes_stay_visible(classes):
    for mistake, seed in ((torch.nan, 0), (torch.nan, 1), (torch.inf, 0)):
        logits, *rest = random_batch(1, classes, seed=seed)
        logits[0, 2] = mistake
        sums, _ = run(by_fused, (logits, *rest), 0.2)
        assert sums[1].isnan().any()


@pytest.mark.parametrize("classes", [4, 20])
@pytest.mark.parametrize("wrong", [-1, 1, 2**40])
def test_a_target_that_is_no_class_stays_visible(classes, wrong):
    """On CUDA the target was not checked. It is not used as an address, and the loss is NaN."""
    logits, target, *rest = random_batch(2, classes)
    target[1] = wrong if wrong != 1 else classes
    sums, _ = run(by_fused, (logits, target, *rest), 0.2)
    assert sums[1].isnan().any()


# Whole losses: the sums, the metric and the gradient, against `core`, autograd and torch's average.


@pytest.fixture
def on_gpu(monkeypatch):
    """Take the path of a GPU for tensors of the CPU."""
    for module in (metric, aligned_loss):
        monkeypatch.setattr(module, "by_kernel", lambda loss, rows, whole: True)


def assert_same(make, *batches, atol=tolerances.SAME):
    assert_one_is_as_several(*pairs(make), batches, atol=atol)


TASKS = ("binary", "multiclass", "multilabel")
# Every kind and average.
CLOSED = {
    "binary": ("f1", "matthews_corrcoef", "balanced_accuracy", "cohen_kappa"),
    "multiclass": (
        "f1_macro",
        "jaccard_weighted",
        "precision_micro",
        "balanced_accuracy",
        "matthews_corrcoef",
        "cohen_kappa",
    ),
    "multilabel": ("f2_macro", "jaccard_weighted", "recall_micro"),
}


@pytest.mark.parametrize(("task", "name"), [(task, x) for task in TASKS for x in CLOSED[task]])
def test_metrics(task, name, on_gpu):
    assert_same(lambda: MetricLoss(name), rows_of(task))


@pytest.mark.parametrize("name", ["f1_macro", "f1_micro"])
def test_a_class_that_counts_in_part(name, on_gpu):
    assert_same(lambda: MetricLoss(name), counting_in_part())


@pytest.mark.parametrize(
    ("name", "zero_division"),
    [
        ("precision_macro", 0.0),
        ("f1_weighted", 1.0),
        ("precision_macro", torch.nan),
        ("f1_weighted", torch.nan),
    ],
)
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_undefined_scores(task, name, zero_division, on_gpu):
    logits, target, weight = rows_of(task)
    logits[:, 1] = -1e4  # a class or label that is not predicted and, below, never true
    if task == "multilabel":
        target[:, 1].clamp_(max=0)
    batch = logits, target, weight
    nobody = logits, torch.full_like(target, -100), weight
    goal = replace(metrics.resolve(name), zero_division=zero_division)
    assert_same(lambda: MetricLoss(goal), batch, nobody)


def test_rows_that_float32_rounds_away(on_gpu):
    """Kappa is that of `core` in float64: of one class, and so no better than chance."""
    for seed, lead in ((0, 16.0), (0, 24.0), (4, 24.0)):  # rounding adds to tn, or takes away
        generator = torch.Generator().manual_seed(seed)
        logits = 0.1 * torch.randn(4, 3, generator=generator)
        logits[:, 0] += lead
        target, weight = torch.zeros(4, dtype=torch.int64), torch.rand(4, generator=generator)
        leaf = logits.requires_grad_()
        value = MetricLoss("cohen_kappa")(leaf, target, sample_weight=weight)
        assert torch.autograd.grad(value, leaf)[0].abs().amax() <= 1
        assert value.item() == pytest.approx(1, abs=tolerances.SATURATED)


def test_two_classes_of_rows_that_float32_rounds_away(on_gpu):
    """The value is that of `core` in float64: it comes from the sums of the other class."""
    for seed, lead in ((0, 16.0), (1, 20.0), (2, 24.0)):
        logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(seed))
        logits[:, 1] += lead
        target = torch.tensor([0, 1, 1, 0])
        confusion = Confusion.from_logits(logits.double(), target)
        expected = metrics.MatthewsCorrcoef()(confusion).item()
        value = MetricLoss("matthews_corrcoef")(logits, target).item()
        assert 1 - value == pytest.approx(expected, abs=tolerances.FLOAT32)


@pytest.mark.parametrize("task", TASKS)
def test_images_in_both_layouts_and_precisions(task, on_gpu):
    logits, target, weight = rows_of(task, images=True)
    name = "f1" if task == "binary" else "f1_macro"
    last = logits.contiguous(memory_format=torch.channels_last)
    view = torch.stack([logits, logits], -1)[..., 0]  # neither, so it is copied
    by_image = weight[:, :1, :1].expand_as(weight)
    batches = (logits, target, None), (last, target, weight), (view, target, by_image)
    assert_same(lambda: MetricLoss(name, temperature=0.1), *batches)
    single = rows_of(task, images=True, dtype=torch.float32)
    assert_same(lambda: MetricLoss(name), single, atol=tolerances.FLOAT32)


def test_a_copied_target_has_a_plan_of_its_own():
    """Kernels may be compiled for the copy's place in memory, where 16 bytes are read at a time."""
    logits = torch.zeros(4, 3)
    apart, dense = torch.zeros(4, 2, dtype=torch.int64)[:, 1], torch.zeros(5, dtype=torch.int64)[1:]
    assert apart.data_ptr() % 16 == dense.data_ptr() % 16 == 8
    plans = [
        plan.plan_of(GivenRows("multiclass", logits, target, None, -100), None)
        for target in (apart, dense, dense)
    ]
    assert plans[0] is not plans[1]
    assert plans[1] is plans[2]


@pytest.mark.parametrize("task", TASKS)
def test_running_average(task, on_gpu):
    name, batches = hard_to_average(task)
    assert_same(lambda: MetricLoss(name, momentum=0.3), *batches)


@pytest.mark.parametrize("task", TASKS)
def test_aligned(task, on_gpu):
    assert_same(lambda: aligned(task), rows_of(task), rows_of(task, images=True))
    assert_same(lambda: aligned(task, metric_weight=0.3).eval(), rows_of(task))
    batches = [rows_of(task, seed=seed, images=seed == 1) for seed in range(3)]
    assert_same(lambda: AlignedLoss("f1_macro", metric_weight=3, momentum=1), *batches)


# The first metric of each task in every run, all for a release.
FOLLOWED = [(task, x) for task in TASKS for x in CLOSED[task]]
FOLLOWED = [x if x[1] == CLOSED[x[0]][0] else slow(*x) for x in FOLLOWED]


@pytest.mark.parametrize(("task", "name"), FOLLOWED)
def test_offsets_follow(task, name, on_gpu):
    batches = [rows_of(task, seed=seed) for seed in range(2)]
    assert_same(lambda: AlignedLoss(name), *batches, atol=tolerances.REFERENCE)


def test_padding_counts_for_nothing(on_gpu):
    """Ignored rows may hold anything, as those of padded tokens do."""
    for task in TASKS:
        logits, target = (x[:3] for x in rows_of(task, seed=3)[:2])
        target = target.clamp(min=0)
        target[1] = -100
        padded = logits.clone()
        padded[1] = torch.nan
        for z in (logits, padded):
            z.requires_grad_()
        ours, theirs = aligned(task), aligned(task)
        values = ours(padded, target), theirs(logits, target)
        assert torch.equal(*values)
        pairs_of = zip(values, (padded, logits), strict=True)
        assert torch.equal(*(torch.autograd.grad(value, z)[0] for value, z in pairs_of))


def test_a_weight_of_the_metric_that_changes_is_not_compiled_anew(on_gpu):
    for weight in (1, 0.7, 0.1):
        assert_same(lambda: aligned("multiclass", metric_weight=weight), rows_of("multiclass"))  # noqa: B023
    (only,) = plan._plans.values()
    assert len(only._ends) == 1


def test_a_state_that_others_change_changes_the_class_weights(on_gpu):
    """They are kept from call to call, and made anew where a checkpoint is loaded."""
    batch = rows_of("multiclass", images=True)
    loss, twin = pairs(lambda: aligned("multiclass"))
    assert_one_is_as_several(loss, twin, [batch], atol=tolerances.SAME)
    other = aligned("multiclass")
    assert_one_is_as_several(other, aligned("multiclass"), [batch] * 2, atol=tolerances.SAME)
    for each in (loss, twin):
        each.load_state_dict(other.state_dict())
    assert_one_is_as_several(loss, twin, [batch], atol=tolerances.SAME)


def test_class_weights_in_both_layouts_and_precisions(on_gpu):
    logits, target, weight = rows_of("multiclass", images=True)
    last = logits.contiguous(memory_format=torch.channels_last), target, weight
    assert_same(lambda: aligned("multiclass", class_weight="balanced"), last, last)
    for task in ("binary", "multiclass"):
        single = rows_of(task, images=True, dtype=torch.float32)
        assert_same(lambda: aligned(task), single, atol=tolerances.FLOAT32)  # noqa: B023


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("alone", [slow(True), False])
def test_several_programs(task, alone, on_gpu, monkeypatch):
    """Their sums are added up by the program that ends, or before it, if they are many."""
    monkeypatch.setattr(plan, "LABELS", 2)
    if not alone:
        monkeypatch.setattr(fused, "ALONE", 8)
    copies = 12 if task == "multiclass" else 50  # the more columns a tile has, the fewer rows
    logits, target, weight = (torch.cat([x] * copies) for x in rows_of(task))
    of_class = [1, 2] if task == "binary" else [1, 5, 2, 3]

    def make():
        return aligned(task, class_weight=of_class)

    assert_same(make, (logits, target, weight))
    assert max(x.programs for x in plan._plans.values()) > 1


@pytest.mark.parametrize("task", TASKS)
def test_sums_of_several_ranks(task, on_gpu, monkeypatch):
    """As if three ranks had the same rows: their sums are thrice those of one."""
    monkeypatch.setattr(RankSum, "size", lambda _: 3)
    monkeypatch.setattr(RankSum, "total", lambda _, own, classes: 3 * own)
    batches = rows_of(task), rows_of(task, images=True)  # without class weights, and with some
    assert_same(lambda: aligned(task), *batches)


def test_a_temperature_changed_before_the_backward_pass(on_gpu):
    for task in TASKS:
        logits, target, weight = rows_of(task)
        loss = MetricLoss("f1" if task == "binary" else "f1_macro")
        leaf = logits.requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf, target, sample_weight=weight), leaf)
        value = loss(leaf, target, sample_weight=weight)
        loss.set_temperature(0.01)
        assert torch.equal(torch.autograd.grad(value, leaf)[0], expected)
