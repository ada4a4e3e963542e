"""How rows are split: at random as in the papers, or so that equal rows stay together."""

import warnings

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedShuffleSplit

from evalign_study.refusals import require

HELD_OUT = 0.2
MANY = 1000  # rows that are alone in their group; more of them are split as plain rows, faster

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def three_way(y: np.ndarray, *, groups: np.ndarray | None = None, seed: int = 0) -> Parts:
    """Row numbers of training (64%), validation (16%) and test (20%), stratified by class.

    Args:
        y: a class code for each row.
        groups: a number for each row; rows of one group stay together. None splits at random.
        seed: the seed of the split.

    Examples:
        >>> [len(rows) for rows in three_way(np.repeat([0, 1], [80, 20]))]
        [64, 16, 20]
    """
    rest, test = hold_out(y, groups=groups, seed=seed)
    inner = None if groups is None else groups[rest]
    training, validation = hold_out(y[rest], groups=inner, seed=seed)
    return rest[training], rest[validation], test


def hold_out(
    y: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    fraction: float = HELD_OUT,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted row numbers (kept, held out)."""
    fewest = np.bincount(y)[np.unique(y)].min()
    require(fewest >= 2, "a split", "every class", "have 2 rows", f"a class of {fewest}")
    rows = _of_rows(y, fraction, seed) if groups is None else _of_groups(y, groups, fraction, seed)
    return np.setdiff1d(np.arange(len(y)), rows), np.sort(rows)


def _of_rows(y: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    split = StratifiedShuffleSplit(1, test_size=round(fraction * len(y)), random_state=seed)
    rows = next(split.split(y, y))[1]
    # Class sizes are rounded, so that a class of few rows may have none on this side.
    random = np.random.default_rng(seed)
    absent = np.setdiff1d(y, y[rows])
    return np.union1d(rows, [random.choice(np.flatnonzero(y == one)) for one in absent]).astype(int)


def _of_groups(y: np.ndarray, groups: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    alone = sizes[codes] == 1
    if alone.sum() > MANY:
        single = np.flatnonzero(alone)[_of_rows(y[alone], fraction, seed)]
        if len(np.unique(codes[~alone])) < 2:
            return single
        together = _of_groups(y[~alone], codes[~alone], fraction, seed)
        return np.concatenate([single, np.flatnonzero(~alone)[together]])
    number = min(round(1 / fraction), len(sizes))
    folds = StratifiedGroupKFold(number, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return next(iter(folds.split(y, y, groups)))[1]
