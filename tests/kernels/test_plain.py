"""The kernels of plain torch against `core`."""

import pytest
import torch

from evalign import MetricLoss
from evalign.kernels import blocks
from tests import tolerances
from tests.kernels.agreement import (
    TEMPERATURES,
    assert_agrees,
    assert_in_range,
    by_plain,
    hostile_logits,
    random_batch,
    run,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("sigmoid", [False, True])
def test_agrees(sigmoid, temperature, dtype):
    for rows, classes in [(0, 4), (1, 2), (7, 2), (64, 3), (33, 17), (5, 1000), (3000, 10)]:
        for scale in (0.1, 3.0):
            batch = random_batch(rows, classes, scale=scale, dtype=dtype)
            assert_agrees(by_plain, batch, temperature, sigmoid)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", hostile_logits(torch.float64))
def test_hostile_logits(name, dtype):
    _, *rest = random_batch(6, 5, dtype=dtype)
    batch = hostile_logits(dtype)[name], *rest
    # Of three or more equal logits any two may be the largest, and get the threshold's gradient.
    unique = name not in ("equal", "whole numbers", "saturated")
    for temperature in TEMPERATURES:
        for sigmoid in (False, True):
            assert_agrees(by_plain, batch, temperature, sigmoid, gradient=unique)


@pytest.mark.parametrize("block", [1, 40, 1000])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("many", [2, 64])
def test_blocks_are_not_seen(block, threads, many, monkeypatch):
    batch = random_batch(50, 4)
    whole = run(by_plain, batch, 0.2, False)
    monkeypatch.setattr(blocks, "BLOCK", block)
    monkeypatch.setattr(blocks, "MANY", many)  # classes side by side, or one after the other
    monkeypatch.setattr(blocks, "SHARE", 10)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for a, b in zip(run(by_plain, batch, 0.2, False), whole, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerances.FEW_ULPS)


@pytest.mark.parametrize("layout", ["holes", "expanded", "images", "threads"])
def test_any_layout_has_the_gradient_of_a_copy(layout, monkeypatch):
    """The backward pass finds what the forward pass has kept, wherever the logits lie."""
    monkeypatch.setattr(blocks, "SHARE", 100)
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(30, 160, generator=generator, dtype=torch.float64)
    logits = {
        "holes": wide[:, ::2],
        "expanded": wide[0].expand(30, 160),
        "images": wide[:2, :, None, None].expand(2, 160, 5, 3),
        "threads": wide,
    }[layout]
    target = torch.arange(logits[:, 0].numel()).reshape(logits[:, 0].shape) % 80
    found = []
    for z in (logits, logits.clone(memory_format=torch.contiguous_format)):
        z = z.detach().requires_grad_()
        loss = MetricLoss("f1_macro")(z, target)
        if layout == "threads":
            threads = 1 + len(found)
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(torch.autograd.grad(loss, z)[0])
    torch.testing.assert_close(*found, rtol=0, atol=tolerances.FEW_ULPS)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_near_ties_stay_in_range(temperature):
    assert_in_range(by_plain, temperature)


def test_few_false_positives_of_a_large_class_keep_their_digits():
    """Their sum is not a difference of large sums, which float32 would have rounded."""
    logits = torch.zeros(100_000, 3)
    logits[:, 0] = 9.0
    target = torch.zeros(100_000, dtype=torch.int64)
    target[:3] = 1
    batch = logits, target, torch.ones(100_000), torch.zeros(3, 3)
    (tp, predicted, _), _ = run(by_plain, batch, 0.2, False)
    (exact_tp, exact_predicted, _), _ = run(
        by_plain,
        (logits.double(), target, torch.ones(100_000).double(), batch[3]),
        0.2,
        False,
    )
    torch.testing.assert_close(
        (predicted - tp)[0], (exact_predicted - exact_tp)[0], rtol=tolerances.FLOAT32_SUM, atol=0
    )
