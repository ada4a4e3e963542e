"""A comparison of methods on one's own rows, and whether a difference is more than chance.

`folds` trains all methods on the same folds, `summary` says what their scores show.
"""

from evalign.comparison.folds import METHODS, Candidate, compare
from evalign.comparison.summary import (
    FEW,
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
    "FEW",
    "METHODS",
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
