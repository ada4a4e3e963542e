"""Scores that rank the rows of the positive class below the others."""

import math
from typing import Any

import numpy as np
from scipy.stats import rankdata

from evalign.core.input_warnings import warn

# By how many standard deviations of chance an area under the curve has to lie below 0.5.
MANY_SPREADS = 3
# Enough rows to tell; more would cost a fit another sort of all rows.
MOST_ROWS = 2**15


class ReversedScoresWarning(UserWarning):
    """Scores of two classes rank the rows of the positive one below the others."""


def warn_of_reversed(owner: str, logits: np.ndarray, y: np.ndarray, place: int, name: Any) -> None:
    """Warn if the positive class of two, at its place, has lower scores in its own rows."""
    step = 1 + len(y) // MOST_ROWS
    lead = logits[::step, place] - logits[::step, 1 - place]
    positive = y[::step] == place
    of_positive = int(positive.sum())
    pairs = of_positive * (len(positive) - of_positive)
    if pairs == 0:
        return
    above = rankdata(lead)[positive].sum() - of_positive * (of_positive + 1) / 2
    area = above / pairs
    spread = math.sqrt((len(positive) + 1) / (12 * pairs))  # of scores that say nothing
    if area < 0.5 - MANY_SPREADS * spread:
        warn(
            f"The scores of {owner} rank rows of {name!r} below the others: the area under the "
            f"curve is {area:.3f}, below 0.5. Are the columns in the order of the classes, and is "
            f"{name!r} the positive one (pos_label)?",
            ReversedScoresWarning,
        )
