"""The score of a metric that is a quotient of sums, and its slopes; as in `kernels.closed`."""

# Triton compiles this, and a type checker takes it for Python.
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from evalign.core.numerics import ZERO

_ZERO = tl.constexpr(ZERO)


@triton.jit
def score_of(
    tp, predicted, actual, tn, negatives, rejected,
    TP: tl.constexpr, TN: tl.constexpr, BY_TP: tl.constexpr, BY_PREDICTED: tl.constexpr,
    BY_ACTUAL: tl.constexpr, BY_NEGATIVES: tl.constexpr, BY_REJECTED: tl.constexpr,
    SECOND: tl.constexpr, ZERO_DIVISION: tl.constexpr,
):  # fmt: skip
    """Scores, their slopes by tp and predicted, and where they are undefined."""
    noise = tl.full([], 1.7763568394002505e-15, tl.float64)  # 8 · 2⁻⁵²
    rejected = tl.where(rejected <= noise * (actual + negatives), 0, rejected)
    by_actual = tl.full([], BY_ACTUAL, tl.float64)
    under = BY_TP * tp + BY_PREDICTED * predicted + by_actual * actual
    under += BY_NEGATIVES * negatives + BY_REJECTED * rejected
    part = part_of(under, tn)
    score, of_tp, of_predicted, undefined = _quotient(
        tl.full([], TP, tl.float64) * tp + TN * part, under, tl.full([], TP, tl.float64) + TN,
        BY_TP, -TN, BY_PREDICTED - BY_REJECTED,
    )  # fmt: skip
    if SECOND:  # recall or precision came first; the rate among the negatives follows
        under = rejected
        if BY_ACTUAL != 0:
            under = negatives
        by_rejected: tl.constexpr = BY_ACTUAL == 0
        other, more_tp, more_predicted, either = _quotient(
            part_of(under, tn), under, tl.full([], 1, tl.float64), 0.0, -1.0, -1.0 * by_rejected
        )
        score, undefined = score + other - 1, undefined | either
        of_tp, of_predicted = of_tp + more_tp, of_predicted + more_predicted
    score = tl.where(undefined, ZERO_DIVISION, score)
    return score, tl.where(undefined, 0, of_tp), tl.where(undefined, 0, of_predicted), undefined


@triton.jit
def part_of(whole, part):
    """As in `core.numerics`; NaN stays visible."""
    part = tl.where(part < 0, 0, part)
    return tl.where(part > whole, whole, part)


@triton.jit
def _quotient(over, under, over_by_tp, under_by_tp, over_by_predicted, under_by_predicted):
    undefined = under < _ZERO
    under = tl.where(undefined, 1, under)
    score = over / under
    of_tp = (over_by_tp - under_by_tp * score) / under
    return score, of_tp, (over_by_predicted - under_by_predicted * score) / under, undefined
