"""The kernel from sums to the loss, its slopes, and the state of the loss.

One program holds the sums of all classes in float64. The mathematics is that of `core.metrics`,
`aggregation.running` and `losses.offsets`.
"""

import triton
import triton.language as tl

from evalign.core.arrays import ZERO
from evalign.kernels.fused.metric import differentiate
from evalign.kernels.fused.statistics import (
    average,
    counted,
    offsets_of,
    positive,
    with_pseudo_rows,
)
from evalign.kernels.fused.totals import added

TASKS = {"binary": 0, "multiclass": 1, "multilabel": 2}
_BINARY, _MULTILABEL = tl.constexpr(0), tl.constexpr(2)
_ZERO = tl.constexpr(ZERO)


@triton.jit
def finish(
    partial, temperature, cross, out, slopes, seen, running, counts, offsets,
    main_weight, more_weight, programs, scale,
    CLASSES: tl.constexpr, TASK: tl.constexpr, CROSS_ENTROPY: tl.constexpr, BY_COUNTS: tl.constexpr,
    RUNNING: tl.constexpr, MOMENTUM: tl.constexpr,
    PSEUDO: tl.constexpr, FOLLOW: tl.constexpr, ODDS: tl.constexpr, FLAT: tl.constexpr,
    KIND: tl.constexpr, AVERAGE: tl.constexpr, ZERO_DIVISION: tl.constexpr, LEAVE_OUT: tl.constexpr,
    TP: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr, BY_ACTUAL: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Write the loss, and its slopes by tp and predicted (2, C) and by the cross-entropy's sum.

    `cross` holds the shift of the cross-entropy, and with a `CROSS_ENTROPY` of 2 the factors of the
    classes behind it. `RUNNING` moves the averages. With a share of `PSEUDO` rows the counts and
    the averages of hard labels are moved, too. `FOLLOW` then replaces the offsets, and `cross` by
    what follows from them and from this power of 1 / counts, `BY_COUNTS`.
    """
    MULTILABEL: tl.constexpr = TASK == _MULTILABEL
    c = tl.arange(0, COLUMNS)
    here = c < CLASSES
    kind = slopes.dtype.element_ty
    tp, predicted, actual, negatives, crosses, rows = _soft(
        partial, programs, c, CLASSES, TASK, COLUMNS, PROGRAMS
    )
    of_rows = actual
    if MULTILABEL:
        of_rows = actual + negatives
    mass = tl.sum(of_rows, 0)
    total = of_rows if MULTILABEL else mass
    empty = mass == 0
    per_cross = tl.where(mass < _ZERO, 0, 1 / tl.where(mass < _ZERO, 1, mass))
    if CROSS_ENTROPY:
        shift = tl.load(cross + c, mask=here, other=0)
    if CROSS_ENTROPY == 2:
        factor = tl.load(cross + CLASSES + c, mask=here, other=0)
        heavy = tl.sum(factor.to(tl.float64) * of_rows, 0)
        per_cross = tl.where(heavy < _ZERO, 0, 1 / tl.where(heavy < _ZERO, 1, heavy))

    if PSEUDO > 0:
        right, labelled = _hard(
            partial, programs, c, actual, mass, CLASSES, TASK, COLUMNS, PROGRAMS
        )
        if MULTILABEL:
            absent = counted(counts + 2 * c, here, negatives)
            number = counted(counts + 2 * c + 1, here, actual)
            larger = tl.maximum(absent, number)
            present = positive(number, larger, ODDS)
            share = tl.where(here, present / (positive(absent, larger, ODDS) + present), 0)
        else:
            number = counted(counts + c, here, actual)
            raised = tl.where(here, positive(number, tl.max(number, 0), ODDS), 0)
            share = raised / tl.sum(raised, 0)
    if RUNNING:
        # A batch without rows, or with a logit that is not finite, does not change the average.
        moves = (mass != 0) & (tl.abs(tl.sum(predicted, 0)) < float("inf"))
        momentum = tl.full([], MOMENTUM, tl.float64)
        m = tl.where(moves, momentum, 0)
        before = tl.load(seen)
        tl.debug_barrier()
        after = before + m * (1 - before)
        tl.store(seen, after)
        # Before any batch counts there is no average.
        per_seen = tl.where(after == 0, 0, 1 / tl.maximum(after, momentum))
        tp = average(running + c, here, tp, m, moves, per_seen)
        predicted = average(running + CLASSES + c, here, predicted, m, moves, per_seen)
        actual = average(running + 2 * CLASSES + c, here, actual, m, moves, per_seen)
        LAST: tl.constexpr = 4 * CLASSES if MULTILABEL else 3 * CLASSES + 1
        if MULTILABEL:
            total = average(running + 3 * CLASSES + c, here, total, m, moves, per_seen)
        else:
            total = average(running + 3 * CLASSES, True, total, m, moves, per_seen)
            end = running + LAST + 2 * CLASSES * (PSEUDO > 0)
            rows = average(end, True, rows, m, moves, per_seen)
        if PSEUDO > 0:
            right = average(running + LAST + c, here, right, m, moves, per_seen)
            labelled = average(running + LAST + CLASSES + c, here, labelled, m, moves, per_seen)

    score, undefined, of_tp, of_predicted = differentiate(
        tp, predicted, actual, total, rows, c, CLASSES, MULTILABEL, KIND, AVERAGE, ZERO_DIVISION,
        LEAVE_OUT, TP, BY_TP, BY_PREDICTED, BY_ACTUAL,
    )  # fmt: skip
    nothing = (empty | undefined) if LEAVE_OUT else empty
    weight = tl.cast(main_weight, tl.float64) + tl.cast(more_weight, tl.float64)
    loss = tl.where(nothing, 0, weight * (1 - score))
    if CROSS_ENTROPY:
        loss += crosses * per_cross
        tl.store(slopes + 2 * CLASSES, (per_cross * scale).to(kind))
        tl.store(slopes + 2 * CLASSES + 2 + c, shift.to(kind), mask=here)
    if CROSS_ENTROPY == 2:
        tl.store(slopes + 3 * CLASSES + 2 + c, factor.to(kind), mask=here)
    tl.store(out, loss.to(out.dtype.element_ty))
    tl.store(slopes + 2 * CLASSES + 1, tl.load(temperature).to(kind))
    of_tp = tl.where(nothing, 0, -scale * weight * of_tp)
    of_predicted = tl.where(nothing, 0, -scale * weight * of_predicted)
    tl.store(slopes + c, of_tp.to(kind), mask=here)
    tl.store(slopes + CLASSES + c, of_predicted.to(kind), mask=here)

    if FOLLOW:
        right, labelled, actual, total = with_pseudo_rows(
            right, labelled, actual, total, share, PSEUDO
        )
        _score, _undefined, of_tp, of_predicted = differentiate(
            right, labelled, actual, total, rows, c, CLASSES, MULTILABEL, KIND, AVERAGE,
            ZERO_DIVISION, LEAVE_OUT, TP, BY_TP, BY_PREDICTED, BY_ACTUAL,
        )  # fmt: skip
        offset, finite = offsets_of(of_tp, of_predicted, number, c, CLASSES, MULTILABEL, ODDS, FLAT)
        # Slopes that are not finite leave an offset as it is.
        offset = tl.where(finite, offset, tl.load(offsets + c, mask=here, other=0))
        tl.debug_barrier()  # the shift of this batch may be the same buffer
        tl.store(offsets + c, offset, mask=here)
        if CROSS_ENTROPY == 2:
            if BY_COUNTS > 0:
                factor = tl.where(here, tl.exp(-BY_COUNTS * tl.log(raised)), 0)
                factor /= tl.max(factor, 0)
                tl.store(cross + CLASSES + c, factor, mask=here)
            offset += 0 if MULTILABEL else tl.log(factor)
            tl.store(cross + c, offset, mask=here)


@triton.jit
def _soft(
    partial, programs, c, CLASSES: tl.constexpr, TASK: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """tp, predicted, actual, negatives (of labels), the cross-entropy and the number of rows."""
    here = c < CLASSES
    if TASK == _BINARY:  # the sums of one label are those of two classes, mirrored for the negative
        tp = added(partial, programs, 10, tl.where(c == 1, 0, 5), here, COLUMNS, PROGRAMS)
        fp = added(partial, programs, 10, tl.where(c == 1, 1, 4), here, COLUMNS, PROGRAMS)
        actual = added(partial, programs, 10, tl.where(c == 1, 2, 3), here, COLUMNS, PROGRAMS)
        ends = added(partial, programs, 10, 8 + c, c < 2, COLUMNS, PROGRAMS)
        negatives = actual
    else:
        WIDTH: tl.constexpr = 9 * CLASSES + 1 if TASK == _MULTILABEL else 5 * CLASSES + 2
        tp = added(partial, programs, WIDTH, c, here, COLUMNS, PROGRAMS)
        fp = added(partial, programs, WIDTH, CLASSES + c, here, COLUMNS, PROGRAMS)
        actual = added(partial, programs, WIDTH, 2 * CLASSES + c, here, COLUMNS, PROGRAMS)
        negatives = actual
        if TASK == _MULTILABEL:
            negatives = added(partial, programs, WIDTH, 3 * CLASSES + c, here, COLUMNS, PROGRAMS)
            ends = added(partial, programs, WIDTH, 8 * CLASSES + c, here, COLUMNS, PROGRAMS)
        else:
            ends = added(partial, programs, WIDTH, 5 * CLASSES + c, c < 2, COLUMNS, PROGRAMS)
    crosses = tl.sum(ends if TASK == _MULTILABEL else tl.where(c == 0, ends, 0), 0)
    return tp, tp + fp, actual, negatives, crosses, tl.sum(tl.where(c == 1, ends, 0), 0)


@triton.jit
def _hard(
    partial, programs, c, actual, mass, CLASSES: tl.constexpr, TASK: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """tp and predicted of the hard labels of a batch."""
    here = c < CLASSES
    if TASK == _BINARY:
        tp = added(partial, programs, 10, 6 + 0 * c, here, COLUMNS, PROGRAMS)
        predicted = added(partial, programs, 10, 7 + 0 * c, here, COLUMNS, PROGRAMS)
        # What is not labelled positive is labelled negative.
        tp = tl.where(c == 0, actual - (predicted - tp), tp)
        return tp, tl.where(c == 0, mass - predicted, predicted)
    else:
        FIRST: tl.constexpr = 6 * CLASSES if TASK == _MULTILABEL else 3 * CLASSES
        WIDTH: tl.constexpr = 9 * CLASSES + 1 if TASK == _MULTILABEL else 5 * CLASSES + 2
        tp = added(partial, programs, WIDTH, FIRST + c, here, COLUMNS, PROGRAMS)
        predicted = added(partial, programs, WIDTH, FIRST + CLASSES + c, here, COLUMNS, PROGRAMS)
        return tp, predicted
