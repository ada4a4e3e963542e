"""The kind of each column: the rules, and a table that shows what they made of the columns."""

import re
from typing import Any

import numpy as np

from evalign.core.checks import require
from evalign.core.text import counted
from evalign.tables.values import NUMBER, ColumnValues, read_table

# The last is an index that pandas wrote into a file.
NAMED_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|index|row)s?$|^Unnamed: \d+$", re.IGNORECASE)
# Why a column is left out, in words.
LEFT_OUT = {
    "empty": "empty",
    "constant": "constant",
    "id": "looks like an id",
    "text": "text that hardly repeats",
}


def as_kind(name: str, column: ColumnValues) -> tuple[str, ColumnValues | None]:
    """Find the kind of a column.

    Returns:
        "number", "boolean", "category" or "date" with the values as that kind; or why nothing can
        be learnt from the column, one of `LEFT_OUT`, with None.
    """
    gaps = column.gaps
    present = column.values[~gaps]
    if not len(present):
        return "empty", None
    if not gaps.any() and (present == present[0]).all():
        return "constant", None
    if column.kind == "number" and not gaps.any() and _is_id(name, present):
        return "id", None
    if column.kind != "text":
        return column.kind, column
    if (numbers := column.converted("number")) is not None:
        return as_kind(name, numbers)
    if (dates := column.converted("date")) is not None:
        return "date", dates
    if 2 * len(set(present)) <= len(present):
        return "category", column.converted("category")
    _refuse_odd_cells(name, column.values)
    return "text", None


def overview(X: Any) -> list[dict[str, Any]]:
    """What each column of a frame is read as.

    Args:
        X: a frame of pandas, polars or Arrow, or an array of text.

    Returns:
        For each column its "name", "kind", "gaps" and "values" (the numbers of missing cells and of
        distinct values) and "examples" (three of them). `pandas.DataFrame(overview(X))` shows it as
        a table.

    Examples:
        >>> import numpy as np
        >>> X = np.array([["red", "1.5"], ["blue", "?"]] * 10, dtype=object)
        >>> [(row["name"], row["kind"], row["examples"]) for row in overview(X)]
        [('x0', 'category', ['red', 'blue']), ('x1', 'category', ['1.5', '?'])]
    """
    table = read_table("overview", X)
    require(table is not None, "overview", "X", "be a frame, or an array of text", type(X).__name__)
    assert table is not None
    names = table.names or [f"x{i}" for i in range(len(table.columns))]
    rows = []
    for name, column in zip(names, table.columns, strict=True):
        kind, typed = as_kind(name, column)
        shown = column if typed is None else typed
        distinct = dict.fromkeys(shown.values[~shown.gaps].tolist())
        examples = [_shown(shown, value) for value in list(distinct)[:3]]
        kind = f"left out: {LEFT_OUT[kind]}" if kind in LEFT_OUT else kind
        found = {"gaps": int(shown.gaps.sum()), "values": len(distinct), "examples": examples}
        rows.append({"name": name, "kind": kind, **found})
    return rows


def _refuse_odd_cells(name: str, texts: np.ndarray) -> None:
    """Refuse a column of which most cells are numbers."""
    present = [text for text in texts if text is not None]
    odd = {text for text in present if not NUMBER.fullmatch(text) or np.isinf(float(text))}
    rows = np.flatnonzero([text in odd for text in texts])
    if 2 * len(rows) < len(present):
        cell, others = str(texts[rows[0]]), len(rows) - 1
        more = f" and in {counted(others, 'other')}" if others else ""
        raise ValueError(
            f"Column {name!r} must hold numbers alone, as most of its cells do and its values "
            f"hardly repeat. Got {cell[:40]!r} in row {rows[0] + 1} (the first is 1){more}. Name "
            f"what stands for a gap (--missing {cell[:40]!r}; in pandas na_values), correct the "
            f"cells, or drop the column (--drop {name!r})."
        )


def _is_id(name: str, values: np.ndarray) -> bool:
    """Whether the values are distinct whole numbers that count rows, are sorted or named id."""
    span = values.max() - values.min()
    if span < len(values) - 1 or (values != np.floor(values)).any():
        return False
    if (np.diff(np.sort(values)) == 0).any():
        return False
    steps = np.diff(values)
    counts = span == len(values) - 1
    return bool(counts or (steps > 0).all() or (steps < 0).all() or NAMED_ID.search(name))


def _shown(column: ColumnValues, value: Any) -> str:
    match column.kind:
        case "boolean":
            return str(bool(value))
        case "number":
            return f"{value:.10g}"
    return str(value)[:40]
