"""Stray quotes of a CSV: two cells begin with one, and the rows between them become one cell."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them


class DoubtfulCell(NamedTuple):
    """A cell of several lines, with as many separators in each as if they were rows.

    Args:
        row: its number in the table.
        text: what it holds.
        before: its last line but one, as the file has it.
        end: its last line as the file has it if they are rows, up to where the cell ends. A quote
            begins a cell there, and was taken for the end of this one.
    """

    row: int
    text: str
    before: str
    end: str


def doubtful_cells(block: pa.Table, separator: str, first_row: int) -> list[DoubtfulCell]:
    """The cells of a block that may be rows between two stray quotes."""
    found, last = [], block.num_columns - 1
    for place, column in enumerate(block.columns if last else []):
        for row in np.flatnonzero(pc.match_substring(column, "\n").to_numpy()).tolist():
            text = column[row].as_py()
            lines = text.replace("\r\n", "\n").split("\n")
            # The row is even, so that both quotes are in the same column.
            rows = [last - place, *[last] * (len(lines) - 2), place]
            *others, cell = lines[-1].split(separator)
            # Without a cell behind the quote it may well be the end of a text.
            if cell and [line.count(separator) for line in lines] == rows:
                before, *others = (line.replace('"', '""') for line in (lines[-2], *others))
                end = separator.join([*others, f'"{cell}'])
                found.append(DoubtfulCell(first_row + row, text, before, end))
    return found


def first_of_rows(
    cells: Iterable[DoubtfulCell], lines: Iterable[str], separator: str
) -> DoubtfulCell | None:
    """The first of the cells that is rows, by the lines of the file; None if all are texts.

    The last quote of a text is at its end, and not at the beginning of a cell in its last line.
    """
    ends: dict[str, list[DoubtfulCell]] = {}
    for cell in cells:
        ends.setdefault(cell.end, []).append(cell)
    widths = {end.count(separator) + 1 for end in ends}
    before = ""
    for line in lines:
        now = line.rstrip("\r\n")
        starts = (separator.join(now.split(separator)[:width]) for width in widths)
        for start in starts if '"' in now else ():
            for cell in ends.get(start, ()):
                if before.endswith(cell.before):
                    return cell
        before = now
    return None
