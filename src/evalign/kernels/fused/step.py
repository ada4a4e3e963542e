"""The linear step of a tile, as in `kernels.cpu`: the parts that the kernels share."""

import triton
import triton.language as tl

from evalign.membership.heaviside import OUTER_SHARE

_SHARE = tl.constexpr(OUTER_SHARE)


@triton.jit
def row(largest, runner_up, rest):
    """e_2, the factor from e to q, p_1, 1 − p_1 and τ."""
    second = tl.exp(runner_up - largest)
    p = 1 / (1 + rest)
    return second, 2 / (1 + second), p, rest * p, (1 + second) / 2 * p


@triton.jit
def membership(e, scale, t, EPS: tl.constexpr):
    """q and H, as if no class were the largest."""
    q = e * scale
    width, outer, steep = _ramp(t, EPS)
    # q ≤ 1, but a GPU's quotient is off by an ulp or two, and a steep ramp is not wider.
    ramp = tl.minimum(tl.maximum(q - 1 + width, 0), width)
    return q, tl.minimum(q, outer) * (t / outer) + ramp * steep


@triton.jit
def slope(q, t, EPS: tl.constexpr):
    """∂H/∂log p at a fixed τ."""
    _width, outer, steep = _ramp(t, EPS)
    return q * tl.where(q > tl.minimum(outer, 1 - EPS), steep, t / outer)


@triton.jit
def of_largest(second, p, miss, tau, t, EPS: tl.constexpr):
    """H of the largest class and its slopes in log p and in −τ."""
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
def at_half(z, t, EPS: tl.constexpr):
    """H(σ(z), ½) and its slope in z, as in `core.heaviside`."""
    p = 1 / (1 + tl.exp(-z))
    inner, outer, _steep = _ramp(t, EPS)
    past, width = p - 0.5, inner / 2
    line = t / (outer / 2)
    middle = (0.5 - t) / width
    low, high = past < -width, past > width
    h = tl.where(high, 1 - line * (1 - p), 0.5 + middle * past)
    h = tl.where(low, line * p, h)
    return h, tl.where(low | high, line, middle) * p * (1 - p)
