"""The sums and gradients on the CPU against `core` in float64 and `cross_entropy`."""

import pytest
import torch
from torch.nn import functional as F

from evalign import MetricLoss
from evalign.kernels import KernelSettings, cpu, labels
from evalign.membership.batch import Batch
from evalign.membership.heaviside import tempered
from evalign.membership.rows import GivenRows
from evalign.membership.soft_confusion import summed
from evalign.membership.soft_sets import multiclass
from tests import dtype_tolerances
from tests.kernels.agreement import random_batch

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TEMPERATURES = (1e-9, 1e-6, 0.05, 0.2, 0.3, 0.4)


def by_kernel(logits, target, weight, slopes, temperature, *adjustment):
    """Compute sums, cross-entropy and gradient of logits (B, C, P)."""
    t = torch.tensor(temperature, dtype=torch.float64)
    batch = logits, target, weight, KernelSettings(t, *adjustment)
    sums, cross, kept = cpu.forward(*batch)
    assert sums.dtype == cross.dtype == torch.float64
    gradient = cpu.backward(*batch, kept, *slopes[:2], slopes[2, 0].item())
    assert gradient.dtype == logits.dtype
    assert gradient.stride() == torch.empty_like(logits).stride()
    return sums, cross, gradient


def by_core(logits, target, weight, slopes, temperature, shift=None, factor=None):
    """Compute the same by the reference, in the precision of the weights."""
    logits = logits.detach().to(weight.dtype, copy=True).requires_grad_()
    z, y, w = logits.transpose(1, 2).flatten(0, 1), target.flatten(), weight.flatten()
    t = torch.tensor(temperature, dtype=torch.float64)
    soft = multiclass(z, temperature=t)
    hard = F.one_hot(z.argmax(1), z.shape[1]).to(w)
    soft, hard = (summed(Batch("multiclass", z, y, w), x) for x in (soft, hard))
    cross = torch.zeros((), dtype=torch.float64)
    if shift is not None:
        terms = F.cross_entropy(
            z + shift.to(z), y, None if factor is None else factor.to(z), reduction="none"
        )
        cross = (w * terms).sum(dtype=torch.float64)
    total = soft.tp @ slopes[0] + soft.predicted @ slopes[1] + cross * slopes[2, 0]
    (gradient,) = torch.autograd.grad(total, logits)
    labels = [hard.tp, hard.predicted] if shift is not None else 2 * [torch.zeros_like(hard.tp)]
    sums = torch.stack([soft.tp, soft.predicted, soft.actual, *labels])
    return sums.detach(), cross.detach(), gradient


def assert_agrees(batch, temperature, *adjustment, gradient=True):
    """Require the error of the reference in the precision of the batch, and a margin."""
    logits, _, weight, slopes = batch
    ours = by_kernel(*batch, temperature, *adjustment)
    reference = by_core(*batch, temperature, *adjustment)
    exact = by_core(logits, batch[1], weight.double(), slopes, temperature, *adjustment)
    margin, mass = dtype_tolerances.KERNEL[weight.dtype], weight.sum().item()
    # Where the gradient vanishes, its scale is that of the terms that cancelled. Half precision
    # then rounds it.
    scale = exact[2].norm().item() + slopes.norm().item() * weight.norm().item()
    rounding = (exact[2].to(logits.dtype) - exact[2]).norm().item()
    sizes = mass, mass + exact[1].item(), scale + 2 * rounding / margin
    for x, near, true, size in zip(ours[: 2 + gradient], reference, exact, sizes, strict=False):
        assert x.isfinite().all()
        assert (x - true).norm() <= 2 * (near - true).norm() + margin * size
    torch.testing.assert_close(ours[0][2:], exact[0][2:], rtol=margin, atol=margin)


def images(batch):
    logits, target, weight, slopes = batch
    return logits.unsqueeze(2), target.unsqueeze(1), weight.unsqueeze(1), slopes


