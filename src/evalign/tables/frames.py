"""pandas frames whose columns have the types of their kinds, for the command line."""

from typing import Any

import numpy as np
import pandas as pd

from evalign.tables.files import TableError
from evalign.tables.kinds import as_kind
from evalign.tables.values import PLURAL, ColumnValues, read_table


def learnt_frame(X: pd.DataFrame, source: object) -> tuple[pd.DataFrame, dict[str, str]]:
    """The columns to learn from, and the kind of every column."""
    data, kinds = {}, {}
    for name, column in _columns(X, source).items():
        kinds[name], typed = as_kind(name, column)
        if typed is not None:
            data[name] = _series(typed)
    return pd.DataFrame(data), kinds


def frame_like(
    X: pd.DataFrame, kinds: dict[str, str], source: object, first_row: int = 1
) -> pd.DataFrame:
    """Columns of another table, or of a block of one, with the kinds that training found."""
    data = {}
    for name, column in _columns(X[list(kinds)], source).items():
        typed = column.converted(kinds[name])
        if typed is None:
            row, text = column.first_odd(kinds[name])
            allowed = f"must hold {PLURAL[kinds[name]]}, as in training"
            got = f"Got {text!r} in row {first_row + row}. Correct it, or leave it empty."
            raise ValueError(f"Column {name!r} of {source} {allowed}. {got}")
        data[name] = _series(typed)
    return pd.DataFrame(data)


def _columns(X: Any, source: object) -> dict[str, ColumnValues]:
    try:
        table = read_table(str(source), X)
    except TypeError as error:  # lists or durations
        raise TableError(str(error)) from error
    assert table is not None
    return dict(zip(X.columns, table.columns, strict=True))


def _series(column: ColumnValues) -> Any:
    match column.kind:
        case "boolean":
            return pd.array(np.where(column.gaps, None, column.values == 1), dtype="boolean")
        case "category":
            return pd.Categorical(column.values)
    return column.values
