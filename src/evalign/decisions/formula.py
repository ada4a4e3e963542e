"""The formula from logits to labels, over arrays of NumPy or torch alike.

Nothing here branches on values, so that a module of the formula compiles and exports. In a
multilabel problem each label is a problem of two classes: its absence and its presence.
"""

from typing import Any

from evalign.core.arrays import library


def log_odds(logits: Any, *, multilabel: bool, positive: int = 1) -> Any:
    """Rows (N, C) with maximum 0, of (N, C) or of one logit (N, 1); unchanged if multilabel.

    One logit is of the `positive` class of two.
    """
    if multilabel:
        return logits
    arrays = library(logits)
    if logits.shape[1] == 1:
        pair = [arrays.zeros_like(logits), logits]
        logits = arrays.concatenate(pair if positive == 1 else pair[::-1], 1)
    return logits - arrays.amax(logits, 1)[:, None]


def probabilities(logits: Any, factor: Any, offsets: Any, *, multilabel: bool) -> Any:
    """η (N, C) = softmax(factor·logits + offsets); (N, L, 2) of absence and presence."""
    arrays = library(logits)
    rows = factor * logits + offsets
    if multilabel:
        rows = arrays.stack([arrays.zeros_like(rows), rows], -1)
    powers = arrays.exp(rows - arrays.amax(rows, -1)[..., None])
    return powers / powers.sum(-1)[..., None]


def expected_gains(eta: Any, gain: Any, *, multilabel: bool) -> Any:
    """The expected gains Σ_y η_y G[y, j] of labels (N, C); of presence over absence (N, L)."""
    if not multilabel:
        return eta @ gain
    absent = gain[:, 0, 1] - gain[:, 0, 0]
    present = gain[:, 1, 1] - gain[:, 1, 0]
    return eta[..., 0] * absent + eta[..., 1] * present


def labels(gains: Any, *, multilabel: bool) -> Any:
    """The labels (N,) of the largest expected gains; if multilabel (N, L), 1 for a positive one."""
    arrays = library(gains)
    return arrays.where(gains > 0, 1, 0) if multilabel else arrays.argmax(gains, 1)


def with_none(labels: Any, logits: Any, *, multilabel: bool) -> Any:
    """The labels of rows of logits (N, C), −1 where a logit of the row is NaN or infinite."""
    arrays = library(logits)
    finite = arrays.isfinite(logits).all(1)
    return arrays.where(finite[:, None] if multilabel else finite, labels, -1)
