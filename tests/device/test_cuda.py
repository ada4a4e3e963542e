"""On a GPU: the same numbers, no waiting for the device, CUDA graphs, inductor."""

from dataclasses import replace

import pytest
import torch

from evalign import AlignedLoss, DecisionFitter, MetricLoss, fit_decision
from evalign.metrics import resolve
from tests import tolerances
from tests.contract.cases import CASES, data
from tests.contract.cases import MODULE_CASES as MODULES
from tests.kernels.agreement import TEMPERATURES, assert_agrees, by_fused, random_batch
from tests.kernels.fused_loss import (
    aligned,
    assert_one_is_as_several,
    hard_to_average,
    metric_names,
    pairs,
    rows_of,
)

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

pytestmark = [  # torch's own notices, about its tools
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),
    pytest.mark.filterwarnings("ignore:(?s).*Online softmax is disabled:UserWarning"),
]


def on_gpu(case, dtype=torch.float32):
    logits, target = data(case.task, rows=1000, dtype=dtype)
    return case.make().cuda(), logits.cuda().requires_grad_(), target.cuda()


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_equals_the_cpu(case):
    loss, logits, target = on_gpu(case, torch.float64)
    value = loss(logits, target)
    (gradient,) = torch.autograd.grad(value, logits)
    cpu_logits = logits.detach().cpu().requires_grad_()
    expected = case.make()(cpu_logits, target.cpu())
    (expected_gradient,) = torch.autograd.grad(expected, cpu_logits)
    torch.testing.assert_close(value.cpu(), expected, rtol=0, atol=tolerances.SAME)
    torch.testing.assert_close(gradient.cpu(), expected_gradient, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_never_waits_for_the_device(case):
    loss, logits, target = on_gpu(case)
    loss(logits, target).backward()  # constants reach the device once
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(logits, target).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_cuda_graph_follows_the_temperature(case):
    loss, logits, target = on_gpu(case)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            loss(logits, target).backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    logits.grad = None
    with torch.cuda.graph(graph):
        value = loss(logits, target)
        value.backward()
    if hasattr(loss, "set_temperature"):
        loss.set_temperature(0.05)
    graph.replay()
    torch.testing.assert_close(value, loss(logits, target))


@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_inductor(case):
    torch._dynamo.reset()
    loss, logits, target = on_gpu(case)
    compiled = torch.compile(loss, fullgraph=True)
    torch.testing.assert_close(compiled(logits, target), loss(logits, target))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", MODULES, ids=repr)
def test_autocast(case, dtype):
    loss, logits, target = on_gpu(case)
    with torch.autocast("cuda", dtype=dtype):
        value = loss(logits, target)
    torch.testing.assert_close(value, loss(logits, target))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "classes"), [(7, 3), (5000, 10), (257, 1000), (5, 4096)])
def test_kernels_agree_with_the_reference(rows, classes, dtype):
    batch = random_batch(rows, classes, dtype=dtype)
    for temperature in TEMPERATURES:
        assert_agrees(by_fused, batch, temperature, device="cuda")


TASKS = ("binary", "multiclass", "multilabel")


def assert_whole(make, *batches, atol=tolerances.SAME):
    on_device = [tuple(x.cuda() for x in batch) for batch in batches]
    assert_one_is_as_several(*(loss.cuda() for loss in pairs(make)), on_device, atol=atol)


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_whole_losses_agree_with_the_reference(task, images):
    """Every metric with a closed form, on rows of which a class or label has no score."""
    batches = [rows_of(task, images=images, seed=seed) for seed in range(2)]
    if task != "binary":
        batches[1][0][:, 1] = -1e4
    for name in metric_names(task):
        for zero_division in (0.0, 1.0, torch.nan):
            metric = replace(resolve(name), zero_division=zero_division)
            assert_whole(lambda: MetricLoss(metric), *batches)  # noqa: B023
        assert_whole(lambda: AlignedLoss(name), *batches, atol=tolerances.REFERENCE)  # noqa: B023
    assert_whole(lambda: aligned(task), *batches)
    assert_whole(lambda: aligned(task, metric_weight=1.0).eval(), *batches)
    assert_whole(lambda: aligned(task, metric_weight=3, momentum=1), *batches)


