"""The soft sums of labels, or of one logit, and their gradient on the CPU, in torch operations.

Each label is a binary problem at the threshold ½, whose step has two slopes in p: one between the
ends of a ramp, and one beyond them. H is the smaller of the two times p, and an excess where it is
steeper. The forward pass leaves p, one tensor of the size of the logits. Logits are finite. Blocks
stay in the cache, in memory that is asked for once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from evalign.kernels import KernelSettings
from evalign.kernels.cpu import BLOCK, Step
from evalign.membership.checks import signed
from evalign.membership.rows import GivenRows

FAR = 40.0  # log(1 + eᵘ) is u from here on, in double precision too
aten = torch.ops.aten  # for results in memory that is there
Block = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]


def forward(
    rows: GivenRows, settings: KernelSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums as those of `cpu.forward`, the total, the number of rows, the cross-entropy, and p."""
    binary = rows.task == "binary"
    z = rows.logits.detach().reshape(-1, 1) if binary else rows.logits.detach()
    kept = torch.empty_like(z, dtype=torch.promote_types(z.dtype, torch.float32))
    step = Step(settings.temperature, kept.dtype)
    number, cross = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    found = number.new_zeros(4, 2, kept.shape[1])  # of 1 − H, of H, of 1, and of hard labels
    for z, y, mass, p, x, h in _blocks(rows, kept):
        if binary:  # has a class of its own for the rows without the label: 1 − H is H of 1 − p
            torch.neg(z, out=p).sigmoid_()
            found[0] += _summed(_membership(p, step, h), y, mass, x)
        torch.sigmoid(z, out=p)
        found[1] += _summed(_membership(p, step, h), y, mass, x)
        found[2] += _summed(h.fill_(1), y, mass, x)
        if settings.shift is not None:  # a metric alone does not ask for hard labels
            found[3] += _summed(torch.gt(z, 0, out=h), y, mass, x)
            u, heavy, target = _cross(settings, z, y, x)
            terms = aten.softplus.out(u, 1, FAR, out=h)
            terms = terms if heavy is None else terms.mul_(heavy)
            terms.addcmul_(u, target, value=-1)
            cross += (terms if mass is None else terms.mul_(mass)).sum()
        number += z.numel() if mass is None else mass.count_nonzero()
    found[:2] *= _of_p(step)[2]
    (tn, fn), (fp, tp), (negatives, actual), (wrong, right) = found
    total, one = negatives + actual, [tp, tp + fp, actual, right, right + wrong]
    if not binary:
        return torch.stack(one), total, number, cross, kept
    zero = [tn, tn + fn, negatives, negatives - wrong, total - one[-1]]
    return torch.stack([torch.cat(zero), torch.cat(one)], 1), total[0], number, cross, kept


def backward(
    rows: GivenRows,
    settings: KernelSettings,
    kept: Tensor,
    of_tp: Tensor,
    of_predicted: Tensor,
    of_cross: float,
) -> Tensor:
    """The gradient of the logits, given those of the soft sums and of the cross-entropy."""
    step = Step(settings.temperature, kept.dtype)
    low, high, scale = _of_p(step)
    if rows.task == "binary":  # H of class 0 is 1 − H of class 1
        of_predicted = of_predicted[1:] - of_predicted[:1] - of_tp[:1]
        of_tp = of_tp.sum(0, keepdim=True)
    gradient, stop = torch.empty_like(kept), 0
    for z, y, mass, p, x, h in _blocks(rows, kept):
        start, stop = stop, stop + len(z)
        out = gradient[start:stop]
        torch.addcmul(_beside(scale * of_predicted, z), y, _beside(scale * of_tp, z), out=out)
        torch.addcmul(p, p, p, value=-1, out=h)  # dp/dz
        aten.hardtanh_backward.grad_input(h, p, low, high, grad_input=x)
        out *= h.add_(x if step.bends_up else torch.sub(h, x, out=x), alpha=step.extra)
        if settings.shift is not None:
            u, heavy, target = _cross(settings, z, y, h)
            q = u.sigmoid_() if heavy is None else u.sigmoid_().mul_(heavy)
            out.add_(q.sub_(target), alpha=of_cross)
        if mass is not None:
            out *= mass
    return gradient.to(rows.logits.dtype).view(rows.logits.shape)


def _of_p(step: Step) -> tuple[float, float, float]:
    """The ends of the ramp in p, and the smaller slope."""
    low = step.edge / step.one / 2
    return low, 1 - low, 2 * step.one * step.unit


def _membership(p: Tensor, step: Step, out: Tensor) -> Tensor:
    """H, by the smaller slope."""
    low, high, _ = _of_p(step)
    if step.bends_up:  # p − ½ is exact: so H(½) is ½, however steep the ramp is
        half = step.width / 2
        torch.sub(p, 0.5, out=out).clamp_(-half, half).add_(half)
    else:
        torch.clamp(p, max=low, out=out).add_(torch.relu(p - high))
    return torch.add(p, out, alpha=step.extra, out=out)


def _summed(x: Tensor, y: Tensor, mass: Tensor | None, spare: Tensor) -> Tensor:
    """The sums over the rows without and with each label; x is lost, and what is in `spare`.

    They are summed apart: a difference of large sums might be below 0.
    """
    x = x if mass is None else x.mul_(mass)
    of_label, over = torch.mul(x, y, out=spare), [d for d in range(x.ndim) if d != 1]
    return torch.stack([x.sub_(of_label).sum(over), of_label.sum(over)])


def _cross(
    settings: KernelSettings, z: Tensor, y: Tensor, out: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """u, a and b of a cross-entropy a·softplus(u) − b·u; an a of None is 1."""
    _, shift, factor, smoothing = settings
    assert shift is not None
    shift = shift if len(shift) == z.shape[1] else shift[1:] - shift[:1]
    u = torch.add(z, _beside(shift, z), out=out)
    y = torch.lerp(y, y.new_tensor(0.5), smoothing) if smoothing else y
    if factor is None:
        return u, None, y
    absent, present = (_beside(f, z) for f in factor.view(-1, 2).unbind(1))
    return u, torch.lerp(absent, present, y), present * y


def _beside(of_labels: Tensor, z: Tensor) -> Tensor:
    """Numbers of labels, to be combined with the logits."""
    return of_labels.to(z).view(-1, *[1] * (z.ndim - 2))


def _blocks(rows: GivenRows, kept: Tensor) -> Iterator[Block]:
    """Several rows: logits, targets, masses (None if all are 1), p, memory for two more."""
    logits, targets = (x.detach().reshape(kept.shape) for x in (rows.logits, rows.target))
    weights, many = rows.weight, rows.task == "multilabel"
    if weights is not None and not (many and weights.ndim == kept.ndim):  # of each row
        weights = weights.unsqueeze(1) if many else weights.reshape(kept.shape)
    length = max(1, BLOCK * len(kept) // max(1, kept.numel()))
    memory = kept.new_empty(3, *kept[:length].shape)
    for i in range(0, max(1, len(kept)), length):
        here = slice(i, i + length)
        p, target, mass = kept[here], signed(targets[here]), None
        z, (ones, x, h) = logits[here].to(p), memory[:, : len(p)]
        if weights is not None or target.amin() <= rows.ignore_index:
            mass = torch.ne(target, rows.ignore_index, out=ones)
        if weights is not None and mass is not None:
            mass *= weights[here].to(p)
        yield z, target.to(p), mass, p, x, h
