"""The columns of a table as typed values, from pandas, polars, Arrow or an array."""

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from evalign.core.checks import complaint, refuse_masked_rows, require

# ISO 8601: a day, or a time.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
ALLOWED = "hold numbers, text, truth values or dates"
EXACT = 2**53  # up to which float64 holds every whole number
GAPS = ("NAType", "NaTType")  # what pandas has in place of a value
LARGEST = float(np.finfo(np.float32).max)  # whole numbers beyond it are names


class ColumnValues(NamedTuple):
    """A value for each row of a column.

    Args:
        kind: "number", "boolean", "text", "category" (text that was declared one) or "date".
        values: float64 with NaN for a gap (a boolean is 0 or 1), str with None for a gap, or
            datetime64[us] with NaT for one.
        utc: whether dates had a time zone; they are then in UTC.
        digits: numbers as they came, where float64 may have rounded some; otherwise None.
    """

    kind: str
    values: np.ndarray
    utc: bool = False
    digits: np.ndarray | None = None

    @property
    def gaps(self) -> np.ndarray:
        """A mask of the rows without a value."""
        if self.kind in ("number", "boolean"):
            return np.isnan(self.values)
        return np.isnat(self.values) if self.kind == "date" else self.values == None  # noqa: E711

    @property
    def too_long(self) -> bool:
        """Whether float64 hardly tells numbers apart, or most of them are beyond LARGEST."""
        if self.digits is None or self.gaps.all():
            return False
        present, given = self.values[~self.gaps], self.digits[~self.gaps]
        beyond = int((np.abs(present) > LARGEST).sum())
        return 2 * len(np.unique(present)) <= len(set(given)) or 2 * beyond >= len(present)

    def with_digits(self, given: Callable[[], list[Any]]) -> "ColumnValues":
        """Numbers with those that they were made of, if float64 may have rounded some."""
        if not (np.abs(self.values) > EXACT).any():
            return self
        digits = np.empty(len(self.values), dtype=object)
        digits[:] = given()
        return self._replace(digits=digits)

    def take(self, rows: np.ndarray) -> "ColumnValues":
        digits = None if self.digits is None else self.digits[rows]
        return self._replace(values=self.values[rows], digits=digits)

    def converted(self, kind: str) -> "ColumnValues | None":
        """The values as a column of this kind, where that loses nothing; otherwise None."""
        if kind == self.kind or (kind, self.kind) in {("category", "text"), ("number", "boolean")}:
            return self._replace(kind=kind)
        if self.gaps.all():
            return ColumnValues(kind, np.full(len(self.values), GAP[kind]))
        if kind in ("text", "category") and self.digits is not None:
            texts = np.full(len(self.values), None, dtype=object)
            texts[~self.gaps] = [str(value) for value in self.digits[~self.gaps]]
            return ColumnValues(kind, texts)
        return parsed_dates(self.values) if (kind, self.kind) == ("date", "text") else None

    def spelled(self, false: str, true: str) -> "ColumnValues":
        """Truth values as categories with these names."""
        names = np.array([false, true, None], dtype=object)
        return ColumnValues("category", names[np.where(self.gaps, 2, self.values).astype(int)])


GAP: dict[str, Any] = {
    "number": np.nan,
    "boolean": np.nan,
    "category": None,
    "date": np.datetime64("NaT", "us"),
}


class TypedTable(NamedTuple):
    """A table whose columns are known by their types.

    Args:
        names: of the columns; None for those of an array.
        columns: their values.
        rows: their number.
    """

    names: list[str] | None
    columns: list[ColumnValues]
    rows: int

    def take(self, rows: np.ndarray) -> "TypedTable":
        """Some of the rows, by a mask."""
        columns = [column.take(rows) for column in self.columns]
        return TypedTable(self.names, columns, int(rows.sum()))


