"""The soft sums of labels, or of one logit, and their gradient on the CPU, in torch operations.

Each label is a binary problem at the threshold ½. By symmetry H(p) = 1 − H(1 − p), so the step h of
`cpu` is taken of the smaller of p and 1 − p, which keeps its digits: H(p) = [z > 0] − h · sign(z).
The forward pass leaves the slope of the step, one tensor of the size of the logits. Logits are
finite. Blocks stay in the cache, in memory that is asked for once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from evalign.core.rows import GivenRows, signed
from evalign.kernels import KernelSettings
from evalign.kernels.cpu import Step

BLOCK = 2**17  # numbers


class _Block(NamedTuple):
    """Several rows: logits, targets, masses (None if all are 1), slopes, memory for two more."""

    z: Tensor
    y: Tensor
    mass: Tensor | None
    slope: Tensor
    x: Tensor
    h: Tensor

    def summed(self, x: Tensor, dims: list[int]) -> Tensor:
        """The sums over rows: of all labels and of those present, or of the two classes; x is lost.

        A class of its own: a difference of large sums might be below 0.
        """
        x = x if self.mass is None else x.mul_(self.mass)
        if x.ndim == 1:
            return torch.stack([x @ (1 - self.y), x @ self.y])
        return torch.stack([x.sum(dims), x.mul_(self.y).sum(dims)])


def forward(
    rows: GivenRows, settings: KernelSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums as those of `cpu.forward`, the total, the number of rows, the cross-entropy, slopes."""
    rows, dtype = _flat(rows), torch.promote_types(rows.logits.dtype, torch.float32)
    slopes, binary = torch.empty_like(rows.logits, dtype=dtype), rows.task == "binary"
    step, parts = Step(settings.temperature, dtype), []
    dims = [d for d in range(slopes.ndim) if d != 1 or binary]
    number, cross = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    for block in _blocks(rows, slopes):
        z, y, mass, slope, x, h = block
        torch.abs(z, out=x).neg_().sigmoid_().mul_(2 * step.one)  # 2 · min(p, 1 − p) · one
        torch.addcmul(x, x, x, value=-0.5 / step.one, out=slope)  # |dx/dz|
        step.of(x, out=h)
        slope.addcmul_(step.steeper(x, out=x), slope, value=step.extra)
        h *= torch.gt(z, 0, out=x).sub_(0.5)
        each = [block.summed(h, dims), block.summed(x.add_(0.5), dims)]
        if mass is None:
            here = y.sum(dims)
            rest = z.numel() // here.numel() - (here if binary else 0)
            each.append(torch.stack([torch.zeros_like(here) + rest, here]))
        else:
            each.append(block.summed(h.fill_(1), dims))
        if settings.shift is not None:
            u, heavy, target = _cross(settings, z, y, x)
            terms = torch.abs(u, out=h).neg_().exp_().log1p_().add_(u.relu())  # softplus(u)
            terms = terms if heavy is None else terms.mul_(heavy)
            terms.addcmul_(u, target, value=-1)
            cross += (terms if mass is None else terms.mul_(mass)).sum()
        number += z.numel() if mass is None else mass.count_nonzero()
        parts.append(torch.stack(each).double())
    (h, labelled, total), (h_present, right, actual) = torch.stack(parts).sum(0).unbind(1)
    tp, predicted = right - 2 * step.unit * h_present, labelled - 2 * step.unit * h
    if not binary:
        return torch.stack([tp, predicted, actual, right, labelled]), total, number, cross, slopes
    # So far h, labelled and total are of class 0, and predicted are its rows that class 1 gets.
    right_0, tn = total - labelled, total - predicted
    zero = [tn, tn + actual - tp, total, right_0, right_0 + actual - right]
    one = [tp, predicted + tp, actual, right, labelled + right]
    sums = torch.stack([torch.stack(zero), torch.stack(one)], 1)
    return sums, total + actual, number, cross, slopes


def backward(
    rows: GivenRows,
    settings: KernelSettings,
    slopes: Tensor,
    of_tp: Tensor,
    of_predicted: Tensor,
    of_cross: float,
) -> Tensor:
    """The gradient of the logits, given those of the soft sums and of the cross-entropy."""
    unit = Step(settings.temperature, slopes.dtype).unit
    if rows.task == "binary":  # H of class 0 is 1 − H of class 1
        of_tp, of_predicted = of_tp.sum(), of_predicted[1] - of_predicted[0] - of_tp[0]
    flat, stop = _flat(rows), 0
    gradient = torch.empty_like(flat.logits)
    for z, y, mass, slope, x, h in _blocks(flat, slopes):
        start, stop = stop, stop + len(z)
        torch.mul(y, _spread(unit * of_tp, z), out=x).add_(_spread(unit * of_predicted, z))
        x *= slope
        if settings.shift is not None:
            u, heavy, target = _cross(settings, z, y, h)
            p = u.sigmoid_() if heavy is None else u.sigmoid_().mul_(heavy)
            x.add_(p.sub_(target), alpha=of_cross)
        gradient[start:stop] = x if mass is None else x.mul_(mass)
    return gradient.view(rows.logits.shape)


def _flat(rows: GivenRows) -> GivenRows:
    """The pixels of a binary problem as rows: the sums of a block are in its precision."""
    if rows.task == "multilabel":
        return rows
    weight = None if rows.weight is None else rows.weight.reshape(-1)
    flat = rows.logits.detach().reshape(-1), rows.target.reshape(-1)
    return rows._replace(logits=flat[0], target=flat[1], weight=weight)


def _cross(
    settings: KernelSettings, z: Tensor, y: Tensor, out: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """u, a and b of a cross-entropy a·softplus(u) − b·u; an a of None is 1."""
    _, shift, factor, smoothing = settings
    assert shift is not None
    u = torch.add(z, _spread(shift if z.ndim > 1 else shift[1] - shift[0], z), out=out)
    y = torch.lerp(y, y.new_tensor(0.5), smoothing) if smoothing else y
    if factor is None:
        return u, None, y
    absent, present = (_spread(f, z) for f in factor.unbind(-1))
    return u, torch.lerp(absent, present, y), present * y


def _spread(of_labels: Tensor, z: Tensor) -> Tensor:
    """Numbers of labels, to be combined with the logits; or that of one logit."""
    of_labels = of_labels.to(z)
    return of_labels.view(-1, *[1] * (z.ndim - 2)) if of_labels.ndim else of_labels


def _blocks(rows: GivenRows, slopes: Tensor) -> Iterator[_Block]:
    length = max(1, BLOCK * len(slopes) // max(1, slopes.numel()))
    memory = slopes.new_empty(3, *slopes[:length].shape)
    for i in range(0, max(1, len(slopes)), length):
        here = slice(i, i + length)
        slope, target, mass = slopes[here], signed(rows.target[here]), None
        z, (ones, *free) = rows.logits.detach()[here].to(slope), memory[:, : len(slope)]
        if rows.weight is not None or target.amin() <= rows.ignore_index:
            mass = torch.ne(target, rows.ignore_index, out=ones)
        if rows.weight is not None and mass is not None:
            weight = rows.weight[here].to(slope)
            mass *= weight if weight.ndim == z.ndim else weight.unsqueeze(1)
        yield _Block(z, target.to(slope), mass, slope, *free)
