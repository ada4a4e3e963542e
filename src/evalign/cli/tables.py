"""Tables on disk, CSV, Parquet and Excel: read whole or in blocks, written whole or not at all.

CSV is read as text: types that are guessed would differ between blocks, and between files. Its
numbers are given with decimal points, however the file has them.
"""

import gzip
import io
import os
import re
import tempfile
import warnings
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from csv import QUOTE_ALL
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as csv
import pyarrow.parquet as parquet
from pyarrow import types

from evalign.cli.dialects import (
    DECIMAL_COMMA,
    NO_ROWS,
    POINT_OR_THOUSANDS,
    Dialect,
    find_dialect,
    is_packed,
    opened,
    separator_of,
)
from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.cli.files import is_excel, is_parquet, replacing
from evalign.cli.quotes import DoubtfulCell, doubtful_cells, first_of_rows
from evalign.cli.sheets import read_sheet

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

BLOCK_BYTES = 2**22  # of CSV at a time; Arrow reads up to 32 blocks ahead
BLOCK_CELLS = 2**19  # of Parquet
ABOVE = "If lines stand above the names of the columns, remove them."
UNEVEN = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")  # of Arrow: 1 is the header


class TableFile:
    """A table on disk, of which only the header has been read, or of Excel all of it.

    It is said how a CSV is read, where that is not what its name stands for.

    Args:
        path: a file that `check_table` lets pass.
        decimal: the mark in numbers of a CSV that do not tell it, as that of the training table.

    Attributes:
        decimal: the mark that they have.
    """

    def __init__(self, path: Path, decimal: str = ".") -> None:
        self.path, self.decimal = path, "."
        with self._reading():
            if is_parquet(path):
                self.schema = parquet.read_schema(path).remove_metadata()
            elif is_excel(path):
                self._sheet = read_sheet(path)
                self.schema = self._sheet.schema
            else:
                self._dialect = find_dialect(path, decimal)
                self.decimal = self._dialect.decimal
                if assumed := self._dialect.assumed(path):
                    text = f"{path} is read as a table {assumed}."
                    warnings.warn(text, DataWarning, stacklevel=2)
                self._text = self._in_utf8()
                with csv.open_csv(self._stream(), *_options(self._dialect)) as reader:
                    names = reader.schema.names
                self.schema = pa.schema([(name, pa.string()) for name in names])
        twice = [name for name, count in Counter(self.schema.names).items() if count > 1]
        if twice:
            cure = "Rename them." if "" not in twice else f"Name them. {ABOVE}"
            raise UsageError(f"{path} has several columns named {listed(twice)}. {cure}")

    def __str__(self) -> str:
        return str(self.path)

    def blocks(self) -> Iterator[pa.Table]:
        """All rows, in blocks, so that memory stays bounded."""
        with self._reading():
            if is_parquet(self.path):
                rows = max(512, BLOCK_CELLS // max(1, len(self.schema)))
                file = parquet.ParquetFile(self.path, pre_buffer=False)  # else it reads all at once
                for batch in file.iter_batches(rows):
                    yield pa.Table.from_batches([batch.replace_schema_metadata()])
            elif is_excel(self.path):
                yield self._sheet
            else:
                as_text = dict(zip(self.schema.names, self.schema.types, strict=True))
                convert = csv.ConvertOptions(column_types=as_text)
                count, last, doubtful = 0, "", []
                for batch in csv.open_csv(self._stream(), *_options(self._dialect), convert):
                    block = pa.Table.from_batches([batch])
                    doubtful += doubtful_cells(block, self._dialect.separator, 1 + count)
                    yield block if self.decimal == "." else self._pointed(block, 1 + count)
                    count += batch.num_rows
                    last = batch.column(-1)[-1].as_py() if batch.num_rows else last
                self._check_end(last, count)
                self._check_doubtful(doubtful)

    def read(self) -> pa.Table:
        """The whole table. A table without rows is refused."""
        table = pa.concat_tables([self.schema.empty_table(), *self.blocks()])
        self.check_rows(table.num_rows)
        return table

    def check_rows(self, count: int) -> None:
        """Refuse a table of which so many rows were read, if there was none."""
        if not count:
            raise UsageError(NO_ROWS.format(self))

    def check_size(self, most: int) -> None:
        """Refuse a Parquet file that is larger in memory, by what it says of its row groups.

        A column of equal values takes no room in the file, so every cell counts eight bytes too.
        """
        with self._reading():
            about = parquet.read_metadata(self.path)
            groups = [about.row_group(i) for i in range(about.num_row_groups)]
            cells = sum(group.num_rows for group in groups) * about.num_columns
            size = 8 * cells + sum(group.total_byte_size for group in groups)
        if size > most:
            raise UsageError(f"{self} holds {size:,} bytes, more than {most:,}.")

    def need(self, names: list[str]) -> None:
        """Refuse a table that lacks a column, or has one that holds lists or the like."""
        missing = [name for name in names if name not in self.schema.names]
        if missing:
            found = listed(self.schema.names)
            raise UsageError(f"{self} has no column {listed(missing)}. It has {found}.")
        for name in names:
            kind = self.schema.field(name).type
            if not is_usable(kind):
                what = f"Column {name!r} of {self}"
                raise UsageError(f"{what} must hold numbers, text or dates. Got {kind}.")

    def _check_end(self, last: str, row: int) -> None:
        """Refuse a file that ends within quotes, which Arrow takes for the end of the `last` cell.

        Such a cell holds all rows behind its quote, and the file ends as the cell does.
        """
        if not re.search("[\r\n]", last) or not last.strip("\r\n"):
            return
        cell, end = last.replace('"', '""').encode(), b""
        with self._stream() as stream:
            while block := stream.read(BLOCK_BYTES):
                end = (end + block)[-len(cell) :]
        if end == cell:
            raise self._open_quote(last, row, "all rows after it")

    def _check_doubtful(self, cells: list[DoubtfulCell]) -> None:
        """Refuse a file in which one of the cells is rows that quotes took in."""
        if not cells:
            return
        with opened(self._text) as file, io.TextIOWrapper(file, "utf-8") as lines:
            found = first_of_rows(cells, lines, self._dialect.separator)
        if found is not None:
            raise self._open_quote(found.text, found.row, "the rows up to the next quote")

    def _open_quote(self, text: str, row: int, lost: str) -> UsageError:
        got = f"Got one before {text[:20]!r} in row {row} that takes in {lost}"
        cure = "Remove it; if it belongs to the cell, write it twice, and quotes around the cell."
        return UsageError(f"{self} must close every quote. {got}. {cure}")

    def _pointed(self, block: pa.Table, first_row: int) -> pa.Table:
        """Rows with decimal points in the place of commas."""
        columns = {}
        for name in block.column_names:
            column = block[name]
            doubtful = pc.match_substring_regex(column, rf"^\s*{POINT_OR_THOUSANDS}\s*$")
            row = pc.index(doubtful, True).as_py()
            if row >= 0:
                number = column[row].as_py().strip()
                place = "other cells, or in the training table"
                got = f"Got {number!r} in row {first_row + row}, and decimal commas in {place}"
                cure = "Write it with a decimal comma, or without a mark of thousands."
                what = f"Column {name!r} of {self} must hold numbers that can be told"
                raise UsageError(f"{what}. {got}. {cure}")
            number = pc.match_substring_regex(column, rf"^\s*{DECIMAL_COMMA}\s*$")
            pointed = pc.replace_substring(pc.replace_substring(column, ".", ""), ",", ".")
            columns[name] = pc.if_else(number, pointed, column)
        return pa.table(columns, schema=block.schema)

    def _in_utf8(self) -> Path:
        """The file, or a copy in UTF-8 that goes with this object.

        Arrow would ask Python to decode it, in a thread of its own, and abort the process if the
        command has ended by then.
        """
        if self._dialect.encoding == "utf-8":
            return self.path
        with self._aside():
            number, name = tempfile.mkstemp(suffix=".csv")
        weakref.finalize(self, os.unlink, name)
        with (
            open(number, "wb", buffering=0) as copy,
            opened(self.path) as file,
            io.TextIOWrapper(file, self._dialect.encoding, newline="") as text,
        ):
            while left := text.read(BLOCK_BYTES).encode():
                with self._aside():
                    while left:  # the rest would be written when the file is closed
                        left = left[copy.write(left) :]
        return Path(name)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Within it, an error is one of the folder for copies and not of the file."""
        try:
            yield
        except OSError as error:
            what = f"{self} needs a copy in UTF-8, which cannot be written: {error.strerror}"
            cure = (
                "Make room for temporary files, name another folder in TMPDIR, or save it in UTF-8."
            )
            raise UsageError(f"{what}. {cure}") from error

    def _stream(self) -> pa.NativeFile:
        """The bytes of the text, unpacked."""
        return pa.input_stream(str(self._text), "gzip" if is_packed(self._text) else None)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeDecodeError, pa.ArrowException, OSError, EOFError, zlib.error) as error:
            number = getattr(error, "errno", None)
            text = os.strerror(number) if number else str(error).splitlines()[0]
            if found := UNEVEN.search(text):
                row, wanted, cells = map(int, found.groups())
                what = f"Row {row - 1} of {self} must have as many cells as the header, {wanted}"
                cure = "Correct it. A cell that holds a separator needs quotes around it."
                if row == 2 and cells > wanted:
                    cure += f" {ABOVE}"
                raise UsageError(f"{what}. Got {cells}. {cure}") from error
            raise UsageError(f"{self} cannot be read: {text.rstrip('.')}.") from error


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], object]]:
    """Give a function to call with each block. The file appears at the end, or not at all."""
    with replacing(path) as aside:
        if is_parquet(path):
            with parquet.ParquetWriter(aside, schema) as writer:
                yield writer.write_table
            return
        separator = separator_of(path)
        open_text = gzip.open if path.suffix.lower() == ".gz" else open
        with open_text(aside, "wt", encoding="utf-8", newline="") as file:

            def write(block: pa.Table, header: bool = False) -> None:
                # Arrow's own writer would quote all text. With its types in pandas, an integer
                # column with gaps stays integer.
                frame = block.to_pandas(types_mapper=pd.ArrowDtype)
                to_csv = partial(
                    frame.to_csv, sep=separator, header=header, index=False, lineterminator="\n"
                )
                text = to_csv()
                if "\r" in text:  # of a cell; it has no quotes until Python 3.13, and ends a row
                    text = to_csv(quoting=QUOTE_ALL)
                file.write(text)

            write(schema.empty_table(), header=True)
            yield write


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers."""
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_date(kind: pa.DataType) -> bool:
    """Whether a column of this type holds days or points in time."""
    return types.is_date(kind) or types.is_timestamp(kind)


def is_usable(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers, truth values, text or dates, or is empty."""
    inner = kind.value_type if types.is_dictionary(kind) else kind
    text = types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)
    known = types.is_boolean(kind) or types.is_null(kind) or is_date(kind)
    return text or known or is_number(inner)


def _options(dialect: Dialect) -> tuple[csv.ReadOptions, csv.ParseOptions]:
    # Threads, which would save no time here, do not know in which row an error is.
    read = csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
    return read, csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True)
