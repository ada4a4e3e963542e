"""Train a classifier fold by fold and gather its scores for the held-out rows."""

import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from evalign.core.checks import require
from evalign.estimators.out_of_fold import OWNER, Method, OutOfFoldScores, Split
from evalign.estimators.rows import row_groups
from evalign.tables.values import take_rows
from evalign.tables.warnings import FEW_ROWS, DataWarning
from evalign.training.split import strata, stratified_folds

FOLDS = 5
ROWS_OF_A_FOLD = 10  # on average; with fewer, most metrics are undefined or luck


def makes_folds(cv: Any) -> bool:
    """Whether it is a number of folds, at least 2, a splitter of scikit-learn, or splits."""
    if isinstance(cv, str | Real):
        return isinstance(cv, Integral) and not isinstance(cv, bool) and int(cv) > 1
    return isinstance(cv, Iterable) or hasattr(cv, "split")


def splits(
    cv: Any,
    X: Any,
    y: np.ndarray,
    codes: np.ndarray,
    params: dict[str, Any],
    seed: int,
    *,
    owner: str = OWNER,
) -> list[Split]:
    """Training rows and held-out rows of each fold; no folds if there are too few rows.

    A number of folds is lowered where the rows do not suffice for it. A class with fewer rows than
    folds is missing from some of them.
    """
    groups = row_groups(owner, params.get("groups"), len(codes))
    if not isinstance(cv, Integral):
        splitter: Any = check_cv(cv, y, classifier=True)
        parts = [(row_numbers(a), row_numbers(b)) for a, b in splitter.split(X, y, **params)]
        # Without splits, the rule would be fitted to rows that the classifier was trained on.
        empty = not parts or any(not len(rows) or not len(held) for rows, held in parts)
        allowed, cure = "give splits with rows on both sides", "A generator runs out: use a list."
        require(not empty, owner, "cv", allowed, f"{len(parts)} splits", cure)
        return parts
    if groups is not None:
        number = len(np.unique(groups))
        require(number > 1, owner, "groups", "name at least two groups", number)
    return stratified_folds(strata(codes), int(cv), groups=groups, seed=seed)


def row_numbers(part: Any) -> np.ndarray:
    """The numbers of the rows of one side of a split, which may be a mask of all rows."""
    rows = np.asarray(part)
    return np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)


def scored_folds(
    parts: list[Split], X: Any, codes: np.ndarray, params: dict[str, Any], seed: int
) -> np.ndarray:
    """The fold in which each held-out row is scored, by a rule fitted to the other folds.

    These are the classifier's folds, unless there is a single one, or many small ones: the rows are
    then divided anew.
    """
    sizes = [len(rows) for _, rows in parts]
    if len(parts) > 1 and (len(parts) <= FOLDS or np.mean(sizes) >= ROWS_OF_A_FOLD):
        return np.repeat(np.arange(len(parts)), sizes)
    row = np.concatenate([rows for _, rows in parts])
    once = row[np.sort(np.unique(row, return_index=True)[1])]
    params = _check_method_params(X, params, indices=once)
    groups = params.get("groups")
    if groups is not None and len(np.unique(groups)) == 1:
        params = {}  # one group cannot be divided
    fold = np.zeros(len(codes), dtype=np.int64)
    for number, (_, rows) in enumerate(splits(FOLDS, once, once, codes[once], params, seed)):
        fold[once[rows]] = number
    return fold[row]


def train(
    estimator: Any, X: Any, y: Any, parts: list[Split], params: dict[str, Any], n_jobs: int | None
) -> list[Any]:
    """A classifier for each fold, trained on the other folds."""
    tasks = (delayed(trained)(estimator, X, y, rows, params) for rows, _ in parts)
    return list(Parallel(n_jobs=n_jobs)(tasks) or [])


def fitted(estimator: Any, X: Any, y: Any, params: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on these rows."""
    model: Any = clone(estimator)
    return model.fit(X, y, **params)


def trained(estimator: Any, X: Any, y: Any, rows: np.ndarray, params: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on some of the rows.

    If they are all of one class, a classifier that predicts it takes its place: most classifiers
    refuse such rows.
    """
    several = y.ndim == 2 or len(np.unique(y[rows])) > 1
    params = _check_method_params(X, params, indices=rows)
    lacking = np.setdiff1d(y, y[rows]).tolist()
    X, y = take_rows(X, rows), _safe_indexing(y, rows)
    if not several:
        return DummyClassifier(strategy="prior").fit(X, y)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", FEW_ROWS, DataWarning)  # fewer than in the table
            return fitted(estimator, X, y, params)
    except Exception as error:
        if lacking:
            error.add_note(
                f"The training rows of this fold lack the classes {lacking[:3]}. If that is why, "
                "use fewer folds or other groups, or merge these classes with others."
            )
        raise


def gathered(
    values: list[np.ndarray],
    method: Method,
    X: Any,
    codes: np.ndarray,
    weight: np.ndarray | None,
    parts: list[Split],
    params: dict[str, Any],
    seed: int,
) -> OutOfFoldScores:
    """The scores of all folds, in the order of the table.

    Args:
        values: scores of the held-out rows of each split.
        method: the classifier's method that gave them.
        X: the table.
        codes: the labels of its rows.
        weight: of its rows, or None.
        parts: the splits, see `splits`.
        params: of the splitter, as in `splits`.
        seed: of the folds of `scored_folds`.
    """
    row = np.concatenate([rows for _, rows in parts])
    fold = scored_folds(parts, X, codes, params, seed)
    weight = None if weight is None else weight[row]
    oof = OutOfFoldScores(np.concatenate(values), method, codes[row], weight, fold, row)
    return oof.take(np.argsort(row, kind="stable"))
