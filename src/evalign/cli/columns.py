"""The columns of a table on disk: their roles, and their cells as a frame for an estimator."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from pyarrow import types

from evalign.cli import dates
from evalign.cli.dialects import COMMA_OR_THOUSANDS, PERCENT
from evalign.cli.errors import DataWarning, UsageError, listed
from evalign.cli.tables import is_date, is_number, is_usable
from evalign.cli.truths import respelled, spelling
from evalign.estimator.cells import LARGEST, ColumnValues, parsed_dates
from evalign.estimator.roles import role

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them

# The marks and words that pandas reads as a gap. There may be blanks around them.
MARKS = ["", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "-NaN", "-nan", "NaN", "nan", "<NA>"]
WORDS = ["#N/A", "#N/A N/A", "#NA", "N/A", "n/a", "NA", "NULL", "null", "None"]
MISSING = pa.array([*MARKS, *WORDS])
NUMBER = rf"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?{PERCENT}$"
WITH_COMMAS = rf"^\s*[+-]?(\d+(,\d+)?|\d{{1,3}}(,\d{{3}})+(\.\d+)?){PERCENT}\s*$"
LIKE_DATES = r"^\s*(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})([T ]\d.*)?$"
NO_LETTERS = r"^\PL*\d\PL*$"
UNIT = r"^\s*((?:[A-Z]{3}\s+|\p{Sc}\s*)?)[+-]?\d[\d.,]*\s*(\PN*)$"  # 48 kg, USD 48
NAMED_MONTH = r"^\s*\d\d?[-. /]+\pL{3,}[-., /]+\d{2,4}$"  # 31-Jan-24
MANY = 20  # values; more of them are hardly names of things


@dataclass(frozen=True)
class Columns:
    """The role of each column of a table.

    Args:
        target: the label.
        group: rows with one value of it stay together; None for no such column.
        weight: the weight of a row; None for no such column.
        numbers: features that are numbers, perhaps with gaps.
        categories: features; a gap is a level.
        dates: features, perhaps with gaps.
        left_out: the reason why a column is not a feature, by its name.
        date_forms: of dates that are not written as ISO 8601 has them, by the column's name.
        decimal: the mark in its numbers, by which those of a file that do not tell theirs are read.
        truths: how categories spell false and true, by the column's name. Other files may have them
            in other letters, or as truth values.
        percents: whether numbers have percent signs, or are beyond 1 without, by the column's name.
            It is not there where they are neither or both.
    """

    target: str
    group: str | None = None
    weight: str | None = None
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    date_forms: dict[str, str] = field(default_factory=dict)
    decimal: str = "."
    truths: dict[str, list[str]] = field(default_factory=dict)
    percents: dict[str, bool] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        return [*self.numbers, *self.categories, *self.dates]

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
    refused: dict[str, UsageError] = {}
    for name in table.column_names:
        if name not in (target, group, weight, *drop):
            try:
                kinds[name] = _kind(f"Column {name!r} of {source}", name, table[name])
            except UsageError as error:  # the others are named with it, to mend them in one go
                refused[name] = error
    if refused:
        first, *others = refused
        also = f" Nor can these be used as they are: {listed(others)}." if others else ""
        raise UsageError(f"{refused[first]}{also}")
    numbers, categories, days = (
        tuple(name for name, kind in kinds.items() if kind == wanted)
        for wanted in ("number", "category", "date")
    )
    features = {*numbers, *categories, *days}
    left_out = {name: kind for name, kind in kinds.items() if name not in features}
    if not features:
        why = ", ".join(f"{name!r} ({why})" for name, why in left_out.items())
        raise UsageError(f"{source} holds no column to learn from. Left out: {why or 'none'}.")
    found = {name: _date_form(f"Column {name!r} of {source}", table[name]) for name in days}
    forms = {name: form for name, form in found.items() if form is not None}
    spelled = {name: pair for name in categories if (pair := spelling(as_text(table[name])))}
    percents = {}
    for name in numbers:
        signed, large = _percents(table[name], as_numbers(table[name])[0])
        if signed.any() != large.any():
            percents[name] = bool(signed.any())
    roles = (target, group, weight, numbers, categories, days, left_out, forms)
    return Columns(*roles, truths=spelled, percents=percents)


def frame(table: pa.Table, columns: Columns, source: object, first_row: int = 1) -> pd.DataFrame:
    """The features of a table: float64 with NaN for a gap, categories, and dates."""
    data: dict[str, object] = {}
    for name in columns.numbers:
        values, wrong = as_numbers(table[name])
        _check_numbers(f"Column {name!r} of {source}", table[name], wrong, first_row)
        if name in columns.percents:
            signs = columns.percents[name]
            _warn_of_other_percents(f"Column {name!r} of {source}", table[name], values, signs)
        data[name] = values
    for name in columns.categories:
        texts = as_text(table[name])
        if name in columns.truths:
            texts = respelled(texts, columns.truths[name])
        data[name] = texts.dictionary_encode().combine_chunks().to_pandas()
    for name in columns.dates:
        what, form = f"Column {name!r} of {source}", columns.date_forms.get(name)
        data[name] = _read_dates(what, table[name], form, first_row)
    return pd.DataFrame(data)


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


def _date_form(what: str, column: pa.ChunkedArray) -> str | None:
    """The form of dates that are text, None for that of ISO 8601 and for what is no date."""
    return None if is_date(column.type) else dates.find_form(what, as_objects(as_text(column)))


def _read_dates(what: str, column: pa.ChunkedArray, form: str | None, first_row: int) -> np.ndarray:
    """Dates. Those with a time zone are in UTC, and files may differ in whether they name one.

    A file may have them in the form of the training table, or as ISO 8601 has them.
    """
    if is_date(column.type):
        return as_dates(column).values
    texts = as_objects(as_text(column))
    if (found := parsed_dates(texts)) is not None:
        return found.values
    if form is not None:
        values = dates.parsed(texts, form)
        wrong = [text is not None for text in texts] & np.isnat(values)
        if not wrong.any():
            return values
    else:
        wrong = np.array([text is not None and parsed_dates([text]) is None for text in texts])
    row, such = int(np.argmax(wrong)), dates.example(form or "%Y-%m-%d")
    got = f"Got {texts[row]!r} in row {first_row + row}" if wrong.any() else "Got both"
    allowed = f"dates, such as {such}" if wrong.any() else "dates with or without a zone"
    raise UsageError(f"{what} must hold {allowed}. {got}. Correct it, or leave it empty.")


def _kind(what: str, name: str, column: pa.ChunkedArray) -> str:
    """Say what a column is: "number", "category" or "date", or the reason to leave it out."""
    drop = f"or leave it out with --drop {name!r}."
    if not is_usable(column.type):
        allowed, cure = "must hold numbers, text or dates", "Make numbers or text of it"
        raise UsageError(f"{what} {allowed}. Got {column.type}. {cure}, {drop}")
    texts, (values, wrong) = as_text(column), as_numbers(column)
    if is_date(column.type):
        given = as_dates(column)
    elif is_number(column.type) or not wrong.any():
        _check_numbers(what, column, wrong)
        _warn_of_percents(what, texts, values)
        given = ColumnValues("number", values).with_digits(texts.to_pylist)
    else:
        given = ColumnValues("text", as_objects(texts))
    found = role(name, given)
    if given.kind == "text" and found in ("id", "category", "prose") and _date_form(what, column):
        return "date"
    example = repr(texts.drop_null()[0].as_py()[:40]) if found != "empty" else ""
    if found == "empty":
        raise UsageError(f"{what} must hold a value. Got {len(texts)} gaps. Fill it in, {drop}")
    if found == "prose":
        got = f"Got text, such as {example}. Make features of it, {drop}"
        raise UsageError(f"{what} must hold numbers, categories or dates. {got}")
    if wrong.any() and found in ("id", "category"):
        _check_almost(what, drop, texts, wrong)
    return found


def _check_almost(what: str, drop: str, texts: pa.ChunkedArray, wrong: np.ndarray) -> None:
    """Refuse numbers with commas, and numbers or dates that hardly repeat with a word among them.

    Warn of a category of numbers or dates, and of what hardly repeats and may be either.
    """
    present = texts.drop_null()
    comma = next((text for text in present.to_pylist() if "," in text), None)
    if comma is not None and pc.all(pc.match_substring_regex(present, WITH_COMMAS)).as_py():
        got = f"Got {comma!r}: is the comma a decimal one, or does it mark thousands?"
        cure = "Write numbers with decimal points alone, or with decimal commas in all columns"
        raise UsageError(f"{what} must hold numbers that can be told. {got} {cure}, {drop}")
    repeated = 2 * len(present.unique()) <= len(present)
    undated = _not_dates(texts)
    if not undated.any():
        got = f"{what} is read as text, as some of its times have a zone and others do not."
        warnings.warn(f"{got} Give all of them one or none, {drop}", DataWarning, stacklevel=5)
        return
    for word, odd in (("numbers", wrong), ("dates", undated)):
        if not 0 < 2 * odd.sum() < len(present):
            continue
        row = int(np.argmax(odd))
        flaw = repr(texts[row].as_py())
        if not repeated:  # not a category, whose values would
            allowed = "finite numbers" if word == "numbers" else word
            cure = f"Correct it or leave it empty, {drop}"
            raise UsageError(f"{what} must hold {allowed}. Got {flaw} in row {row + 1}. {cure}")
        got = f"{odd.sum()} values that are no {word}, such as {flaw}"
        cure = f"Correct them or leave them empty for a column of {word}."
        warnings.warn(f"{what} is a category for {got}. {cure}", DataWarning, stacklevel=5)
        return
    if _may_be_numbers_or_dates(present, repeated):
        flaw = repr(texts[int(np.argmax(wrong))].as_py())
        got = f"{what} is read as text, for values such as {flaw}."
        cure = f"If they are numbers or dates, write them as 1234.5 or 2024-01-31, {drop}"
        warnings.warn(f"{got} {cure}", DataWarning, stacklevel=5)


def _may_be_numbers_or_dates(texts: pa.ChunkedArray, repeated: bool) -> bool:
    """Whether texts are numbers of one unit, or months by name, or hardly repeat without letters.

    A few that repeat may be names.
    """

    def are(form: str) -> bool:
        return pc.all(pc.match_substring_regex(texts, form)).as_py()

    if repeated and len(texts.unique()) <= MANY:
        return False
    units = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, UNIT, r"\1\2")).unique()
    one = len(units) == 1 and units[0].as_py() != ""
    return (are(UNIT) and one) or are(NAMED_MONTH) or (not repeated and are(NO_LETTERS))


def _warn_of_percents(what: str, texts: pa.ChunkedArray, values: np.ndarray) -> None:
    """Warn of percentages among numbers that are beyond 1, and may be percentages too."""
    signed, large = _percents(texts, values)
    if signed.any() and large.any():
        one, other = (texts[int(np.argmax(odd))].as_py().strip() for odd in (signed, large))
        read = f"{one!r}, which is {values[np.argmax(signed)]:g}, and {other!r}, which is {other}"
        got = f"{what} holds {read}"
        cure = "If all are percentages, write the sign in all of its cells or in none."
        warnings.warn(f"{got}. {cure}", DataWarning, stacklevel=5)


def _warn_of_other_percents(
    what: str, column: pa.ChunkedArray, values: np.ndarray, signs: bool
) -> None:
    """Warn of numbers that have percent signs where those of the training table had none.

    Or the other way round. Blocks of a table get the same text, which is shown once.
    """
    signed, large = _percents(column, values)
    if signs and large.any():
        got = "holds numbers beyond 1 without a percent sign, which those of training have"
    elif not signs and signed.any():
        got = "holds percent signs, which the numbers of training do not have"
    else:
        return
    cure = "48% is read as 0.48: write percentages in one way in both tables."
    warnings.warn(f"{what} {got}. {cure}", DataWarning, stacklevel=4)


def _percents(column: pa.ChunkedArray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the numbers with a percent sign, and of those without that are beyond 1."""
    signed = np.zeros(len(values), bool)
    if not is_number(column.type):
        texts = pc.utf8_trim_whitespace(as_text(column))
        signed = pc.ends_with(texts, "%").fill_null(False).to_numpy()
    return signed, ~signed & (np.abs(values) > 1)


def _not_dates(texts: pa.ChunkedArray) -> np.ndarray:
    """A mask of the texts that are not dates, such as the 30th of February."""
    given, looks = texts.is_valid().to_numpy(), pc.match_substring_regex(texts, LIKE_DATES)
    if 2 * (pc.sum(looks).as_py() or 0) <= given.sum():  # quick to tell
        return given
    return given & ~dates.are_dates(as_objects(texts))


def _check_numbers(
    what: str, column: pa.ChunkedArray, wrong: np.ndarray, first_row: int = 1
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        text = str(column[row].as_py())
        got, cure = f"Got {text!r} in row {first_row + row}.", "Correct it, or leave it empty."
        if re.fullmatch(COMMA_OR_THOUSANDS, text.strip()):
            got = f"{got} Is the comma a decimal one, or does it mark thousands?"
            cure = "Write it with a decimal point, or without a mark of thousands."
        raise UsageError(f"{what} must hold finite numbers. {got} {cure}")
