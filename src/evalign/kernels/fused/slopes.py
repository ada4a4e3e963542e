"""The kernel of the gradient. A tile has the classes down and the rows across."""

import triton
import triton.language as tl

from evalign.kernels.fused.step import membership, of_largest, row, slope
from evalign.kernels.fused.sums import add3, odds_of, target_and_weight


@triton.jit
def gradient(
    logits, target, weight, stats, slopes, outer, grad,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ADJACENT: tl.constexpr,
):  # fmt: skip
    """`outer` times ∂/∂z of Σ_c of_tp·tp + of_predicted·predicted + of_cross·Σ cross-entropy.

    `slopes` holds of_tp and of_predicted for each class, of_cross, the temperature, the shift of
    each class, and with a `CROSS_ENTROPY` of 2 its factor.
    """
    compute: tl.constexpr = stats.dtype.element_ty
    if ADJACENT:
        # Tells the compiler that they are multiples, so that it loads several classes at a time.
        z_image, z_row = z_image // ADJACENT * ADJACENT, z_row // ADJACENT * ADJACENT
    t = tl.load(slopes + 2 * CLASSES + 1)
    outer_slope = tl.load(outer).to(compute)
    of_predicted, shift = slopes + CLASSES, slopes + 2 * CLASSES + 2
    column = tl.arange(0, COLUMNS)[:, None]
    real = column < CLASSES
    g = tl.load(of_predicted + column, mask=real, other=0)
    n = images * size
    tiles = tl.cdiv(size, ROWS)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[None, :]
        live = s < size if ROWS > 1 else tl.full([1, 1], 1, tl.int1)
        r = image * size + s
        offset = image.to(tl.int64) * z_image + s.to(tl.int64) * z_row
        # What `whole_rows` has kept of the rows; harmless numbers past the end.
        largest = tl.load(stats + r, mask=live, other=0)
        runner_up = tl.load(stats + n + r, mask=live, other=0)
        rest = tl.load(stats + 2 * n + r, mask=live, other=1)
        total = tl.load(stats + 3 * n + r, mask=live, other=1)
        one = tl.load(stats + 4 * n + r, mask=live, other=0).to(tl.int32)
        two = tl.load(stats + 5 * n + r, mask=live, other=0).to(tl.int32)
        y, w, known = target_and_weight(
            target, weight, r, image, s, live, w_image, w_row, ignore, CLASSES, WEIGHTED, compute
        )
        w *= outer_slope
        per_total = 1 / total
        share = w * per_total
        second, scale, p, miss, tau = row(largest, runner_up, rest)

        # The true class, which has a slope of its own.
        counts = live & (w != 0)
        own = tl.load(logits + offset + y * z_class, mask=counts & known, other=0).to(compute)
        first = one == y
        extra = tl.load(slopes + y, mask=known, other=0)
        own_q, own_h = membership(tl.exp(own - largest), scale, t, EPS)
        own_up = tl.where(first, 0, slope(own_q, t, EPS) * extra)
        own_h = tl.where(first, 0, own_h * extra)

        # q, H, its slope in log p, and e, without the largest class.
        z_rows = logits + offset + column * z_class
        z = tl.load(z_rows, mask=live & real, other=-float("inf")).to(compute)
        e = tl.exp(tl.where(column == one, -float("inf"), z) - largest)
        q, h = membership(e, scale, t, EPS)
        up = slope(q, t, EPS)
        hg, ups, upg = tl.reduce((h * g, up, up * g), 0, add3, keep_dims=True)
        upg += own_up
        per_tau = 1 / tau
        downs = ups * per_tau
        downg = upg * per_tau

        h_one, up_one, down_one = of_largest(second, p, miss, tau, t, EPS)
        g_one = tl.load(of_predicted + one, mask=one < CLASSES, other=0) + tl.where(first, extra, 0)
        mean = (hg + own_h + h_one * g_one) * per_total
        of_one = share * (g_one - mean)
        others = share * (upg - mean * ups)
        of_tau = -share * (downg - mean * downs) - of_one * down_one
        of_one = of_one * up_one
        common = (others + of_one + tau * of_tau) * tau  # q is p / τ
        second_p = p * second
        at_two = second_p * of_tau / 2
        at_one = miss * of_one - p * (others + (second_p - miss) * of_tau / 2)
        at_own = share * own_up
        per_mass = tl.zeros([1, ROWS], compute)
        if CROSS_ENTROPY:
            cross = w * tl.load(slopes + 2 * CLASSES)
            if CROSS_ENTROPY == 2:
                cross *= tl.load(shift + CLASSES + y, mask=known, other=1)
            per_mass = cross / tl.load(stats + 6 * n + r, mask=live, other=1)
            at_one += per_mass * odds_of(shift, one, CLASSES, compute) - tl.where(first, cross, 0)
            at_own -= cross

        out = up * ((g - mean) * share) - q * common
        if CROSS_ENTROPY:
            out += per_mass * odds_of(shift, column, CLASSES, compute) * e
        out += tl.where(column == two, at_two, 0) + tl.where(column == y, at_own, 0)
        # A row without weight has no gradient, whatever it holds.
        out = tl.where(w == 0, 0, tl.where(column == one, at_one, out)).to(grad.dtype.element_ty)
        tl.store(grad + offset + column * z_class, out, mask=live & real)
