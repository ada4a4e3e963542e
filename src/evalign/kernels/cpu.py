"""The soft sums of a multiclass batch and their gradient on the CPU, in torch operations.

Let 1 and 2 be the largest logits of a row. With e_c = exp(z_c − z_1), rest = Σ_{c≠1} e_c and
τ = (p_1 + p_2) / 2 ≤ ½, every class but the largest lies at or below τ. So the linear step has two
pieces in q = p / τ, with the same constants for every row, and a third one for p_1 alone.
Memberships are normalised to sum to 1, so a step may have any unit: the smaller slope is 1 here.

Blocks (classes, rows) stay in the cache, and so does memory that is asked for block by block: the
system clears what is new. Masks are floats, because a boolean result takes five times as long and
the index of a maximum ten times; `index_select` takes a fifth of an index in brackets.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from evalign.kernels import KernelSettings
from evalign.membership.heaviside import OUTER_SHARE

BLOCK = 2**20  # numbers: larger blocks leave the cache, in smaller ones the calls themselves cost
MANY = 64  # classes that stay side by side in a block where the logits have them so
COLDEST = 1e-20  # a step at a lower temperature is the same, and its unit would overflow
aten = torch.ops.aten  # for results in memory that is there


class Step:
    """`core.heaviside.tempered` at τ ≤ ½, in x ∝ p / τ."""

    def __init__(self, temperature: Tensor, dtype: torch.dtype) -> None:
        self.height, eps = max(temperature.item(), COLDEST), torch.finfo(dtype).eps
        self.width = min(max(2.5 * self.height, eps), 1 - OUTER_SHARE)
        self.outer = max(1 - 2.5 * self.height, OUTER_SHARE)
        flat, self.steep = self.height / self.outer, (0.5 - self.height) / self.width
        self.one, self.edge, self.bends_up = 1.0, self.outer, self.steep > flat
        if self.bends_up:  # the ramp's ends have this precision: so H(τ) is ½, however steep it is
            ulps = self.width // (eps / 2)
            self.one = round(ulps / self.width) * (eps / 2)
            self.edge = self.one - ulps * (eps / 2)
        low, high = sorted((flat, self.steep))
        self.unit, self.extra = low / self.one, high / low - 1

    def of(self, x: Tensor, out: Tensor) -> Tensor:
        # The smaller slope and what the larger one adds: their sum is as exact as the larger one.
        if self.bends_up:
            aten.softshrink.out(x, self.edge, out=out)
        else:
            torch.clamp(x, max=self.edge, out=out)
        return torch.add(x, out, alpha=self.extra, out=out)

    def of_largest(self, second: Tensor, rest: Tensor, half: Tensor) -> list[Tensor]:
        """H of the largest, and its slopes by second = e_2 and rest."""
        h = self.of(self.one / half, torch.empty_like(half))
        past = torch.lt(half, 1 / (1 + self.width), out=torch.empty_like(half))
        above = (rest - second).add_(half, alpha=self.outer)
        line = self.height / self.unit / above
        beyond = line * rest
        by_above = beyond / above
        h.lerp_(1 / self.unit - beyond, past)
        by_second = (-0.5 * self.steep / self.unit / half**2).lerp_(
            (0.5 * self.outer - 1) * by_above, past
        )
        return [h, by_second, by_above.sub_(line).mul_(past)]

    def pull(self, x: Tensor, h: Tensor, of_h: Tensor, half: Tensor) -> Tensor:
        """Turn the gradient of H into that of log x, and return that of second.

        Overwrites h. The result is 0 at the largest, where x is.
        """
        steeper = (torch.gt if self.bends_up else torch.le)(x, self.edge, out=h)
        of_h *= torch.addcmul(x, steeper, x, value=self.extra, out=h)
        return of_h.sum(0) * -0.5 / half


def forward(
    logits: Tensor, target: Tensor, weight: Tensor, settings: KernelSettings
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Sums (5, C) in float64, the cross-entropy, and what `backward` needs.

    The sums are soft true positives, soft predicted and actual, and, if a shift asks for them, hard
    true positives and hard predicted, else 0.
    Rows of weight 0 add nothing, whatever their logits. In other rows an infinite or NaN logit
    makes the sums NaN, unless it is −inf and rules a class out.

    Args:
        logits: (images, classes, positions) in any layout; a matrix has one position.
        target: class indices (images, positions).
        weight: (images, positions), in the precision of the computation.
    """
    step, classes, shift = Step(settings.temperature, weight.dtype), logits.shape[1], settings.shift
    odds, own, even = _of_classes(settings, weight, classes)
    ones_and_odds = torch.stack([torch.ones_like(odds), odds])
    below, kept = -torch.finfo(weight.dtype).smallest_normal, list[Tensor]()
    later = torch.arange(classes - 1, -1, -1, device=weight.device).to(weight).unsqueeze(1)
    sums, cross = (weight.new_zeros(size, dtype=torch.float64) for size in ((5, classes), ()))
    for z, rows, h, _ in _blocks(logits.detach(), weight):
        y, w, x = target.reshape(1, -1)[:, rows], weight.reshape(-1)[rows], torch.empty_like(h)
        z, top = z.to(w), z.amax(0).to(w)
        if not math.isfinite(top.sum()):  # a mistake, not certainty: it stays visible, as NaN
            kind = torch.where(w == 0, 0, torch.nan).to(w).view_as(top)
            z = torch.where(top.isfinite(), z, kind)
            top = z.amax(0)
        torch.sub(z, top, out=x.view(z.shape))
        # Of equal ones the first is the largest: it has the most classes after it.
        aten.threshold_backward.grad_input(later, x, below, grad_input=h)
        one = (later[0] - h.amax(0)).long().unsqueeze(0)
        at_y, at_all = x.gather(0, y)[0], even @ x if settings.smoothing else 0
        none = torch.zeros_like(w).unsqueeze(0)  # a tensor is scattered twice as fast as a number
        second = x.exp_().scatter_(0, one, none).amax(0)
        rest, partition = ones_and_odds @ x
        partition += odds.index_select(0, one[0])
        half = 0.5 + 0.5 * second
        first, *slopes = step.of_largest(second, rest, half)
        x *= step.one / half
        step.of(x, out=h).scatter_(0, one, first.unsqueeze(0))
        total, right = h.sum(0), h.gather(0, y)[0]
        kept += x, one, second, first, *slopes, total, right, partition
        # Right and wrong are summed apart: a difference would round off a few false positives.
        sums[1] += h.scatter_(0, y, none) @ (w / total)
        found = [(0, y, w * (right / total)), (2, y, w)]
        if shift is not None:  # a metric alone does not ask for hard labels
            hit = torch.eq(y[0], one[0], out=torch.empty_like(w))
            found += [(3, y, hit.mul_(w)), (4, one, w)]
            heavy = own.index_select(0, y[0])
            terms = w * ((heavy + even.sum()) * partition.log() - heavy * at_y - at_all)
            if not math.isfinite(terms.sum()):  # a row without weight may have its class ruled out
                terms = torch.where(w == 0, 0, terms)
            cross += terms.sum(dtype=torch.float64)
        for i, index, mass in found:
            sums[i] += torch.bincount(index[0], mass.double(), classes)
    if shift is not None:
        cross -= (sums[2] * own.double() + sums[2].sum() * even.double()) @ shift
    sums[3:] += 0 * sums[1]  # NaN of the soft sums is seen in the hard ones too
    sums[1] += sums[0]
    return sums, cross, kept


