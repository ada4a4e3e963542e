"""The kernels of the sums. A tile has the classes down and the rows across."""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from evalign.kernels.fused.step import membership, of_largest, row


@triton.jit
def whole_rows(
    logits,
    target,
    weight,
    temperature,
    partial,
    stats,
    top,
    n,
    CLASSES: tl.constexpr,
    SIGMOID: tl.constexpr,
    EPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Sums and statistics of this program's rows, which fit into a tile."""
    compute: tl.constexpr = weight.dtype.element_ty
    t = tl.load(temperature).to(compute)
    column = tl.arange(0, COLUMNS)[:, None]
    real = column < CLASSES
    own = partial + tl.program_id(0).to(tl.int64) * 3 * CLASSES
    right = tl.zeros([COLUMNS, ROWS], compute)
    wrong = tl.zeros([COLUMNS, ROWS], compute)
    actual = tl.zeros([COLUMNS, ROWS], compute)
    for start in range(tl.program_id(0) * ROWS, n, tl.num_programs(0) * ROWS):
        r = start + tl.arange(0, ROWS)[None, :]
        live = r < n
        at = logits + r.to(tl.int64) * CLASSES + column
        # Rows past the end get finite numbers: a row of −∞ alone would give NaN.
        nothing = tl.where(live, -float("inf"), -column.to(compute)) if ROWS > 1 else -float("inf")
        z = tl.load(at, mask=live & real, other=nothing).to(compute)
        y = tl.load(target + r, mask=live, other=0)
        w = tl.load(weight + r, mask=live, other=0)
        largest, one, runner_up, two, z = _two_largest(z, column, 0)
        e = tl.exp(z - largest)
        if SIGMOID:
            rest = tl.sum(e, 0, keep_dims=True)
            rest += largest - largest  # an infinite logit stays visible, as NaN
            second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
            _x, h = membership(e, scale, tau, t, SIGMOID, EPS)
            h = tl.where(real & (column != one), h, 0)
            total, mine = tl.reduce((h, tl.where(column == y, h, 0)), 0, add2, keep_dims=True)
        else:  # H needs only the two largest, so the threads of a row meet once for all sums
            scale = 2 / (1 + tl.exp(runner_up - largest))  # as in `row`
            _x, h = membership(e, scale, scale, t, SIGMOID, EPS)  # the linear step needs no τ
            terms = (e, h, tl.where(column == y, h, 0))
            rest, total, mine = tl.reduce(terms, 0, add3, keep_dims=True)
            rest += largest - largest
            second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
        h_one, _up, _down = of_largest(second, p, miss, tau, t, SIGMOID, EPS)
        total += h_one
        mine += tl.where(one == y, h_one, 0)
        _store(stats, top, r, live, n, largest, runner_up, rest, total, one, two)
        # Right and wrong are summed apart: a difference would round off a few false positives.
        share = share_of(w, total, y, CLASSES)
        h = tl.where(column == one, h_one, h)
        wrong += tl.where(column == y, 0, h) * share
        if ROWS == 1:  # no other program adds to `own`, so the order is that of the loop
            there = is_class(y, CLASSES)
            tl.atomic_add(own + y, mine * share, mask=there, sem="relaxed")
            tl.atomic_add(own + 2 * CLASSES + y, w, mask=there, sem="relaxed")
        else:
            right += tl.where(column == y, mine * share, 0)
            actual += tl.where(column == y, w, 0)
    column = tl.arange(0, COLUMNS)
    tl.store(own + CLASSES + column, tl.sum(wrong, 1), mask=column < CLASSES)
    if ROWS > 1:
        tl.store(own + column, tl.sum(right, 1), mask=column < CLASSES)
        tl.store(own + 2 * CLASSES + column, tl.sum(actual, 1), mask=column < CLASSES)


@triton.jit
def long_row(
    logits,
    temperature,
    stats,
    top,
    n,
    CLASSES: tl.constexpr,
    SIGMOID: tl.constexpr,
    EPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The statistics of one row, tile by tile."""
    compute: tl.constexpr = stats.dtype.element_ty
    t = tl.load(temperature).to(compute)
    r = tl.program_id(0) + tl.zeros([1, 1], tl.int32)
    z_row = logits + r.to(tl.int64) * CLASSES
    largest = tl.full([1, 1], -float("inf"), compute)
    runner_up = tl.full([1, 1], -float("inf"), compute)
    rest = tl.full([1, 1], 0, compute)
    one = tl.full([1, 1], 0, tl.int32)
    two = tl.full([1, 1], 0, tl.int32)
    for start in range(0, CLASSES, COLUMNS):
        column = start + tl.arange(0, COLUMNS)[:, None]
        z = tl.load(z_row + column, mask=column < CLASSES, other=-float("inf")).to(compute)
        # Few tiles hold one of the two largest so far; only those are searched.
        if tl.max(tl.max(z, 0), 0) > tl.max(tl.max(runner_up, 0), 0):
            first, i, second, j, z = _two_largest(z, column, start)
            # The largest of this tile or the largest so far wins; the other may be the second.
            wins = first > largest
            a = tl.where(wins, second, first)
            b = tl.where(wins, largest, runner_up)
            two = tl.where(a > b, tl.where(wins, j, i), tl.where(wins, one, two))
            runner_up = tl.maximum(a, b)
            one = tl.where(wins, i, one)
            largest = tl.maximum(largest, first)

    # H needs only the two largest for the linear step; the sigmoid needs the rest, too. Sums are
    # kept lane by lane, so that the threads of a row meet once, at the end.
    rests = tl.zeros([COLUMNS, 1], compute)
    totals = tl.zeros([COLUMNS, 1], compute)
    second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
    for start in range(0, CLASSES, COLUMNS):
        e = _others(z_row, start + tl.arange(0, COLUMNS)[:, None], CLASSES, largest, one)
        rests += e
        if not SIGMOID:
            _x, h = membership(e, scale, tau, t, SIGMOID, EPS)
            totals += h
    rest = tl.sum(rests, 0, keep_dims=True)
    if SIGMOID:
        second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
        for start in range(0, CLASSES, COLUMNS):
            column = start + tl.arange(0, COLUMNS)[:, None]
            e = _others(z_row, column, CLASSES, largest, one)
            _x, h = membership(e, scale, tau, t, SIGMOID, EPS)
            totals += tl.where((column == one) | (column >= CLASSES), 0, h)
    total = tl.sum(totals, 0, keep_dims=True)
    rest += largest - largest
    second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
    h_one, _up, _down = of_largest(second, p, miss, tau, t, SIGMOID, EPS)
    total += h_one
    _store(stats, top, r, r < n, n, largest, runner_up, rest, total, one, two)


@triton.jit
def long_columns(
    logits,
    target,
    weight,
    temperature,
    partial,
    stats,
    top,
    n,
    CLASSES: tl.constexpr,
    SIGMOID: tl.constexpr,
    EPS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The sums of some columns over this program's rows, whose statistics are known."""
    compute: tl.constexpr = weight.dtype.element_ty
    t = tl.load(temperature).to(compute)
    begin = tl.program_id(0) * COLUMNS
    column = begin + tl.arange(0, COLUMNS)
    own = partial + tl.program_id(1).to(tl.int64) * 3 * CLASSES
    wrong = tl.zeros([COLUMNS], compute)
    # Three stages load the next rows while this one is summed.
    for r in tl.range(tl.program_id(1), n, tl.num_programs(1), num_stages=3):
        at = logits + tl.full([], CLASSES, tl.int64) * r + column
        z = tl.load(at, mask=column < CLASSES, other=-float("inf")).to(compute)
        largest, runner_up, rest, total, one = load_stats(stats, top, r, True, n)
        second, scale, p, miss, tau = row(largest, runner_up, rest, SIGMOID)
        _x, h = membership(tl.exp(z - largest), scale, tau, t, SIGMOID, EPS)
        h_one, _up, _down = of_largest(second, p, miss, tau, t, SIGMOID, EPS)
        y, w = tl.load(target + r), tl.load(weight + r)
        h = tl.where(column == one, h_one, h) * share_of(w, total, y, CLASSES)
        mine = tl.where(column == y, h, 0)
        wrong += h - mine
        here = (y >= begin) & (y < begin + COLUMNS) & is_class(y, CLASSES)
        tl.atomic_add(own + y, tl.sum(mine, 0), mask=here, sem="relaxed")
        tl.atomic_add(own + 2 * CLASSES + y, w, mask=here, sem="relaxed")
    tl.store(own + CLASSES + column, wrong, mask=column < CLASSES)


@triton.jit
def is_class(y, CLASSES: tl.constexpr):
    return (y >= 0) & (y < CLASSES)


@triton.jit
def share_of(w, total, y, CLASSES: tl.constexpr):
    """The weight of a row's H. NaN if the target is not a class, which is not checked on CUDA."""
    return tl.where(is_class(y, CLASSES), w / total, float("nan"))


@triton.jit
def _others(z_row, column, CLASSES: tl.constexpr, largest, one):
    """e of a tile, 0 for the largest class."""
    z = tl.load(z_row + column, mask=column < CLASSES, other=-float("inf")).to(largest.dtype)
    return tl.exp(tl.where(column == one, -float("inf"), z) - largest)


@triton.jit
def load_stats(stats, top, r, live, n):
    """The two largest logits, rest, Σ H and the largest class; harmless numbers past the end."""
    largest = tl.load(stats + r, mask=live, other=0)
    runner_up = tl.load(stats + n + r, mask=live, other=0)
    rest = tl.load(stats + n + n + r, mask=live, other=1)
    total = tl.load(stats + n + n + n + r, mask=live, other=1)
    one = tl.load(top + r, mask=live, other=0)
    return largest, runner_up, rest, total, one


@triton.jit
def _store(stats, top, r, live, n, largest, runner_up, rest, total, one, two):
    tl.store(stats + r, largest, mask=live)
    tl.store(stats + n + r, runner_up, mask=live)
    tl.store(stats + n + n + r, rest, mask=live)
    tl.store(stats + n + n + n + r, total, mask=live)
    tl.store(top + r, one, mask=live)
    tl.store(top + n + r, two, mask=live)


@triton.jit
def _two_largest(z, column, begin):
    """The two largest, their columns (some column, for NaN), and z with −∞ for the largest."""
    largest, one = tl.max(z, 0, return_indices=True, keep_dims=True)
    one += begin
    z = tl.where(column == one, -float("inf"), z)
    runner_up, two = tl.max(z, 0, return_indices=True, keep_dims=True)
    return largest, one, runner_up, begin + two, z


@triton.jit
def add2(a, b, c, d):
    return a + c, b + d


@triton.jit
def add3(a, b, c, d, e, f):
    return a + d, b + e, c + f
