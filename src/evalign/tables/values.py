"""Typed columns, read from a frame of pandas, polars or Arrow."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from evalign.core.checks import complaint, refuse_masked

# A date of ISO 8601, perhaps with a time.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
TIME = "datetime64[us]"
DTYPES = {"number": np.float64, "boolean": np.float64, "category": object, "date": TIME}


class ColumnValues(NamedTuple):
    """One column of a table.

    Args:
        kind: "number", "boolean", "text", "category" (text declared as such) or "date".
        values: float64 with NaN for a gap (a boolean is 0 or 1), str with None for a gap, or
            datetime64[us] in UTC with NaT for a gap.
    """

    kind: str
    values: np.ndarray

    @property
    def gaps(self) -> np.ndarray:
        """Mask of the rows without a value."""
        if self.kind in ("number", "boolean"):
            return np.isnan(self.values)
        return np.isnat(self.values) if self.kind == "date" else self.values == None  # noqa: E711

    @property
    def present(self) -> list[Any]:
        """The values without gaps: floats, bools, texts or datetimes."""
        found = self.values[~self.gaps]
        return (found == 1 if self.kind == "boolean" else found).tolist()

    @property
    def distinct(self) -> int:
        """The number of distinct values without gaps."""
        found = self.values[~self.gaps]
        return len(set(found) if found.dtype == object else np.unique(found))

    def take(self, rows: np.ndarray) -> "ColumnValues":
        return self._replace(values=self.values[rows])

    def converted(self, kind: str) -> "ColumnValues | None":
        """The same values as another kind; None if some of them are not of that kind."""
        gaps = self.gaps
        match self.kind, kind:
            case ("text", "category") | ("boolean", "number"):
                return self._replace(kind=kind)
            case "text", "number":
                numbers = parsed_numbers(self.values)
                return None if np.isinf(numbers).any() else ColumnValues(kind, numbers)
            case "text", "date":
                return parsed_dates(self.values)
            case (("number" | "boolean"), "category"):
                return ColumnValues(kind, _spread(map(level_text, self.present), gaps))
        if gaps.all():
            return ColumnValues(kind, np.full(len(gaps), None).astype(DTYPES[kind]))
        return self if kind == self.kind else None


@dataclass(frozen=True, eq=False)
class TypedTable:
    """Typed columns.

    Args:
        names: names of the columns; x0, x1, ... if they are not texts.
        columns: their values.
        named: whether these names are the table's own.
    """

    names: list[str]
    columns: list[ColumnValues]
    named: bool = True

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    def take(self, rows: np.ndarray) -> "TypedTable":
        """Some of the rows, by a mask or by their positions."""
        return replace(self, columns=[column.take(rows) for column in self.columns])


def read_table(owner: str, X: Any) -> TypedTable | None:
    """Type the columns of a frame; None for anything else."""
    if isinstance(X, TypedTable):
        return X
    refuse_masked(owner, "X", X)
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        allowed, cure = "be a frame that holds its rows", "Call its collect()."
        raise TypeError(complaint(owner, "X", allowed, "a LazyFrame", cure))
    if not isinstance(frame, nw.DataFrame):
        return None
    named = all(isinstance(name, str) for name in frame.columns)
    names = [name if named else f"x{i}" for i, name in enumerate(frame.columns)]
    columns = [_of_series(owner, series) for series in frame.iter_columns()]
    return TypedTable(names, columns, named)


def parsed_numbers(texts: np.ndarray) -> np.ndarray:
    """Parse numbers: NaN for a gap, an infinity for any text that is not a finite number."""
    numbers = {text: float(text) for text in set(texts) if text and NUMBER.fullmatch(text)}
    return np.array([np.nan if text is None else numbers.get(text, np.inf) for text in texts])


def parsed_dates(texts: Iterable[str | None]) -> ColumnValues | None:
    """Parse ISO dates; None if one of the texts is not a date."""
    stripped = [None if text is None else text.strip() for text in texts]
    if not all(text is None or DATE.fullmatch(text) for text in stripped):
        return None
    try:
        return _of_dates([text and datetime.fromisoformat(text) for text in stripped])
    except (ValueError, OverflowError):  # the 30th of February, or a year beyond 9999 in UTC
        return None


def level_text(value: Any) -> str:
    """A level as text. Gaps turn whole numbers into floats, so 1.0 is "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _of_series(owner: str, series: Any) -> ColumnValues:
    kind, name = series.dtype, str(series.name)
    if kind.is_numeric():
        return _finite(owner, name, series.to_numpy().astype(np.float64, copy=False))
    if kind == nw.Boolean:
        return ColumnValues("boolean", series.cast(nw.Float64).to_numpy())
    if kind.is_nested():
        raise _refusal(owner, name, str(kind))
    if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    gaps = series.is_null().to_numpy()
    if kind in (nw.Categorical, nw.Enum):  # gaps among them would turn whole numbers into floats
        levels = series.drop_nulls().to_numpy().tolist()
        return _of_texts(_spread(map(level_text, levels), gaps))._replace(kind="category")
    cells = series.to_numpy()
    if cells.dtype.kind in "iufb":  # of a sparse column, or of one without a value
        kind = "boolean" if cells.dtype.kind == "b" else "number"
        return _finite(owner, name, cells.astype(np.float64))._replace(kind=kind)
    if cells.dtype.kind == "M":
        return ColumnValues("date", cells.astype(TIME))
    if cells.dtype.kind not in "OU":
        raise _refusal(owner, name, str(cells.dtype))
    present = cells[~gaps].tolist()
    kinds = {_kind_of(kind) for kind in {type(value) for value in present}}
    if None in kinds:
        raise _refusal(owner, name, ", ".join(sorted({type(value).__name__ for value in present})))
    if kinds and kinds <= {"number", "boolean"}:
        numbers = _spread(map(float, present), gaps).astype(np.float64)
        kind = "number" if "number" in kinds else "boolean"
        return _finite(owner, name, numbers)._replace(kind=kind)
    if kinds == {"date"}:
        return _of_dates(_spread(present, gaps))
    return _of_texts(_spread(map(str, present), gaps))


