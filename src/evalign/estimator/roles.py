"""What a column of a table is to a model, by its name and its values."""

import re
from collections import Counter
from typing import cast

import numpy as np

from evalign.estimator.cells import ColumnValues, parsed_dates

NAMED_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|index|row)s?$", re.IGNORECASE)
# What pandas calls the index that it wrote into a CSV, a workbook or a Parquet file; R does so too.
FILE_INDEX = re.compile(r"^$|^Unnamed: \d+$|^__index_level_\d+__$")
PROSE_WORDS = 5  # per value, on average: more than a name has
PROSE_VALUES = 20  # different ones; fewer are answers to a question


def role(name: str, column: ColumnValues) -> str:
    """What a column is: "number", "boolean", "category" or "date", or why it teaches nothing.

    That is "empty", "constant" or "id" (as good as a name for each row); or "prose", of which
    somebody has to make features.
    """
    if column.too_long:
        column = cast(ColumnValues, column.converted("text"))
    gaps = column.gaps
    present = column.values[~gaps]
    if not len(present):
        return "empty"
    if not gaps.any() and (present == present[0]).all():
        return "constant"
    if column.kind == "number":
        return "id" if not gaps.any() and _is_id(name, present) else "number"
    if column.kind != "text":
        return column.kind
    if parsed_dates(column.values) is not None:
        return "date"
    counts = Counter(present)
    words = sum(count * len(text.split()) for text, count in counts.items())
    if len(counts) > PROSE_VALUES and words >= PROSE_WORDS * len(present):
        return "prose"
    return "id" if len(counts) == len(column.values) else "category"


def _is_id(name: str, values: np.ndarray) -> bool:
    """Whether the values are distinct whole numbers that count rows, are sorted or named id."""
    span = values.max() - values.min()
    if span < len(values) - 1 or (values != np.floor(values)).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 0).any():
        return False
    steps = np.diff(values)
    counts = span == len(values) - 1
    named = NAMED_ID.search(name) or FILE_INDEX.search(name)
    return bool(counts or (steps > 0).all() or (steps < 0).all() or named)
