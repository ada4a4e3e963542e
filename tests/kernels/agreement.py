"""Compare a kernel with `core`: the same sums and the same gradient, for any batch."""

import torch

from evalign.kernels import KernelSettings
from evalign.membership.batch import Batch
from evalign.membership.rows import GivenRows
from evalign.membership.soft_confusion import summed
from evalign.membership.soft_sets import multiclass
from tests import dtype_tolerances

TEMPERATURES = (1e-9, 0.05, 0.2, 0.3, 0.4)


def random_batch(rows, classes, *, seed=0, scale=3.0, dtype=torch.float64):
    """Make logits, targets without class 1, weights of which some are 0, and a gradient."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    # The second and third would often tie, and the gradient would not be unique.
    if dtype.itemsize == 2:
        logits = logits.scatter_add(1, logits.topk(2).indices, torch.full_like(logits, 0.5))
    target = torch.randint(classes, (rows,), generator=generator)
    target = torch.where(target == 1, 0, target)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64).round(decimals=1)
    of_sums = torch.randn(3, classes, generator=generator, dtype=torch.float64)
    of_sums = of_sums / 1000  # float16 ends at 65,504, and the ramp at T = 1e-9 rises by 4e6
    wide = torch.promote_types(dtype, torch.float32)
    return logits.to(dtype), target, weight.to(wide), of_sums


def hostile_logits(dtype):
    """Yield rows in which softmax, search or step are at their limits, 6 × 5 each."""
    logits = random_batch(6, 5, dtype=dtype)[0]
    masked = logits.clone()
    masked[:, 2] = -torch.inf
    return {
        "saturated": 1e4 * logits.sign() * torch.arange(1, 6),
        "equal": torch.zeros_like(logits),
        "two largest equal": logits.scatter(1, logits.topk(2).indices, 9.0),
        "whole numbers": logits.round(),
        "a gap of 95": logits - 95 * torch.tensor([0, 0, 1, 1, 1]),
        "far from 0": logits + 1000,
        "a class ruled out": masked,
    }


def run(kernels, batch, temperature, device="cpu"):
    """Compute the sums and the gradient by `by_cpu` or `by_fused`."""
    batch = tuple(x.to(device) for x in batch)
    t = torch.tensor(temperature, dtype=torch.float64, device=device)
    sums, gradient = kernels(*batch, t)
    assert sums.dtype == torch.float64
    return sums.cpu(), gradient.cpu()


def by_fused(logits, target, weight, of_sums, t):
    """Compute them by the kernels of a GPU, or of Triton's interpreter."""
    from evalign.kernels import fused

    rows, settings = GivenRows("multiclass", logits, target, weight, -100), KernelSettings(t)
    flat, stats = fused.soft_sums(rows, settings)
    assert stats.numel() <= 8 * len(logits)  # numbers a row, none of the size of the logits
    of_flat = torch.cat([of_sums[:2].flatten(), t.new_zeros(3 * logits.shape[1] + 2)])
    gradient = fused.gradient_of_sums(rows, settings, (stats,), of_flat)
    sums = flat[:-2].view(5, -1)
    return sums[:3], gradient


def by_core(batch, temperature, dtype):
    """Compute the same by the reference, in `dtype`."""
    logits, target, weight, of_sums = batch
    logits = logits.detach().to(dtype, copy=True).requires_grad_()
    t = torch.tensor(temperature, dtype=torch.float64)
    soft = multiclass(logits, temperature=t)
    c = summed(Batch("multiclass", logits, target, weight.to(dtype)), soft)
    sums = torch.stack([c.tp, c.predicted, c.actual])
    (gradient,) = torch.autograd.grad(sums, logits, of_sums)
    return sums.detach(), gradient


def assert_agrees(kernels, batch, temperature, *, device="cpu", gradient=True):
    """Require that it is as near to the float64 reference as the reference in the batch's
    precision.
    """
    logits, _, weight, of_sums = batch
    ours = run(kernels, batch, temperature, device=device)
    exact = by_core(batch, temperature, torch.float64)
    reference = by_core(batch, temperature, weight.dtype)
    assert ours[1].dtype == logits.dtype
    assert ours[1].shape == logits.shape
    assert ours[0].isfinite().all()
    assert ours[1].isfinite().all()

    margin = dtype_tolerances.KERNEL[weight.dtype]
    error = [(x - y).norm().item() for x, y in zip(ours, exact, strict=True)]
    allowed = [2 * (x - y).norm().item() for x, y in zip(reference, exact, strict=True)]
    assert error[0] <= allowed[0] + margin * weight.sum().item()
    if gradient:
        # Where the gradient vanishes, its scale is that of the terms that cancelled. Half precision
        # then rounds it.
        scale = exact[1].norm().item() + of_sums.norm().item() * weight.norm().item()
        rounding = (exact[1].to(logits.dtype) - exact[1]).norm().item()
        assert error[1] <= allowed[1] + margin * scale + 2 * rounding


def assert_in_range(kernels, temperature, rests=(-30.0, -1.0, 0.29)):
    """Rows in which the two largest nearly agree: memberships from 0 to 1, the largest first."""
    for gap in (0.0, 6e-8, 1.2e-7, 3e-7, 1e-6, 1e-5, 1e-3):
        for rest in rests:
            logits = torch.tensor([[0.3, 0.3 - gap, rest]])
            batch = logits, torch.tensor([0]), torch.ones(1), torch.ones(3, 3)
            (_, predicted, _), gradient = run(kernels, batch, temperature)
            assert ((predicted >= 0) & (predicted <= 1)).all()
            assert predicted[0] >= predicted[1] >= predicted[2]
            assert gradient.isfinite().all()
