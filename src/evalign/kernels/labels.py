"""The soft sums of labels, or of one logit, and their gradient on the CPU, in torch operations.

Each label is a binary problem at the threshold ½. By symmetry H(p) = 1 − H(1 − p), so the step of
`cpu` is taken of the smaller of p and 1 − p, which keeps its digits. Logits are finite.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from evalign.core.rows import GivenRows, signed
from evalign.kernels.cpu import Step

BLOCK = 2**16  # numbers: the memory of larger ones is asked for anew, page by page


class _Labels(NamedTuple):
    """Logits, their mass where a label is present and where it is absent, and the step."""

    z: Tensor
    present: Tensor
    absent: Tensor
    step: Step
    x: Tensor  # 2·min(p, 1 − p), in units of the step
    positive: Tensor  # 1 where z > 0

    @classmethod
    def of(cls, rows: GivenRows, temperature: float) -> "_Labels":
        dtype = torch.promote_types(rows.logits.dtype, torch.float32)
        z, target = rows.logits.detach().to(dtype), signed(rows.target)
        mass = torch.ne(target, rows.ignore_index, out=torch.empty_like(z))
        if rows.weight is not None:
            weight = rows.weight.to(dtype)
            mass *= weight if weight.ndim == z.ndim else weight.unsqueeze(1)
        step, present = Step(temperature, dtype), mass * target
        x = z.abs().neg_().sigmoid_().mul_(2 * step.one)
        return cls(z, present, mass - present, step, x, torch.gt(z, 0, out=torch.empty_like(z)))

    def summed(self, x: Tensor, *, labels: bool) -> Tensor:
        """The sum over rows, of each label or of all."""
        dims = [d for d in range(x.ndim) if d != 1 or not labels]
        return x.sum(dims, dtype=torch.float64)

    def moved(
        self, shift: Tensor, factor: Tensor | None, *, labels: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and masses of the cross-entropy."""
        u = self.z + self.spread(shift if labels else shift[1] - shift[0])
        if factor is None:
            return u, self.present, self.absent
        absent, present = (self.spread(f) for f in factor.unbind(-1))
        return u, self.present * present, self.absent * absent

    def spread(self, of_labels: Tensor) -> Tensor:
        """Numbers of labels, to be combined with the logits; or that of one logit."""
        of_labels = of_labels.to(self.z)
        return of_labels.view(-1, *[1] * (self.z.ndim - 2)) if of_labels.ndim else of_labels


def forward(
    rows: GivenRows, temperature: float, shift: Tensor | None, factor: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums as those of `cpu.forward`, the total, the number of rows, and the cross-entropy."""
    labels, parts = rows.task == "multilabel", []
    for block in _blocks(rows):
        this = _Labels.of(block, temperature)
        low = this.step.of(this.x, torch.empty_like(this.x)).mul_(this.step.unit)
        high = 1 - low
        h = torch.lerp(low, high, this.positive)
        of = [this.present * h, this.absent * h, this.present, this.absent]
        of += [this.present * this.positive, this.absent * this.positive]
        if not labels:  # those of class 0 have digits of their own
            h = torch.lerp(high, low, this.positive)
            of += [this.absent * h, this.present * h, (this.present + this.absent > 0).to(h)]
        if shift is not None:
            u, present, absent = this.moved(shift, factor, labels=labels)
            terms = (present + absent).mul_(u.abs().neg_().exp_().log1p_())
            of.append(terms.addcmul_(absent, u.relu()).addcmul_(present, u.neg().relu_()))
        parts.append(torch.stack([this.summed(x, labels=labels) for x in of]))
    tp, fp, actual, negatives, right, wrong, *rest = reduce(torch.add, parts)
    cross = actual.new_zeros(()) if shift is None else rest.pop().sum()
    sums, total = [tp, tp + fp, actual, right, right + wrong], actual + negatives
    if labels:
        return torch.stack(sums), total, total, cross
    tn, fn, number = rest
    zero = [tn, tn + fn, negatives, negatives - wrong, negatives - wrong + actual - right]
    return torch.stack([torch.stack(zero), torch.stack(sums)], 1), total, number, cross


def backward(
    rows: GivenRows,
    temperature: float,
    of_tp: Tensor,
    of_predicted: Tensor,
    of_cross: float,
    shift: Tensor | None,
    factor: Tensor | None,
) -> Tensor:
    """The gradient of the logits, given those of the soft sums and of the cross-entropy."""
    labels = rows.task == "multilabel"
    of_present, of_absent = of_tp + of_predicted, of_predicted
    if not labels:
        of_present = of_present[1] - of_predicted[0]
        of_absent = of_absent[1] - of_predicted[0] - of_tp[0]
    gradient = torch.empty_like(rows.logits)
    for block, result in zip(_blocks(rows), gradient.split(_length(rows)), strict=True):
        this = _Labels.of(block, temperature)
        step, x = this.step, this.x
        grad = this.present * this.spread(of_present) + this.absent * this.spread(of_absent)
        steeper = (torch.gt if step.bends_up else torch.le)(x, step.edge, out=torch.empty_like(x))
        # dH/dz is dH/dp · p (1 − p), and x is 2 min(p, 1 − p) · one.
        grad *= steeper.mul_(step.extra).add_(1).mul_(x).mul_(step.unit)
        grad.addcmul_(grad, x, value=-0.5 / step.one)
        if shift is not None:
            u, present, absent = this.moved(shift, factor, labels=labels)
            grad.addcmul_(absent, u.sigmoid(), value=of_cross)
            grad.addcmul_(present, u.neg().sigmoid_(), value=-of_cross)
        result.copy_(grad)
    return gradient


def _length(rows: GivenRows) -> int:
    """The rows of a block, or its images."""
    return max(1, BLOCK * len(rows.logits) // max(1, rows.logits.numel()))


def _blocks(rows: GivenRows) -> Iterator[GivenRows]:
    length, weight = _length(rows), rows.weight
    for i in range(0, max(1, len(rows.logits)), length):
        here = slice(i, i + length)
        of_rows = None if weight is None else weight[here]
        yield rows._replace(logits=rows.logits[here], target=rows.target[here], weight=of_rows)
