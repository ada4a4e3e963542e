"""How a CSV is written: its encoding, separator and decimal mark, as far as the file itself tells.

What can be read in one way alone is read so. What can be read in two ways is refused.
"""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from evalign.cli.errors import UsageError

BLOCK = 2**22  # bytes at a time
GZIP = b"\x1f\x8b"  # with which a packed file begins, whatever its name
NO_ROWS = "{} holds no rows. Give a table with one row or more."
SAMPLE = 2**18  # characters from which separator and decimal mark are told
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins as UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What the bytes of a text that is not in UTF-8 become, and those that Windows-1252 does not have.
OTHER_BYTES, WIDE = re.compile("[\udc80-\udcff]"), re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")
NOT_WINDOWS = re.compile("[\udc81\udc8d\udc8f\udc90\udc9d]")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
PERCENT = "([ \u00a0\u202f]?%)?"  # at the end of a number; blanks that do not break are usual
DECIMAL_COMMA = rf"[+-]?(\d+|[1-9]\d{{0,2}}(\.\d{{3}})+),\d+([eE][+-]?\d+)?{PERCENT}"
DECIMAL_POINT = rf"[+-]?\d*\.\d+([eE][+-]?\d+)?{PERCENT}"
# Of these the mark may be one of thousands, too.
COMMA_OR_THOUSANDS = rf"[+-]?[1-9]\d{{0,2}},\d{{3}}{PERCENT}"
POINT_OR_THOUSANDS = rf"[+-]?[1-9]\d{{0,2}}\.\d{{3}}{PERCENT}"


class Dialect(NamedTuple):
    """How a CSV is written.

    Args:
        encoding: as Python calls it.
        separator: between cells.
        decimal: the mark in numbers.
    """

    encoding: str
    separator: str
    decimal: str

    def assumed(self, path: Path) -> str:
        """What is not as the name of the file says it, in words."""
        usual = separator_of(path)
        parts = [
            f"in {self.encoding.upper()}" if self.encoding in ("utf-16", "utf-32") else "",
            "in Windows-1252, as it is not in UTF-8" if self.encoding == "cp1252" else "",
            f"separated by {SEPARATORS[self.separator]}" if self.separator != usual else "",
            "with decimal commas" if self.decimal == "," else "",
        ]
        return ", ".join(part for part in parts if part)


def separator_of(path: Path) -> str:
    """The separator that the name of a file stands for."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def find_dialect(path: Path, decimal: str = ".") -> Dialect:
    """Look at all bytes for the encoding, and at the first rows for the rest.

    Numbers that do not tell their mark have this `decimal` one, unless commas separate them.
    """
    encoding = _encoding(path)
    with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
        # Behind a byte order mark, quotes around the first name would be taken for its letters.
        sample = text.read(SAMPLE).removeprefix("\ufeff")
        whole = not text.read(1)
    if not sample.strip():
        raise UsageError(f"{path} is empty. Give a table with a line of names above its rows.")
    tables = {mark: _rows(sample, mark, whole) for mark in SEPARATORS}
    agreeing = {mark: _agreeing(rows) for mark, rows in tables.items()}
    most = max(agreeing.values())
    found = [mark for mark, number in agreeing.items() if number == most > 0]
    if len(found) > 1:
        ways = " or ".join(SEPARATORS[mark] for mark in found)
        cure = "Write it with one of them alone, or as .parquet."
        raise UsageError(f"{path} may be separated by {ways}: both give even rows. {cure}")
    separator = found[0] if found else separator_of(path)
    if whole and len(tables[separator]) == 1:  # Arrow does not take it without a line break
        if sample.count('"') % 2:
            cure = "Close it, or take it out."
            raise UsageError(f"{path} cannot be read: a quote in its first line is open. {cure}")
        raise UsageError(NO_ROWS.format(path))
    cells = [cell.strip() for row in tables[separator][1:] for cell in row]
    return Dialect(encoding, separator, _decimal(cells, "." if separator == "," else decimal))


def _encoding(path: Path) -> str:
    """UTF-8, what a byte order mark says, or Windows-1252, in which most other tables are."""
    with opened(path) as file:
        start = file.read(4)
    for mark, name in MARKS.items():
        if start.startswith(mark):
            return name
    other, wide, save = False, False, "Save it in UTF-8."
    named = "Save it as CSV in UTF-8, or name it for what it is, .xlsx or .parquet."
    for text in _decoded(path):
        if "\0" in text:
            raise UsageError(f"{path} cannot be read: it holds bytes that are not text. {named}")
        if text.isascii():
            continue
        other, wide = other or bool(OTHER_BYTES.search(text)), wide or bool(WIDE.search(text))
        if (other and wide) or NOT_WINDOWS.search(text):
            known = "all of it in UTF-8, nor in Windows-1252"
            raise UsageError(f"{path} cannot be read: it is neither {known}. {save}")
    return "cp1252" if other else "utf-8"


def _decoded(path: Path) -> Iterator[str]:
    """The text in blocks. Bytes that are not of UTF-8 become surrogates."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    with opened(path) as file:
        for block in iter(partial(file.read, BLOCK), b""):
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def is_packed(path: Path) -> bool:
    """Whether a file is one of gzip. Downloads may lack the suffix ".gz", or have nothing else."""
    with open(path, "rb") as file:
        return file.read(len(GZIP)) == GZIP


def opened(path: Path) -> IO[bytes]:
    """Open a file for its bytes, unpacked where it is packed."""
    return cast(IO[bytes], gzip.open(path) if is_packed(path) else open(path, "rb"))


def _rows(sample: str, separator: str, whole: bool) -> list[list[str]]:
    """The rows of a sample; its last one is cut off, unless it is the whole file."""
    try:
        rows = list(csv.reader(io.StringIO(sample, newline=""), delimiter=separator))
    except csv.Error:  # a cell without an end
        return []
    rows = [row for row in rows if row]
    return rows if whole else rows[:-1]


def _agreeing(rows: list[list[str]]) -> int:
    """How many rows have as many cells as the header; none if it has one."""
    return sum(len(row) == len(rows[0]) > 1 for row in rows)


def _decimal(cells: list[str], usual: str) -> str:
    """A comma where numbers have one and none has a point, but for marks of thousands.

    Without either it is the `usual` one.
    """

    def some(number: str, doubtful: str) -> bool:
        clear = re.compile(f"(?!{doubtful}$){number}")
        return any(clear.fullmatch(cell) for cell in cells)

    if some(DECIMAL_POINT, POINT_OR_THOUSANDS):
        return "."
    return "," if some(DECIMAL_COMMA, COMMA_OR_THOUSANDS) else usual
