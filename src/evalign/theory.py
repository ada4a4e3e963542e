"""How many rows a confusion matrix needs, by the papers; its entries are scaled to sum to 1."""

import math
from fractions import Fraction

from evalign.core.checks import require

__all__ = ["confusion_error", "rows_needed"]


def confusion_error(rows: int, num_classes: int, *, failure: float = 0.05) -> float:
    """EAST Theorem 5.8: √(log(2d²/δ) / 2n).

    With probability 1 − `failure`, every entry of the confusion matrix of `rows` random rows is
    within this distance of the population's.
    """
    require(rows > 0, "confusion_error", "rows", "be positive", rows)
    return math.sqrt(_log_term("confusion_error", num_classes, failure) / (2 * rows))


def rows_needed(error: float, num_classes: int, *, failure: float = 0.05) -> int:
    """EAST Theorem 5.8 solved for n: the fewest rows with `confusion_error` ≤ `error`."""
    require(0 < error < math.inf, "rows_needed", "error", "be positive and finite", error)
    term = _log_term("rows_needed", num_classes, failure)
    # A fraction, because the square of a small error is 0 in floating point.
    return math.ceil(Fraction(term) / (2 * Fraction(float(error)) ** 2))


def _log_term(owner: str, num_classes: int, failure: float) -> float:
    require(num_classes >= 2, owner, "num_classes", "be at least 2", num_classes)
    require(0 < failure < 1, owner, "failure", "lie between 0 and 1", failure)
    return math.log(2 * num_classes**2 / failure)
