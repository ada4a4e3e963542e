"""The sums and their gradient on the CPU, in numpy.

Let 1 and 2 be the largest logits of a row. With e_c = exp(z_c − z_1), rest = Σ_{c≠1} e_c and
τ = (p_1 + p_2) / 2 ≤ ½, every class but the largest lies at or below τ. So the linear step has two
pieces in q = p / τ, with the same constants for every row, and a third one for p_1 alone.

Numpy calls cost less than torch's, except for the exponential, where torch is faster. Operations
write into preallocated memory: allocating costs as much as an operation.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalign.core.heaviside import OUTER_SHARE
from evalign.kernels.blocks import Array, RowBlock, in_blocks, side_by_side

NUMBERS = 9  # that are kept of a row
GROUP = 64  # numbers that are summed one after the other
SERIAL = 2**15 - 1  # numbers that torch computes in one thread


class RowFacts(NamedTuple):
    """The statistics of rows before their memberships."""

    second: Array  # e_2
    p: Array  # p_1
    miss: Array  # 1 − p_1, without its cancellation
    tau: Array

    @classmethod
    def of(cls, second: Array, rest: Array) -> "RowFacts":
        p = 1 / (1 + rest)
        return cls(second, p, rest * p, (1 + second) * (0.5 * p))


class Linear:
    """`core.heaviside.tempered` at τ ≤ ½: a line, a ramp around q = 1, a line past 1 + width."""

    def __init__(self, temperature: float, eps: float) -> None:
        self.height = temperature
        self.width = min(max(2.5 * temperature, eps), 1 - OUTER_SHARE)
        self.outer = max(1 - 2.5 * temperature, OUTER_SHARE)
        self.flat = self.height / self.outer
        self.steep = (0.5 - self.height) / self.width

    def scale(self, row: RowFacts) -> Array:
        """q / e."""
        return 2 / (1 + row.second)

    def of(self, q: Array, row: RowFacts, out: Array, spare: Array) -> Array:
        ramp = np.subtract(q, 1, out=spare)
        ramp *= self.steep
        ramp += 0.5
        line = np.multiply(q, self.flat, out=out)
        # The ramp lies above the line where it is steeper, and below it where it is not.
        return (np.maximum if self.steep > self.flat else np.minimum)(line, ramp, out=line)

    def of_largest(self, row: RowFacts) -> tuple[Array, Array, Array]:
        """H of the largest, its slope by log p at a fixed τ, and minus that by τ."""
        lead, above = (1 - row.second) / (1 + row.second), 1 - (1 + self.width) * row.tau
        past = lead > self.width
        line, ramp = self.height / above, self.steep * (1 + lead)
        missed = line * row.miss
        return (
            np.where(past, 1 - missed, 0.5 + self.steep * lead),
            np.where(past, line * row.p, ramp),
            np.where(past, missed / above * (1 + self.width), ramp / row.tau),
        )

    def pull(
        self, q: Array, h: Array, gradient: Array, row: RowFacts, out: Array
    ) -> tuple[Array, Array]:
        """Turn the gradient of H into that of log p at a fixed τ; its sum, and that of τ."""
        on_ramp = q > 1 - self.width
        low, high = sorted((self.flat, self.steep))
        # The lower slope and what the higher one adds: their sum is as exact as the higher one.
        x = np.multiply(
            on_ramp if high == self.steep else ~on_ramp, q.dtype.type(high - low), out=out
        )
        x += low
        x *= q
        x *= gradient
        total = _sum(x)
        return total, -total / row.tau

    def to_p(self, coefficient: Array, row: RowFacts) -> Array:
        """The coefficient of q that equals this coefficient of p."""
        return coefficient * row.tau


class Sigmoid:
    """`core.heaviside.sigmoid` with k = 2 / T, a function of p itself."""

    def __init__(self, temperature: float, eps: float) -> None:
        self.k = 2 / max(temperature, eps)

    def scale(self, row: RowFacts) -> Array:
        return row.p

    def of(self, p: Array, row: RowFacts, out: Array, spare: Array) -> Array:
        h = np.subtract(p, row.tau, out=out)
        h *= self.k
        return _by_torch(torch.sigmoid_, h)

    def of_largest(self, row: RowFacts) -> tuple[Array, Array, Array]:
        h = self.of(row.p, row, np.empty_like(row.p), row.p)
        slope = self.k * h * (1 - h)
        return h, slope * row.p, slope

    def pull(
        self, p: Array, h: Array, gradient: Array, row: RowFacts, out: Array
    ) -> tuple[Array, Array]:
        x = np.subtract(1, h, out=out)
        x *= h
        x *= self.k
        x *= gradient
        of_tau = -_sum(x)
        x *= p
        return _sum(x), of_tau

    def to_p(self, coefficient: Array, row: RowFacts) -> Array:
        return coefficient


def forward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: float,
    sigmoid: bool,
    odds: Tensor | None,
    class_weight: Tensor | None = None,
) -> tuple[Array, float, tuple[Tensor, Tensor, Tensor]]:
    """tp, predicted and actual; the cross-entropy of logits + log(odds); what `backward` needs.

    That are numbers of every row, where the two largest are, and q (or p), which is kept because an
    exponential costs more than all else here. On a GPU, where memory is short, it is computed again
    instead.

    Args:
        logits: images, classes, positions, in any layout; a matrix is one image.
        target: class indices (images, positions).
        weight: (images, positions).
        odds: of the classes, or None for no cross-entropy.
        class_weight: the factors of the classes in the cross-entropy; None for 1.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    images = logits.detach().to(weight.dtype).numpy()
    classes, count = logits.shape[1], weight.numel()
    kept = (
        weight.new_empty(NUMBERS, count),
        target.new_empty(2, count),
        weight.new_empty(logits.numel()),
    )
    rows, top, q = (x.numpy() for x in kept)
    targets, weights = target.reshape(-1).numpy(), weight.reshape(-1).numpy()
    factor = None if odds is None else odds.to(weight.dtype).numpy()
    of_class = None if class_weight is None else class_weight.to(weight.dtype).numpy()
    few = np.int8 if classes < 2**7 else np.int16 if classes < 2**15 else np.int32
    names = np.arange(classes, dtype=few)[:, None]

    def of_block(given: Array, block: RowBlock, spare: Array) -> tuple[Array, float]:
        y, w, flat = targets[block.rows], weights[block.rows], q[block.numbers]
        z = block.shape(flat)
        np.copyto(z.reshape(given.shape), given)
        cross_entropy = 0.0
        largest, one = _largest(z, names)
        at_y, at_one = block.places(y), block.places(one)
        of_target = flat[at_y]
        flat[at_one] = -np.inf
        _, two = _largest(z, names)
        z -= largest
        e = _by_torch(torch.exp_, z)
        # An infinite logit is a mistake, not certainty: it stays visible, as NaN.
        rest = _sum(e) + (largest - largest)
        partition = rest
        if factor is not None:
            partition = np.einsum("c,cn->n", factor, e) + factor[one]
            # A row without weight may have its class ruled out: 0·∞ is 0 here.
            heavy = w if of_class is None else w * of_class[y]
            cross = np.where(w == 0, 0, heavy * (np.log(partition) - (of_target - largest)))
            cross_entropy = cross.sum(dtype=np.float64)
        row = RowFacts.of(flat[block.places(two)], rest)
        first, *slopes = step.of_largest(row)
        e *= step.scale(row)
        memberships, other, _ = spare
        h = step.of(e, row, block.shape(memberships), block.shape(other))
        memberships[at_one] = first
        total = _sum(h)
        share = w / total
        right = memberships[at_y]
        rows[:, block.rows] = row.second, rest, first, *slopes, total, partition, share, right
        top[:, block.rows] = one, two
        # Right and wrong are summed apart: a difference would round off a few false positives.
        memberships[at_y] = 0
        return _weighted_sum(h, share), cross_entropy

    parts = in_blocks(images, side_by_side(logits), of_block)
    wrong = sum((wrong for wrong, _ in parts), np.zeros(classes))
    cross_entropy = sum(cross for _, cross in parts)
    with np.errstate(all="ignore"):
        tp = np.bincount(targets, rows[-2] * rows[-1], classes)
    actual = np.bincount(targets, weights, classes)
    if odds is not None:
        heavy = actual if class_weight is None else actual * class_weight.numpy()
        cross_entropy -= float(heavy @ odds.log().numpy())
    return np.stack([tp, tp + wrong, actual]), cross_entropy, kept


def backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    temperature: float,
    kept: tuple[Tensor, ...],
    slopes: Array,
    cross_entropy_slope: float,
    sigmoid: bool,
    odds: Tensor | None,
    class_weight: Tensor | None = None,
) -> Tensor:
    """The gradient of the logits, given the slopes (2, C) by tp and predicted, and that by the
    cross-entropy.
    """
    step = _step(temperature, sigmoid, weight.dtype)
    rows, top, q = (x.numpy() for x in kept)
    of_tp, of_predicted = slopes.astype(q.dtype)
    targets, weights = target.reshape(-1).numpy(), weight.reshape(-1).numpy()
    factor = None if odds is None else odds.to(weight.dtype).numpy()
    of_class = None if class_weight is None else class_weight.to(weight.dtype).numpy()
    grads = torch.empty_like(logits, dtype=weight.dtype)

    def of_block(result: Array, block: RowBlock, spare: Array) -> None:
        y, (one, two), x = targets[block.rows], top[:, block.rows], block.shape(q[block.numbers])
        second, rest, first, by_log_p, by_tau, total, partition, share, right = rows[:, block.rows]
        at_y, at_one = block.places(y), block.places(one)
        row = RowFacts.of(second, rest)
        h, of_h, grad = map(block.shape, spare)
        step.of(x, row, h, of_h)
        memberships, gradient_of_h, gradient = spare
        memberships[at_one] = first

        # H is normalised by its sum: only what differs from the row's mean counts.
        extra = of_tp[y]
        mean = (np.einsum("c,cn->n", of_predicted, h) + extra * right) / total
        np.multiply(of_predicted[:, None], share, out=of_h)
        of_h -= mean * share
        gradient_of_h[at_y] += extra * share

        of_first = gradient_of_h[at_one]
        gradient_of_h[at_one] = 0
        of_largest = by_log_p * of_first
        others, of_tau = step.pull(x, h, of_h, row, grad)
        half = 0.5 * (of_tau - by_tau * of_first)
        # Through the softmax, and through τ = (p_1 + p_2) / 2 to the two it is made of.
        common = step.to_p(others + of_largest + 2 * row.tau * half, row)
        p_2 = row.p * row.second
        at_largest = of_largest * row.miss - row.p * (others + (p_2 - row.miss) * half)
        gradient[block.places(two)] += p_2 * half
        if factor is None:
            grad -= np.multiply(x, common, out=h)
            gradient[at_one] = at_largest
        else:
            cross = weights[block.rows] * cross_entropy_slope
            if of_class is not None:
                cross = cross * of_class[y]
            per_partition = cross / partition
            # x is e times a number of the row.
            np.multiply(factor[:, None], per_partition / step.scale(row), out=h)
            h -= common
            h *= x
            grad += h
            gradient[at_one] = at_largest + per_partition * factor[one]
            gradient[at_y] -= cross
        np.copyto(result, grad.reshape(result.shape))

    in_blocks(grads.numpy(), side_by_side(logits), of_block)
    return grads.to(logits.dtype)


