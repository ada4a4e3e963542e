"""The state that a loss keeps between batches, as the last kernel updates it in place.

The mathematics is that of `aggregation.running` and `losses.offsets`.
"""

import triton
import triton.language as tl


@triton.jit
def average(running, mask, now, m, moves, per_seen):
    """Move a running sum, and return the average with the batch's NaN."""
    before = tl.load(running, mask=mask, other=0)
    tl.debug_barrier()  # several threads may hold one number, of which one writes
    after = before + tl.where(moves, m * (now - before), 0)
    tl.store(running, after, mask=mask)
    return tl.where(per_seen == 0, now, after * per_seen) + (now - now)


@triton.jit
def counted(counts, mask, now):
    """Add a batch to cumulative counts."""
    before = tl.load(counts, mask=mask, other=0)
    tl.debug_barrier()
    tl.store(counts, before + now, mask=mask)
    return before + now


@triton.jit
def positive(number, most, ODDS: tl.constexpr):
    """`losses.offsets.positive`."""
    return tl.where(most == 0, 1, tl.maximum(number, most / ODDS))


@triton.jit
def with_pseudo_rows(tp, predicted, actual, total, share, PSEUDO: tl.constexpr):
    """`losses.offsets.with_pseudo_rows`, given the shares of the classes."""
    pseudo = tl.full([], PSEUDO, tl.float64)
    size = pseudo * tl.where(total == 0, 1, total)
    tp = (1 - pseudo) * tp + size * share * (0.5 + 0.5 * share)
    predicted = (1 - pseudo) * predicted + size * share
    actual = (1 - pseudo) * actual + size * share
    return tp, predicted, actual, (1 - pseudo) * total + size


@triton.jit
def offsets_of(
    by_tp, by_predicted, number, c, CLASSES: tl.constexpr, MULTILABEL: tl.constexpr,
    ODDS: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """`losses.offsets.metric_offsets`, and where they are finite."""
    gain, cost = by_tp + by_predicted, -by_predicted
    if not MULTILABEL:  # against the first of the most frequent classes
        most = tl.max(tl.where(c < CLASSES, number, -1), 0)
        place = tl.min(tl.where((c < CLASSES) & (number == most), c, CLASSES), 0)
        gain -= tl.sum(tl.where(c == place, by_predicted, 0), 0)
        cost += tl.sum(tl.where(c == place, by_tp + by_predicted, 0), 0)
    # NaN stays NaN.
    gain, cost = tl.where(gain < 0, 0, gain), tl.where(cost < 0, 0, cost)
    largest = tl.max(tl.where(c < CLASSES, tl.maximum(gain, cost), 0), 0)
    least = FLAT * largest + tl.full([], 2.2250738585072014e-308, tl.float64)
    threshold = (cost + least) / (gain + cost + 2 * least)
    one = tl.full([], 1, tl.float64)
    threshold = tl.minimum(tl.maximum(threshold, one / (1 + ODDS)), one * ODDS / (1 + ODDS))
    return tl.log(threshold / (1 - threshold)), (gain + cost) < float("inf")
