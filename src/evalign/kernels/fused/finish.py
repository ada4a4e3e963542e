"""The kernel from sums to the loss, its slopes, and the state of the loss.

One program goes through the classes block by block, in float64. The mathematics is that of
`core.metrics`, `aggregation.running` and `losses.offsets`. `point` holds the sums (4, C) at which
the metric is taken: tp, predicted, actual and total, then the total and the number of rows of
exclusive classes, and the slopes (2, C) of the metric by tp and predicted. Behind them is the same
of hard labels, from which the offsets come.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from evalign.core.numerics import ZERO
from evalign.kernels.fused.metric import differentiate
from evalign.kernels.fused.statistics import (
    average,
    count,
    follow,
    keep,
    kept,
    mix_pseudo_rows,
)
from evalign.kernels.fused.totals import added

TASKS = {"binary": 0, "multiclass": 1, "multilabel": 2}
_BINARY, _MULTILABEL = tl.constexpr(0), tl.constexpr(2)
_ZERO = tl.constexpr(ZERO)


@triton.jit
def finish(
    partial, temperature, cross, point, out, slopes,
    seen, running_tp, running_predicted, running_actual, running_total, running_rows,
    hard_tp, hard_predicted, counts, offsets,
    main_weight, more_weight, programs, scale, classes,
    TASK: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    RUNNING: tl.constexpr, MOMENTUM: tl.constexpr,
    PSEUDO: tl.constexpr, FOLLOW: tl.constexpr, ODDS: tl.constexpr, FLAT: tl.constexpr,
    KIND: tl.constexpr, AVERAGE: tl.constexpr, ZERO_DIVISION: tl.constexpr, LEAVE_OUT: tl.constexpr,
    TP: tl.constexpr, TN: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr,
    BY_ACTUAL: tl.constexpr, BY_NEGATIVES: tl.constexpr, BY_REJECTED: tl.constexpr,
    SECOND: tl.constexpr, COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Write the loss, and its slopes by tp and predicted (2, C) and by the cross-entropy's sum.

    `cross` holds the shift of the cross-entropy, and with a `CROSS_ENTROPY` of 2 the factors of the
    classes behind it. `RUNNING` moves the averages. With a share of `PSEUDO` rows the counts and
    the averages of hard labels are moved, too; `FOLLOW` then replaces the offsets.
    """
    MULTILABEL: tl.constexpr = TASK == _MULTILABEL
    zero = tl.full([], 0, tl.float64)
    mass, predictions, heavy, crosses, rows = zero, zero, zero, zero, zero
    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        tp, predicted, actual, total = _added_up(
            partial, programs, c, classes, TASK, COLUMNS, PROGRAMS
        )
        keep(point, c, classes, tp, predicted, actual, total)
        of_rows = total if MULTILABEL else actual
        mass += tl.sum(of_rows, 0)
        predictions += tl.sum(predicted, 0)
        if CROSS_ENTROPY == 2:
            of_class = tl.load(cross + classes + c, mask=c < classes, other=0).to(tl.float64)
            heavy += tl.sum(of_class * of_rows, 0)
        if PSEUDO > 0:
            count(counts, c, classes, actual, total, MULTILABEL)
        if MULTILABEL and CROSS_ENTROPY:
            crosses += tl.sum(
                added(partial, programs, 9 * classes + 1, 8 * classes + c, c < classes,
                      COLUMNS, PROGRAMS), 0)  # fmt: skip
    if not MULTILABEL:
        c = tl.arange(0, COLUMNS)
        width = 10 if TASK == _BINARY else 5 * classes + 2
        ends = added(partial, programs, width, width - 2 + c, c < 2, COLUMNS, PROGRAMS)
        crosses = tl.sum(tl.where(c == 0, ends, 0), 0)
        rows = tl.sum(tl.where(c == 1, ends, 0), 0)
    empty, whole = mass == 0, mass
    per_mass = tl.where(mass < _ZERO, 0, 1 / tl.where(mass < _ZERO, 1, mass))
    metric_weight = tl.cast(main_weight, tl.float64) + tl.cast(more_weight, tl.float64)
    tl.debug_barrier()

    if RUNNING:
        # A batch without rows, or with a logit that is not finite, does not change the average.
        moves = (mass != 0) & (tl.abs(predictions) < float("inf"))
        momentum = tl.full([], MOMENTUM, tl.float64)
        m = tl.where(moves, momentum, 0)
        before = tl.load(seen)
        after = before + m * (1 - before)
        # Before any batch counts there is no average.
        per_seen = tl.where(after == 0, 0, 1 / tl.maximum(after, momentum))
        predictions = zero
        whole_before = tl.load(running_total)
        tl.debug_barrier()
        tl.store(seen, after)
        if not MULTILABEL:
            whole_now = whole_before + tl.where(moves, m * (mass - whole_before), 0)
            tl.store(running_total, whole_now)
            whole = tl.where(after == 0, mass, whole_now * per_seen)
            rows_before = tl.load(running_rows)
            tl.debug_barrier()
            rows_now = rows_before + tl.where(moves, m * (rows - rows_before), 0)
            tl.store(running_rows, rows_now)
            rows = tl.where(after == 0, rows, rows_now * per_seen)
        for start in range(0, classes, COLUMNS):
            c = start + tl.arange(0, COLUMNS)
            tp, predicted, actual, total = kept(point, c, classes)
            if PSEUDO > 0:
                right, labelled = _hard(
                    partial, programs, c, classes, actual, mass, TASK, COLUMNS, PROGRAMS
                )
                right = average(hard_tp, c, classes, right, m, moves, per_seen)
                labelled = average(hard_predicted, c, classes, labelled, m, moves, per_seen)
            tp = average(running_tp, c, classes, tp, m, moves, per_seen)
            predicted = average(running_predicted, c, classes, predicted, m, moves, per_seen)
            actual = average(running_actual, c, classes, actual, m, moves, per_seen)
            if MULTILABEL:
                total = average(running_total, c, classes, total, m, moves, per_seen)
            keep(point, c, classes, tp, predicted, actual, total)
            if FOLLOW:
                keep(point + 6 * classes + 2, c, classes, right, labelled, actual, total)
            predictions += tl.sum(predicted, 0)
        tl.debug_barrier()
    if not MULTILABEL:
        tl.store(point + 4 * classes, whole)
        tl.store(point + 4 * classes + 1, rows)
    score, undefined = differentiate(
        point, classes, whole, predictions, rows, MULTILABEL,
        KIND, AVERAGE, ZERO_DIVISION, LEAVE_OUT,
        TP, TN, BY_TP, BY_PREDICTED, BY_ACTUAL, BY_NEGATIVES, BY_REJECTED, SECOND, COLUMNS,
    )  # fmt: skip
    nothing = (empty | undefined) if LEAVE_OUT else empty
    loss = tl.where(nothing, 0, metric_weight * (1 - score))
    if CROSS_ENTROPY:
        per_cross = per_mass
        if CROSS_ENTROPY == 2:
            per_cross = tl.where(heavy < _ZERO, 0, 1 / tl.where(heavy < _ZERO, 1, heavy))
        loss += crosses * per_cross
        tl.store(slopes + 2 * classes, (per_cross * scale).to(slopes.dtype.element_ty))
    t = tl.load(temperature).to(slopes.dtype.element_ty)
    tl.store(slopes + 2 * classes + 1, t)
    tl.store(out, loss.to(out.dtype.element_ty))

    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        here = c < classes
        of_tp = tl.load(point + 4 * classes + 2 + c, mask=here, other=0)
        of_predicted = tl.load(point + 5 * classes + 2 + c, mask=here, other=0)
        of_tp = tl.where(nothing, 0, -scale * metric_weight * of_tp)
        of_predicted = tl.where(nothing, 0, -scale * metric_weight * of_predicted)
        tl.store(slopes + c, of_tp.to(slopes.dtype.element_ty), mask=here)
        tl.store(slopes + classes + c, of_predicted.to(slopes.dtype.element_ty), mask=here)
        if CROSS_ENTROPY:
            shift = tl.load(cross + c, mask=here).to(slopes.dtype.element_ty)
            tl.store(slopes + 2 * classes + 2 + c, shift, mask=here)
        if CROSS_ENTROPY == 2:
            of_class = tl.load(cross + classes + c, mask=here).to(slopes.dtype.element_ty)
            tl.store(slopes + 3 * classes + 2 + c, of_class, mask=here)
    if FOLLOW:  # the shift of this batch is read, and may be the same buffer
        labels = point + 6 * classes + 2
        whole, predictions, place = mix_pseudo_rows(
            labels, counts, classes, whole, MULTILABEL, PSEUDO, ODDS, COLUMNS
        )
        differentiate(
            labels, classes, whole, predictions, rows, MULTILABEL,
            KIND, AVERAGE, ZERO_DIVISION, LEAVE_OUT,
            TP, TN, BY_TP, BY_PREDICTED, BY_ACTUAL, BY_NEGATIVES, BY_REJECTED, SECOND, COLUMNS,
        )  # fmt: skip
        follow(labels + 4 * classes + 2, offsets, classes, place, MULTILABEL, ODDS, FLAT, COLUMNS)