def read_table(owner: str, X: Any) -> TypedTable | None:
    """The columns of a frame, or of an array of text or dates; None for whatever else."""
    refuse_masked_rows(owner, X)
    try:
        frame = nw.from_native(X, pass_through=True)
    except ValueError as error:  # two columns of one name
        raise ValueError(f"X of {owner} cannot be read: {error}") from error
    if isinstance(frame, nw.LazyFrame):
        allowed, cure = "be a frame that holds its rows", "Call its collect()."
        raise TypeError(complaint(owner, "X", allowed, "a LazyFrame", cure))
    if isinstance(frame, nw.DataFrame):
        named = all(isinstance(name, str) for name in frame.columns)
        names = [name if named else str(name) for name in frame.columns]
        given = zip(names, frame.iter_columns(), strict=True)
        columns = [_of_series(owner, name, series) for name, series in given]
        return TypedTable(names if named else None, columns, len(frame))
    cells = array_of(X)
    if cells is None or cells.ndim != 2 or not _is_typed(cells):
        return None
    columns = [_of_array(owner, f"x{i}", column) for i, column in enumerate(cells.T)]
    return TypedTable(None, columns, len(cells))


def parsed_dates(texts: Iterable[str | None]) -> ColumnValues | None:
    """Dates of text, or None if one is not a date, or some have a time zone and others have not."""
    found: list[datetime | None] = []
    for text in texts:
        if text is None:
            found.append(None)
            continue
        if not DATE.fullmatch(text := text.strip()):
            return None
        try:
            found.append(datetime.fromisoformat(text))
        except ValueError:  # the 30th of February
            return None
    return _of_dates(found)


def within_float32(matrix: np.ndarray) -> np.ndarray:
    """Numbers beyond LARGEST as LARGEST: trees of scikit-learn refuse them, scaling overflows."""
    reach = max(matrix.max(initial=0), -matrix.min(initial=0))
    return matrix if reach <= LARGEST else matrix.clip(-LARGEST, LARGEST)


def gaps_of_objects(cells: np.ndarray) -> np.ndarray:
    """A mask of None, NaN, and pandas' NA and NaT among objects."""

    def is_gap(value: Any) -> bool:
        if value is None or type(value).__name__ in GAPS:
            return True
        return isinstance(value, float | np.floating | np.datetime64 | Decimal) and value != value

    return np.fromiter(map(is_gap, cells), dtype=bool, count=len(cells))


def _of_series(owner: str, name: str, series: Any) -> ColumnValues:
    kind = series.dtype
    if kind.is_numeric():
        # Arrow casts no integer that would be rounded, and numpy has none of 128 bits.
        short = kind in (nw.Int64, nw.UInt64)
        numbers = series.to_numpy() if short else series.cast(nw.Float64).to_numpy()
        found = _finite(owner, name, numbers.astype(np.float64, copy=False))
        return found if kind.is_float() else found.with_digits(series.to_list)
    if kind == nw.Boolean:
        return ColumnValues("boolean", series.cast(nw.Float64).to_numpy())
    utc = isinstance(kind, nw.Datetime) and kind.time_zone is not None
    if utc:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if kind.is_nested():
        got, cure = f"{kind} in column {name!r}", "Make columns of its parts, or drop it."
        raise TypeError(complaint(owner, "X", f"{ALLOWED}, one in a cell", got, cure))
    gaps = series.is_null().to_numpy()
    if kind in (nw.Categorical, nw.Enum):  # gaps among them would make floats of whole numbers
        texts = np.full(len(gaps), None, dtype=object)
        texts[~gaps] = [_text(value) for value in series.drop_nulls().to_numpy().tolist()]
        return _of_texts(texts)._replace(kind="category")
    found = _of_array(owner, name, series.to_numpy(), gaps)
    return found._replace(utc=utc or found.utc)


