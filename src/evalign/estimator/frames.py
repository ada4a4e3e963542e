"""From the columns of a table to the matrix that a model takes: `Features` and `FrameEncoder`."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from evalign.core.checks import complaint, require
from evalign.estimator.cells import (
    EXACT,
    ColumnValues,
    TypedTable,
    array_of,
    parsed_dates,
    read_table,
)
from evalign.estimator.columns import (
    KINDS,
    CategoryColumn,
    DateColumn,
    LearntColumn,
    NumberColumn,
    column_from,
    state_of,
)
from evalign.estimator.roles import role
from evalign.training import TrainingWarning

# Numbers are read in the precision they come in. A sparse matrix has no gaps.
READ: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
SAID = {"number": "numbers", "boolean": "truth values", "date": "dates"}
Given = TypedTable | np.ndarray | Any  # the last is a sparse matrix


class NothingToLearn(ValueError):
    """All columns of some rows are constant, empty or ids."""


@dataclass(frozen=True)
class Features:
    """What is learnt of the columns of a table.

    The matrix that they become begins with `numbers` columns of numbers, gaps filled by the median
    of the training rows. The others are flags of 0 and 1: levels of categories, truth values, and
    whether a value is missing.

    Args:
        given: the names of all columns, in their order; of an array x0, x1, ...
        named: whether these are the table's own.
        columns: what is learnt of each, without those that are left out.
        left_out: why a column teaches nothing, by its name: "constant", "id" or "empty".
    """

    given: tuple[str, ...]
    named: bool
    columns: tuple[LearntColumn, ...]
    left_out: dict[str, str]

    @classmethod
    def learn(cls, owner: str, X: Given) -> "Features":
        """Learn from rows that `read` gave. Errors are those of `owner`."""
        names = X.names if isinstance(X, TypedTable) else None
        if isinstance(X, TypedTable):
            given = tuple(names or (f"x{i}" for i in range(len(X.columns))))
            found = [_learn(owner, *pair) for pair in zip(given, X.columns, strict=True)]
        else:
            given = tuple(f"x{i}" for i in range(X.shape[1]))
            found = _of_numbers(X)
        learnt = dict(zip(given, found, strict=True))
        left_out = {name: why for name, why in learnt.items() if isinstance(why, str)}
        columns = tuple(column for column in learnt.values() if not isinstance(column, str))
        why = ", ".join(f"{name!r} ({why})" for name, why in left_out.items())
        if not columns:
            allowed, got = "hold a column to learn from", f"none: {why or 'it has no columns'}"
            raise NothingToLearn(complaint(owner, "X", allowed, got))
        return cls(given, names is not None, columns, left_out)

    @property
    def numbers(self) -> int:
        """How many of the matrix's columns are numbers. They are the first."""
        return sum(len(column.number_names) for column in self.columns)

    @property
    def names(self) -> list[str]:
        """What the columns of the matrix are."""
        numbers = [name for column in self.columns for name in column.number_names]
        return [*numbers, *(name for column in self.columns for name in column.flag_names)]

    @property
    def width(self) -> int:
        """The number of the matrix's columns."""
        return self.numbers + sum(len(column.flag_names) for column in self.columns)

    @property
    def plain(self) -> bool:
        """Whether numbers without gaps are the matrix already."""
        numbers = all(isinstance(c, NumberColumn) and not c.gaps for c in self.columns)
        return numbers and not self.left_out

    def matrix(self, owner: str, X: Given) -> Any:
        """The matrix of rows that `read` gave, which may be their own, and sparse if they are."""
        if self.plain and not isinstance(X, TypedTable) and not _has_gaps(X):
            return X
        rows = X.rows if isinstance(X, TypedTable) else X.shape[0]
        matrix = np.zeros((rows, self.width))
        number, flag = 0, self.numbers
        for learnt, column in self.matched(owner, X):
            after, last = number + len(learnt.number_names), flag + len(learnt.flag_names)
            learnt.write(column, matrix[:, number:after], matrix[:, flag:last])
            number, flag = after, last
        return matrix

    def unseen(self, X: Any) -> dict[str, np.ndarray]:
        """For each category of a frame, a mask of the rows whose level training never saw."""
        table = read_table("Features", X)
        require(table is not None, "Features", "X", "be a frame", type(X).__name__)
        return {
            learnt.name: learnt.unseen(column)
            for learnt, column in self.matched("Features", table)
            if isinstance(learnt, CategoryColumn)
        }

    def matched(self, owner: str, X: Given) -> Iterator[tuple[LearntColumn, ColumnValues]]:
        """What was learnt of each column with its values, or an error that says what differs."""
        table = X if isinstance(X, TypedTable) else _of_array(X)
        names = table.names if self.named and table.names is not None else self.given
        columns = dict(zip(names, table.columns, strict=False))
        wanted = [column.name for column in self.columns]
        wrong = [f"no column {name!r}" for name in wanted if name not in columns]
        wrong += [f"another, {name!r}" for name in names if name not in self.given]
        pairs = []
        for learnt in self.columns:
            if learnt.name in columns:
                column = columns[learnt.name]
                as_learnt = _converted(learnt, column)
                if as_learnt is None:
                    wrong.append(_difference(learnt, column))
                pairs.append((learnt, as_learnt))
        more = f" and {len(wrong) - 5} more differences" if len(wrong) > 5 else ""
        allowed = "have the columns of fit"
        require(not wrong, owner, "X", allowed, "; ".join(wrong[:5]) + more)
        yield from pairs

    def state_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return {
            "given": list(self.given),
            "named": self.named,
            "columns": [state_of(column) for column in self.columns],
            "left_out": self.left_out,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "Features":
        """What `state_dict` gave. It may come from anyone."""
        features = cls(
            given=tuple(state["given"]),
            named=state["named"],
            columns=tuple(column_from(column) for column in state["columns"]),
            left_out=dict(state["left_out"]),
        )
        names = [*(column.name for column in features.columns), *features.left_out]
        ok = all(isinstance(name, str) for name in features.given)
        ok = ok and len(set(names)) == len(names) and sorted(names) == sorted(features.given)
        ok = ok and type(features.named) is bool and len(features.columns) > 0
        require(ok, "state", "features", "name each of its columns once", names[:3])
        return features


class FrameEncoder(TransformerMixin, BaseEstimator):
    """Frames for models that take numbers: what `AlignedClassifier` does with its columns.

    It takes pandas and polars frames, Arrow tables and arrays, with numbers, categories, text,
    truth values, dates and gaps, and gives a matrix of float64. A numeric array without gaps, or a
    sparse matrix, stays as it is.

    Attributes:
        features_: the `Features` that were learnt: `features_.numbers` is the number of columns
            that are numbers, which come first; the others are flags of 0 and 1.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> import numpy as np
        >>> X = np.array([["red", 1.5], ["blue", None]] * 10, dtype=object)
        >>> encoder = FrameEncoder().fit(X)
        >>> encoder.get_feature_names_out().tolist()
        ['x1', 'x0=blue', 'x0=red', 'x1 is missing']
        >>> encoder.transform([["green", 2.5]])
        array([[2.5, 0. , 0. , 0. ]])
    """

    features_: Features

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the columns of X."""
        self.features_ = Features.learn(_owner(self), read(self, X, reset=True))
        return self

    def transform(self, X: Any) -> Any:
        """The matrix of X."""
        check_is_fitted(self)
        return self.features_.matrix(_owner(self), read(self, X, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the matrix's columns."""
        check_is_fitted(self)
        return np.array(self.features_.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


def read(estimator: BaseEstimator, X: Any, *, reset: bool) -> Given:
    """The rows of X, checked; `reset` makes the columns those of the estimator.

    A numeric array may hold NaN. An infinity is refused everywhere.
    """
    owner = _owner(estimator)
    table = read_table(owner, X)
    if table is None:
        if reset:
            _warn_of_long_numbers(owner, array_of(X))
        finite = True if sparse.issparse(X) else "allow-nan"
        return validate_data(estimator, X, reset=reset, ensure_all_finite=finite, **READ)
    check_array(np.zeros((table.rows, 1)), estimator=owner)  # complains of no rows
    width = len(table.columns)
    if reset:
        validate_data(estimator, X, skip_check_array=True)
        estimator.n_features_in_ = width  # pyright: ignore[reportAttributeAccessIssue]
        return table
    named = getattr(estimator, "feature_names_in_", None) is not None
    if named and table.names is not None:
        return table
    if named or table.names is not None:
        has, fitted = ("has", "without") if table.names else ("does not have valid", "with")
        text = f"X {has} feature names, but {owner} was fitted {fitted} feature names"
        warnings.warn(text, UserWarning, stacklevel=3)
    expected: int = estimator.n_features_in_  # pyright: ignore[reportAttributeAccessIssue]
    text = f"X has {width} features, but {owner} is expecting {expected} features as input."
    if width != expected:
        raise ValueError(text)
    return table


def _warn_of_long_numbers(owner: str, X: np.ndarray | None) -> None:
    """Warn of whole numbers that a frame would take for names, and an array rounds."""
    if X is None or X.ndim != 2 or X.dtype.kind not in "iu":
        return
    if X.max(initial=0) <= EXACT and X.min(initial=0) >= -EXACT:  # a look at all at once is quick
        return
    for i, given in enumerate(X.T):
        column = ColumnValues("number", given.astype(np.float64)).with_digits(given.tolist)
        if column.too_long:
            text = (
                f"Column {i} of the array X of {owner} holds whole numbers beyond 2**53 that "
                "float64, in which it is read, hardly tells apart. If they are names, give a "
                "frame, where they are categories; if not, subtract their least."
            )
            warnings.warn(text, TrainingWarning, stacklevel=4)


def _learn(owner: str, name: str, column: ColumnValues) -> LearntColumn | str:
    """What a column of a frame teaches, or why it does not."""
    found = role(name, column)
    if found == "prose":
        example = next(text for text in column.values if text is not None)
        got = f"text in column {name!r}, such as {example[:40]!r}"
        cure = "Make features of it, or drop it."
        raise ValueError(complaint(owner, "X", "hold numbers, categories or dates", got, cure))
    if found == "id":
        cure = "Drop it. If it is not one, give more rows, or declare it a category."
        text = f"Column {name!r} differs in every row and is left out as an id. {cure}"
        warnings.warn(text, TrainingWarning, stacklevel=5)
    if found not in KINDS:
        return found
    typed = column.converted(found)
    assert typed is not None
    return KINDS[found].learn(name, typed)


def _of_numbers(X: Any) -> Iterator[LearntColumn | str]:
    """What the columns of a numeric array teach. None is judged: it was made of the same kind."""
    if sparse.issparse(X):
        yield from (NumberColumn(f"x{i}", 0.0, False) for i in range(X.shape[1]))
        return
    for i, values in enumerate(X.T):
        empty = np.isnan(values).all()
        yield "empty" if empty else NumberColumn.learn(f"x{i}", ColumnValues("number", values))


def _of_array(X: Any) -> TypedTable:
    dense = X.toarray() if sparse.issparse(X) else X
    return TypedTable(None, [ColumnValues("number", values) for values in dense.T], len(dense))


def _has_gaps(X: Any) -> bool:
    return not sparse.issparse(X) and bool(np.isnan(X).any())


def _converted(learnt: LearntColumn, column: ColumnValues) -> ColumnValues | None:
    if isinstance(learnt, CategoryColumn) and column.kind == "boolean" and learnt.truths:
        return column.spelled(*learnt.truths)
    if isinstance(learnt, CategoryColumn) and column.kind == "number" and learnt.whole_numbers:
        column = _with_digits(column)
    typed = column.converted(learnt.kind)
    if isinstance(learnt, DateColumn) and typed is not None and not typed.gaps.all():
        return typed if typed.utc == learnt.utc else None
    return typed


def _with_digits(column: ColumnValues) -> ColumnValues:
    """Numbers with their digits, if all are whole and float64 holds them exactly."""
    present = column.values[~column.gaps]
    if column.digits is not None or not ((abs(present) <= EXACT) & (present % 1 == 0)).all():
        return column
    digits = [str(int(value)) for value in np.nan_to_num(column.values)]
    return column._replace(digits=np.array(digits, dtype=object))


def _difference(learnt: LearntColumn, column: ColumnValues) -> str:
    """Say how a column differs from the one of `fit`."""
    was, now = (SAID.get(kind, "categories") for kind in (learnt.kind, column.kind))
    if column.kind == "text":
        texts = column.values[~column.gaps].tolist()
        dates = isinstance(learnt, DateColumn)
        odd = (text for text in texts if not dates or parsed_dates([text]) is None)
        now = f"text ({next(odd, texts[0])[:40]!r})"
    if isinstance(learnt, DateColumn) and column.kind == "date":
        now, was = (f"dates {w} a time zone" for w in ("with", "without")[:: 1 - 2 * learnt.utc])
    return f"column {learnt.name!r} held {was} in fit and holds {now}"


def _owner(estimator: BaseEstimator) -> str:
    return type(estimator).__name__
