"""The answers of a classifier for rows that it was not trained on, fold by fold."""

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

from evalign.core.checks import OWN_GROUP, refuse_masked, require
from evalign.estimator.answers import OWNER, Answers, Method, Split
from evalign.estimator.rows import row_groups
from evalign.tables.features import NothingToLearn
from evalign.tables.values import take_rows
from evalign.training.split import strata, stratified_folds

FOLDS = 5
ROWS_OF_A_FOLD = 10  # on average: of fewer, most metrics are not defined or luck


def makes_folds(cv: Any) -> bool:
    """Whether it is a number of folds, at least 2, a splitter of scikit-learn, or some splits."""
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
    """The rows to train on and the rows held out, for each fold; none if there are too few rows.

    A number of folds is made smaller where the rows do not suffice for it. A class with fewer rows
    than folds is missing in some of them.
    """
    if not isinstance(cv, Integral):
        refuse_masked(owner, "groups", params.get("groups"), OWN_GROUP)
        splitter: Any = check_cv(cv, y, classifier=True)
        parts = [
            (row_numbers(owner, rows, len(codes)), row_numbers(owner, held, len(codes)))
            for rows, held in splitter.split(X, y, **params)
        ]
        # Without any, the rule would be fitted to rows that the classifier has learnt.
        allowed, cure = "give splits", "A generator gives them once: put list(...) around it."
        require(len(parts) > 0, owner, "cv", allowed, "none", cure)
        empty = sum(not len(rows) or not len(held) for rows, held in parts)
        allowed = "leave rows with a weight on both sides of each split"
        require(not empty, owner, "cv", allowed, f"{empty} splits with an empty side")
        return parts
    groups = params.get("groups")
    if groups is not None:
        groups = row_groups(owner, groups, len(codes))
        number = len(np.unique(groups))
        require(number > 1, owner, "groups", "name two groups at least", number)
    return stratified_folds(strata(codes), int(cv), groups=groups, seed=seed)


def row_numbers(owner: str, part: Any, number: int) -> np.ndarray:
    """The numbers of the rows in a part of so many, which may come as a mask of all."""
    rows = np.asarray(part)
    if rows.dtype == bool:
        ok = rows.shape == (number,)
    else:
        rows = rows if rows.size else rows.astype(np.int64)  # an empty list is one of floats
        ok = rows.ndim == 1 and rows.dtype.kind in "iu"
        ok = ok and bool(((rows >= 0) & (rows < number)).all())
    allowed = f"hold numbers of rows from 0 to {number - 1}, or masks of {number} rows"
    require(
        ok, owner, "cv", allowed, f"{rows.dtype} {rows.ravel()[:3].tolist()} of shape {rows.shape}"
    )
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def scored_folds(
    parts: list[Split], X: Any, codes: np.ndarray, params: dict[str, Any], seed: int
) -> np.ndarray:
    """The number of the fold that each row held out is scored in, by a rule of the other folds.

    These are the folds of the classifier, unless there is one alone, or many small ones: then all
    rows are divided anew.
    """
    sizes = [len(rows) for _, rows in parts]
    if len(parts) > 1 and (len(parts) <= FOLDS or np.mean(sizes) >= ROWS_OF_A_FOLD):
        return np.repeat(np.arange(len(parts)), sizes)
    row = np.concatenate([rows for _, rows in parts])
    once = row[np.sort(np.unique(row, return_index=True)[1])]
    params = _check_method_params(X, params, indices=once)
    groups = params.get("groups")
    if groups is not None and len(np.unique(row_groups(OWNER, groups, len(once)))) == 1:
        params = {}  # one group cannot be divided
    fold = np.zeros(len(codes), dtype=np.int64)
    for number, (_, rows) in enumerate(splits(FOLDS, once, once, codes[once], params, seed)):
        fold[once[rows]] = number
    return fold[row]


def train(
    estimator: Any, X: Any, y: Any, parts: list[Split], params: dict[str, Any], n_jobs: int | None
) -> list[Any]:
    """A classifier for each fold, trained on the other folds."""
    return list(
        Parallel(n_jobs=n_jobs)(
            delayed(trained)(estimator, X, y, rows, params) for rows, _ in parts
        )
        or []
    )


def fitted(estimator: Any, X: Any, y: Any, params: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on these rows."""
    model: Any = clone(estimator)
    return model.fit(X, y, **params)


def trained(estimator: Any, X: Any, y: Any, rows: np.ndarray, params: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on some of the rows.

    Where all of them are of one class, or have nothing to learn from, the shares of the classes are
    its answer: most classifiers refuse such rows.
    """
    several = y.ndim == 2 or len(np.unique(y[rows])) > 1
    of_xgboost = any(kind.__name__ == "XGBClassifier" for kind in type(estimator).mro())
    if several and y.ndim == 1 and of_xgboost:
        rows, params = _with_all_classes(y, rows, params)
    params = _check_method_params(X, params, indices=rows)
    lacking = np.setdiff1d(y, y[rows]).tolist()
    X, y = take_rows(X, rows), _safe_indexing(y, rows)
    weight = None
    if several:
        try:
            return fitted(estimator, X, y, params)
        except NothingToLearn:  # a pipeline calls the weights step__sample_weight
            weight = next((x for name, x in params.items() if name.endswith("sample_weight")), None)
        except Exception as error:
            if lacking:  # it may mind something else
                what = f"It was trained without one fold, which holds all rows of {lacking[:3]}"
                cure = "use fewer folds or other groups, or merge such classes with others."
                error.add_note(f"{what}. If it must see every class, {cure}")
            raise
    return DummyClassifier(strategy="prior").fit(X, y, weight)


def _with_all_classes(
    y: np.ndarray, rows: np.ndarray, params: dict[str, Any]
) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows, with one of weight 0 of each class that they lack: XGBoost refuses codes with gaps.

    It teaches nothing but that there is such a class.
    """
    everything, first = np.unique(y, return_index=True)
    lacking = first[~np.isin(everything, y[rows])]
    if not len(lacking):
        return rows, params
    given = params.get("sample_weight")
    weight = np.ones(len(y)) if given is None else np.array(given, dtype=np.float64)
    weight[lacking] = 0
    return np.append(rows, lacking), params | {"sample_weight": weight}


def gathered(
    values: list[np.ndarray],
    method: Method,
    X: Any,
    codes: np.ndarray,
    weight: np.ndarray | None,
    parts: list[Split],
    params: dict[str, Any],
    seed: int,
) -> Answers:
    """The answers for the rows of all folds, in the order of the table, whatever the folds are.

    Args:
        values: the answers for the rows held out, for each of the parts.
        method: where they come from.
        X: the table.
        codes: the labels of its rows.
        weight: of its rows, or None.
        parts: what `splits` gave.
        params: of the splitter, as in `splits`.
        seed: of the folds of `scored_folds`.
    """
    row = np.concatenate([rows for _, rows in parts])
    fold = scored_folds(parts, X, codes, params, seed)
    weight = None if weight is None else weight[row]
    answers = Answers(np.concatenate(values), method, codes[row], weight, fold, row)
    return answers.take(np.argsort(row, kind="stable"))