def _of_array(
    owner: str, name: str, cells: np.ndarray, gaps: np.ndarray | None = None
) -> ColumnValues:
    if cells.dtype.kind in "iuf":
        return _finite(owner, name, cells.astype(np.float64))
    if cells.dtype.kind == "b":
        return ColumnValues("boolean", cells.astype(np.float64))
    if cells.dtype.kind == "M":
        return ColumnValues("date", cells.astype("datetime64[us]"))
    cure = "Make numbers of them, such as hours."
    got = f"durations in column {name!r}"
    require(cells.dtype.kind != "m", owner, "X", "hold numbers, categories or dates", got, cure)
    if cells.dtype.kind in "UST":
        texts = np.char.decode(cells, "utf-8") if cells.dtype.kind == "S" else cells
        return _of_text_array(owner, name, texts.astype(object))
    gaps = gaps_of_objects(cells) if gaps is None else gaps
    present = cells[~gaps].tolist()
    kinds = {_kind_of(kind) for kind in {type(value) for value in present}}
    if not kinds:
        return ColumnValues("text", np.full(len(cells), None))
    if len(kinds) > 1 or None in kinds:
        found = sorted({type(value).__name__ for value in present})
        got = f"{', '.join(found)} in column {name!r}"
        cure = "Give its values one type, or drop it."
        raise TypeError(complaint(owner, "X", f"{ALLOWED}, one of them in a column", got, cure))
    values = np.full(len(cells), None, dtype=object)
    match kinds.pop():
        case "text":
            values[~gaps] = [str(value) for value in present]
            return _of_texts(values)
        case "date":
            values[~gaps] = present
            dates = _of_dates(values.tolist())
            got = f"both in column {name!r}"
            require(dates is not None, owner, "X", "hold dates with or without a zone", got)
            assert dates is not None
            return dates
        case kind:
            numbers = np.full(len(cells), np.nan)
            numbers[~gaps] = [_number(value) for value in present]
            found = _finite(owner, name, numbers)._replace(kind=kind)
            whole = all(isinstance(value, Integral | Decimal) for value in present)
            return found.with_digits(cells.tolist) if whole else found


def _of_texts(values: np.ndarray) -> ColumnValues:
    """Text, of which a blank one is a gap."""
    values = values.copy()
    values[[text is None or not text.strip() for text in values]] = None
    return ColumnValues("text", values)


def _of_text_array(owner: str, name: str, texts: np.ndarray) -> ColumnValues:
    """A column of an array of text, where a neighbour may have made text of numbers and gaps."""
    texts[gaps_of_objects(texts)] = None
    column = _of_texts(texts)
    column.values[column.values == "nan"] = None
    present = column.values[~column.gaps]
    if not all(NUMBER.fullmatch(text) for text in present):
        return column
    numbers = np.full(len(texts), np.nan)
    numbers[~column.gaps] = present.astype(np.float64)
    found = _finite(owner, name, numbers)
    whole = all(text.strip().lstrip("+-").isdigit() for text in present)
    return found.with_digits(texts.tolist) if whole else found


def _of_dates(dates: list[Any]) -> ColumnValues | None:
    aware = {getattr(value, "tzinfo", None) is not None for value in dates if value is not None}
    if len(aware) > 1:
        return None
    if True not in aware:
        return ColumnValues("date", np.array(dates, dtype="datetime64[us]"))
    # Taken off by numpy, whose years do not end: the last hour of 9999 may be in 10000 in UTC.
    offsets = np.array([value and value.utcoffset() for value in dates], dtype="timedelta64[us]")
    local = [value and value.replace(tzinfo=None) for value in dates]
    return ColumnValues("date", np.array(local, dtype="datetime64[us]") - offsets, utc=True)


def _finite(owner: str, name: str, values: np.ndarray) -> ColumnValues:
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        got = f"{values[row]} in column {name!r}, row {row}"
        cure = "Correct it, or make it a gap (NaN)."
        raise ValueError(complaint(owner, "X", "hold finite numbers", got, cure))
    return ColumnValues("number", values)


def array_of(X: Any) -> np.ndarray | None:
    """An array, or a list of rows as one; None for what scikit-learn has to look at."""
    if not isinstance(X, list | tuple):
        return X if isinstance(X, np.ndarray) else None
    try:
        return np.array(X)
    except ValueError:  # rows of different lengths
        return None


def _is_typed(cells: np.ndarray) -> bool:
    """Whether an array holds text, dates or gaps of pandas.

    All else scikit-learn makes numbers of, or refuses.
    """
    if cells.dtype != object:
        return cells.dtype.kind in "USTM"
    kinds = {type(cell) for cell in cells.flat}
    return any(_kind_of(kind) in ("text", "date") or kind.__name__ in GAPS for kind in kinds)


def _kind_of(kind: type) -> str | None:
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    if issubclass(kind, Real | Decimal):
        return "number"
    if issubclass(kind, str):
        return "text"
    return "date" if issubclass(kind, date | np.datetime64) else None


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # 10**400
        return np.inf


def _text(value: Any) -> str:
    """A level as text. Whole numbers may come as floats, so 1.0 is "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
