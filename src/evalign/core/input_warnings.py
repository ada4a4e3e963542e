"""Warnings of input that is read in one way and was probably meant in another.

None of it is an error: the task follows from shapes and dtypes, whatever the values are. A warning
ends with what to write for each of the meanings.
"""

import sys
import warnings

import torch
from torch import Tensor

# How far a row of probabilities is from 1 at most, and in half precision.
LIKE_ONE, LIKE_ONE_IN_HALF = 1e-3, 2e-2
# Of how many numbers in [0, 1] one may say that they are not logits, and of how many rows with one
# label each that they are classes.
SO_MANY = 20


def warn(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line that called evalign, past the frames of evalign and torch."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and _inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)


def _inside(module: str) -> bool:
    return module.partition(".")[0] in ("evalign", "torch")


def warn_of_layout(owner: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Warn where shapes alone leave two meanings; nobody has said where the classes are."""
    if len(shape) < 3 or shape[1] == 1:  # one logit for each
        return
    if target == shape and (len(shape) == 3 or shape[-1] == 1):
        warn(
            f"The logits of {owner}, {shape}, have the shape of the target and are read as "
            f"{shape[1]} labels in dimension 1. If they are one logit for each pixel or token, "
            "pass logits.unsqueeze(1); if the labels or classes come last, class_dim=-1; if they "
            'are in dimension 1, say so: task="multilabel".'
        )
    elif target != shape and shape[1:-1] == shape[2:]:
        warn(
            f"The logits of {owner}, {shape}, may have their {shape[1]} classes in dimension 1 or "
            "last, and are read as if in dimension 1. Say which: class_dim=1, or class_dim=-1 as "
            "for tokens (B, T, C)."
        )


def warn_of_one_hot(
    owner: str,
    target: Tensor,
    name: str = "target",
    *,
    else_pass: str = ', or task="multilabel"',
    kind: type[Warning] = UserWarning,
) -> None:
    """Warn of one class a row that is written as many labels a row, (N, L, ...)."""
    ones = (target == 1).sum(1)
    many = ones.numel() >= SO_MANY  # few rows may have one label each by chance
    if many and bool((ones == 1).all()) and bool(((target == 0) | (target == 1)).all()):
        text = (
            f"Every row of the {name} of {owner} holds exactly one 1, as for classes that exclude "
            "each other, but its shape is that of many labels a row, and so it is read. Pass "
            f"{name}.argmax(1) if these are classes{else_pass}."
        )
        warn(text, kind)


def warn_of_columns(owner: str, columns: int) -> None:
    """Warn of integers 0 and 1 of shape (N, L), which are read as two classes."""
    warn(
        f"The predictions and the target of {owner} hold 0 and 1 in {columns} columns, and are "
        'read as two classes. If every column is a label of its own, pass task="multilabel"; if '
        "not, num_classes=2."
    )


def warn_of_masks(owner: str, shape: tuple[int, ...]) -> None:
    """Warn of truth values (B, H, W), which are read as labels in dimension 1."""
    warn(
        f"The predictions and the target of {owner}, {shape}, are read as {shape[1]} labels in "
        "dimension 1. If each is the label of a pixel or token, pass predictions.long() and "
        'target.long(); if dimension 1 holds labels, say so: task="multilabel".'
    )


def warn_of_probabilities(owner: str, logits: Tensor) -> None:
    """Warn of rows (N, C, ...) that are positive and sum to 1."""
    if rows_of_probabilities(logits.detach().movedim(1, -1).flatten(0, -2)):
        warn(
            f"The logits of {owner} look like probabilities: every row is positive and sums to 1. "
            "Pass what the network returns before its softmax, or logits = probabilities.log()."
        )


def warn_of_sigmoid(owner: str, logits: Tensor) -> None:
    """Warn of many numbers from 0 to 1, after so much training that logits would be negative."""
    values = logits.detach().flatten()
    inside = values.numel() > 0 and bool(values.amin() >= 0) and bool(values.amax() <= 1)
    if inside and len(values[: 100 * SO_MANY].unique()) >= SO_MANY:
        warn(
            f"The logits of {owner} all lie from 0 to 1, like probabilities. Pass what the network "
            "returns before its sigmoid."
        )


def rows_of_probabilities(values: Tensor) -> bool:
    """Whether rows (R, C) are most probably not logits: positive, sums of 1, not all the same."""
    if not values.numel() or values.amin() < 0:
        return False
    close = LIKE_ONE_IN_HALF if values.dtype.itemsize < 4 else LIKE_ONE
    sums = values.sum(1, dtype=torch.promote_types(values.dtype, torch.float32))
    return bool(((sums - 1).abs() < close).all()) and not bool((values == values[:1]).all())
