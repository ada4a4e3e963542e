"""Workbooks of Excel as tables. Needs the extra `excel`."""

import warnings
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa

from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.core.text import installing


def read_sheet(path: Path) -> pa.Table:
    """The first sheet. Its first row holds the names of the columns; formulas have their values."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        cure = f"{installing('.[excel]')}; or save it as .csv."
        raise UsageError(f"{path} cannot be read without openpyxl. {cure}") from error
    try:
        with warnings.catch_warnings(record=True) as told:
            book = load_workbook(path, read_only=True, data_only=True)
            sheets = _sheets(book)
            rows, empty_texts = _rows(sheets[0]) if sheets else ([], set())
            book.close()
            if any(cell is None for row in rows for cell in row):
                book = load_workbook(path, read_only=True)
                _check_formulas(path, _sheets(book)[0], rows, empty_texts)
                book.close()
    except UsageError:  # a ValueError too
        raise
    except (BadZipFile, InvalidFileException, KeyError, ValueError, EOFError, SyntaxError) as error:
        # A broken XML file is a SyntaxError.
        named = "If it is a CSV, name it .csv."
        raise UsageError(
            f"{path} cannot be read: it is not a workbook of Excel. {named}"
        ) from error
    except (TypeError, AttributeError, IndexError) as error:  # as of styles that Excel forgives
        cure = "Open it in Excel and save it again, or as .csv."
        raise UsageError(f"{path} cannot be read by openpyxl: {error}. {cure}") from error
    # The others are about looks, which are not read.
    texts = dict.fromkeys(str(one.message) for one in told)
    cells = [text for text in texts if text.startswith("Cell ")]
    if cells:
        more = f" There are {len(cells)} such cells." if len(cells) > 1 else ""
        warnings.warn(f"{path} is read by openpyxl: {cells[0]}{more}", DataWarning, stacklevel=2)
    if len(sheets) > 1:
        others = listed([sheet.title for sheet in sheets[1:]], 3)
        text = f"{path} is read from its first sheet, {sheets[0].title!r}, and not from {others}."
        warnings.warn(text, DataWarning, stacklevel=2)
    return _table(path, [row for row in rows if any(cell is not None for cell in row)])


def _sheets(book: Any) -> list[Any]:
    """The sheets that are seen."""
    sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    for sheet in sheets[:1]:
        sheet.reset_dimensions()  # some programs write a size of one cell, or a stale one
    return sheets


def _rows(sheet: Any) -> tuple[list[list[Any]], set[str]]:
    """The values of a sheet, and the cells whose formula gives an empty text.

    Their value is None, as is that of an empty cell.
    """
    rows, empty_texts = [], set()
    for row in sheet.iter_rows():
        rows.append([cell.value for cell in row])
        empty_texts |= {
            cell.coordinate for cell in row if cell.value is None and cell.data_type == "str"
        }
    return rows, empty_texts


def _check_formulas(path: Path, sheet: Any, rows: list[list[Any]], empty_texts: set[str]) -> None:
    """Refuse formulas that Excel has not computed, which would be gaps."""
    for cells, values in zip(sheet.iter_rows(), rows, strict=False):
        for cell, value in zip(cells, values, strict=False):
            if cell.data_type == "f" and value is None and cell.coordinate not in empty_texts:
                what = f"{path} must hold the values of its formulas"
                cure = "Open it in Excel and save it again, or as .csv."
                raise UsageError(f"{what}. Got none in cell {cell.coordinate}. {cure}")


def _table(path: Path, rows: list[list[Any]]) -> pa.Table:
    """Typed columns of rows that are not empty, the first of which is the header."""
    header, *cells = rows or [[]]
    if header and header[0] is None and any(row[0] is not None for row in cells):
        header = ["", *header[1:]]  # the index of pandas, which has no name in a CSV either
    columns = [
        (name, list(values))
        for name, *values in zip_longest(header, *cells)  # a row ends with its last cell
        if name is not None or any(value is not None for value in values)
    ]
    unnamed = [name for name, _ in columns if not isinstance(name, str)]
    if unnamed or not columns:
        got = f"Got {unnamed[0]!r}" if unnamed else "It is empty"
        cure = "Give each a text, and remove lines above them." if unnamed else ""
        what = f"{path} must have the names of its columns in the first row"
        raise UsageError(f"{what}. {got}. {cure}".rstrip())
    return pa.Table.from_arrays(
        [_typed(values) for _, values in columns], names=[name for name, _ in columns]
    )


def _typed(values: list[Any]) -> pa.Array:
    """Numbers, truth values or dates where all cells hold them, else text.

    Arrow would take a number among dates for one since 1970, which is not what Excel counts from.
    """
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds == {int, float}:
        try:
            return pa.array(values)
        except OverflowError:  # a number of more digits than Arrow has room for
            pass
    return pa.array([None if value is None else str(value) for value in values])
