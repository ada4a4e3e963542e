"""Which method is best for a metric on one's own rows, and is the difference more than chance?

`folds` trains all methods on the same folds, `summary` says what their scores show.
"""

from evalign.comparison.folds import METHODS, Method, compare
from evalign.comparison.summary import (
    PLAIN,
    TUNED,
    Estimate,
    Record,
    Row,
    estimate,
    summarize,
    verdict,
)

__all__ = [
    "METHODS",
    "PLAIN",
    "TUNED",
    "Estimate",
    "Method",
    "Record",
    "Row",
    "compare",
    "estimate",
    "summarize",
    "verdict",
]
