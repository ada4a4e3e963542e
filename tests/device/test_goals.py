"""Losses over thresholds, constraints and balanced weights on a GPU, and what they remember."""

import copy

import pytest
import torch

from evalign import AlignedLoss, MetricLoss
from evalign.losses import AUROCLoss, AveragePrecisionLoss, PartialAUCLoss, RecallAtPrecisionLoss
from tests import tolerances

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:The constraint .* out of reach:UserWarning"),
]

DEVICE = "cuda"
TASKS = ("binary", "multiclass", "multilabel")
COST = "expected_cost[[0,1,1],[1,0,1],[1,1,0]] <= 0.05"


def _constrained(make, constraint):
    """The same loss for all tasks, where a score of one class is that of class or label 1."""

    def of_task(task):
        if task == "binary":
            return make("f1", constraint=constraint)
        text = constraint.replace("recall", "recall[1]").replace("fpr", "fpr[1]")
        return make("f1_macro", constraint=text)

    return of_task


LOSSES = {
    "auroc": lambda _: AUROCLoss(statistics="running"),
    "average precision": lambda _: AveragePrecisionLoss(),
    "partial area": lambda _: PartialAUCLoss(0.3),
    "two-way area": lambda _: PartialAUCLoss(0.6, 0.2),
    "recall at precision": lambda _: RecallAtPrecisionLoss(0.6),
    "constraint": _constrained(MetricLoss, "recall >= 0.95, fpr <= 0.01"),
    "aligned, constraint": _constrained(AlignedLoss, "recall >= 0.95"),
    "gap": _constrained(MetricLoss, "gap(recall) <= 0.01, recall >= 0.9"),
    "aligned, gap": _constrained(AlignedLoss, "gap(fpr) <= 0.01"),
}
CASES = [(name, task) for name in LOSSES for task in TASKS]
CASES += [("cost", "multiclass"), ("balanced", "binary"), ("balanced", "multiclass")]
LOSSES["cost"] = lambda _: MetricLoss("f1_macro", constraint=f"{COST}, gap(recall_macro) <= 0.01")
LOSSES["balanced"] = lambda task: AlignedLoss(
    "f1" if task == "binary" else "f1_macro", class_weight="balanced"
)
every_case = pytest.mark.parametrize(("name", "task"), CASES)


def batches(loss, task, dtype=torch.float64):
    """Make three batches of logits, target and, for a gap, groups; the last group is rare."""
    made = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        shape = (500,) if task == "binary" else (500, 3)
        logits = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        if task == "multiclass":
            target = torch.randint(3, (500,), generator=generator)
        else:
            target = torch.rand(shape, generator=generator) < 0.3
        groups = (torch.rand(500, generator=generator) * 2.1).long()
        made.append((logits, target, {"groups": groups} if loss.gaps else {}))
    return made


def moved(batch, device=DEVICE):
    logits, target, more = batch
    more = {name: value.to(device) for name, value in more.items()}
    return logits.to(device).requires_grad_(), target.to(device), more


def step(loss, batch):
    logits, target, more = batch
    value = loss(logits, target, **more)
    return value.detach(), *torch.autograd.grad(value, logits)


@every_case
def test_equals_the_cpu_batch_after_batch(name, task):
    """Values, gradients and what is remembered, which stays on the device."""
    here, there = LOSSES[name](task), LOSSES[name](task).to(DEVICE)
    for batch in batches(here, task):
        pairs = zip(step(there, moved(batch)), step(here, moved(batch, "cpu")), strict=True)
        for found, expected in pairs:
            assert found.device.type == DEVICE
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=tolerances.SAME)
    state = there.state_dict()
    assert state.keys() == here.state_dict().keys()
    for key, expected in here.state_dict().items():
        assert state[key].device.type == DEVICE, key
        # Sums of hundreds of rows, up to 500 in size.
        torch.testing.assert_close(state[key].cpu(), expected, rtol=1e-12, atol=tolerances.SAME)


@every_case
def test_never_waits_for_the_device(name, task):
    loss = LOSSES[name](task).to(DEVICE)
    first, second, third = (moved(batch) for batch in batches(loss, task, torch.float32))
    step(loss, first)  # constants reach the device once, and buffers get their sizes
    step(loss, second)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(loss, third)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_case
def test_a_cuda_graph_goes_on_learning(name, task):
    """Two replays move the buffers as two calls do."""
    loss = LOSSES[name](task).to(DEVICE)
    logits, target, more = moved(batches(loss, task)[0])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            loss(logits, target, **more).backward()
    torch.cuda.current_stream().wait_stream(stream)
    eager = copy.deepcopy(loss)
    logits.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(logits, target, **more)
        value.backward()
    apart = logits.detach().requires_grad_()  # the leaf of the graph belongs to its stream
    for _ in range(2):
        graph.replay()
        expected, gradient = step(eager, (apart, target, more))
        torch.testing.assert_close(value.detach(), expected, rtol=0, atol=tolerances.SAME)
        torch.testing.assert_close(logits.grad, gradient, rtol=0, atol=tolerances.SAME)
    for key, kept in eager.state_dict().items():
        torch.testing.assert_close(loss.state_dict()[key], kept, rtol=1e-12, atol=tolerances.SAME)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_case
def test_half_precision_under_autocast(name, task, dtype):
    """The numbers of the same logits in float32, and a gradient of their own type."""
    loss = LOSSES[name](task).to(DEVICE)
    for batch in batches(loss, task, dtype):
        logits, target, more = moved(batch)
        wide = logits.detach().float().requires_grad_()
        expected = step(copy.deepcopy(loss), (wide, target, more))
        with torch.autocast(DEVICE, dtype=dtype):
            found = step(loss, (logits, target, more))
        assert found[0].dtype == torch.float32
        assert found[1].dtype == dtype
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=tolerances.FLOAT32)
        torch.testing.assert_close(found[1], expected[1].to(dtype))


def test_groups_beyond_the_last_are_found_if_asked_for():
    loss = MetricLoss("f1", constraint="gap(recall) <= 0.1", validate=True).to(DEVICE)
    logits, target, more = moved(batches(loss, "binary")[0])
    with pytest.raises(ValueError, match="groups of MetricLoss must be a tensor of integers from"):
        loss(logits, target, groups=more["groups"] + 63)