@triton.jit
def _added_up(
    partial, programs, c, classes, TASK: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """tp, predicted, actual and total of classes, added up over the programs in one order."""
    real = c < classes
    if TASK == _BINARY:  # the sums of one label are those of two classes, mirrored for the negative
        tp = added(partial, programs, 10, tl.where(c == 1, 0, 5), real, COLUMNS, PROGRAMS)
        fp = added(partial, programs, 10, tl.where(c == 1, 1, 4), real, COLUMNS, PROGRAMS)
        actual = added(partial, programs, 10, tl.where(c == 1, 2, 3), real, COLUMNS, PROGRAMS)
        total = actual
    else:
        width = 9 * classes + 1 if TASK == _MULTILABEL else 5 * classes + 2
        tp = added(partial, programs, width, c, real, COLUMNS, PROGRAMS)
        fp = added(partial, programs, width, classes + c, real, COLUMNS, PROGRAMS)
        actual = added(partial, programs, width, 2 * classes + c, real, COLUMNS, PROGRAMS)
        total = actual
        if TASK == _MULTILABEL:
            negatives = added(partial, programs, width, 3 * classes + c, real, COLUMNS, PROGRAMS)
            total = actual + negatives
    return tp, tp + fp, actual, total


@triton.jit
def _hard(
    partial, programs, c, classes, actual, mass, TASK: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """tp and predicted of the hard labels of a batch."""
    real = c < classes
    first, width = 3 * classes, 5 * classes + 2
    if TASK == _BINARY:
        first, width = 6, 10
    if TASK == _MULTILABEL:
        first, width = 6 * classes, 9 * classes + 1
    own, step = c, classes
    if TASK == _BINARY:
        own, step = 0 * c, 1
    tp = added(partial, programs, width, first + own, real, COLUMNS, PROGRAMS)
    predicted = added(partial, programs, width, first + step + own, real, COLUMNS, PROGRAMS)
    if TASK == _BINARY:  # what is not labelled positive is labelled negative
        tp = tl.where(c == 0, actual - (predicted - tp), tp)
        predicted = tl.where(c == 0, mass - predicted, predicted)
    return tp, tl.where(real, predicted, 0)
