"""pandas frames whose columns have the types of their kinds, for the command line."""

from typing import Any

import numpy as np
import pandas as pd

from evalign.tables.kinds import as_kind
from evalign.tables.values import PLURAL, ColumnValues, TypedTable, first_odd, read_table


def learnt_frame(X: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The columns to learn from, and the kind of every column."""
    data, kinds = {}, {}
    for name, column in zip(X.columns, _read(X).columns, strict=True):
        kinds[name], typed = as_kind(name, column)
        if typed is not None:
            data[name] = _series(typed)
    return pd.DataFrame(data), kinds


def frame_like(
    X: pd.DataFrame, kinds: dict[str, str], source: object, first_row: int = 1
) -> pd.DataFrame:
    """Columns of another table, or of a block of one, as the kinds that training found."""
    data = {}
    for (name, kind), column in zip(kinds.items(), _read(X[list(kinds)]).columns, strict=True):
        typed = column.converted(kind)
        if typed is None:
            row, text = first_odd(column, kind)
            allowed = f"must hold {PLURAL[kind]}, as in training"
            got = f"Got {text!r} in row {first_row + row}. Correct it, or leave it empty."
            raise ValueError(f"Column {name!r} of {source} {allowed}. {got}")
        data[name] = _series(typed)
    return pd.DataFrame(data)


def _read(X: Any) -> TypedTable:
    table = read_table("the table", X)
    assert table is not None
    return table


def _series(column: ColumnValues) -> Any:
    match column.kind:
        case "boolean":
            return pd.array(np.where(column.gaps, None, column.values == 1), dtype="boolean")
        case "category":
            return pd.Categorical(column.values)
    return pd.DatetimeIndex(column.values, tz="UTC") if column.utc else column.values
