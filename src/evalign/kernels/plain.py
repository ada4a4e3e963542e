"""The sums and their gradient in plain torch, for the CPU.

Let 1 and 2 be the largest logits of a row. With e_c = exp(z_c − z_1), rest = Σ_{c≠1} e_c and
τ = (p_1 + p_2) / 2 ≤ ½, every class but the largest lies at or below τ. So the linear step has two
pieces in q = p / τ, with the same constants for every row, and a third one for p_1 alone.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.core.heaviside import OUTER_SHARE

BLOCK = 2**20  # numbers: a few megabytes for a temporary, and operations that are worth the call
RUN = 4096  # rows that are summed in float32 before the sum goes into float64


class RowFacts(NamedTuple):
    """The statistics of rows before their memberships: columns with one number per row."""

    second: Tensor  # e_2
    p: Tensor  # p_1
    miss: Tensor  # 1 − p_1, without its cancellation
    tau: Tensor


class Linear:
    """`core.heaviside.tempered` at τ ≤ ½: a line, a ramp around q = 1, a line past 1 + width."""

    def __init__(self, temperature: float, eps: float) -> None:
        self.height = temperature
        self.width = min(max(2.5 * temperature, eps), 1 - OUTER_SHARE)
        self.outer = max(1 - 2.5 * temperature, OUTER_SHARE)
        self.flat = self.height / self.outer
        self.steep = (0.5 - self.height) / self.width

    def argument(self, e: Tensor, row: RowFacts) -> Tensor:
        """q, written over e."""
        return e.mul_(row.p / row.tau)

    def of(self, q: Tensor, row: RowFacts) -> Tensor:
        ramp = (q - 1).add_(self.width).relu_()
        return q.clamp(max=self.outer).mul_(self.flat).add_(ramp, alpha=self.steep)

    def of_largest(self, row: RowFacts) -> Tensor:
        lead, above = self._largest(row)
        line = (row.miss / above).mul_(-self.height).add_(1)
        return torch.where(lead > self.width, line, lead.mul(self.steep).add_(0.5))

    def pull(
        self, q: Tensor, h: Tensor, gradient: Tensor, row: RowFacts
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn the gradient of H into that of log p at a fixed τ, its sum, and that of τ."""
        ramp = F.threshold(q, 1 - self.width, 0.0)
        x = (q - ramp).mul_(self.flat).add_(ramp, alpha=self.steep).mul_(gradient)
        total = x.sum(1, keepdim=True)
        return x, total, total / -row.tau

    def pull_largest(self, h: Tensor, gradient: Tensor, row: RowFacts) -> tuple[Tensor, Tensor]:
        lead, above = self._largest(row)
        past, line, ramp = lead > self.width, self.height / above, (lead + 1).mul_(self.steep)
        of_tau = torch.where(past, line * row.miss / above * (1 + self.width), ramp / row.tau)
        return torch.where(past, line * row.p, ramp).mul_(gradient), -gradient * of_tau

    def to_p(self, coefficient: Tensor, row: RowFacts) -> Tensor:
        """The coefficient of q that equals this coefficient of p."""
        return coefficient * row.tau

    def _largest(self, row: RowFacts) -> tuple[Tensor, Tensor]:
        """q_1 − 1, and the room above the ramp."""
        return (row.p / row.tau).sub_(1), row.tau.mul(-1 - self.width).add_(1)


