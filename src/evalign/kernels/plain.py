"""The sums, the cross-entropy and their gradient in plain torch, for the CPU.

Let 1 and 2 be the largest logits of a row. With e_c = exp(z_c − z_1), rest = Σ_{c≠1} e_c and
τ = (p_1 + p_2) / 2 ≤ ½, every class but the largest lies at or below τ. So the linear step has two
pieces in p / τ = e / middle, where middle = (1 + e_2) / 2, with the same constants for every row,
and a third one for p_1 alone.

Torch is fast at arithmetic with whole blocks, and slow at comparisons and at the search for an
index. So the largest and the second are marked by ones among zeros. Equal logits share a mark. The
step is ½ at a tie from either side, and the gradient of the threshold is divided among them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from evalign.core.heaviside import OUTER_SHARE

BLOCK = 2**17  # numbers: a handful of temporaries fit the cache, and operations are worth the call
RUN = 4096  # rows that are summed in float32 before the sum goes into float64
WIDE = 32  # classes from which on a row is long enough to be worked on as it lies in memory


class Row(NamedTuple):
    """The statistics of rows before their memberships: one number per row."""

    second: Tensor  # e_2
    middle: Tensor  # τ / p_1
    p: Tensor  # p_1
    miss: Tensor  # 1 − p_1, without its cancellation
    tau: Tensor

    @classmethod
    def of(cls, second: Tensor, rest: Tensor) -> "Row":
        p = (rest + 1).reciprocal_()
        middle = second.mul(0.5).add_(0.5)
        return cls(second, middle, p, rest * p, middle * p)


class Linear:
    """`core.heaviside.tempered` at τ ≤ ½: a line, a ramp around τ, and for the largest a line to 1.

    As memberships are divided by their sum, H may have any unit. Here it rises as e on the ramp.
    """

    def __init__(self, temperature: float, eps: float) -> None:
        self.width = min(max(2.5 * temperature, eps), 1 - OUTER_SHARE)
        self.foot = max(1 - max(2.5 * temperature, eps), OUTER_SHARE)
        steep = (0.5 - temperature) / self.width
        self.centre, self.height = 0.5 / steep, temperature / steep
        self.flat = self.height / self.foot

    def of(self, e: Tensor, others: Tensor, row: Row) -> tuple[Tensor, Tensor, Tensor]:
        """H of the others, H of the largest, and how far the others are up the ramp."""
        low = torch.minimum(others, row.middle * self.foot)
        ramp = others - low
        lead, _, past = self._largest(row)
        first = lead.clamp_(max=self.width).add_(self.centre).add_(past).mul_(row.middle)
        return torch.add(ramp, low, alpha=self.flat, out=low), first, ramp

    def pull(
        self, e: Tensor, largest: Tensor, h: Tensor, ramp: Tensor, of_h: Tensor, row: Row
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn the gradient of H into that of log p at a fixed τ, its sum, and that of τ."""
        lead, above, past = self._largest(row)
        line = row.p / above * self.height
        first = torch.where(lead > self.width, line, lead.add_(1)).mul_(row.middle)
        h.addcmul_(ramp.sign_(), row.middle * (self.foot * (1 - self.flat)))  # ∂H/∂log e
        x = h.addcmul_(largest, first).mul_(of_h)
        total = _over_classes(x)
        # H is a function of p / τ everywhere but on the last line.
        apart = past.mul_(row.middle).div_(above).mul_(_over_classes(of_h.mul_(largest)))
        return x, total, apart.sub_(total).div_(row.tau)

    def _largest(self, row: Row) -> tuple[Tensor, Tensor, Tensor]:
        """p_1 / τ − 1, the room above the ramp, and how far H is up the last line."""
        above = row.tau.mul(-1 - self.width).add_(1)
        past = (above - row.miss).relu_().div_(above).mul_(self.height)
        return (1 - row.middle).div_(row.middle), above, past


class Sigmoid:
    """`core.heaviside.sigmoid` with k = 2 / T, a function of p − τ = p_1·(e − middle)."""

    def __init__(self, temperature: float, eps: float) -> None:
        self.k = 2 / max(temperature, eps)

    def of(self, e: Tensor, others: Tensor, row: Row) -> tuple[Tensor, Tensor, Tensor]:
        """H of all: nothing remains for the largest."""
        h = (e - row.middle).mul_(row.p * self.k).sigmoid_()
        return h, torch.zeros_like(row.p), h

    def pull(
        self, e: Tensor, largest: Tensor, h: Tensor, ramp: Tensor, of_h: Tensor, row: Row
    ) -> tuple[Tensor, Tensor, Tensor]:
        x = (1 - h).mul_(h).mul_(of_h)
        of_tau = _over_classes(x).mul_(-self.k)
        x.mul_(e).mul_(row.p * self.k)
        return x, _over_classes(x), of_tau


def forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    sigmoid: bool,
    odds: Tensor | None,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """tp, predicted and actual; the cross-entropy of logits + log(odds); what backward needs.

    The exponentials are kept because they cost more than all else here. On a GPU, where memory is
    short, they are computed again instead.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    sums = weight.new_zeros(3, logits.shape[1], dtype=torch.float64)
    tp, wrong, actual = sums
    cross_entropy = sums.new_zeros(())
    rows, exponentials = weight.new_empty(6, weight.numel()), weight.new_empty(logits.numel())
    for images, positions, at in _blocks(logits):
        z = logits[images, :, positions].transpose(0, 1)
        y, w = target[images, positions].reshape(1, -1), weight[images, positions].reshape(-1)
        second, rest, ties, total, right, partition = rows[:, at]
        e = _block(exponentials, at, logits)
        e.unflatten(1, z.shape[1:]).copy_(z)
        e.sub_(e.amax(0))
        behind = None if odds is None else e.gather(0, y)[0]
        largest, others = _split(e.exp_())
        ties.copy_(_over_classes(largest))
        rest.copy_(_over_classes(others)).add_(ties).sub_(1)
        torch.maximum(others.amax(0), (ties - 1).clamp_(max=1), out=second)
        h, first, _ = step.of(e, others, Row.of(second, rest))
        h.addcmul_(largest, first)
        total.copy_(_over_classes(h))
        share = w / total
        # Right and wrong are summed apart: a difference would round off a few false positives.
        right.copy_(h.gather(0, y)[0])
        tp.index_add_(0, y[0], (right * share).double())
        h.scatter_(0, y, 0)
        for start in range(0, h.shape[1], RUN):
            wrong += _product(h[:, start : start + RUN], share[start : start + RUN])
        actual.index_add_(0, y[0], w.double())
        if odds is not None and behind is not None:
            partition.copy_(_product(e.t(), odds.to(e.dtype)))
            # A row that does not count may have its own class ruled out: 0·∞ is 0 here.
            behind.mul_(w).nan_to_num_(0.0, torch.inf, -torch.inf)
            cross_entropy += partition.log().mul_(w).sub_(behind).sum(dtype=torch.float64)
    if odds is not None:
        cross_entropy -= actual @ odds.log()
    wrong += tp
    return sums, cross_entropy, (rows, exponentials)


def backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: Tensor,
    kept: tuple[Tensor, Tensor],
    slopes: Tensor,
    cross_entropy_slope: Tensor,
    sigmoid: bool,
    detach_threshold: bool,
    odds: Tensor | None,
) -> Tensor:
    """The gradient of the logits, given those of tp, of predicted and of the cross-entropy."""
    step = _step(temperature, sigmoid, weight.dtype)
    rows, exponentials = kept
    of_tp, of_predicted = slopes.to(weight.dtype)
    grad = torch.empty_strided(logits.shape, logits.stride(), dtype=logits.dtype)
    for images, positions, at in _blocks(logits):
        y, w = target[images, positions].reshape(1, -1), weight[images, positions].reshape(-1)
        second, rest, ties, total, right, partition = rows[:, at]
        row = Row.of(second, rest)
        e = _block(exponentials, at, logits)
        largest, others = _split(e)
        h, first, ramp = step.of(e, others, row)

        # H is normalised by its sum: only what differs from the row's mean counts.
        share = w / total
        extra = of_tp.index_select(0, y[0])
        mean = _product(h.t(), of_predicted).addcmul_(extra, right)
        mean.addcmul_(first, _product(largest.t(), of_predicted)).div_(total)
        of_h = torch.addcmul(mean.mul_(share).neg_(), of_predicted.unsqueeze(1), share)
        of_h.scatter_add_(0, y, extra.mul_(share).unsqueeze(0))

        # Through the softmax, and through τ = (p_1 + p_2) / 2 to the two it is made of.
        x, common, of_tau = step.pull(e, largest, h, ramp, of_h, row)
        if not detach_threshold:
            common.addcmul_(row.tau, of_tau)
            half = of_tau.mul_(row.p).mul_(0.5)
            runner_up = others.sub_(second).sign_().add_(1)
            x.addcmul_(largest, (2 / ties).clamp_(max=1).mul_(half))
            x.addcmul_(runner_up, half.mul_(second).div_(_over_classes(runner_up).clamp_(min=1)))
        common.mul_(row.p).neg_()
        if odds is None:
            x.addcmul_(e, common)
        else:
            pull = w * cross_entropy_slope.to(w.dtype)
            odd = odds.to(w.dtype).unsqueeze(1)
            x.addcmul_(e, torch.addcmul(common, odd, pull / partition))
            x.scatter_add_(0, y, pull.neg_().unsqueeze(0))
        block = grad[images, :, positions].transpose(0, 1)
        block.copy_(x.unflatten(1, block.shape[1:]))
    return grad


def _step(temperature: Tensor, sigmoid: bool, dtype: torch.dtype) -> Linear | Sigmoid:
    eps = torch.finfo(dtype).eps
    return Sigmoid(temperature.item(), eps) if sigmoid else Linear(temperature.item(), eps)


def _split(e: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the largest by ones, as only 1 exceeds the number before 1, and take them off e."""
    largest = F.threshold(e, 1 - torch.finfo(e.dtype).eps / 2, 0.0)
    return largest, e - largest


def _over_classes(x: Tensor) -> Tensor:
    return _product(x.t(), x.new_ones(len(x)))


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    """torch.mv, faster than `sum`, unless it has been allowed to round to bfloat16."""
    if torch.get_float32_matmul_precision() == "highest":
        return torch.mv(matrix, vector)
    return (matrix * vector).sum(1)


def _blocks(logits: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Parts of an image, or several images: which, where in them, and which rows of all."""
    images, classes, positions = logits.shape
    length = max(1, BLOCK // classes)
    several, length = max(1, length // max(1, positions)), max(1, min(length, positions))
    for image in range(0, images, several):
        last = min(image + several, images)
        for start in range(0, positions, length):
            stop = min(start + length, positions)
            first = image * positions + start
            rows = slice(first, first + (last - image) * (stop - start))
            yield slice(image, last), slice(start, stop), rows


def _block(numbers: Tensor, at: slice, logits: Tensor) -> Tensor:
    """A block of classes × rows, of which the one or the other lie side by side in memory."""
    classes = logits.shape[1]
    block = numbers[at.start * classes : at.stop * classes]
    wide = classes >= WIDE and logits.stride(1) == 1
    return block.view(-1, classes).t() if wide else block.view(classes, -1)
