"""Splits that preserve class proportions and keep groups together."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.model_selection import (
    GroupShuffleSplit,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from evalign.core.checks import refuse_masked, require
from evalign.core.text import counted

MANY = 1000  # groups of one row; more of them are split as plain rows, which is much faster


def holdout_split(
    y: Any, *, fraction: float = 0.2, groups: Any = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted row indices (kept, held out), stratified by class.

    A class with a single row stays on the kept side. Without groups, every other class has at least
    one row on each side.

    Args:
        y: a label per row. Multilabel rows (two dimensions) are split at random.
        fraction: the fraction of rows to hold out.
        groups: a value per row; rows of one group stay on the same side. Class proportions are then
            as close as whole groups allow.
        seed: seed of the split.

    Examples:
        >>> kept, held_out = holdout_split([0] * 80 + [1] * 20)
        >>> len(kept), len(held_out), sum(held_out >= 80).item()
        (80, 20, 4)
    """
    owner = "holdout_split"
    refuse_masked(owner, "y", y)
    refuse_masked(owner, "groups", groups)
    labels = np.asarray(y)
    require(0 < fraction < 1, owner, "fraction", "lie between 0 and 1", fraction)
    require(len(labels) >= 2, owner, "y", "hold at least 2 rows", counted(len(labels)))
    held_out = (
        _hold_out_rows(owner, labels, fraction, seed)
        if groups is None
        else _hold_out_groups(owner, labels, np.asarray(groups), fraction, seed)
    )
    kept = np.setdiff1d(np.arange(len(labels)), held_out)
    return kept, np.sort(held_out)


def three_way_split(
    y: Any, *, groups: Any = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row indices of training (64%), validation (16%) and test (20%), as in the papers.

    Examples:
        >>> [len(rows) for rows in three_way_split([0] * 80 + [1] * 20)]
        [64, 16, 20]
    """
    rest, test = holdout_split(y, groups=groups, seed=seed)
    inner = None if groups is None else np.asarray(groups)[rest]
    training, validation = holdout_split(np.asarray(y)[rest], groups=inner, seed=seed)
    return rest[training], rest[validation], test


def stratified_folds(
    y: np.ndarray, number: int, *, groups: Any = None, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row indices (training, held out) of each fold; no folds if there are too few rows for two.

    There are fewer folds than `number` if no class has as many rows, if there are fewer groups, or
    if large groups leave a fold empty. A class with fewer rows than folds is absent from some.

    Args:
        y: class indices.
        number: the maximum number of folds.
        groups: a value per row; rows of one group are held out together.
        seed: seed of the folds.

    Examples:
        >>> [held_out.tolist() for _, held_out in stratified_folds(np.array([0, 0, 1, 1]), 5)]
        [[1, 2], [0, 3]]
    """
    number = min(number, int(np.bincount(y).max()))
    if groups is not None:
        number = min(number, len(np.unique(groups)))
    if number < 2:
        return []
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    parts = _parts(kind(number, shuffle=True, random_state=seed), y, groups)
    return [(rows, held_out) for rows, held_out in parts if len(rows) and len(held_out)]


def strata(y: np.ndarray) -> np.ndarray:
    """Codes of the strata to split by: the classes, or the rarest feature of each multilabel row.

    The rarest feature is a label that few rows have, or the absence of a label that few rows lack.

    Examples:
        >>> strata(np.array([[0, 1], [0, 1], [0, 0], [1, 1]]))
        array([0, 0, 2, 1])
    """
    if y.ndim == 2:
        rare = y != (2 * y.sum(0) > len(y))
        counts = np.where(rare, rare.sum(0), len(y) + 1)
        y = np.where(rare.any(1), counts.argmin(1), -1)
    return np.unique(y, return_inverse=True)[1]


def _hold_out_rows(owner: str, y: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    if y.ndim > 1:
        plain = ShuffleSplit(1, test_size=fraction, random_state=seed)
        return next(plain.split(y))[1]
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    several = counts > 1
    rows, classes = np.flatnonzero(several[codes]), int(several.sum())
    size = round(fraction * len(rows))
    allowed = f"leave at least a row for each of the {classes} classes on both sides"
    enough = classes > 0 and min(size, len(rows) - size) >= classes
    got, cure = f"{fraction:g}: {size} of {len(rows)} rows", "Give more rows, or split by hand."
    require(enough, owner, "fraction", allowed, got, cure)
    stratified = StratifiedShuffleSplit(1, test_size=size, random_state=seed)
    held_out = rows[next(stratified.split(rows, codes[rows]))[1]]
    # Class sizes are rounded, so a class of two rows may have none or both of them held out.
    random = np.random.default_rng(seed)
    out = np.bincount(codes[held_out], minlength=len(counts))

    def one_row_each(classes: np.ndarray) -> np.ndarray:
        drawn = [random.choice(np.flatnonzero(codes == c)) for c in np.flatnonzero(classes)]
        return np.array(drawn, dtype=held_out.dtype)

    held_out = np.union1d(held_out, one_row_each(several & (out == 0)))
    return np.setdiff1d(held_out, one_row_each(several & (out == counts)))


def _hold_out_groups(
    owner: str, y: np.ndarray, groups: np.ndarray, fraction: float, seed: int
) -> np.ndarray:
    allowed = f"hold a value for each of the {len(y)} rows"
    require(groups.shape == y.shape[:1], owner, "groups", allowed, f"shape {groups.shape}")
    codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    number = len(sizes)
    require(number >= 2, owner, "groups", "name at least 2 groups", number)
    alone = sizes[codes] == 1
    if alone.sum() > MANY:
        held_out = np.flatnonzero(alone)[_hold_out_rows(owner, y[alone], fraction, seed)]
        if number - alone.sum() < 2:
            return held_out
        others = _hold_out_groups(owner, y[~alone], codes[~alone], fraction, seed)
        return np.concatenate([held_out, np.flatnonzero(~alone)[others]])
    share = Fraction(fraction).limit_denominator(min(20, number))
    share = min(max(share, Fraction(1, number)), Fraction(number - 1, number))
    largest = np.unique(y, return_counts=True)[1].max() if y.ndim == 1 else 0
    if largest < share.denominator:  # multilabel, or too few rows to stratify
        plain = GroupShuffleSplit(1, test_size=float(share), random_state=seed)
        return next(plain.split(y, groups=groups))[1]
    folds = StratifiedGroupKFold(share.denominator, shuffle=True, random_state=seed)
    parts = [held_out for _, held_out in _parts(folds, y, groups)]
    return np.concatenate(parts[: share.numerator])


def _parts(folds: Any, y: np.ndarray, groups: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split without a warning of classes with fewer rows than folds, which are spread thinly."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return list(folds.split(y, y, groups))
