"""Losses over thresholds and balanced weights on a GPU, and their running statistics."""

import copy

import pytest
import torch

from evalign import AlignedLoss
from evalign.losses import AUROCLoss, AveragePrecisionLoss
from tests import tolerances

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning"),  # torch's own
]

DEVICE = "cuda"
TASKS = ("binary", "multiclass", "multilabel")
LOSSES = {
    "auroc": lambda _: AUROCLoss(momentum=0.1),
    "average precision": lambda _: AveragePrecisionLoss(),
    "balanced": lambda task: AlignedLoss(
        "f1" if task == "binary" else "f1_macro", class_weight="balanced"
    ),
}
CASES = [(name, task) for name in ("auroc", "average precision") for task in TASKS]
CASES += [("balanced", "binary"), ("balanced", "multiclass")]
every_case = pytest.mark.parametrize(("name", "task"), CASES)


def batches(task, dtype=torch.float64):
    """Make three batches of logits and targets."""
    made = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        shape = (500,) if task == "binary" else (500, 3)
        logits = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        if task == "multiclass":
            target = torch.randint(3, (500,), generator=generator)
        else:
            target = torch.rand(shape, generator=generator) < 0.3
        made.append((logits, target))
    return made


def moved(batch, device=DEVICE):
    logits, target = batch
    return logits.to(device).requires_grad_(), target.to(device)


def step(loss, batch):
    logits, target = batch
    value = loss(logits, target)
    return value.detach(), *torch.autograd.grad(value, logits)


@every_case
def test_equals_the_cpu_batch_after_batch(name, task):
    """Values, gradients and what is remembered, which stays on the device."""
    here, there = LOSSES[name](task), LOSSES[name](task).to(DEVICE)
    for batch in batches(task):
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
    first, second, third = (moved(batch) for batch in batches(task, torch.float32))
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
    logits, target = moved(batches(task)[0])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            loss(logits, target).backward()
    torch.cuda.current_stream().wait_stream(stream)
    eager = copy.deepcopy(loss)
    logits.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = loss(logits, target)
        value.backward()
    apart = logits.detach().requires_grad_()  # the leaf of the graph belongs to its stream
    for _ in range(2):
        graph.replay()
        expected, gradient = step(eager, (apart, target))
        torch.testing.assert_close(value.detach(), expected, rtol=0, atol=tolerances.SAME)
        torch.testing.assert_close(logits.grad, gradient, rtol=0, atol=tolerances.SAME)
    for key, kept in eager.state_dict().items():
        torch.testing.assert_close(loss.state_dict()[key], kept, rtol=1e-12, atol=tolerances.SAME)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_case
def test_half_precision_under_autocast(name, task, dtype):
    """The numbers of the same logits in float32, and a gradient of their own type."""
    loss = LOSSES[name](task).to(DEVICE)
    for batch in batches(task, dtype):
        logits, target = moved(batch)
        wide = logits.detach().float().requires_grad_()
        expected = step(copy.deepcopy(loss), (wide, target))
        with torch.autocast(DEVICE, dtype=dtype):
            found = step(loss, (logits, target))
        assert found[0].dtype == torch.float32
        assert found[1].dtype == dtype
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=tolerances.FLOAT32)
        torch.testing.assert_close(found[1], expected[1].to(dtype))