class Sigmoid:
    """`core.heaviside.sigmoid` with k = 2 / T, a function of p itself."""

    def __init__(self, temperature: float, eps: float) -> None:
        self.k = 2 / max(temperature, eps)

    def argument(self, e: Tensor, row: RowFacts) -> Tensor:
        return e.mul_(row.p)

    def of(self, p: Tensor, row: RowFacts) -> Tensor:
        return (p - row.tau).mul_(self.k).sigmoid_()

    def of_largest(self, row: RowFacts) -> Tensor:
        return self.of(row.p, row)

    def pull(
        self, p: Tensor, h: Tensor, gradient: Tensor, row: RowFacts
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = (1 - h).mul_(h).mul_(self.k).mul_(gradient)
        of_tau = -x.sum(1, keepdim=True)
        return x.mul_(p), x.sum(1, keepdim=True), of_tau

    def pull_largest(self, h: Tensor, gradient: Tensor, row: RowFacts) -> tuple[Tensor, Tensor]:
        x, _, of_tau = self.pull(row.p, h, gradient, row)
        return x, of_tau

    def to_p(self, coefficient: Tensor, row: RowFacts) -> Tensor:
        return coefficient


def forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    sigmoid: bool,
    odds: Tensor | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """tp, predicted and actual; the cross-entropy of logits + log(odds); what `backward` needs.

    That are numbers of every row, the two largest classes, and q (or p), which is kept because an
    exponential costs more than all else here. On a GPU, where memory is short, it is computed again
    instead.

    Args:
        logits: images, classes, positions, in any layout; a matrix is one image.
        target: class indices (images, positions).
        weight: (images, positions).
        odds: of the classes, or None for no cross-entropy.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    classes = logits.shape[1]
    sums = weight.new_zeros(3, classes, dtype=torch.float64)
    tp, wrong, actual = sums
    cross_entropy = sums.new_zeros(())
    kept = weight.new_empty(weight.numel(), classes)
    rows = weight.new_empty(8, weight.numel(), 1)
    top = target.new_empty(2, weight.numel(), 1)
    for place, block in _blocks(logits):
        y, w = target[place].reshape(-1, 1), weight[place].reshape(-1, 1)
        z = kept[block]
        z.view(*weight[place].shape, classes).copy_(logits.mT[place])
        largest, one = z.max(1, keepdim=True)
        of_target = None if odds is None else z.gather(1, y).sub_(largest)
        z.scatter_(1, one, -torch.inf)
        runner_up, two = z.max(1, keepdim=True)
        second = runner_up.sub_(largest).exp_()
        e = z.sub_(largest).exp_()
        # An infinite logit is a mistake, not certainty: it stays visible, as NaN.
        rest = e.sum(1, keepdim=True).add_(largest - largest)
        partition = rest
        if odds is not None and of_target is not None:
            factor = odds.to(e.dtype)
            partition = torch.mv(e, factor).unsqueeze(1).add_(factor[one])
            # A row without weight may have its class ruled out: 0·∞ is 0 here.
            cross = partition.log().sub_(of_target).mul_(w).masked_fill_(w == 0, 0)
            cross_entropy += cross.sum(dtype=torch.float64)
        p = (rest + 1).reciprocal_()
        row = RowFacts(second, p, rest * p, (second + 1).mul_(p).mul_(0.5))
        first = step.of_largest(row)
        h = step.of(step.argument(e, row), row).scatter_(1, one, first)
        total = h.sum(1, keepdim=True)
        share = w / total
        # Right and wrong are summed apart: a difference would round off a few false positives.
        tp.index_add_(0, y[:, 0], h.gather(1, y).mul_(share).squeeze(1).double())
        h.scatter_(1, y, 0)
        for start in range(0, len(h), RUN):
            wrong += torch.mv(h[start : start + RUN].t(), share[start : start + RUN].squeeze(1))
        actual.index_add_(0, y[:, 0], w[:, 0].double())
        torch.stack([*row, first, total, share, partition], out=rows[:, block])
        torch.stack([one, two], out=top[:, block])
    if odds is not None:
        cross_entropy -= actual @ odds.log()
    wrong += tp
    return sums, cross_entropy, (rows, top, kept)


def backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    kept: tuple[Tensor, ...],
    slopes: Tensor,
    cross_entropy_slope: Tensor,
    sigmoid: bool,
    detach_threshold: bool,
    odds: Tensor | None,
) -> Tensor:
    """The gradient of the logits, given the slopes (2, C) by tp and predicted, and that by the
    cross-entropy.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    of_tp, of_predicted = slopes.to(weight.dtype)
    rows, top, q = kept
    grads = torch.empty_like(logits)
    for place, block in _blocks(logits):
        y, w = target[place].reshape(-1, 1), weight[place].reshape(-1, 1)
        *known, first, total, share, partition = rows[:, block]
        row, x = RowFacts(*known), q[block]
        one, two = top[:, block]
        h = step.of(x, row).scatter_(1, one, first)

        # H is normalised by its sum: only what differs from the row's mean counts.
        extra = of_tp.index_select(0, y[:, 0]).unsqueeze(1)
        mean = torch.addcmul(torch.mv(h, of_predicted).unsqueeze(1), extra, h.gather(1, y))
        of_h = (of_predicted - mean.div_(total)).mul_(share)
        of_h.scatter_add_(1, y, extra.mul_(share))

        of_largest, of_tau_too = step.pull_largest(first, of_h.gather(1, one), row)
        grad, others, of_tau = step.pull(x, h, of_h.scatter_(1, one, 0), row)
        half = torch.zeros_like(others) if detach_threshold else (of_tau + of_tau_too).mul_(0.5)
        # Through the softmax, and through τ = (p_1 + p_2) / 2 to the two it is made of.
        common = torch.addcmul(others + of_largest, row.tau, half, value=2)
        grad.addcmul_(x, step.to_p(common, row), value=-1)
        second = row.p * row.second
        grad.scatter_add_(1, two, second * half)
        others.addcmul_(second.sub_(row.miss), half)
        at_largest = of_largest.mul_(row.miss).addcmul_(row.p, others, value=-1)
        if odds is not None:
            factor = odds.to(w.dtype)
            cross = w * cross_entropy_slope.to(w.dtype)
            per_partition = cross / partition
            # x is e times a number of the row.
            grad.addcmul_(x * (per_partition / step.argument(torch.ones_like(w), row)), factor)
            at_largest.addcmul_(per_partition, factor[one])
            grad.scatter_(1, one, at_largest)
            grad.scatter_add_(1, y, -cross)
        else:
            grad.scatter_(1, one, at_largest)
        grads.mT[place].copy_(grad.view(*weight[place].shape, -1))
    return grads


def _blocks(logits: Tensor) -> Iterator[tuple[tuple[slice, slice], slice]]:
    """Images and positions that are computed together, and which of all rows they are."""
    images, classes, positions = logits.shape
    length = max(1, BLOCK // classes)
    several, length = max(1, length // max(1, positions)), max(1, min(length, positions))
    for image in range(0, images, several):
        last = min(image + several, images)
        for start in range(0, positions, length):
            stop = min(start + length, positions)
            first = image * positions + start
            rows = slice(first, first + (last - image) * (stop - start))
            yield (slice(image, last), slice(start, stop)), rows


def _step(temperature: Tensor, sigmoid: bool, dtype: torch.dtype) -> Linear | Sigmoid:
    eps = torch.finfo(dtype).eps
    return Sigmoid(temperature.item(), eps) if sigmoid else Linear(temperature.item(), eps)
