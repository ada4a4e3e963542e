"""The kernel of the sums of classes. A tile has the rows down and the classes across.

Logits are images of rows: class c of row s of image b is at b·z_image + c·z_class + s·z_row. A
matrix is one image.
"""

import triton
import triton.language as tl

from evalign.kernels.fused.step import membership, of_largest, row


@triton.jit(do_not_specialize=["z_class"])
def whole_rows(
    logits, target, weight, temperature, shift, partial, stats,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    EPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ADJACENT: tl.constexpr,
):  # fmt: skip
    """Sums and statistics of this program's rows, which fit into a tile.

    If `ADJACENT`, the classes of a row lie side by side, from a multiple of it on.
    """
    if ADJACENT:
        z_class = 1
        # Tells the compiler that they are multiples, so that it loads several classes at a time.
        z_image, z_row = z_image // ADJACENT * ADJACENT, z_row // ADJACENT * ADJACENT
    compute: tl.constexpr = stats.dtype.element_ty
    t = tl.load(temperature).to(compute)
    column = tl.arange(0, COLUMNS)[None, :]
    real = column < CLASSES
    n = images * size
    tiles = tl.cdiv(size, ROWS)
    own = partial + tl.program_id(0).to(tl.int64) * (5 * CLASSES + 2)
    right = tl.zeros([ROWS, COLUMNS], compute)
    wrong = tl.zeros([ROWS, COLUMNS], compute)
    crosses = tl.zeros([ROWS, 1], compute)
    counts = tl.zeros([ROWS, 1], compute)
    odd = column.to(compute)
    if CROSS_ENTROPY:
        odd = odds_of(shift, column, CLASSES, compute)
    if ROWS == 1:  # these sums are added up in memory
        c = tl.arange(0, COLUMNS)
        nothing = tl.zeros([COLUMNS], compute)
        tl.store(own + c, nothing, mask=c < CLASSES)
        for part in tl.static_range(2, 5):
            tl.store(own + part * CLASSES + c, nothing, mask=c < CLASSES)
        tl.debug_barrier()
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[:, None]
        live = s < size
        r = image * size + s
        z_rows = logits + image.to(tl.int64) * z_image + s.to(tl.int64) * z_row
        # Rows past the end get finite numbers: a row of −∞ alone would give NaN.
        other = tl.where(live, -float("inf"), -column.to(compute)) if ROWS > 1 else -float("inf")
        z = tl.load(z_rows + column * z_class, mask=live & real, other=other).to(compute)
        y, w, known = target_and_weight(
            target, weight, r, image, s, live, w_image, w_row, ignore, CLASSES, WEIGHTED, compute
        )
        z = tl.where(real & (w == 0), -column.to(compute), z)  # it may hold anything, as padding
        own_logit = tl.load(z_rows + y * z_class, mask=live & known & (w != 0), other=0).to(compute)
        largest, one, runner_up, two, z = two_largest(z, column)
        e = tl.exp(z - largest)
        mass = largest
        # H needs only the two largest, so the threads of a row meet once for all sums.
        scale = 2 / (1 + tl.exp(runner_up - largest))  # as in `row`
        _q, h = membership(e, scale, t, EPS)
        if CROSS_ENTROPY:
            rest, total, mass = tl.reduce((e, h, e * odd), 1, add3, keep_dims=True)
        else:
            rest, total = tl.reduce((e, h), 1, add2, keep_dims=True)
        rest += largest - largest  # an infinite logit stays visible, as NaN
        second, scale, p, miss, tau = row(largest, runner_up, rest)
        h_one, _up, _down = of_largest(second, p, miss, tau, t, EPS)
        total += h_one + (rest - rest)  # the step drops a NaN; it stays visible
        _x, mine = membership(tl.exp(own_logit - largest), scale, t, EPS)
        mine = tl.where(one == y, h_one, mine)
        tl.store(stats + r, largest, mask=live)
        tl.store(stats + n + r, runner_up, mask=live)
        tl.store(stats + 2 * n + r, rest, mask=live)
        tl.store(stats + 3 * n + r, total, mask=live)
        # Classes are counted in floats, which is exact up to 2²⁴.
        tl.store(stats + 4 * n + r, tl.cast(one, compute), mask=live)
        tl.store(stats + 5 * n + r, tl.cast(two, compute), mask=live)
        if CROSS_ENTROPY:
            mass += odds_of(shift, one, CLASSES, compute)
            crosses += cross_entropy_of(
                own_logit, largest, mass, shift, y, w, known, CLASSES, CROSS_ENTROPY, compute
            )
            tl.store(stats + 6 * n + r, mass, mask=live)
        counts += tl.where(w > 0, tl.full([], 1, compute), tl.full([], 0, compute))
        # Right and wrong are summed apart: a difference would round off a few false positives.
        share = tl.where(known, w / total, float("nan"))
        h = tl.where(column == one, h_one, h)
        wrong += tl.where(column == y, 0, h) * share
        if ROWS == 1:  # no other program adds to `own`, so the order is that of the loop
            tl.atomic_add(own + y, mine * share, mask=known, sem="relaxed")
        else:
            right += tl.where(column == y, mine * share, 0)
    c = tl.arange(0, COLUMNS)
    tl.store(own + CLASSES + c, tl.sum(wrong, 0), mask=c < CLASSES)
    if ROWS > 1:
        tl.store(own + c, tl.sum(right, 0), mask=c < CLASSES)
    tl.store(own + 5 * CLASSES, tl.sum(tl.sum(crosses, 0), 0))
    tl.store(own + 5 * CLASSES + 1, tl.sum(tl.sum(counts, 0), 0))
    # Labels are counted once the registers of the other sums are free.
    tl.debug_barrier()
    actual = tl.zeros([ROWS, COLUMNS], compute)
    hard = tl.zeros([ROWS, COLUMNS], compute)
    hard_right = tl.zeros([ROWS, COLUMNS], compute)
    for tile in range(tl.program_id(0), images * tiles, tl.num_programs(0)):
        image = tile // tiles
        s = (tile - image * tiles) * ROWS + tl.arange(0, ROWS)[:, None]
        live = s < size
        r = image * size + s
        y, w, known = target_and_weight(
            target, weight, r, image, s, live, w_image, w_row, ignore, CLASSES, WEIGHTED, compute
        )
        one = tl.load(stats + 4 * n + r, mask=live, other=0).to(tl.int32)
        if ROWS == 1:
            tl.atomic_add(own + 2 * CLASSES + y, w, mask=known, sem="relaxed")
            if CROSS_ENTROPY:  # a metric alone does not ask for hard labels
                tl.atomic_add(own + 3 * CLASSES + y, w, mask=known & (one == y), sem="relaxed")
                there = (one >= 0) & (one < CLASSES)
                tl.atomic_add(own + 4 * CLASSES + one, w, mask=there, sem="relaxed")
        else:
            actual += tl.where(column == y, w, 0)
            if CROSS_ENTROPY:
                labelled = tl.where(column == one, w, 0)
                hard += labelled
                hard_right += tl.where(column == y, labelled, 0)
    if ROWS > 1:
        tl.store(own + 2 * CLASSES + c, tl.sum(actual, 0), mask=c < CLASSES)
        tl.store(own + 3 * CLASSES + c, tl.sum(hard_right, 0), mask=c < CLASSES)
        tl.store(own + 4 * CLASSES + c, tl.sum(hard, 0), mask=c < CLASSES)


