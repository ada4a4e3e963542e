"""The kind of each column: the rules, and an overview of the result."""

import re
from typing import Any

import numpy as np

from evalign.core.checks import complaint
from evalign.tables.values import ColumnValues, parsed_numbers, read_table

# The last is an index that pandas wrote to a file.
NAMED_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|index|row)s?$|^Unnamed: \d+$", re.IGNORECASE)
UNREPEATED = "text that hardly repeats"


def as_kind(name: str, column: ColumnValues) -> tuple[str, ColumnValues | None]:
    """Find the kind of a column.

    Returns:
        "number", "boolean", "category" or "date" with the values as that kind; or the reason to
        leave the column out, with None.
    """
    gaps = column.gaps
    present = column.values[~gaps]
    if not len(present):
        return "empty", None
    if not gaps.any() and (present == present[0]).all():
        return "constant", None
    if column.kind == "number" and not gaps.any() and _is_id(name, present):
        return "looks like an id", None
    if column.kind != "text":
        return column.kind, column
    if (numbers := column.converted("number")) is not None:
        return as_kind(name, numbers)
    if (dates := column.converted("date")) is not None:
        return "date", dates
    if 2 * column.distinct <= len(present):
        return "category", column.converted("category")
    _refuse_odd_cells(name, column)
    return UNREPEATED, None


def overview(X: Any) -> list[dict[str, Any]]:
    """How each column of a frame is read.

    Args:
        X: a frame of pandas, polars or Arrow.

    Returns:
        For each column its "name", "kind", "gaps" and "values" (the numbers of missing cells and of
        distinct values) and "examples" (three values). `pandas.DataFrame(overview(X))` shows it as
        a table.

    Examples:
        >>> import pandas as pd
        >>> X = pd.DataFrame({"colour": ["red", "blue"] * 10, "size": ["1.5", "?"] * 10})
        >>> [(row["name"], row["kind"], row["examples"]) for row in overview(X)]
        [('colour', 'category', ['red', 'blue']), ('size', 'category', ['1.5', '?'])]
    """
    table = read_table("overview", X)
    if table is None:
        raise TypeError(complaint("overview", "X", "be a frame", type(X).__name__))
    rows = []
    for name, column in zip(table.names, table.columns, strict=True):
        kind, typed = as_kind(name, column)
        shown = typed or column
        first = dict.fromkeys(shown.take(np.flatnonzero(~shown.gaps)[:1000]).present)
        examples = [f"{x:.10g}" if isinstance(x, float) else str(x)[:40] for x in first][:3]
        found = {"gaps": int(shown.gaps.sum()), "values": shown.distinct, "examples": examples}
        rows.append({"name": name, "kind": kind if typed else f"left out: {kind}", **found})
    return rows


def _refuse_odd_cells(name: str, column: ColumnValues) -> None:
    """Refuse a column in which most cells, but not all, are numbers."""
    rows = np.flatnonzero(np.isinf(parsed_numbers(column.values)))
    if 2 * len(rows) < (~column.gaps).sum():
        cell = column.values[rows[0]][:40]
        raise ValueError(
            f"Column {name!r} must hold numbers only, as most of its cells do and its values "
            f"hardly repeat. Got {cell!r} in row {rows[0] + 1} (the first is 1). Declare a "
            f"mark for missing values (--missing {cell!r}; in pandas na_values), correct the "
            f"cells, or drop the column (--drop {name!r})."
        )


def _is_id(name: str, values: np.ndarray) -> bool:
    """Whether the values are distinct whole numbers that count rows, are sorted or named id."""
    span, steps = values.max() - values.min(), np.diff(values)
    if (values != np.floor(values)).any() or len(np.unique(values)) < len(values):
        return False
    counts, ordered = span == len(values) - 1, (steps > 0).all() or (steps < 0).all()
    return bool(counts or ordered or NAMED_ID.search(name))
