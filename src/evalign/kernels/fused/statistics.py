"""The state that a loss keeps between batches, as the last kernel updates it in place.

The mathematics is that of `aggregation.running` and `losses.offsets`.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl


@triton.jit
def average(running, c, classes, now, m, counts, per_seen):
    """Move a running sum, and return the average with the batch's NaN."""
    before = tl.load(running + c, mask=c < classes, other=0)
    after = before + tl.where(counts, m * (now - before), 0)
    tl.store(running + c, after, mask=c < classes)
    return tl.where(per_seen == 0, now, after * per_seen) + (now - now)


@triton.jit
def count(counts, c, classes, actual, total, MULTILABEL: tl.constexpr):
    """Add a batch to the cumulative counts, of a label to those of its absence and presence."""
    here = c < classes
    if MULTILABEL:
        absent = tl.load(counts + 2 * c, mask=here, other=0) + (total - actual)
        tl.store(counts + 2 * c, absent, mask=here)
        present = tl.load(counts + 2 * c + 1, mask=here, other=0) + actual
        tl.store(counts + 2 * c + 1, present, mask=here)
    else:
        tl.store(counts + c, tl.load(counts + c, mask=here, other=0) + actual, mask=here)


@triton.jit
def mix_pseudo_rows(
    point, counts, classes, whole, MULTILABEL: tl.constexpr, PSEUDO: tl.constexpr,
    ODDS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`losses.offsets.with_pseudo_rows`, in place.

    Returns the total, the predicted mass, and the class with the largest count.
    """
    zero, pseudo = tl.full([], 0, tl.float64), tl.full([], PSEUDO, tl.float64)
    most, place, sum_counts, predictions = zero, 2147483647, zero, zero
    if not MULTILABEL:
        for start in range(0, classes, COLUMNS):
            c = start + tl.arange(0, COLUMNS)
            most = tl.maximum(most, tl.max(tl.load(counts + c, mask=c < classes, other=0), 0))
        for start in range(0, classes, COLUMNS):
            c = start + tl.arange(0, COLUMNS)
            number = tl.load(counts + c, mask=c < classes, other=-1)
            place = tl.minimum(place, tl.min(tl.where(number == most, c, 2147483647), 0))
            sum_counts += tl.sum(tl.where(c < classes, _positive(number, most, ODDS), 0), 0)
    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        here = c < classes
        tp, predicted, actual, total = kept(point, c, classes)
        if MULTILABEL:
            absent = tl.load(counts + 2 * c, mask=here, other=1)
            present = tl.load(counts + 2 * c + 1, mask=here, other=1)
            larger = tl.maximum(absent, present)
            absent, present = _positive(absent, larger, ODDS), _positive(present, larger, ODDS)
            share = present / (absent + present)
        else:
            number = tl.load(counts + c, mask=here, other=0)
            share = tl.where(here, _positive(number, most, ODDS) / sum_counts, 0)
            total = zero * share + whole
        size = pseudo * tl.where(total == 0, 1, total)
        tp = (1 - pseudo) * tp + size * share * (0.5 + 0.5 * share)
        predicted = (1 - pseudo) * predicted + size * share
        actual = (1 - pseudo) * actual + size * share
        total = (1 - pseudo) * total + size
        keep(point, c, classes, tp, predicted, actual, total)
        predictions += tl.sum(tl.where(here, predicted, 0), 0)
    whole = (1 - pseudo) * whole + pseudo * tl.where(whole == 0, 1, whole)
    tl.debug_barrier()
    return whole, predictions, place


@triton.jit
def _positive(number, most, ODDS: tl.constexpr):
    """`losses.offsets.positive`."""
    return tl.where(most == 0, 1, tl.maximum(number, most / ODDS))


@triton.jit
def follow(
    raw, offsets, classes, place, MULTILABEL: tl.constexpr,
    ODDS: tl.constexpr, FLAT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`losses.offsets.metric_offsets`; slopes that are not finite leave an offset as it is."""
    largest = tl.full([], 0, tl.float64)
    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        gain, cost = _gain_and_cost(raw, c, classes, place, MULTILABEL)
        largest = tl.maximum(largest, tl.max(tl.maximum(gain, cost), 0))
    least = FLAT * largest + tl.full([], 2.2250738585072014e-308, tl.float64)
    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        gain, cost = _gain_and_cost(raw, c, classes, place, MULTILABEL)
        threshold = (cost + least) / (gain + cost + 2 * least)
        one = tl.full([], 1, tl.float64)
        threshold = tl.minimum(tl.maximum(threshold, one / (1 + ODDS)), one * ODDS / (1 + ODDS))
        offset = tl.log(threshold / (1 - threshold))
        finite = (gain + cost) < float("inf")
        tl.store(offsets + c, offset, mask=(c < classes) & finite)


@triton.jit
def _gain_and_cost(raw, c, classes, place, MULTILABEL: tl.constexpr):
    """What predicting a class gains where it is true, and costs where class `place` is."""
    by_tp = tl.load(raw + c, mask=c < classes, other=0)
    by_predicted = tl.load(raw + classes + c, mask=c < classes, other=0)
    if MULTILABEL:
        gain, cost = by_tp + by_predicted, -by_predicted
    else:
        gained = by_predicted - tl.load(raw + classes + place)
        gain, cost = by_tp + gained, tl.load(raw + place) - gained
    real = c < classes
    # NaN stays NaN.
    gain, cost = tl.where(gain < 0, 0, gain), tl.where(cost < 0, 0, cost)
    return tl.where(real, gain, 0), tl.where(real, cost, 0)


@triton.jit
def keep(point, c, classes, tp, predicted, actual, total):
    here = c < classes
    tl.store(point + c, tp, mask=here)
    tl.store(point + classes + c, predicted, mask=here)
    tl.store(point + 2 * classes + c, actual, mask=here)
    tl.store(point + 3 * classes + c, total, mask=here)


@triton.jit
def kept(point, c, classes):
    here = c < classes
    tp = tl.load(point + c, mask=here, other=0)
    predicted = tl.load(point + classes + c, mask=here, other=0)
    actual = tl.load(point + 2 * classes + c, mask=here, other=0)
    return tp, predicted, actual, tl.load(point + 3 * classes + c, mask=here, other=0)
