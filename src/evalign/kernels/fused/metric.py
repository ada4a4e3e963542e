"""A metric of sums, and its slopes by tp and predicted; the mathematics is that of `core.metrics`.

Slopes are defined up to a constant of all predicted masses: the memberships of a row sum to its
weight.
"""

import triton
import triton.language as tl

from evalign.core.arrays import ZERO

KINDS = {"ratio": 0, "matthews": 1, "kappa": 2}
AVERAGES = {"binary": 0, "macro": 1, "micro": 2, "weighted": 3, "present": 4}
_MATTHEWS, _RATIO = tl.constexpr(1), tl.constexpr(0)
_ZERO = tl.constexpr(ZERO)
_POSITIVE, _MICRO, _WEIGHTED, _PRESENT = (tl.constexpr(i) for i in (0, 2, 3, 4))


@triton.jit
def differentiate(
    tp, predicted, actual, total, rows, c, CLASSES: tl.constexpr, MULTILABEL: tl.constexpr,
    KIND: tl.constexpr, AVERAGE: tl.constexpr, ZERO_DIVISION: tl.constexpr, LEAVE_OUT: tl.constexpr,
    TP: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr, BY_ACTUAL: tl.constexpr,
):  # fmt: skip
    """The metric, whether it is undefined, and its slopes by tp and predicted.

    All sums are 0 beyond the last class. The total is a number, of labels one for each.
    """
    if KIND == _RATIO:
        one, zero = tl.full([], 1, tl.float64), tl.full([], 0, tl.float64)
        # How much a class counts: wholly, or one without true rows by its soft rows.
        if AVERAGE == _PRESENT:
            counted = tl.where(actual != 0, one, zero)
        elif MULTILABEL:
            counted = tl.where(total != 0, one, zero)
        else:
            soft = predicted * (rows * _over(one, total))
            counted = tl.where((actual != 0) | (soft >= 1) | (soft != soft), one, soft)
        if AVERAGE == _MICRO:
            part = counted != 0
            tp = tl.sum(tl.where(part, tp, 0), 0)
            predicted = tl.sum(tl.where(part, predicted, 0), 0)
            actual = tl.sum(tl.where(part, actual, 0), 0)
        # A bare number would be rounded to float32.
        over = tl.full([], TP, tl.float64)
        under = BY_TP * tp + BY_PREDICTED * predicted + tl.full([], BY_ACTUAL, tl.float64) * actual
        undefined = under < _ZERO
        under = tl.where(undefined, 1, under)
        score = over * tp / under
        of_tp = tl.where(undefined, 0, (over - BY_TP * score) / under)
        of_predicted = tl.where(undefined, 0, -BY_PREDICTED * score / under)
        score = tl.where(undefined, ZERO_DIVISION, score)
        if AVERAGE == _MICRO:
            of_tp, of_predicted = tl.where(part, of_tp, 0), tl.where(part, of_predicted, 0)
        else:
            if AVERAGE == _POSITIVE:
                counted = tl.where(c == 1, one, zero)
            if LEAVE_OUT:
                counted = tl.where(undefined, 0, counted)
            if AVERAGE == _WEIGHTED:
                support = counted * actual
                counted = tl.where(tl.sum(support, 0) != 0, support, counted)
            number = tl.sum(counted, 0)
            score = tl.sum(tl.where(counted == 0, 0, counted * score), 0)
            undefined = number < _ZERO
            number = tl.where(undefined, 1, number)
            score = tl.where(undefined, ZERO_DIVISION, score / number)
            of_tp, of_predicted = of_tp * (counted / number), of_predicted * (counted / number)
        return score, undefined, of_tp, of_predicted
    else:
        score, undefined, of_tp, of_predicted = _of_all_classes(
            tp, predicted, actual, total, c, CLASSES, KIND, ZERO_DIVISION
        )
        return score, undefined, tl.where(undefined, 0, of_tp), tl.where(undefined, 0, of_predicted)


@triton.jit
def _of_all_classes(
    tp, predicted, actual, total, c, CLASSES: tl.constexpr, KIND: tl.constexpr,
    ZERO_DIVISION: tl.constexpr,
):  # fmt: skip
    """MCC and kappa."""
    share = _over(tl.full([], 1, tl.float64), total)
    negatives = tl.where(c < CLASSES, total - actual, 0)
    fp = predicted - tp
    fn, tn = actual - tp, negatives - fp
    rejected = tl.where(c < CLASSES, tl.sum(predicted, 0) - predicted, 0)
    if CLASSES == 2:  # as in `core.confusion`
        fn, tn, rejected = _of_other(fp, c), _of_other(tp, c), _of_other(predicted, c)
    noise = tl.full([], 1.7763568394002505e-15, tl.float64)  # 8 · 2⁻⁵²
    if KIND == _MATTHEWS:
        tn, fn = _part_of(rejected, tn), _part_of(rejected, fn)
        covariance = tl.sum(share * tp * (share * tn) - share * fp * (share * fn), 0)
        variance_true = tl.sum(share * actual * (share * negatives), 0)
        variance_predicted = tl.sum(share * predicted * (share * rejected), 0)
        undefined = (variance_true <= noise) | (variance_predicted <= noise)
        root = tl.sqrt(tl.where(undefined, 1, variance_true * variance_predicted))
        score = tl.where(undefined, ZERO_DIVISION, covariance / root)
        of_variance = score / tl.where(undefined, 1, variance_predicted)
        of_predicted = share * (share * predicted * of_variance - share * actual / root)
        return score, undefined, 0 * tp + share / root, of_predicted
    else:
        observed = tl.sum(share * fp, 0)
        expected = tl.sum(share * actual * (share * rejected), 0)
        undefined = expected <= noise
        expected = tl.where(undefined, 1, expected)
        score = tl.where(undefined, ZERO_DIVISION, (expected - observed) / expected)
        of_predicted = -observed / (expected * expected) * share * (share * actual)
        return score, undefined, 0 * tp + share / expected, of_predicted


@triton.jit
def _over(part, whole):
    return tl.where(whole < _ZERO, 0, part / tl.where(whole < _ZERO, 1, whole))


@triton.jit
def _of_other(x, c):
    """The sums of the other one of two classes."""
    first, second = tl.sum(tl.where(c == 0, x, 0), 0), tl.sum(tl.where(c == 1, x, 0), 0)
    return tl.where(c == 0, second, tl.where(c == 1, first, 0))


@triton.jit
def _part_of(whole, part):
    """As in `core.numerics`; NaN stays visible."""
    part = tl.where(part < 0, 0, part)
    return tl.where(part > whole, whole, part)
