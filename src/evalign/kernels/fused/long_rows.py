"""The kernels of the sums of rows that are longer than a tile.

`long_row` finds the statistics of a row, tile by tile; `long_columns` then sums some columns.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from evalign.kernels.fused.step import membership, of_largest, row
from evalign.kernels.fused.sums import (
    cross_entropy_of,
    load_stats,
    odds_of,
    store_stats,
    target_and_weight,
    two_largest,
)


@triton.jit
def long_row(
    logits, target, weight, temperature, shift, stats,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    EPS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The statistics of one row, tile by tile, and its share of the cross-entropy."""
    compute: tl.constexpr = stats.dtype.element_ty
    t = tl.load(temperature).to(compute)
    n = images * size
    image = tl.program_id(0) // size
    r = tl.program_id(0) + tl.zeros([1, 1], tl.int32)
    s = r - image * size
    z_rows = logits + image.to(tl.int64) * z_image + s.to(tl.int64) * z_row
    largest = tl.full([1, 1], -float("inf"), compute)
    runner_up = tl.full([1, 1], -float("inf"), compute)
    rest = tl.full([1, 1], 0, compute)
    one = tl.full([1, 1], 0, tl.int32)
    two = tl.full([1, 1], 0, tl.int32)
    live = r < n
    y, w, known = target_and_weight(
        target, weight, r, image, s, live, w_image, w_row, ignore, CLASSES, WEIGHTED, compute
    )
    for start in range(0, CLASSES, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        z = _logits(z_rows, column, z_class, CLASSES, w)
        # Few tiles hold one of the two largest so far; only those are searched.
        if tl.max(tl.max(z, 1), 0) > tl.max(tl.max(runner_up, 1), 0):
            first, i, second, j, z = two_largest(z, column)
            # The largest of this tile or the largest so far wins; the other may be the second.
            wins = first > largest
            a = tl.where(wins, second, first)
            b = tl.where(wins, largest, runner_up)
            two = tl.where(a > b, tl.where(wins, j, i), tl.where(wins, one, two))
            runner_up = tl.maximum(a, b)
            one = tl.where(wins, i, one)
            largest = tl.maximum(largest, first)

    # Sums are kept lane by lane, so that the threads of a row meet once, at the end.
    rests = tl.zeros([1, COLUMNS], compute)
    totals = tl.zeros([1, COLUMNS], compute)
    masses = tl.zeros([1, COLUMNS], compute)
    scale = 2 / (1 + tl.exp(runner_up - largest))
    for start in range(0, CLASSES, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[None, :]
        z = _logits(z_rows, column, z_class, CLASSES, w)
        e = tl.exp(tl.where(column == one, -float("inf"), z) - largest)
        rests += e
        if CROSS_ENTROPY:
            masses += e * odds_of(shift, column, CLASSES, compute)
        _q, h = membership(e, scale, t, EPS)
        totals += h
    rest = tl.sum(rests, 1, keep_dims=True)
    total = tl.sum(totals, 1, keep_dims=True)
    rest += largest - largest
    second, scale, p, miss, tau = row(largest, runner_up, rest)
    h_one, _up, _down = of_largest(second, p, miss, tau, t, EPS)
    total += h_one + (rest - rest)  # as in `whole_rows`
    store_stats(stats, r, live, n, largest, runner_up, rest, total, one, two)
    if CROSS_ENTROPY:
        mass = tl.sum(masses, 1, keep_dims=True) + odds_of(shift, one, CLASSES, compute)
        own_logit = tl.load(z_rows + y * z_class, mask=known & (w != 0), other=0).to(compute)
        cross = cross_entropy_of(
            own_logit, largest, mass, shift, y, w, known, CLASSES, CROSS_ENTROPY, compute
        )
        tl.store(stats + 6 * n + r, mass, mask=live)
        tl.store(stats + 7 * n + r, cross, mask=live)


@triton.jit
def long_columns(
    logits, target, weight, temperature, shift, partial, stats,
    images, size, z_image, z_class, z_row, w_image, w_row, ignore,
    CLASSES: tl.constexpr, WEIGHTED: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    EPS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums of some columns over this program's rows, whose statistics are known."""
    compute: tl.constexpr = stats.dtype.element_ty
    t = tl.load(temperature).to(compute)
    begin = tl.program_id(0) * COLUMNS
    column = begin + tl.arange(0, COLUMNS)
    n = images * size
    own = partial + tl.program_id(1).to(tl.int64) * (5 * CLASSES + 2)
    counts = tl.zeros([], compute)
    wrong = tl.zeros([COLUMNS], compute)
    # Three stages load the next rows while this one is summed.
    for r in tl.range(tl.program_id(1), n, tl.num_programs(1), num_stages=3):
        image = r // size
        s = r - image * size
        at = logits + image.to(tl.int64) * z_image + s.to(tl.int64) * z_row + column * z_class
        z = tl.load(at, mask=column < CLASSES, other=-float("inf")).to(compute)
        largest, runner_up, rest, total, one = load_stats(stats, r, True, n)
        second, scale, p, miss, tau = row(largest, runner_up, rest)
        _x, h = membership(tl.exp(z - largest), scale, t, EPS)
        h_one, _up, _down = of_largest(second, p, miss, tau, t, EPS)
        y, w, known = target_and_weight(
            target, weight, r, image, s, True, w_image, w_row, ignore, CLASSES, WEIGHTED, compute
        )
        h = tl.where(column == one, h_one, h) * tl.where(known, w / total, float("nan"))
        h = tl.where(known & (w == 0), 0, h)
        mine = tl.where(column == y, h, 0)
        wrong += h - mine
        here = (y >= begin) & (y < begin + COLUMNS) & known
        tl.atomic_add(own + y, tl.sum(mine, 0), mask=here, sem="relaxed")
        tl.atomic_add(own + 2 * CLASSES + y, w, mask=here, sem="relaxed")
        if CROSS_ENTROPY:  # a metric alone does not ask for hard labels
            tl.atomic_add(own + 3 * CLASSES + y, w, mask=here & (one == y), sem="relaxed")
            labelled = (one >= begin) & (one < begin + COLUMNS) & (one < CLASSES)
            tl.atomic_add(own + 4 * CLASSES + one, w, mask=labelled, sem="relaxed")
        counts += tl.where(w > 0, tl.full([], 1, compute), tl.full([], 0, compute))
    tl.store(own + CLASSES + column, wrong, mask=column < CLASSES)
    if begin == 0:
        tl.store(own + 5 * CLASSES + 1, counts)


@triton.jit
def _logits(z_rows, column, z_class, CLASSES: tl.constexpr, w):
    """The logits of a tile; finite ones for a row without weight, which may hold anything."""
    real = column < CLASSES
    z = tl.load(z_rows + column * z_class, mask=real, other=-float("inf")).to(w.dtype)
    return tl.where(real & (w == 0), -column.to(w.dtype), z)