def adjustment(classes):
    return torch.linspace(-2, 3, classes).double(), torch.linspace(0.5, 2, classes).double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [TEMPERATURES[0], 0.2, TEMPERATURES[-1]])
def test_agrees(temperature, dtype):
    for rows, classes in [(0, 4), (1, 2), (7, 2), (64, 3), (33, 17), (5, 1000), (3000, 10)]:
        for scale in (0.1, 3.0):
            batch = images(random_batch(rows, classes, scale=scale, dtype=dtype))
            assert_agrees(batch, temperature)
            assert_agrees(batch, temperature, adjustment(classes)[0])
            assert_agrees(batch, temperature, *adjustment(classes))


@pytest.mark.parametrize("classes", [10, 100])  # 100 stay side by side
def test_several_blocks(classes, monkeypatch):
    monkeypatch.setattr(cpu, "BLOCK", 7 * classes)
    batch = images(random_batch(100, classes))
    assert_agrees(batch, 0.2, *adjustment(classes))
    logits, target, weight, slopes = batch
    assert_agrees(
        (logits.view(4, 25, classes).mT, target.view(4, 25), weight.view(4, 25), slopes), 0.2
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-4, 1e-5, 3e-7, 3e-15])
@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_undecided_labels(task, temperature, dtype):
    """H(½) is ½, and the slope there is the ramp's, however steep; beyond the ramp H is 0 or 1."""
    z = torch.tensor([[0.0, 3.0], [0.0, -3.0], [0.0, 0.0], [-3.0, 0.0]], dtype=dtype)
    z, y = (z.flatten(), z.new_tensor([0, 1] * 4)) if task == "binary" else (z, z.gt(-1).to(dtype))
    t = torch.tensor(temperature, dtype=torch.float64)
    of_tp, of_predicted = torch.tensor([[1.0, 2.0], [0.5, -0.3]], dtype=torch.float64)
    batch = GivenRows(task, z, y, None, -100), KernelSettings(t)
    (tp, predicted, *_), _, _, _, kept = labels.forward(*batch)
    gradient = labels.backward(*batch, kept, of_tp, of_predicted, 0.0)

    z = z.double().requires_grad_()
    h = tempered(z.sigmoid(), 0.5, temperature=max(t, torch.finfo(dtype).eps / 2.5))
    if task == "binary":
        h, y = torch.stack([1 - h, h], 1), torch.stack([1 - y, y], 1)
    sums = (y * h).sum(0), h.sum(0)
    (slope,) = torch.autograd.grad(sums[0] @ of_tp + sums[1] @ of_predicted, z)
    for ours, exact in zip((tp, predicted, gradient.double()), (*sums, slope), strict=True):
        margin = dtype_tolerances.KERNEL[dtype]
        torch.testing.assert_close(ours, exact.detach(), rtol=margin, atol=margin)


def test_no_sum_of_one_logit_is_below_zero():
    """All negative rows lie on the wrong side, so nearly nothing is left of a true negative."""
    random = torch.Generator().manual_seed(0)
    y = (torch.rand(4000, generator=random) < 0.3).float()
    sure = 20 + torch.rand(4000, generator=random)
    logits = torch.where(y > 0, 5 * torch.randn(4000, generator=random), sure).requires_grad_()
    loss = MetricLoss(lambda c: (c.tp / c.actual).prod(-1).sqrt())
    value = loss(logits, y, sample_weight=3 * torch.rand(4000, generator=random))
    value.backward()
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_largest_where_subnormal_numbers_are_flushed():
    """The largest is found by a threshold next to 0, which must not become 0."""
    batch = images(random_batch(64, 5, dtype=torch.float32))
    expected = by_kernel(*batch, 0.2, adjustment(5)[0])
    torch.set_flush_denormal(True)
    try:
        found = by_kernel(*batch, 0.2, adjustment(5)[0])
    finally:
        torch.set_flush_denormal(False)
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)
