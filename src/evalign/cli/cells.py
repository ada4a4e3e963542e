"""The cells of a column as text, numbers or dates."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyarrow import types

from evalign.cli.dialects import PERCENT
from evalign.cli.tables import is_number
from evalign.estimator.cells import LARGEST, ColumnValues

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

# The marks and words that pandas reads as a gap. There may be blanks around them.
MARKS = ["", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "-NaN", "-nan", "NaN", "nan", "<NA>"]
WORDS = ["#N/A", "#N/A N/A", "#NA", "N/A", "n/a", "NA", "NULL", "null", "None"]
MISSING = pa.array([*MARKS, *WORDS])
NUMBER = rf"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?{PERCENT}$"


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text, null for a gap."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_boolean(column.type):
        column = pc.if_else(column, "True", "False")
    column = column.cast(pa.string())
    missing = pc.is_in(pc.utf8_trim_whitespace(column), value_set=MISSING)
    return pc.if_else(missing, pa.scalar(None, pa.string()), column)


def as_numbers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64, NaN for a gap, and a mask of those that are not finite numbers.

    12% is 0.12, as which a workbook and other files hold it.
    """
    if is_number(column.type):
        values = column.cast(pa.float64(), safe=False).to_numpy()  # 2⁵³ + 1 is rounded
        return values, np.abs(values) > LARGEST
    texts = pc.utf8_trim_whitespace(as_text(column))
    numeric = pc.match_substring_regex(texts, NUMBER)
    bare = pc.replace_substring_regex(texts, f"{PERCENT}$", "")
    values = pc.if_else(numeric, bare, pa.scalar(None, pa.string())).cast(pa.float64()).to_numpy()
    values = np.where(pc.ends_with(texts, "%").fill_null(False).to_numpy(), values / 100, values)
    return values, texts.is_valid().to_numpy() & ~(np.abs(values) <= LARGEST)


def as_dates(column: pa.ChunkedArray) -> ColumnValues:
    """Days or times of Arrow, which keeps those with a zone in UTC, as dates."""
    kind = pa.timestamp("us", getattr(column.type, "tz", None))
    values = column.cast(kind, safe=False).to_numpy()  # nanoseconds are cut off
    return ColumnValues("date", values.astype("datetime64[us]"))


def as_objects(texts: pa.ChunkedArray) -> np.ndarray:
    """Text as str, None for a gap."""
    return np.array(texts.to_pylist(), dtype=object)


def percent_masks(column: pa.ChunkedArray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the numbers with a percent sign, and of those without that are beyond 1."""
    signed = np.zeros(len(values), bool)
    if not is_number(column.type):
        texts = pc.utf8_trim_whitespace(as_text(column))
        signed = pc.ends_with(texts, "%").fill_null(False).to_numpy()
    return signed, ~signed & (np.abs(values) > 1)
