"""Compare methods on the same folds, and test whether the differences are beyond chance.

`folds` trains all methods, `summary` tests their scores.
"""

from evalign.comparison.folds import METHODS, Candidate, compare
from evalign.comparison.summary import (
    MIN_VALUES,
    PLAIN,
    TUNED,
    FoldScore,
    Row,
    least_shown,
    summarize,
    verdict,
)
from evalign.core.estimates import Estimate, estimate

__all__ = [
    "METHODS",
    "MIN_VALUES",
    "PLAIN",
    "TUNED",
    "Candidate",
    "Estimate",
    "FoldScore",
    "Row",
    "compare",
    "estimate",
    "least_shown",
    "summarize",
    "verdict",
]
