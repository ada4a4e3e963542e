"""A metric of sums, and its slopes by tp and predicted; the mathematics is that of `core.metrics`.

Slopes are defined up to a constant of all predicted masses: the memberships of a row sum to its
weight.
"""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

from evalign.core.numerics import ZERO
from evalign.kernels.fused.ratios import part_of, score_of
from evalign.kernels.fused.statistics import kept

KINDS = {"ratio": 0, "matthews": 1, "kappa": 2}
AVERAGES = {"binary": 0, "macro": 1, "micro": 2, "weighted": 3, "present": 4}
_MATTHEWS, _RATIO = tl.constexpr(1), tl.constexpr(0)
_ZERO = tl.constexpr(ZERO)
_POSITIVE, _MICRO, _WEIGHTED, _PRESENT = (tl.constexpr(i) for i in (0, 2, 3, 4))


@triton.jit
def differentiate(
    point, classes, whole, predictions, rows, MULTILABEL: tl.constexpr,
    KIND: tl.constexpr, AVERAGE: tl.constexpr, ZERO_DIVISION: tl.constexpr, LEAVE_OUT: tl.constexpr,
    TP: tl.constexpr, TN: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr,
    BY_ACTUAL: tl.constexpr, BY_NEGATIVES: tl.constexpr, BY_REJECTED: tl.constexpr,
    SECOND: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The metric at `point`, and whether it is undefined; its slopes are stored behind the sums."""
    zero = tl.full([], 0, tl.float64)
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
        tl.store(point + 4 * classes + 2 + c, of_tp, mask=c < classes)
        tl.store(point + 5 * classes + 2 + c, of_predicted, mask=c < classes)
    tl.debug_barrier()
    return score, undefined


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
