"""Typed columns, read from a frame of pandas, polars or Arrow, or from an array."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
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
PANDAS_GAPS = ("NAType", "NaTType")  # without importing pandas


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
        names: names of the columns; None for an array.
        columns: their values.
        judged: whether the kinds are final, as for an array of numbers.
    """

    names: list[str] | None
    columns: list[ColumnValues]
    judged: bool = False

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0

    def take(self, rows: np.ndarray) -> "TypedTable":
        """Some of the rows, by a mask or by their positions."""
        return replace(self, columns=[column.take(rows) for column in self.columns])


def read_table(owner: str, X: Any) -> TypedTable | None:
    """Type the columns of a frame, or of an array of text or dates; None for anything else."""
    if isinstance(X, TypedTable):
        return X
    refuse_masked(owner, "X", X)
    try:
        frame = nw.from_native(X, pass_through=True)
    except ValueError as error:  # two columns of one name
        got = " ".join(str(error).split()).rpartition("got: - ")[2]
        cure = "Rename or drop the others."
        raise ValueError(complaint(owner, "X", "name each column once", got, cure)) from error
    if isinstance(frame, nw.LazyFrame):
        allowed, cure = "be a frame that holds its rows", "Call its collect()."
        raise TypeError(complaint(owner, "X", allowed, "a LazyFrame", cure))
    if isinstance(frame, nw.DataFrame):
        named = all(isinstance(name, str) for name in frame.columns)
        columns = [_of_series(owner, series) for series in frame.iter_columns()]
        return TypedTable(list(frame.columns) if named else None, columns)
    cells = _cells(X)
    if cells is None:
        return None
    columns = [_of_array(owner, f"x{i}", column) for i, column in enumerate(cells.T)]
    return TypedTable(None, columns)


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
    except ValueError:  # the 30th of February
        return None


def gaps_of_objects(cells: np.ndarray) -> np.ndarray:
    """Mask of None, NaN, and pandas' NA and NaT among objects."""

    def is_gap(value: Any) -> bool:
        if value is None or type(value).__name__ in PANDAS_GAPS:
            return True
        return isinstance(value, float | np.floating | np.datetime64 | Decimal) and value != value

    return np.fromiter(map(is_gap, cells), dtype=bool, count=len(cells))


def level_text(value: Any) -> str:
    """A level as text. Gaps turn whole numbers into floats, so 1.0 is "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _of_series(owner: str, series: Any) -> ColumnValues:
    kind, name = series.dtype, str(series.name)
    if kind.is_numeric():
        return _finite(owner, name, series.to_numpy().astype(np.float64, copy=False))
    if kind == nw.Boolean:
        return ColumnValues("boolean", series.cast(nw.Float64).to_numpy())
    if kind.is_nested() or kind in (nw.Duration, nw.Time, nw.Binary):
        raise _refusal(owner, name, str(kind))
    if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    gaps = series.is_null().to_numpy()
    if kind in (nw.Categorical, nw.Enum):  # gaps among them would turn whole numbers into floats
        levels = series.drop_nulls().to_numpy().tolist()
        return _of_texts(_spread(map(level_text, levels), gaps))._replace(kind="category")
    return _of_array(owner, name, series.to_numpy(), gaps)


def _of_array(
    owner: str, name: str, cells: np.ndarray, gaps: np.ndarray | None = None
) -> ColumnValues:
    if cells.dtype.kind in "iufb":  # of a sparse column, or of one without a value
        kind = "boolean" if cells.dtype.kind == "b" else "number"
        return _finite(owner, name, cells.astype(np.float64))._replace(kind=kind)
    if cells.dtype.kind == "M":
        return ColumnValues("date", cells.astype(TIME))
    if cells.dtype.kind == "U":  # in which numpy writes a gap as "nan"
        cells = np.where(cells == "nan", np.array(None, dtype=object), cells)
    if cells.dtype.kind != "O":
        raise _refusal(owner, name, str(cells.dtype))
    gaps = gaps_of_objects(cells) if gaps is None else gaps
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
        offset = value.utcoffset() if isinstance(value, datetime) else None
        if offset is None:
            return value
        return np.datetime64(value.replace(tzinfo=None), "us") - np.timedelta64(offset, "us")

    return ColumnValues("date", np.array([in_utc(value) for value in dates], TIME))


def _finite(owner: str, name: str, values: np.ndarray) -> ColumnValues:
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        got = f"{values[row]} in column {name!r}, row {row + 1} (the first is 1)"
        cure = "Correct it, or make it a gap (NaN)."
        raise ValueError(complaint(owner, "X", "hold finite numbers", got, cure))
    return ColumnValues("number", values)


def _cells(X: Any) -> np.ndarray | None:
    """An array, or a list of rows, that holds text, dates or pandas' gaps; None for other X."""
    try:
        cells = np.array(X, dtype=object) if isinstance(X, list | tuple) else X
    except ValueError:  # rows of different lengths
        return None
    if not isinstance(cells, np.ndarray) or cells.ndim != 2:
        return None
    if cells.dtype != object:
        return cells if cells.dtype.kind in "UM" else None
    kinds = {_kind_of(kind) for kind in {type(cell) for cell in cells.flat}}
    return cells if kinds & {"text", "date", "gap"} else None


def _kind_of(kind: type) -> str | None:
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    if issubclass(kind, Real | Decimal):
        return "number"
    if issubclass(kind, str):
        return "text"
    if kind.__name__ in PANDAS_GAPS:
        return "gap"
    return "date" if issubclass(kind, date | np.datetime64) else None


def _refusal(owner: str, name: str, got: str) -> TypeError:
    allowed = "hold numbers, text, booleans or dates, one in a cell"
    cure = "Convert the column to one of these, or drop it."
    return TypeError(complaint(owner, "X", allowed, f"{got} in column {name!r}", cure))
