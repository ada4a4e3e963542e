"""Tables on disk, read whole or in blocks by pandas, which this module needs."""

import gzip
import warnings
import zipfile
import zlib
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

from evalign.core.text import installing, listed, nearest
from evalign.tables.values import NUMBER

BLOCK_CELLS = 2**19  # at a time
UNREADABLE = (OSError, EOFError, ValueError, LookupError, pa.ArrowException, zlib.error)
UNREADABLE += (ParserWarning, zipfile.BadZipFile)


class TableError(ValueError):
    """A file that is not a table, or lacks a column."""


@dataclass(frozen=True)
class Reading:
    """How to read a file, beyond what its name says.

    Args:
        sep: separator of a CSV; by default a comma, or a tab in a .tsv.
        encoding: of a CSV.
        decimal: mark in the numbers of a CSV.
        missing: cells of any file that are gaps, besides those that pandas knows.
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
        names: of its columns.
    """

    def __init__(self, path: Path, reading: Reading | None = None) -> None:
        self.path, self.reading = path, reading or Reading()
        with self._reading():
            if is_parquet(path):
                self.names: list[str] = list(parquet.read_schema(path).names)
            else:
                self.names = [str(name) for name in self._pandas(nrows=0).columns]

    def __str__(self) -> str:
        return str(self.path)

    def read(self, text: Collection[str] = ()) -> pd.DataFrame:
        """All rows. Columns named in `text` are not made numbers or dates."""
        with self._reading():
            if is_parquet(self.path):
                frame = self._without_missing(pd.read_parquet(self.path))
            else:
                frame = self._pandas(dtype=dict.fromkeys(text, str))
        self.check_rows(len(frame))
        return self._dated(frame, [name for name in frame.columns if name not in text])

    def blocks(
        self, text: Collection[str] = (), dates: Collection[str] = ()
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """All rows in blocks, each typed, and as the file holds it: of a CSV as text.

        A block must not decide what its columns are, so those that are text or dates are named.
        """
        count = 0
        with self._reading():
            for frame, raw in self._pairs(dict.fromkeys([*text, *dates], str)):
                if len(frame):
                    yield self._dated(frame, dates), raw
                    count += len(frame)
        self.check_rows(count)

    def _pairs(self, text: dict[str, type]) -> Iterator[tuple[Any, Any]]:
        size = max(512, BLOCK_CELLS // max(1, len(self.names)))
        if is_parquet(self.path):
            with parquet.ParquetFile(self.path, pre_buffer=False) as file:
                for batch in file.iter_batches(size):
                    table = pa.Table.from_batches([batch]).replace_schema_metadata()
                    # Arrow's types keep whole numbers with gaps what they are.
                    raw = table.to_pandas(types_mapper=pd.ArrowDtype)
                    yield self._without_missing(table.to_pandas()), raw
        elif is_excel(self.path):
            yield (frame := self._pandas(dtype=text)), frame
        else:
            plain: dict[str, Any] = {"dtype": str, "na_filter": False, "na_values": None}
            typed = self._pandas(dtype=text, chunksize=size)
            with typed, self._pandas(**plain, chunksize=size) as raw:
                yield from zip(typed, raw, strict=True)

    def check_rows(self, count: int) -> None:
        """Refuse a table without rows."""
        if not count:
            raise TableError(f"{self} holds no rows. Give a table with one row or more.")

    def need(self, names: Iterable[str], option: str = "") -> None:
        """Refuse a table that lacks a column, perhaps one that an option names."""
        missing = [name for name in names if name not in self.names]
        if missing:
            what = f"{option}: {self}" if option else str(self)
            cure = nearest(missing[0], self.names) or f"It has {listed(self.names)}."
            if len(self.names) == 1:
                cure += " If its columns are separated by another mark, pass --sep."
            raise TableError(f"{what} has no column {listed(missing)}. {cure}")

    def _pandas(self, **options: Any) -> Any:
        """Read a CSV or a workbook. A row with more cells than the header is an error."""
        given: dict[str, Any] = {"na_values": list(self.reading.missing), "index_col": False}
        given |= options
        if is_excel(self.path):
            given["index_col"] = None
            return pd.read_excel(self.path, **given)
        sep = self.reading.sep or separator_of(self.path)
        given |= {"encoding": self.reading.encoding, "decimal": self.reading.decimal}
        with warnings.catch_warnings():
            warnings.simplefilter("error", ParserWarning)
            return pd.read_csv(self.path, sep=sep, low_memory=False, **given)

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
        try:
            yield
        except TableError:
            raise
        except ImportError as error:
            cure = f"{installing('.[excel]')}; or save it as .csv."
            raise TableError(f"{self} cannot be read: {error}. {cure}") from error
        except UnicodeDecodeError as error:
            why = f"it is not {error.encoding}. Name its encoding, such as --encoding cp1252."
            raise TableError(f"{self} cannot be read: {why}") from error
        except UNREADABLE as error:
            text = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise TableError(f"{self} cannot be read: {text.rstrip('.')}.") from error


@contextmanager
def writing(path: Path, name: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Give a function that appends a block of rows to `path`, in the format of the `name`."""
    open_text: Any = gzip.open if name.suffix.lower() == ".gz" else open
    how: Any = {"sep": separator_of(name), "index": False, "lineterminator": "\n"}
    with ExitStack() as opened:
        file: Any = None

        def write(block: pd.DataFrame) -> None:
            nonlocal file
            first = file is None
            if is_parquet(name):
                table = pa.Table.from_pandas(block, preserve_index=False).replace_schema_metadata()
                if first:
                    file = opened.enter_context(parquet.ParquetWriter(path, table.schema))
                file.write_table(table.cast(file.schema))
                return
            if first:
                file = open_text(path, "wt", encoding="utf-8", newline="")
                opened.enter_context(file)
            text = block.to_csv(header=first, **how)
            if "\r" in text:  # has no quotes until Python 3.13, and ends a row
                text = block.to_csv(header=first, quoting=QUOTE_ALL, **how)
            file.write(text)

        yield write


def numbers_in(
    column: Any, source: object, allowed: str, low: float, high: float, row: int = 1
) -> np.ndarray:
    """The numbers of a column. Refuse a cell outside of low and high; `row` numbers the first."""
    numbers = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= low) & (numbers <= high))
    if wrong.any():
        first = int(wrong.argmax())
        got = f"Got {str(column.iloc[first])!r} in row {row + first}."
        raise TableError(f"Column {column.name!r} of {source} must hold {allowed}. {got}")
    return numbers


def check_size(path: Path, most: int) -> None:
    """Refuse a Parquet file that its metadata says is larger in memory.

    A column of equal values takes no room in the file, so every cell counts eight bytes too.
    """
    about = parquet.read_metadata(path)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    size = sum(8 * group.num_rows * about.num_columns + group.total_byte_size for group in groups)
    if size > most:
        raise TableError(f"{path} holds {size:,} bytes, more than {most:,}.")


def separator_of(path: Path) -> str:
    """The separator that the name of a file stands for."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def is_excel(path: Path) -> bool:
    return path.suffix.lower() == ".xlsx"