def _largest(z: Array, names: Array) -> tuple[Array, Array]:
    """The largest logit of every row, and its class."""
    if z.strides[0] == z.itemsize:
        one = z.argmax(0)
        return z[one, np.arange(len(one))], one
    # Here `argmax` is ten times slower than this.
    largest = z.max(0)
    marks = (z == largest).view(np.int8) * names
    return largest, marks.max(0).astype(np.int64)


def _sum(x: Array) -> Array:
    """Sum along the first axis, in groups: numpy groups contiguous numbers only."""
    if len(x) <= GROUP or x.strides[0] == x.itemsize:
        return x.sum(0)
    return np.stack([x[start : start + GROUP].sum(0) for start in range(0, len(x), GROUP)]).sum(0)


def _weighted_sum(x: Array, weights: Array) -> Array:
    """Sum along the second axis, in groups as well."""
    whole = len(weights) // GROUP * GROUP
    groups = x[:, :whole].reshape(len(x), -1, GROUP), weights[:whole].reshape(-1, GROUP)
    rest = np.einsum("cn,n->c", x[:, whole:], weights[whole:])
    return np.einsum("cgn,gn->gc", *groups).sum(0) + rest


def _by_torch(function: Callable[[Tensor], Tensor], x: Array) -> Array:
    """Apply a function of torch in place, in this thread alone."""
    flat = x.reshape(-1) if x.flags.c_contiguous else x.T.reshape(-1)
    for part in torch.from_numpy(flat).split(SERIAL):
        function(part)
    return x


def _step(temperature: float, sigmoid: bool, dtype: torch.dtype) -> Linear | Sigmoid:
    return (Sigmoid if sigmoid else Linear)(temperature, torch.finfo(dtype).eps)
