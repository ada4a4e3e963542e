"""Turn the columns of a table into features: numbers, categories, and what is left out."""

import io
import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import skops.io
from pyarrow import types
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from evalign.cli.errors import DataWarning, UsageError
from evalign.cli.tables import is_number, is_usable

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

# The marks and words that pandas reads as a gap. There may be blanks around them.
MARKS = ["", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "-NaN", "-nan", "NaN", "nan", "<NA>"]
WORDS = ["#N/A", "#N/A N/A", "#NA", "N/A", "n/a", "NA", "NULL", "null", "None"]
MISSING = pa.array([*MARKS, *WORDS])
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"  # ISO 8601
LARGEST = float(np.finfo(np.float32).max)
RARE = 10  # rows; levels with fewer are merged into one
LEVELS = 100  # of a category, at most; the rarest are merged into one
TEXT_WORDS = 5  # per value, on average: more than a name has
TEXT_VALUES = 20
NAMED_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|index|row)s?$", re.IGNORECASE)
TRUSTED = ["numpy.dtype"]  # beyond what skops trusts anyway


@dataclass(frozen=True)
class Columns:
    """The role of each column of a table.

    Args:
        target: the label.
        group: rows with one value of it stay together; None for no such column.
        weight: the weight of a row; None for no such column.
        numbers: features that are numbers, perhaps with gaps.
        categories: features; a gap is a level.
        left_out: the reason why a column is not a feature, by its name.
    """

    target: str
    group: str | None = None
    weight: str | None = None
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        return [*self.numbers, *self.categories]

    @property
    def used(self) -> list[str]:
        """All columns that an evaluation needs."""
        return [*self.features, *filter(None, [self.target, self.group, self.weight])]


def plan(
    table: pa.Table,
    source: object,
    *,
    target: str,
    group: str | None = None,
    weight: str | None = None,
    drop: Sequence[str] = (),
) -> Columns:
    """Find the role of every column of the training table. Errors call the table `source`."""
    kinds = dict.fromkeys(drop, "dropped")
    for name in table.column_names:
        if name not in (target, group, weight, *drop):
            kinds[name] = _kind(f"Column {name!r} of {source}", name, table[name])
    numbers, categories = (
        tuple(name for name, kind in kinds.items() if kind == wanted)
        for wanted in ("number", "category")
    )
    left_out = {name: kind for name, kind in kinds.items() if name not in numbers + categories}
    if not numbers and not categories:
        why = ", ".join(f"{name!r} ({why})" for name, why in left_out.items())
        raise UsageError(f"{source} holds no column to learn from. Left out: {why or 'none'}.")
    return Columns(target, group, weight, numbers, categories, left_out)


