"""From typed columns to the matrix that a model takes: `Features` and `FrameEncoder`."""

from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from evalign.core import stairs
from evalign.core.checks import require
from evalign.tables.columns import KINDS, CategoryColumn, LearntColumn, NumberColumn, column_from
from evalign.tables.kinds import as_kind
from evalign.tables.values import ColumnValues, TypedTable, read_table
from evalign.tables.warnings import warn_of_left_out, warn_of_unseen

PLURAL = {"number": "numbers", "boolean": "booleans", "date": "dates", "category": "categories"}
# Numbers keep their precision.
READ: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
Given = TypedTable | np.ndarray | Any  # the last is a sparse matrix


@dataclass(frozen=True)
class Features:
    """What is learned about the columns of a table.

    Their matrix begins with `numbers` columns of numbers, with gaps filled by the median of the
    training rows. The other columns are flags of 0 and 1: levels of categories, booleans, and
    whether a value is missing.

    Args:
        given: names of all columns, in order; x0, x1, ... for an array.
        named: whether these names are the table's own.
        columns: what is learned about each column that is used.
        left_out: why a column is left out, by its name.
    """

    given: tuple[str, ...]
    named: bool
    columns: tuple[LearntColumn, ...]
    left_out: dict[str, str]

    @classmethod
    def learn(cls, owner: str, X: Given, *, warn: bool = True) -> "Features":
        """Learn from rows that `read` returned. Errors name the `owner`."""
        frame = isinstance(X, TypedTable)
        given = tuple(X.names) if frame else tuple(f"x{i}" for i in range(X.shape[1]))
        if sparse.issparse(X):  # has no gaps
            learnt = {name: NumberColumn(name, gaps=False, fill=0.0) for name in given}
        else:
            columns = zip(given, _columns(X), strict=True)
            learnt = {name: _learnt(name, column, frame) for name, column in columns}
        left_out = {name: why for name, why in learnt.items() if isinstance(why, str)}
        columns = tuple(column for column in learnt.values() if not isinstance(column, str))
        allowed, cure = "hold a column to learn from", "It needs one that varies and is no id."
        require(len(columns) > 0, owner, "X", allowed, f"none: {left_out}", cure)
        if warn:
            warn_of_left_out(left_out)
        return cls(given, frame and X.named, columns, left_out)

    @property
    def numbers(self) -> int:
        """The number of the matrix's columns that hold numbers. They come first."""
        return sum(len(column.number_names) for column in self.columns)

    @property
    def names(self) -> list[str]:
        """Names of the matrix's columns."""
        numbers = [name for column in self.columns for name in column.number_names]
        return [*numbers, *(name for column in self.columns for name in column.flag_names)]

    @property
    def width(self) -> int:
        """Number of the matrix's columns."""
        return len(self.names)

    def matrix(self, owner: str, X: Given, *, warn: bool = False) -> Any:
        """The matrix of rows that `read` returned: the rows themselves if there is nothing to do.

        With `warn`, there is a warning about categories that training did not have.
        """
        plain = all(isinstance(c, NumberColumn) and not c.gaps for c in self.columns)
        plain = plain and not self.left_out
        full = not isinstance(X, TypedTable) and (sparse.issparse(X) or not np.isnan(X).any())
        if plain and full:
            return X
        matrix = np.zeros((_num_samples(X), self.width))
        number, flag, unseen = 0, self.numbers, []
        for learnt, column in self.matched(owner, X):
            after, last = number + len(learnt.number_names), flag + len(learnt.flag_names)
            learnt.write(column, matrix[:, number:after], matrix[:, flag:last])
            number, flag = after, last
            if warn and isinstance(learnt, CategoryColumn) and learnt.has_unseen(column):
                unseen.append(learnt.name)
        warn_of_unseen(unseen)
        return matrix

    def matched(self, owner: str, X: Given) -> list[tuple[LearntColumn, ColumnValues]]:
        """Each learned column with its values in X, as the kind that `fit` found."""
        names = X.names if self.named and isinstance(X, TypedTable) and X.named else self.given
        found = dict(zip(names, _columns(X), strict=False))
        pairs = [(c, found[c.name].converted(c.kind)) for c in self.columns if c.name in found]
        wrong = [f"no column {c.name!r}" for c in self.columns if c.name not in found]
        wrong += [f"another column {name!r}" for name in names if name not in self.given]
        wrong += [_difference(c, found[c.name]) for c, values in pairs if values is None]
        require(not wrong, owner, "X", "have the columns of fit", "; ".join(wrong[:5]))
        return cast(Any, pairs)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, as JSON holds them."""
        return {
            "given": list(self.given),
            "named": self.named,
            "columns": [{"kind": c.kind, **asdict(c)} for c in self.columns],
            "left_out": self.left_out,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "Features":
        """Rebuild from untrusted plain values, as `state_dict` returns them."""
        columns = tuple(column_from(column) for column in state["columns"])
        features = cls(tuple(state["given"]), state["named"], columns, dict(state["left_out"]))
        gaps = ColumnValues("text", np.full(1, None))
        row = features.matrix(
            "state", TypedTable(list(features.given), [gaps] * len(features.given))
        )
        require(np.isfinite(row).all(), "state", "features", "encode a row of gaps", row.tolist())
        return features


class FrameEncoder(TransformerMixin, BaseEstimator):
    """Encode frames for models that take numbers, as `AlignedClassifier` encodes its columns.

    It takes frames of pandas, polars or Arrow, with numbers, categories, text, booleans, dates and
    gaps, and returns a matrix of float64. An array holds numbers, perhaps with gaps; without any,
    and so a sparse matrix, it stays as it is.

    Attributes:
        features_: what was learned about the columns. The first `features_.numbers` columns of the
            matrix are numbers, the others flags of 0 and 1.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> import pandas as pd
        >>> X = pd.DataFrame({"colour": ["red", "blue"] * 10, "size": [1.5, None] * 10})
        >>> encoder = FrameEncoder().fit(X)
        >>> encoder.get_feature_names_out().tolist()
        ['size', 'colour=blue', 'colour=red', 'size is missing']
        >>> encoder.transform(X[:1])
        array([[1.5, 0. , 1. , 0. ]])
    """

    features_: Features

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the columns of X."""
        self.features_ = Features.learn(type(self).__name__, read(self, X, reset=True))
        return self

    def transform(self, X: Any) -> Any:
        """The matrix of X."""
        check_is_fitted(self)
        return self.features_.matrix(type(self).__name__, read(self, X, reset=False), warn=True)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the matrix's columns."""
        check_is_fitted(self)
        return np.array(self.features_.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


def read(estimator: BaseEstimator, X: Any, *, reset: bool) -> Given:
    """Check the rows of X and type their columns; `reset` makes them the estimator's columns.

    A numeric array may hold NaN, but no infinity; a sparse matrix neither.
    """
    owner = type(estimator).__name__
    X = stairs.as_numpy(X)
    table = read_table(owner, X)
    if table is None:
        finite = True if sparse.issparse(X) else "allow-nan"
        return validate_data(estimator, X, reset=reset, ensure_all_finite=finite, **READ)
    check_array(np.zeros((len(table), min(1, len(table.columns)))), estimator=owner)  # not empty
    if reset:
        validate_data(estimator, X, skip_check_array=True)
        fitted = cast(Any, estimator)
        fitted.n_features_in_ = len(table.columns)
        if table.named:  # scikit-learn before 1.8 reads no names of a frame of Polars
            fitted.feature_names_in_ = np.array(table.names, dtype=object)
    elif not table.named or getattr(estimator, "feature_names_in_", None) is None:
        validate_data(estimator, X, reset=False, skip_check_array=True)  # compares the widths
    return table


def _learnt(name: str, column: ColumnValues, of_frame: bool) -> LearntColumn | str:
    """What is learned about a column, or why it is left out: of an array, only if it is empty."""
    if not of_frame:
        return "empty" if column.gaps.all() else NumberColumn.learn(name, column)
    kind, typed = as_kind(name, column)
    return kind if typed is None else KINDS[kind].learn(name, typed)


def _columns(X: Any) -> list[ColumnValues]:
    """The columns of a table, or of an array of numbers."""
    if isinstance(X, TypedTable):
        return X.columns
    dense = X.toarray() if sparse.issparse(X) else X
    return [ColumnValues("number", values) for values in dense.T]


def _difference(learnt: LearntColumn, column: ColumnValues) -> str:
    """Say how a column differs from the one of `fit`."""
    now = PLURAL.get(column.kind, "text")
    if column.kind == "text":
        rows = np.flatnonzero(~column.gaps)[:, None]
        row = next(i for i in rows if column.take(i).converted(learnt.kind) is None).item()
        now = f"text ({column.values[row][:40]!r} in row {row + 1}; the first is 1)"
    return f"{now} in column {learnt.name!r}, which held {PLURAL[learnt.kind]} in fit"
