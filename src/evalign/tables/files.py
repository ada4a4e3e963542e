"""Tables on disk, read whole or in blocks by pandas, which this module needs."""

import gzip
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from csv import QUOTE_ALL
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from pandas.errors import ParserWarning

from evalign.core.errors import InputError
from evalign.core.text import listed, nearest
from evalign.tables.values import NUMBER

EXCEL = ".xlsx"
BLOCK_CELLS = 2**19  # cells read at a time
UNREADABLE = (OSError, EOFError, ValueError, LookupError, pa.ArrowException, zlib.error)
UNREADABLE += (ParserWarning, zipfile.BadZipFile, ImportError)  # the last one without openpyxl


@dataclass(frozen=True)
class Reading:
    """How to read a file.

    Args:
        sep: separator of a CSV; by default a comma, or a tab in a .tsv.
        encoding: encoding of a CSV.
        decimal: decimal mark of a CSV.
        missing: cells of any file that are gaps, besides the marks that pandas knows.
        dates: strptime format; columns of text in any file whose cells all match become dates.
    """

    sep: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    missing: tuple[str, ...] = ()
    dates: str | None = None


class TableFile:
    """A table on disk, of which only the header has been read.

    Args:
        path: a .csv, .tsv (either may be .gz), .parquet or .xlsx file.
        reading: how to read it.

    Attributes:
        names: names of its columns.
    """

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        self.path, self.reading = path, reading or Reading()
        with self._reading():
            if is_parquet(path):
                about = parquet.read_metadata(path)
                header, rows = about.schema.to_arrow_schema().names, about.num_rows
            else:  # the header as a row of cells, because pandas renames columns that share a name
                top = self._pandas(nrows=2, header=None, dtype=str, na_filter=False)
                header, rows = [cell for row in top[:1].to_numpy() for cell in row], len(top) - 1
        if rows < 1:
            raise InputError(f"{self} holds no rows. Give a table with one row or more.")
        if twice := [name for name, count in Counter(header).items() if name and count > 1]:
            got = f"Got {listed(twice)} twice. Rename or remove the others."
            raise InputError(f"{self} must name each column once. {got}")
        self.names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]  # as pandas

    def __str__(self) -> str:
        return str(self.path)

    def read(self, text: Collection[str] = ()) -> pd.DataFrame:
        """Read all rows. Columns named in `text` stay text."""
        with self._reading():
            if is_parquet(self.path):
                frame = self._without_missing(pd.read_parquet(self.path))
            else:
                frame = self._pandas(dtype=dict.fromkeys(text, str))
        return self._dated(frame, [name for name in frame.columns if name not in text])

    def blocks(
        self, text: Collection[str] = (), dates: Collection[str] = ()
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Read all rows in blocks, each typed and as the file holds it (a CSV holds text).

        A block must not decide the kinds of its columns, so those of text and dates are named.
        """
        with self._reading():
            for frame, raw in self._pairs(dict.fromkeys([*text, *dates], str)):
                if len(frame):
                    yield self._dated(frame, dates), raw

    def _pairs(self, text: dict[str, type]) -> Iterator[tuple[Any, Any]]:
        size = max(512, BLOCK_CELLS // max(1, len(self.names)))
        if is_parquet(self.path):
            with parquet.ParquetFile(self.path, pre_buffer=False) as file:
                for batch in file.iter_batches(size):
                    table = pa.Table.from_batches([batch]).replace_schema_metadata()
                    # Arrow's types keep whole numbers with gaps as they are.
                    raw = table.to_pandas(types_mapper=pd.ArrowDtype)
                    yield self._without_missing(table.to_pandas()), raw
        elif self.path.suffix.lower() == EXCEL:
            yield (frame := self._pandas(dtype=text)), frame
        else:
            typed = self._pandas(dtype=text, chunksize=size)
            with typed, self._pandas(dtype=str, na_filter=False, chunksize=size) as raw:
                yield from zip(typed, raw, strict=True)

    def need(self, names: Iterable[str]) -> None:
        """Refuse a table that lacks a column."""
        missing = [name for name in names if name not in self.names]
        if missing:
            cure = nearest(missing[0], self.names) or f"It has {listed(self.names)}."
            if len(self.names) == 1:
                cure += " If another mark separates its columns, pass --sep."
            raise InputError(f"{self} has no column {listed(missing)}. {cure}")

    def _pandas(self, **options: Any) -> Any:
        """Read a CSV or a workbook. A row with more cells than the header is an error."""
        given: dict[str, Any] = {"na_values": list(self.reading.missing)} | options
        if self.path.suffix.lower() == EXCEL:
            return pd.read_excel(self.path, **given)
        given |= {"encoding": self.reading.encoding, "decimal": self.reading.decimal}
        given |= {"index_col": False, "low_memory": False}  # or parts of a column have own types
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            return pd.read_csv(self.path, sep=self.reading.sep or separator_of(self.path), **given)

    def _without_missing(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame of a Parquet file with gaps in place of `missing`, as pandas reads a CSV."""
        marks = self.reading.missing
        numbers = [float(text) for text in marks if NUMBER.fullmatch(text)]
        return frame.mask(frame.isin([*marks, *numbers])) if marks else frame

    def _dated(self, frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
        """The frame, with dates in the columns of text whose cells all have the format."""
        for name in names if self.reading.dates is not None else ():
            column: Any = frame[name]
            if pd.api.types.is_string_dtype(column):
                found: Any = pd.to_datetime(column, format=self.reading.dates, errors="coerce")
                if (found.notna() == column.notna()).all():
                    frame[name] = found
        return frame

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise one error for whatever keeps a file from being read."""
        try:
            yield
        except UNREADABLE as error:
            why = getattr(error, "strerror", None) or " ".join(str(error).split())
            why = why.removeprefix("Error tokenizing data. C error: ").rstrip(".")
            allowed = "be a table of the type its name says, with no row longer than the header"
            cure = "For a CSV, see --sep, --encoding (such as utf-16 or cp1252) and --decimal."
            raise InputError(f"{self} must {allowed}. Got: {why}. {cure}") from error


@contextmanager
def writing(path: Path, name: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends a block of rows to `path`, in the format of the `name`."""
    open_text: Any = gzip.open if name.suffix.lower() == ".gz" else open
    how: Any = {"sep": separator_of(name), "index": False, "lineterminator": "\n"}
    with ExitStack() as opened:
        file: Any = None

        def write(block: pd.DataFrame) -> None:
            nonlocal file
            first = file is None
            if is_parquet(name):
                table = pa.Table.from_pandas(block, preserve_index=False).replace_schema_metadata()
                file = file or opened.enter_context(parquet.ParquetWriter(path, table.schema))
                file.write_table(table.cast(file.schema))
                return
            file = file or opened.enter_context(open_text(path, "wt", encoding="utf-8", newline=""))
            text = block.to_csv(header=first, **how)
            if "\r" in text:  # ends a row, but is not quoted until Python 3.13
                text = block.to_csv(header=first, quoting=QUOTE_ALL, **how)
            file.write(text)

        yield write


def numbers_in(
    column: Any, source: object, allowed: str, low: float, high: float, row: int = 1
) -> np.ndarray:
    """The numbers of a column, each within low and high. `row` is the number of the first row."""
    numbers = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= low) & (numbers <= high))
    if wrong.any():
        first = int(wrong.argmax())
        got = f"Got {str(column.iloc[first])!r} in row {row + first}."
        raise InputError(f"Column {column.name!r} of {source} must hold {allowed}. {got}")
    return numbers


def check_size(path: Path, most: int) -> None:
    """Refuse a Parquet file that takes more memory, by its metadata.

    A column of equal values takes no room in the file, so every cell counts as eight bytes, too.
    """
    about = parquet.read_metadata(path)
    stored = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    if (size := stored + 8 * about.num_rows * about.num_columns) > most:
        raise InputError(f"{path} holds {size:,} bytes, more than {most:,}.")


def separator_of(path: Path) -> str:
    """The separator of a CSV, by its name."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"