def _spread(present: Iterable[Any], gaps: np.ndarray) -> np.ndarray:
    """Objects in the rows without a gap, and None in the others."""
    values = np.full(len(gaps), None, dtype=object)
    values[~gaps] = list(present)
    return values


def _of_texts(values: np.ndarray) -> ColumnValues:
    """Text. A blank cell is a gap."""
    values[[text is None or not text.strip() for text in values]] = None
    return ColumnValues("text", values)


def _of_dates(dates: Iterable[Any]) -> ColumnValues:
    """Dates in UTC. One without a time zone is taken to be in UTC."""

    def in_utc(value: Any) -> Any:
        aware = isinstance(value, datetime) and value.tzinfo is not None
        return value.astimezone(UTC).replace(tzinfo=None) if aware else value

    return ColumnValues("date", np.array([in_utc(value) for value in dates], TIME))


def _finite(owner: str, name: str, values: np.ndarray) -> ColumnValues:
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        got = f"{values[row]} in column {name!r}, row {row + 1} (the first is 1)"
        cure = "Correct it, or make it a gap (NaN)."
        raise ValueError(complaint(owner, "X", "hold finite numbers", got, cure))
    return ColumnValues("number", values)


def _kind_of(kind: type) -> str | None:
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    if issubclass(kind, Real | Decimal):
        return "number"
    if issubclass(kind, str):
        return "text"
    return "date" if issubclass(kind, date | np.datetime64) else None


def _refusal(owner: str, name: str, got: str) -> TypeError:
    allowed = "hold numbers, text, booleans or dates, one in a cell"
    cure = "Convert the column to one of these, or drop it."
    return TypeError(complaint(owner, "X", allowed, f"{got} in column {name!r}", cure))
