"""The soft sums of labels, or of one logit, and their gradient on the CPU, in torch operations.

Each label is a binary problem at the threshold ½. By symmetry H(p) = 1 − H(1 − p), so the step h of
`cpu` is taken of the smaller of p and 1 − p, which keeps its digits: H(p) = [z > 0] − h · sign(z).
The forward pass leaves the slope of the step, one tensor of the size of the logits. Logits are
finite.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from evalign.core.rows import GivenRows, signed
from evalign.kernels.cpu import Step

BLOCK = 2**16  # numbers: the memory of larger ones is asked for anew, page by page


def forward(
    rows: GivenRows, temperature: float, shift: Tensor | None, factor: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sums as those of `cpu.forward`, the total, the number of rows, the cross-entropy, slopes."""
    slopes = torch.empty_like(rows.logits, dtype=_dtype(rows))
    step, binary, parts = Step(temperature, slopes.dtype), rows.task == "binary", []
    dims = [d for d in range(slopes.ndim) if d != 1 or binary]
    for z, y, mass, slope in _blocks(rows, slopes):
        x = z.abs().neg_().sigmoid_().mul_(2 * step.one)  # 2 · min(p, 1 − p), in units of the step
        h = step.of(x, torch.empty_like(x))
        torch.addcmul(x, x, x, value=-0.5 / step.one, out=slope)  # |dx/dz|
        slope.addcmul_(step.steeper(x, out=x), slope, value=step.extra)
        positive = torch.gt(z, 0, out=x)
        of = [torch.ones_like(z), positive, h.mul_(positive - 0.5)]
        if shift is not None:
            u = _moved(z, shift, binary=binary)
            of += [u.abs().neg_().exp_().log1p_().add_(u.relu()), u]
        if mass is not None:
            of = [x * mass for x in of]
        each = torch.stack([x.sum(dims) for x in (*of, *(x * y for x in of))])
        parts.append((each.double(), of[0].count_nonzero()))
    sums, number = (torch.stack(x).sum(0) for x in zip(*parts, strict=True))
    (total, labelled, h, *rest), (actual, right, h_present, *of_present) = sums.chunk(2)
    tp, predicted = right - 2 * step.unit * h_present, labelled - 2 * step.unit * h
    stacked, cross = torch.stack([tp, predicted, actual, right, labelled]), total.new_zeros(())
    if shift is not None:
        absent, present = (1, 1) if factor is None else factor.unbind(-1)
        of_u = rest[0] - of_present[0], of_present[0] - of_present[1]
        cross = (absent * of_u[0] + present * of_u[1]).sum()
    if binary:  # class 0 is the other one
        tn, negatives = total - predicted - actual + tp, total - labelled
        zero = [tn, total - predicted, total - actual, negatives - actual + right, negatives]
        stacked = torch.stack([torch.stack(zero), stacked], 1)
    return stacked, total, number, cross, slopes


def backward(
    rows: GivenRows,
    temperature: float,
    slopes: Tensor,
    of_tp: Tensor,
    of_predicted: Tensor,
    of_cross: float,
    shift: Tensor | None,
    factor: Tensor | None,
) -> Tensor:
    """The gradient of the logits, given those of the soft sums and of the cross-entropy."""
    binary = rows.task == "binary"
    if binary:  # H(p) of class 0 is 1 − H(p)
        of_tp, of_predicted = of_tp.sum(), of_predicted[1] - of_predicted[0] - of_tp[0]
    step, gradient = Step(temperature, slopes.dtype), torch.empty_like(rows.logits)
    results = gradient.split(_length(rows))
    for (z, y, mass, slope), result in zip(_blocks(rows, slopes), results, strict=True):
        of_tp, of_predicted = (_spread(x, z) for x in (of_tp, of_predicted))
        grad = torch.mul(y, step.unit * of_tp).add_(step.unit * of_predicted).mul_(slope)
        if shift is not None:
            u = _moved(z, shift, binary=binary).sigmoid_()
            if factor is not None:
                absent, present = (_spread(x, z) for x in factor.unbind(-1))
                u, y = u * torch.lerp(absent, present, y), present * y
            grad.add_(u.sub_(y), alpha=of_cross)
        result.copy_(grad if mass is None else grad.mul_(mass))
    return gradient


def _dtype(rows: GivenRows) -> torch.dtype:
    return torch.promote_types(rows.logits.dtype, torch.float32)


def _moved(z: Tensor, shift: Tensor, *, binary: bool) -> Tensor:
    """The logits of the cross-entropy."""
    return z + _spread(shift[1] - shift[0] if binary else shift, z)


def _spread(of_labels: Tensor, z: Tensor) -> Tensor:
    """Numbers of labels, to be combined with the logits; or that of one logit."""
    of_labels = of_labels.to(z)
    return of_labels.view(-1, *[1] * (z.ndim - 2)) if of_labels.ndim else of_labels


def _length(rows: GivenRows) -> int:
    """The rows of a block, or its images."""
    return max(1, BLOCK * len(rows.logits) // max(1, rows.logits.numel()))


def _blocks(
    rows: GivenRows, slopes: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor]]:
    """Logits, targets, masses (None if all are 1) and slopes of several rows."""
    length = _length(rows)
    for i in range(0, max(1, len(slopes)), length):
        here = slice(i, i + length)
        slope, target = slopes[here], signed(rows.target[here])
        z, y = rows.logits.detach()[here].to(slope), target.to(slope)
        mass = torch.ne(target, rows.ignore_index, out=torch.empty_like(slope))
        if rows.weight is not None:
            weight = rows.weight[here].to(slope)
            mass *= weight if weight.ndim == z.ndim else weight.unsqueeze(1)
        yield z, y, None if mass.all() and rows.weight is None else mass, slope