@pytest.mark.parametrize("task", TASKS)
def test_whole_losses_keep_the_running_average(task):
    name, batches = hard_to_average(task)
    assert_whole(lambda: MetricLoss(name, momentum=0.3), *batches)


@pytest.mark.parametrize("task", TASKS)
def test_whole_losses_in_float32_on_many_rows(task):
    """More rows than one program takes, whose sums are added up."""
    logits, target, weight = (torch.cat([x] * 999) for x in rows_of(task, dtype=torch.float32))
    name = "f1" if task == "binary" else "f1_macro"
    for make in (MetricLoss, AlignedLoss):
        assert_whole(lambda: make(name), (logits, target, weight), atol=tolerances.FLOAT32)  # noqa: B023


@pytest.mark.parametrize("classes", [10, 1000, 4096])
def test_same_to_the_bit_from_run_to_run(classes):
    logits, target, weight, _ = (x.cuda() for x in random_batch(4096, classes, dtype=torch.float32))
    loss = MetricLoss("f1_macro").cuda()

    def run():
        leaf = logits.clone().requires_grad_()
        value = loss(leaf, target, sample_weight=weight)
        return value.detach(), *torch.autograd.grad(value, leaf)

    first = run()
    for _ in range(5):
        assert all(map(torch.equal, run(), first))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("classes", [21, 1000])
def test_memory_is_no_more_than_that_of_cross_entropy(classes, dtype):
    rows = 2**26 // classes
    logits = torch.randn(rows, classes, device="cuda", dtype=dtype, requires_grad=True)
    target = torch.randint(classes, (rows,), device="cuda")

    def peak(loss):
        loss(logits, target).backward()
        logits.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        loss(logits, target).backward()
        logits.grad = None
        return torch.cuda.max_memory_allocated() - before

    assert peak(MetricLoss("f1_macro").cuda()) <= peak(torch.nn.functional.cross_entropy)


@pytest.mark.parametrize("classes", [2, 5, 0])
def test_a_rule_from_a_stream_is_that_of_the_cpu(classes):
    """Two classes, more, and several labels."""
    generator = torch.Generator().manual_seed(0)
    columns = classes or 3
    logits = torch.randn(3000, columns, generator=generator, dtype=torch.float64)
    noisy = logits + torch.randn(3000, columns, generator=generator)
    y = noisy.argmax(1) if classes else (noisy > 1).long()
    how = {"decision": "expected", "max_rows": 500}  # of which a sample is thinned twice
    here, there = (DecisionFitter("f1_macro", **how) for _ in range(2))
    batches = [
        (part.cuda(), labels.cuda())
        for part, labels in zip(logits.split(1000), y.split(1000), strict=True)
    ]
    for part, labels in batches:
        there.update(part, labels)
    here.update(logits, y)
    rule = there.compute()
    assert torch.equal(rule(logits), here.compute()(logits))
    assert torch.equal(rule(logits.cuda()).cpu(), rule(logits))
    tuned = fit_decision(logits.cuda(), y.cuda(), metric="f1_macro")
    agree = tuned(logits) == fit_decision(logits, y, metric="f1_macro")(logits)
    assert agree.double().mean() > 0.999


def test_more_classes_than_kernels_take():
    logits, target, weight, _ = (x.cuda() for x in random_batch(7, 4097))
    assert_whole(lambda: AlignedLoss("f1_macro"), (logits, target, weight))


@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 4)])
def test_sums_of_labels_are_those_of_the_cpu(shape):
    """`exact_backward` asks for them; the kernels of a whole loss have other sums."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64)
    target = torch.rand(shape, generator=generator) < 0.3
    for loss in (MetricLoss("f1" if len(shape) == 1 else "f1_macro"), AlignedLoss("f1_micro")):
        here, there = (loss.sums(logits.to(x), target.to(x)) for x in ("cpu", "cuda"))
        loss.cpu()
        for one, other in zip(here, there, strict=True):
            for x, y in zip(one.tensors(), other.tensors(), strict=True):
                torch.testing.assert_close(x, y.cpu(), rtol=0, atol=tolerances.SAME)
