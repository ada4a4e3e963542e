"""The kernel from sums to the loss, its slopes, and the state of the loss.

One program goes through the classes block by block, in float64. The mathematics is that of
`core.metrics`, `aggregation.running` and `losses.offsets`. `point` holds the sums (4, C) at which
the metric is taken: tp, predicted, actual and total, then the total and the number of rows of
exclusive classes, and the slopes (2, C) of the metric itself by tp and predicted.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from evalign.core.numerics import ZERO
from evalign.kernels.fused.ratios import part_of, score_of
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
KINDS = {"ratio": 0, "matthews": 1, "kappa": 2}
AVERAGES = {"binary": 0, "macro": 1, "micro": 2, "weighted": 3, "present": 4}
_BINARY, _MULTILABEL = tl.constexpr(0), tl.constexpr(2)
_MATTHEWS, _RATIO = tl.constexpr(1), tl.constexpr(0)
_ZERO = tl.constexpr(ZERO)
_POSITIVE, _MICRO, _WEIGHTED, _PRESENT = (tl.constexpr(i) for i in (0, 2, 3, 4))


@triton.jit
def finish(
    partial, temperature, cross, point, out, slopes,
    seen, running_tp, running_predicted, running_actual, running_total, running_rows,
    hard_tp, hard_predicted, counts, offsets,
    main_weight, more_weight, programs, scale, classes,
    TASK: tl.constexpr, CROSS_ENTROPY: tl.constexpr,
    RUNNING: tl.constexpr, MOMENTUM: tl.constexpr,
    PSEUDO: tl.constexpr, FOLLOW: tl.constexpr, ODDS: tl.constexpr, FLAT: tl.constexpr,
    KIND: tl.constexpr,
    AVERAGE: tl.constexpr, ZERO_DIVISION: tl.constexpr, LEAVE_OUT: tl.constexpr, TP: tl.constexpr,
    TN: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr, BY_ACTUAL: tl.constexpr,
    BY_NEGATIVES: tl.constexpr, BY_REJECTED: tl.constexpr, SECOND: tl.constexpr,
    COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Write the loss, and its slopes by tp and predicted (2, C) and by the cross-entropy's sum.

    `cross` holds the shift of the cross-entropy, and with a `CROSS_ENTROPY` of 2 the factors of the
    classes behind it. `RUNNING` moves the averages. With a share of `PSEUDO` rows the counts are
    moved and these rows mixed in; `FOLLOW` then replaces the offsets.
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
                average(hard_tp, c, classes, right, m, moves, per_seen)
                average(hard_predicted, c, classes, labelled, m, moves, per_seen)
            tp = average(running_tp, c, classes, tp, m, moves, per_seen)
            predicted = average(running_predicted, c, classes, predicted, m, moves, per_seen)
            actual = average(running_actual, c, classes, actual, m, moves, per_seen)
            if MULTILABEL:
                total = average(running_total, c, classes, total, m, moves, per_seen)
            keep(point, c, classes, tp, predicted, actual, total)
            predictions += tl.sum(predicted, 0)
        tl.debug_barrier()
    kept_share, place = zero + 1, 0
    if PSEUDO > 0:
        kept_share = 1 - tl.full([], PSEUDO, tl.float64)
        whole, predictions, place = mix_pseudo_rows(
            point, counts, classes, whole, MULTILABEL, PSEUDO, ODDS, COLUMNS
        )
    if not MULTILABEL:
        tl.store(point + 4 * classes, whole)
        tl.store(point + 4 * classes + 1, rows)

    # Sums over the classes, of whatever the metric needs.
    number, weights, scores, supports, supported = zero, zero, zero, zero, zero
    sum_tp, sum_predicted, sum_actual, sum_total = zero, zero, zero, zero
    covariance, variance_true, variance_predicted = zero, zero, zero
    share = tl.where(whole < _ZERO, 0, 1 / tl.where(whole < _ZERO, 1, whole))
    for start in range(0, classes, COLUMNS):
        c = start + tl.arange(0, COLUMNS)
        tp, predicted, actual, fn, tn, negatives, rejected, total = _cells(
            point, c, classes, whole, predictions, MULTILABEL
        )
        if KIND == _RATIO:
            if AVERAGE == _MICRO:
                counted = _counted(actual, predicted, total, share * rows, AVERAGE, MULTILABEL)
                sum_total += tl.sum(counted * total, 0)
                sum_tp += tl.sum(tl.where(counted != 0, tp, 0), 0)
                sum_predicted += tl.sum(tl.where(counted != 0, predicted, 0), 0)
                sum_actual += tl.sum(tl.where(counted != 0, actual, 0), 0)
            else:
                score, _of_tp, _of_predicted, undefined = score_of(
                    tp, predicted, actual, tn, negatives, rejected, TP, TN, BY_TP, BY_PREDICTED,
                    BY_ACTUAL, BY_NEGATIVES, BY_REJECTED, SECOND, ZERO_DIVISION,
                )  # fmt: skip
                counted = _counted(actual, predicted, total, share * rows, AVERAGE, MULTILABEL)
                if AVERAGE == _POSITIVE:
                    counted = tl.where(c == 1, tl.full([], 1, tl.float64), 0)
                if LEAVE_OUT:
                    counted = tl.where(undefined, 0, counted)
                    score = tl.where(undefined, 0, score)
                weights += tl.sum(counted, 0)
                scores += tl.sum(tl.where(counted == 0, 0, counted * score), 0)
                supports += tl.sum(counted * actual, 0)
                supported += tl.sum(counted * actual * score, 0)
        else:
            fp = predicted - tp
            if KIND == _MATTHEWS:
                tn, fn = part_of(rejected, tn), part_of(rejected, fn)
                covariance += tl.sum(share * tp * (share * tn) - share * fp * (share * fn), 0)
                variance_true += tl.sum(share * actual * (share * negatives), 0)
                variance_predicted += tl.sum(share * predicted * (share * rejected), 0)
            else:
                covariance += tl.sum(share * fp, 0)  # the observed disagreement
                variance_true += tl.sum(share * actual * (share * rejected), 0)  # the expected one

    by_support = False
    pooled_tp, pooled_predicted = zero, zero
    noise = tl.full([], 1.7763568394002505e-15, tl.float64)  # 8 · 2⁻⁵²
    if KIND == _RATIO:
        if AVERAGE == _MICRO:
            rest = sum_total - sum_actual
            score, pooled_tp, pooled_predicted, undefined = score_of(
                sum_tp, sum_predicted, sum_actual, rest - (sum_predicted - sum_tp),
                rest, sum_total - sum_predicted, TP, TN, BY_TP, BY_PREDICTED,
                BY_ACTUAL, BY_NEGATIVES, BY_REJECTED, SECOND, ZERO_DIVISION,
            )  # fmt: skip
            number = zero + 1
        else:
            number = weights
            if AVERAGE == _WEIGHTED:
                by_support = supports != 0
                number = tl.where(by_support, supports, weights)
                scores = tl.where(by_support, supported, scores)
            undefined = number < _ZERO
            number = tl.where(undefined, 1, number)
            score = tl.where(undefined, ZERO_DIVISION, scores / number)
    elif KIND == _MATTHEWS:
        undefined = (variance_true <= noise) | (variance_predicted <= noise)
        root = tl.sqrt(tl.where(undefined, 1, variance_true * variance_predicted))
        score = tl.where(undefined, ZERO_DIVISION, covariance / root)
        of_variance = score / tl.where(undefined, 1, variance_predicted)
    else:
        undefined = variance_true <= noise
        expected = tl.where(undefined, 1, variance_true)
        score = tl.where(undefined, ZERO_DIVISION, (variance_true - covariance) / expected)
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
        tp, predicted, actual, fn, tn, negatives, rejected, total = _cells(
            point, c, classes, whole, predictions, MULTILABEL
        )
        if KIND == _RATIO:
            counted = _counted(actual, predicted, total, share * rows, AVERAGE, MULTILABEL)
            if AVERAGE == _MICRO:
                of_tp = tl.where(counted != 0, pooled_tp, 0)
                of_predicted = tl.where(counted != 0, pooled_predicted, 0)
            else:
                _s, of_tp, of_predicted, undefined_class = score_of(
                    tp, predicted, actual, tn, negatives, rejected, TP, TN, BY_TP, BY_PREDICTED,
                    BY_ACTUAL, BY_NEGATIVES, BY_REJECTED, SECOND, ZERO_DIVISION,
                )  # fmt: skip
                if AVERAGE == _POSITIVE:
                    counted = tl.where(c == 1, tl.full([], 1, tl.float64), 0)
                if LEAVE_OUT:
                    counted = tl.where(undefined_class, 0, counted)
                weight = tl.where(by_support, counted * actual, counted) / number
                of_tp, of_predicted = weight * of_tp, weight * of_predicted
        elif KIND == _MATTHEWS:
            of_tp = tl.zeros([COLUMNS], tl.float64) + share / root
            of_predicted = share * (share * predicted * of_variance - share * actual / root)
        else:
            of_tp = tl.zeros([COLUMNS], tl.float64) + share / expected
            of_predicted = -covariance / (expected * expected) * share * (share * actual)
        if KIND != _RATIO:
            of_tp, of_predicted = (
                tl.where(undefined, 0, of_tp),
                tl.where(undefined, 0, of_predicted),
            )
        here = c < classes
        tl.store(point + 4 * classes + 2 + c, of_tp, mask=here)
        tl.store(point + 5 * classes + 2 + c, of_predicted, mask=here)
        of_tp = tl.where(nothing, 0, -scale * metric_weight * kept_share * of_tp)
        of_predicted = tl.where(nothing, 0, -scale * metric_weight * kept_share * of_predicted)
        of_tp, of_predicted = (
            of_tp.to(slopes.dtype.element_ty),
            of_predicted.to(slopes.dtype.element_ty),
        )
        tl.store(slopes + c, of_tp, mask=here)
        tl.store(slopes + classes + c, of_predicted, mask=here)
        if CROSS_ENTROPY:
            shift = tl.load(cross + c, mask=here).to(slopes.dtype.element_ty)
            tl.store(slopes + 2 * classes + 2 + c, shift, mask=here)
        if CROSS_ENTROPY == 2:
            of_class = tl.load(cross + classes + c, mask=here).to(slopes.dtype.element_ty)
            tl.store(slopes + 3 * classes + 2 + c, of_class, mask=here)
    if FOLLOW:  # the shift of this batch is read, and may be the same buffer
        tl.debug_barrier()
        follow(point + 4 * classes + 2, offsets, classes, place, MULTILABEL, ODDS, FLAT, COLUMNS)


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


@triton.jit
def _cells(point, c, classes, whole, predictions, MULTILABEL: tl.constexpr):
    """The sums of classes and what follows from them. Beyond the last class all are 0."""
    tp, predicted, actual, total = kept(point, c, classes)
    here = c < classes
    if not MULTILABEL:
        total = tl.where(here, whole, 0)
    negatives = total - actual
    fn, tn, rejected = actual - tp, negatives - (predicted - tp), total - predicted
    if not MULTILABEL:
        two = here & (0 * c + classes == 2)  # as in `core.confusion`
        other = tl.where(two, 1 - c, 0)
        other_tp = tl.load(point + other, mask=two, other=0)
        rest = tl.load(point + classes + other, mask=two, other=0)
        fn, tn = tl.where(two, rest - other_tp, fn), tl.where(two, other_tp, tn)
        rejected = tl.where(two, rest, tl.where(here, predictions - predicted, 0))
    return tp, predicted, actual, fn, tn, negatives, rejected, total


@triton.jit
def _counted(actual, predicted, total, per_row, AVERAGE: tl.constexpr, MULTILABEL: tl.constexpr):
    """How much classes count in an average: wholly, or one without true rows by its soft rows."""
    one, zero = tl.full([], 1, tl.float64), tl.full([], 0, tl.float64)
    if AVERAGE == _PRESENT:
        counted = tl.where(actual != 0, one, zero)
    elif MULTILABEL:
        counted = tl.where(total != 0, one, zero)
    else:
        rows = predicted * per_row
        counted = tl.where((actual != 0) | (rows >= 1) | (rows != rows), one, rows)
    return counted