@triton.jit
def target_and_weight(
    target, weight, r, image, s, live, w_image, w_row, ignore,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, compute: tl.constexpr,
):  # fmt: skip
    """The class of rows, their weight (0 if ignored), and whether it is a class.

    On CUDA the target is not checked beforehand. A row whose target is not a class gets NaN.
    """
    y = tl.load(target + r, mask=live, other=0).to(tl.int64)
    counts = live & (y != ignore)
    if WEIGHTED:
        at = weight + image.to(tl.int64) * w_image + s.to(tl.int64) * w_row
        w = tl.load(at, mask=counts, other=0).to(compute)
    else:
        w = tl.where(counts, tl.full([], 1, compute), tl.full([], 0, compute))
    known = (y == ignore) | ((y >= 0) & (y < CLASSES))
    return tl.where(counts & known, y, 0).to(tl.int32), w, known


@triton.jit
def odds_of(shift, column, CLASSES: tl.constexpr, compute: tl.constexpr):
    """exp(shift) of classes; 0 beyond the last."""
    there = tl.load(shift + column, mask=(column >= 0) & (column < CLASSES), other=-float("inf"))
    return tl.exp(there.to(compute))


@triton.jit
def cross_entropy_of(
    own_logit, largest, mass, shift, y, w, known,
    CLASSES: tl.constexpr, CROSS_ENTROPY: tl.constexpr, compute: tl.constexpr,
):  # fmt: skip
    """w·(log Σ_c odds_c e_c − log(odds_y e_y)); 0 for rows without weight.

    With a `CROSS_ENTROPY` of 2 the classes have factors, which stand behind their shifts.
    """
    own_shift = tl.load(shift + y, mask=known, other=0).to(compute)
    cross = tl.log(mass) - own_shift - (own_logit - largest)
    if CROSS_ENTROPY == 2:
        w *= tl.load(shift + CLASSES + y, mask=known, other=1).to(compute)
    return tl.where(w == 0, 0, w * cross)


@triton.jit
def two_largest(z, column):
    """The two largest, their columns, and z with −∞ for the largest."""
    largest, one = _largest(z, column)
    z = tl.where(column == one, -float("inf"), z)
    runner_up, two = _largest(z, column)
    return largest, one, runner_up, two, z


@triton.jit
def _largest(z, column):
    """The largest and its column, the first among equals.

    The column of `tl.max` may be any of them, and differ between the threads of a warp.
    """
    largest = tl.max(z, 1, keep_dims=True)
    return largest, tl.min(tl.where(z == largest, column, 2147483647), 1, keep_dims=True)


@triton.jit
def add2(a, b, c, d):
    return a + c, b + d


@triton.jit
def add3(a, b, c, d, e, f):
    return a + d, b + e, c + f