def pipeline(columns: Columns) -> ColumnTransformer:
    """The transformer from the columns of `frame` to float64 without gaps, not yet scaled."""
    numbers = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    categories = OneHotEncoder(
        min_frequency=RARE,
        max_categories=LEVELS,
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    parts = [("numbers", numbers, columns.numbers), ("categories", categories, columns.categories)]
    return ColumnTransformer([(name, part, list(names)) for name, part, names in parts if names])


def frame(table: pa.Table, columns: Columns, source: object, first_row: int = 1) -> pd.DataFrame:
    """The features of a table: float64 with NaN for a gap, or text with "" for one."""
    data: dict[str, object] = {}
    for name in columns.numbers:
        values, wrong = as_numbers(table[name])
        _check_numbers(f"Column {name!r} of {source}", table[name], wrong, first_row)
        data[name] = values
    for name in columns.categories:
        data[name] = as_text(table[name]).fill_null("").to_pandas().astype(object)
    return pd.DataFrame(data)


def transform(pipeline: ColumnTransformer, X: pd.DataFrame) -> np.ndarray:
    """The fitted pipeline's features. Levels it does not know are counted by `unseen`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        return np.asarray(pipeline.transform(X))


def unseen(pipeline: ColumnTransformer, columns: Columns, X: pd.DataFrame) -> dict[str, np.ndarray]:
    """For each category, a mask of the rows whose level training never saw, except for gaps."""
    if not columns.categories:
        return {}
    levels = pipeline.named_transformers_["categories"].categories_
    known = zip(columns.categories, levels, strict=True)
    return {name: ~X[name].isin([*seen, ""]).to_numpy() for name, seen in known}


def dump(pipeline: ColumnTransformer) -> bytes:
    return skops.io.dumps(pipeline)


def load(data: bytes, most: int) -> ColumnTransformer:
    """The pipeline that `dump` wrote, or a ValueError if unpacked it has more than `most` bytes.

    No more than the sizes that the archive declares is unpacked of a deflated or stored member.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        packed = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        if any(member.compress_type not in packed for member in archive.infolist()):
            raise ValueError("it is packed in a way that evalign does not use")
        size = sum(member.file_size for member in archive.infolist())
    if size > most:
        raise ValueError(f"unpacked it has {size:,} bytes, more than {most:,}")
    return skops.io.loads(data, trusted=TRUSTED)


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
    """Values as float64, NaN for a gap, and a mask of those that are not finite numbers."""
    if is_number(column.type):
        values = column.cast(pa.float64(), safe=False).to_numpy()  # 2⁵³ + 1 is rounded
        return values, np.abs(values) > LARGEST
    texts = pc.utf8_trim_whitespace(as_text(column))
    numeric = pc.match_substring_regex(texts, NUMBER)
    values = pc.if_else(numeric, texts, pa.scalar(None, pa.string())).cast(pa.float64()).to_numpy()
    return values, texts.is_valid().to_numpy() & ~(np.abs(values) <= LARGEST)


def _kind(what: str, name: str, column: pa.ChunkedArray) -> str:
    """Say what a column is: "number", "category", or "constant" or "id", which teach nothing."""
    drop = f"or leave it out with --drop {name!r}."
    allowed, weekday = (
        f"{what} must hold numbers or text",
        "Make numbers of it, such as the weekday",
    )
    if not is_usable(column.type):
        cure = weekday if types.is_temporal(column.type) else "Make numbers or text of it"
        raise UsageError(f"{allowed}. Got {column.type}. {cure}, {drop}")
    texts = as_text(column)
    present = texts.drop_null()
    distinct = len(present.unique())
    if not distinct:
        raise UsageError(f"{what} must hold a value. Got {len(texts)} gaps. Fill it in, {drop}")
    if distinct == 1 and len(present) == len(texts):
        return "constant"
    values, wrong = as_numbers(column)
    if is_number(column.type) or not wrong.any():
        _check_numbers(what, column, wrong)
        return "id" if _is_id(name, values) else "number"
    if pc.all(pc.match_substring_regex(pc.utf8_trim_whitespace(present), DATE)).as_py():
        got = f"Got dates, such as {present[0].as_py()!r}"
        raise UsageError(f"{allowed}. {got}. {weekday}, {drop}")
    if distinct > TEXT_VALUES and _words(present) >= TEXT_WORDS:
        got = f"Got text, such as {present[0].as_py()[:40]!r}. Make features of it, {drop}"
        raise UsageError(f"{what} must hold numbers or categories. {got}")
    if 2 * wrong.sum() < len(present):
        row = int(np.argmax(wrong))
        flaw = repr(texts[row].as_py())
        if 2 * distinct > len(present):  # not a category, whose values would repeat
            cure = f"Correct it or leave it empty, or leave the column out with --drop {name!r}."
            raise UsageError(
                f"{what} must hold finite numbers. Got {flaw} in row {row + 1}. {cure}"
            )
        got = f"{wrong.sum()} values that are no numbers, such as {flaw}"
        cure = "Correct them or leave them empty for a column of numbers."
        warnings.warn(f"{what} is a category for {got}. {cure}", DataWarning, stacklevel=4)
    return "id" if distinct == len(texts) else "category"


def _check_numbers(
    what: str, column: pa.ChunkedArray, wrong: np.ndarray, first_row: int = 1
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        got = f"Got {str(column[row].as_py())!r} in row {first_row + row}."
        cure = "Correct it, or leave it empty."
        raise UsageError(f"{what} must hold finite numbers. {got} {cure}")


def _is_id(name: str, values: np.ndarray) -> bool:
    """Whether the values are distinct whole numbers that count rows, are sorted or named id."""
    if np.isnan(values).any() or (values != np.floor(values)).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 0).any():
        return False
    steps = np.diff(values)
    counts = ordered[-1] - ordered[0] == len(values) - 1
    return bool(counts or (steps > 0).all() or (steps < 0).all() or NAMED_ID.search(name))


def _words(texts: pa.ChunkedArray) -> float:
    return pc.mean(pc.list_value_length(pc.utf8_split_whitespace(texts))).as_py()
