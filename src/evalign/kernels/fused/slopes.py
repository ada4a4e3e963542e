"""The kernel of the gradient. A tile has the classes down and the rows across."""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from evalign.kernels.fused.step import membership, of_largest, row, slope
from evalign.kernels.fused.sums import add2, add3, is_class, load_stats


@triton.jit
def gradient(
    logits,
    target,
    weight,
    temperature,
    stats,
    top,
    of_tp,
    of_predicted,
    grad,
    n,
    CLASSES: tl.constexpr,
    SIGMOID: tl.constexpr,
    DETACH: tl.constexpr,
    EPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """∂/∂z of Σ_c of_tp·tp + of_predicted·predicted, for this program's tiles of rows.

    A row is read twice, for its sums and for its gradient. If it fits into a tile, the tile is kept
    and the row is read once.
    """
    compute: tl.constexpr = weight.dtype.element_ty
    t = tl.load(temperature).to(compute)
    for start in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        r = start + tl.arange(0, ROWS)[None, :]
        live = r < n if ROWS > 1 else tl.full([1, 1], 1, tl.int1)
        offset = r.to(tl.int64) * CLASSES
        largest, runner_up, rest, total, one = load_stats(stats, top, r, live, n)
        two = tl.load(top + n + r, mask=live, other=0)
        y = tl.load(target + r, mask=live, other=0)
        per_total = 1 / total
        share = tl.load(weight + r, mask=live, other=0) * per_total
        extra = tl.load(of_tp + y, mask=is_class(y, CLASSES), other=0)
        second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)

        if WHOLE:
            column = tl.arange(0, COLUMNS)[:, None]
            x, h, up, g = _tile(
                logits + offset, of_predicted, column, live, CLASSES,
                largest, one, y, extra, scale, tau, t, SIGMOID, EPS,
            )  # fmt: skip
            hg, ups, upg, downs, downg = _terms(x, h, up, g, t, SIGMOID, EPS)
        else:  # lane by lane: the threads of a row meet once, at the end
            hg = tl.zeros([COLUMNS, ROWS], compute)
            ups = tl.zeros([COLUMNS, ROWS], compute)
            upg = tl.zeros([COLUMNS, ROWS], compute)
            downs = tl.zeros([COLUMNS, ROWS], compute)
            downg = tl.zeros([COLUMNS, ROWS], compute)
            for first in range(0, CLASSES, COLUMNS):
                column = first + tl.arange(0, COLUMNS)[:, None]
                x, h, up, g = _tile(
                    logits + offset, of_predicted, column, live, CLASSES,
                    largest, one, y, extra, scale, tau, t, SIGMOID, EPS,
                )  # fmt: skip
                a, b, c, d, e = _terms(x, h, up, g, t, SIGMOID, EPS)
                hg, ups, upg, downs, downg = hg + a, ups + b, upg + c, downs + d, downg + e
        hg, ups, upg = tl.reduce((hg, ups, upg), 0, add3, keep_dims=True)
        if SIGMOID:
            downs, downg = tl.reduce((downs, downg), 0, add2, keep_dims=True)
        else:
            per_tau = 1 / tau
            downs = ups * per_tau
            downg = upg * per_tau

        h_one, up_one, down_one = of_largest(second, p, miss, tau, t, SIGMOID, EPS)
        g_one = tl.load(of_predicted + one) + tl.where(one == y, extra, 0)
        mean = (hg + h_one * g_one) * per_total
        of_one = share * (g_one - mean)
        others = share * (upg - mean * ups)
        of_tau = -share * (downg - mean * downs) - of_one * down_one
        if DETACH:
            of_tau = tl.zeros([1, ROWS], compute)
        of_one = of_one * up_one
        common = others + of_one + tau * of_tau
        if not SIGMOID:
            common = common * tau  # x is p / τ
        second_p = p * second
        at_two = second_p * of_tau / 2
        at_one = miss * of_one - p * (others + (second_p - miss) * of_tau / 2)

        if WHOLE:
            out = up * ((g - mean) * share) - x * common
            _store(grad + offset, column, live, CLASSES, out, one, two, at_one, at_two)
        else:
            for first in range(0, CLASSES, COLUMNS):
                column = first + tl.arange(0, COLUMNS)[:, None]
                x, h, up, g = _tile(
                    logits + offset, of_predicted, column, live, CLASSES,
                    largest, one, y, extra, scale, tau, t, SIGMOID, EPS,
                )  # fmt: skip
                out = up * ((g - mean) * share) - x * common
                _store(grad + offset, column, live, CLASSES, out, one, two, at_one, at_two)


@triton.jit
def _tile(
    z_row, of_predicted, column, live, CLASSES: tl.constexpr,
    largest, one, y, extra, scale, tau, t, SIGMOID: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """x, H, its slope in log p, and the gradient of H / Σ H, without the largest class."""
    real = column < CLASSES
    z = tl.load(z_row + column, mask=live & real, other=-float("inf")).to(tau.dtype)
    z = tl.where(column == one, -float("inf"), z)
    x, h = membership(tl.exp(z - largest), scale, tau, t, SIGMOID, EPS)
    if SIGMOID:
        h = tl.where(real & (column != one), h, 0)
    g = tl.load(of_predicted + column, mask=real, other=0) + tl.where(column == y, extra, 0)
    return x, h, slope(x, h, t, SIGMOID, EPS), g


@triton.jit
def _terms(x, h, up, g, t, SIGMOID: tl.constexpr, EPS: tl.constexpr):
    """The terms of Σ H g, and of Σ slope and Σ slope·g in log p and in −τ (where they differ)."""
    down = slope(1.0, h, t, SIGMOID, EPS) if SIGMOID else up
    return h * g, up, up * g, down, down * g


@triton.jit
def _store(z_row, column, live, CLASSES: tl.constexpr, out, one, two, at_one, at_two):
    out = tl.where(column == one, at_one, out + tl.where(column == two, at_two, 0))
    tl.store(z_row + column, out.to(z_row.dtype.element_ty), mask=live & (column < CLASSES))
