"""The columns of a table on disk: their roles, and their cells as a frame for an estimator."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from evalign.cli import dates
from evalign.cli.cells import as_dates, as_numbers, as_objects, as_text
from evalign.cli.dialects import COMMA_OR_THOUSANDS
from evalign.cli.doubts import (
    check_almost,
    percent_signs,
    warn_of_other_percents,
    warn_of_stand_ins,
    warn_of_thousands,
)
from evalign.cli.errors import UsageError, listed
from evalign.cli.tables import is_date, is_number, is_usable
from evalign.cli.truths import respelled, spelling
from evalign.core.text import counted
from evalign.estimator.cells import ColumnValues, parsed_dates
from evalign.estimator.roles import role


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
            It is not there where they are neither or both, or mostly beyond 100%.
        blanks: whether it has rows without a value in any feature, from which something was learnt.
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
    blanks: bool = False

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
        cure = (
            "Give a table with other columns, or with more rows, of which some are alike in them."
        )
        got = f"Left out: {why or 'none'}."
        raise UsageError(f"{source} holds no column to learn from. {got} {cure}")
    found = {name: _date_form(f"Column {name!r} of {source}", table[name]) for name in days}
    forms = {name: form for name, form in found.items() if form is not None}
    spelled = {name: pair for name in categories if (pair := spelling(as_text(table[name])))}
    signs = {name: percent_signs(f"Column {name!r} of {source}", table[name]) for name in numbers}
    percents = {name: sign for name, sign in signs.items() if sign is not None}
    roles = (target, group, weight, numbers, categories, days, left_out, forms)
    return Columns(*roles, truths=spelled, percents=percents)


def frame(table: pa.Table, columns: Columns, source: object, first_row: int = 1) -> pd.DataFrame:
    """The features of a table: float64 with NaN for a gap, categories, and dates."""
    data: dict[str, object] = {}
    for name in columns.numbers:
        values, wrong = as_numbers(table[name])
        what = f"Column {name!r} of {source}"
        _check_numbers(what, table[name], wrong, first_row)
        warn_of_thousands(what, table[name])
        if name in columns.percents:
            warn_of_other_percents(what, table[name], values, columns.percents[name])
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


def _date_form(what: str, column: pa.ChunkedArray) -> str | None:
    """The form of dates that are text, None for that of ISO 8601 and for what is not a date."""
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
        given = ColumnValues("number", values).with_digits(texts.to_pylist)
    else:
        given = ColumnValues("text", as_objects(texts))
    found = role(name, given)
    if given.kind == "text" and found in ("id", "category", "prose") and _date_form(what, column):
        return "date"
    example = repr(texts.drop_null()[0].as_py()[:40]) if found != "empty" else ""
    if found == "empty":
        got = f"Got {counted(len(texts), 'gap')}"
        raise UsageError(f"{what} must hold a value. {got}. Fill it in, {drop}")
    if given.kind == "number":
        warn_of_stand_ins(what, values)
    if found == "prose":
        got = f"Got text, such as {example}. Make features of it, {drop}"
        raise UsageError(f"{what} must hold numbers, categories or dates. {got}")
    if wrong.any() and found in ("id", "category"):
        check_almost(what, drop, texts, wrong)
    return found


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
