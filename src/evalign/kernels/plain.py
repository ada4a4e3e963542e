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
    logits: Tensor, target: Tensor, weight: Tensor, temperature: Tensor, sigmoid: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """tp, predicted and actual, and for the backward pass numbers of every row and q (or p).

    q is kept because an exponential costs more than all else here. On a GPU, where memory is short,
    it is computed again instead.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    sums = weight.new_zeros(3, logits.shape[1], dtype=torch.float64)
    tp, wrong, actual = sums
    kept = weight.new_empty(logits.shape)
    rows, top = [weight.new_empty(7, 0, 1)], [target.new_empty(2, 0, 1)]
    for block in _blocks(logits):
        y, w = target[block], weight[block].unsqueeze(1)
        z = kept[block].copy_(logits[block])
        largest, one = z.max(1, keepdim=True)
        z.scatter_(1, one, -torch.inf)
        runner_up, two = z.max(1, keepdim=True)
        second = runner_up.sub_(largest).exp_()
        e = z.sub_(largest).exp_()
        # An infinite logit is a mistake, not certainty: it stays visible, as NaN.
        rest = e.sum(1, keepdim=True).add_(largest - largest)
        p = (rest + 1).reciprocal_()
        row = RowFacts(second, p, rest.mul_(p), (second + 1).mul_(p).mul_(0.5))
        first = step.of_largest(row)
        h = step.of(step.argument(e, row), row).scatter_(1, one, first)
        total = h.sum(1, keepdim=True)
        share = w / total
        # Right and wrong are summed apart: a difference would round off a few false positives.
        tp.index_add_(0, y, h.gather(1, y.unsqueeze(1)).mul_(share).squeeze(1).double())
        h.scatter_(1, y.unsqueeze(1), 0)
        for start in range(0, len(h), RUN):
            wrong += torch.mv(h[start : start + RUN].t(), share[start : start + RUN].squeeze(1))
        actual.index_add_(0, y, weight[block].double())
        rows.append(torch.stack([*row, first, total, share]))
        top.append(torch.stack([one, two]))
    wrong += tp
    return sums, _joined(rows), _joined(top), kept


def backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    rows: Tensor,
    top: Tensor,
    kept: Tensor,
    loss_from_sums: Tensor,
    sigmoid: bool,
    detach_threshold: bool,
) -> Tensor:
    """The gradient of the logits, given that of the sums."""
    step = _step(temperature, sigmoid, weight.dtype)
    of_tp, of_predicted, _ = loss_from_sums.to(weight.dtype)
    grads = [logits.new_empty(0, logits.shape[1])]
    for block in _blocks(logits):
        y = target[block].unsqueeze(1)
        *known, first, total, share = rows[:, block]
        row, x = RowFacts(*known), kept[block]
        one, two = top[:, block]
        h = step.of(x, row).scatter_(1, one, first)

        # H is normalised by its sum: only what differs from the row's mean counts.
        extra = of_tp.index_select(0, target[block]).unsqueeze(1)
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
        grad.scatter_(1, one, of_largest.mul_(row.miss).addcmul_(row.p, others, value=-1))
        grads.append(grad.to(logits.dtype))
    return _joined(grads, 0)


def _step(temperature: Tensor, sigmoid: bool, dtype: torch.dtype) -> Linear | Sigmoid:
    eps = torch.finfo(dtype).eps
    return Sigmoid(temperature.item(), eps) if sigmoid else Linear(temperature.item(), eps)


def _blocks(logits: Tensor) -> Iterator[slice]:
    rows, classes = logits.shape
    length = max(1, BLOCK // classes)
    for start in range(0, rows, length):
        yield slice(start, start + length)


def _joined(blocks: list[Tensor], dim: int = 1) -> Tensor:
    """Join the blocks. The first one is empty, so one more block needs no copy."""
    return blocks[1] if len(blocks) == 2 else torch.cat(blocks, dim)