def backward(
    logits: Tensor,
    target: Tensor,
    weight: Tensor,
    settings: KernelSettings,
    kept: Sequence[Tensor],
    of_tp: Tensor,
    of_predicted: Tensor,
    of_cross: float,
) -> Tensor:
    """The gradient of the logits, given those of the soft sums and of the cross-entropy."""
    step, gradient = Step(settings.temperature, weight.dtype), torch.empty_like(logits)
    odds, own, even = _of_classes(settings, weight, logits.shape[1])
    ones_and_odds = torch.stack([torch.ones_like(odds), odds], 1)
    known = math.isfinite(of_tp.sum() + of_predicted.sum() + of_cross)
    of_tp, of_predicted = of_tp.to(weight), of_predicted.to(weight)
    for i, (result, rows, h, grad) in enumerate(_blocks(gradient, weight)):
        y, w = target.reshape(1, -1)[:, rows], weight.reshape(-1)[rows]
        x, one, second, first, *slopes, total, right, partition = kept[9 * i : 9 * i + 9]
        (by_second, by_rest), half = slopes, 0.5 + 0.5 * second
        extra = of_tp.index_select(0, y[0]).unsqueeze(0)
        scale = step.one / half  # x / e
        step.of(x, out=h).scatter_(0, one, first[None])
        # H is normalised by its sum: only what differs from the row's mean counts.
        mean = (of_predicted @ h + extra[0] * right) / total
        torch.sub(of_predicted[:, None], mean, out=grad)
        of_first = grad.scatter_add_(0, y, extra).gather(0, one)[0]
        of_second = step.pull(x, h, grad, half) + of_first * by_second
        of_rest = of_first * by_rest
        seconds = torch.eq(x, second * scale, out=h)  # equal ones share the slope
        grad.addcmul_(seconds, second * of_second / seconds.sum(0))
        if settings.shift is None:
            grad.addcmul_(x, of_rest / scale)
        else:
            cross, heavy = of_cross * total, own.index_select(0, y[0])
            of_partition = (heavy + even.sum()) * cross / partition
            torch.mm(ones_and_odds, torch.stack([of_rest, of_partition]).div_(scale), out=h)
            grad.addcmul_(x, h).scatter_add_(0, y, -(heavy * cross)[None])
            if settings.smoothing:
                grad.addcmul_(even[:, None], cross, value=-1)
            grad.scatter_(0, one, 0)
        # The slopes of a row sum to 0.
        grad.scatter_(0, one, -grad.sum(0, keepdim=True))
        if not known:  # 0·NaN is 0 in rows without weight
            grad[:, w == 0] = 0
        torch.mul(grad.view(result.shape), (w / total).view(result[0].shape), out=result)
    return gradient


def _of_classes(settings: KernelSettings, like: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Odds, and the weight of a class in the cross-entropy of its own rows and of all rows."""
    _, shift, factor, smoothing = settings
    factor = like.new_ones(classes) if factor is None else factor.to(like)
    odds = factor if shift is None else shift.exp().to(like)
    return odds, (1 - smoothing) * factor, smoothing / classes * factor


def _blocks(images: Tensor, like: Tensor) -> Iterator[tuple[Tensor, slice, Tensor, Tensor]]:
    """Parts (classes, images, positions) of images, their rows, and memory (classes, rows) for two
    more.
    """
    _, classes, positions = images.shape
    length, stop = max(1, BLOCK // classes), 0
    beside = classes >= MANY and torch.empty_like(images, device="meta").stride(1) == 1
    memory = like.new_empty(2, min(length * classes, images.numel()))
    for several in images.split(max(1, length // max(1, positions))):
        for part in several.split(length, 2):
            start, stop = stop, stop + part[:, 0].numel()
            flat = memory[:, : part.numel()]
            one, two = (x.view(-1, classes).t() if beside else x.view(classes, -1) for x in flat)
            yield part.swapaxes(0, 1), slice(start, stop), one, two
