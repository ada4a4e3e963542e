"""Warnings about input that is valid but ambiguous, and how to write each meaning.

The task follows from shapes and dtypes alone, so none of this is an error. Only logits that are
probabilities are: see `rows`.
"""

import math
import sys
import warnings
from typing import Any

from evalign.core.arrays import library

LIKE_ONE = 1e-3  # largest deviation of a row of probabilities from a sum of 1
ENOUGH_ROWS = 20  # fewer rows may have one label each by chance


def warn(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line that called evalign, past the frames of evalign and torch."""
    level, frame = 2, sys._getframe(1)
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in ("evalign", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)


def warn_of_layout(owner: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Warn if the shapes alone leave open which dimension holds the classes."""
    if len(shape) < 3 or shape[1] == 1:  # one logit for each
        return
    square = shape[1:-1] == shape[2:]
    if len(shape) == 3 or shape[-1] == 1 if target == shape else square:
        warn(
            f"The logits of {owner}, {shape}, are read with {shape[1]} classes or labels in "
            "dimension 1. Say where they are: class_dim=1, or class_dim=-1 if they come last, as "
            "in tokens (B, T, C). If there is one logit per pixel, pass logits.unsqueeze(1)."
        )


def warn_of_one_hot(
    owner: str,
    target: Any,
    name: str = "target",
    *,
    else_pass: str = ', or task="multilabel"',
    kind: type[Warning] = UserWarning,
) -> None:
    """Warn about one-hot rows in the shape of multilabel rows, (N, L, ...)."""
    sums = target.sum(1)
    rows = math.prod(sums.shape)
    one = rows >= ENOUGH_ROWS and bool((sums == 1).all())
    if one and bool(((target == 0) | (target == 1)).all()):
        warn(
            f"Every row of the {name} of {owner} holds exactly one 1, like one-hot classes, "
            f"but is read as multilabel, by its shape. Pass {name}.argmax(1) if these are "
            f"classes{else_pass}.",
            kind,
        )


def rows_of_probabilities(values: Any) -> bool:
    """Whether rows (R, C) look like probabilities: positive, summing to 1, not all the same."""
    if not len(values) or values.min() < 0:
        return False
    xp = library(values)
    precise = max(xp.float32, values.dtype, key=lambda dtype: xp.finfo(dtype).bits)
    sums = values.sum(1, dtype=precise)
    off = max(LIKE_ONE, float(xp.finfo(values.dtype).eps))
    return bool((abs(sums - 1) < off).all()) and not bool((values == values[:1]).all())
