"""The membership of a tile, as in `kernels.plain`: the parts that the kernels share."""

import triton
import triton.language as tl

from evalign.core.heaviside import OUTER_SHARE

_SHARE = tl.constexpr(OUTER_SHARE)


@triton.jit
def row(largest, runner_up, rest, SIGMOID: tl.constexpr):
    """e_2, the factor from e to q (to p for the sigmoid), p_1, 1 − p_1 and τ."""
    second = tl.exp(runner_up - largest)
    p = 1 / (1 + rest)
    scale = p if SIGMOID else 2 / (1 + second)
    return second, scale, p, rest * p, (1 + second) / 2 * p


@triton.jit
def membership(e, scale, tau, t, SIGMOID: tl.constexpr, EPS: tl.constexpr):
    """x (q, or p for the sigmoid) and H, as if no class were the largest."""
    x = e * scale
    if SIGMOID:
        h = 1 / (1 + tl.exp((tau - x) * (2 / tl.maximum(t, EPS))))
    else:
        width, outer, steep = _ramp(t, EPS)
        # x ≤ 1, but a GPU's quotient is off by an ulp or two, and a steep ramp is not wider.
        ramp = tl.minimum(tl.maximum(x - 1 + width, 0), width)
        h = tl.minimum(x, outer) * (t / outer) + ramp * steep
    return x, h


@triton.jit
def slope(x, h, t, SIGMOID: tl.constexpr, EPS: tl.constexpr):
    """∂H/∂log p at a fixed τ."""
    if SIGMOID:
        return h * (1 - h) * (2 / tl.maximum(t, EPS)) * x
    else:
        _width, outer, steep = _ramp(t, EPS)
        return x * tl.where(x > tl.minimum(outer, 1 - EPS), steep, t / outer)


@triton.jit
def of_largest(second, p, miss, tau, t, SIGMOID: tl.constexpr, EPS: tl.constexpr):
    """H of the largest class and its slopes in log p and in −τ."""
    if SIGMOID:
        k = 2 / tl.maximum(t, EPS)
        h = 1 / (1 + tl.exp((tau - p) * k))
        down = h * (1 - h) * k
        up = down * p
    else:
        width, _outer, steep = _ramp(t, EPS)
        lead = (1 - second) / (1 + second)  # p_1 / τ − 1, and 0 if the two are equal
        past = lead > width
        above = 1 - (1 + width) * tau
        per_above = 1 / above
        line = t * per_above
        ramp = steep * (1 + lead)
        h = tl.where(past, 1 - line * miss, 0.5 + steep * lead)
        up = tl.where(past, line * p, ramp)
        down = tl.where(past, line * miss * (1 + width) * per_above, ramp / tau)
    return h, up, down


@triton.jit
def _ramp(t, EPS: tl.constexpr):
    share = tl.full([], _SHARE, t.dtype)  # a bare number would be rounded to float32
    width = tl.minimum(tl.maximum(2.5 * t, tl.full([], EPS, t.dtype)), 1 - share)
    outer = tl.maximum(1 - 2.5 * t, share)
    return width, outer, (0.5 - t) / width


@triton.jit
def at_threshold(z, tau, t, SIGMOID: tl.constexpr, EPS: tl.constexpr):
    """H(σ(z), τ) and its slope in z, as in `core.heaviside`, for a threshold that is given."""
    p = 1 / (1 + tl.exp(-z))
    if SIGMOID:
        k = 2 / tl.maximum(t, EPS)
        h = 1 / (1 + tl.exp((tau - p) * k))
        slope = h * (1 - h) * k
    else:
        inner, outer, _steep = _ramp(t, EPS)
        # The root of the root of the smallest number, as in `core`: float64 has a smaller one.
        least = tl.full(
            [], 3.2927225399135965e-10 if EPS > 1e-10 else 1.221338669755462e-77, t.dtype
        )
        tau = tl.minimum(tl.maximum(tau, least), 1 - tl.full([], EPS, t.dtype))
        past = p - tau
        nearer = tl.minimum(tau, 1 - tau)
        width = inner * nearer
        below = t / (tau - nearer + outer * nearer)
        above = t / (1 - tau - nearer + outer * nearer)
        middle = (0.5 - t) / width
        low, high = past < -width, past > width
        h = tl.where(high, 1 - above * (1 - p), 0.5 + middle * past)
        h = tl.where(low, below * p, h)
        slope = tl.where(low, below, tl.where(high, above, middle))
    return h, slope * p * (1 - p)
