"""What is perhaps not as it was meant: numbers or dates in a form unknown, and rows twice."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from pandas import util

from evalign.cli import dates
from evalign.cli.cells import as_numbers, as_objects, as_text, percent_masks
from evalign.cli.dialects import PERCENT
from evalign.cli.errors import DataWarning, UsageError
from evalign.cli.tables import is_number
from evalign.core.resampling import MIN_FOR_INTERVAL
from evalign.core.text import counted

pc: Any = pyarrow.compute  # its functions are made at import, where a type checker misses them
hash_rows: Any = util.hash_pandas_object

WITH_COMMAS = rf"^\s*[+-]?(\d+(,\d+)?|\d{{1,3}}(,\d{{3}})+(\.\d+)?){PERCENT}\s*$"
LIKE_DATES = r"^\s*(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})([T ]\d.*)?$"
MARKED, UNMARKED = r"[1-9]\d{0,2}\.\d{3}", r"(0|[1-9]\d{0,2})"  # 1.234 and 801
MARKED_ZERO = r"\.\d+0\s*$"  # decimals end so only where all have as many digits
NO_LETTERS = r"^\PL*\d\PL*$"
UNIT = r"^\s*((?:[A-Z]{3}\s+|\p{Sc}\s*)?)[+-]?\d[\d.,]*\s*(\PN*|\PN*\pL[23²³])$"  # 48 m², USD 48
NAMED_MONTH = r"^\s*[0-3]?\d[-. /]+(\pL{3,})[-., /]+(?:\d{2}|\d{4})$"  # 31-Jan-24
WORDS = r"^\p{Lu}.*\s|\s\S+\s"  # 12 Main St, 2 pieces per set: several words, and not a unit
MANY = 20  # values; more of them are hardly names of things
UNITS, MOST = 3, 0.9  # so many units at most, of so many of the cells
SAMPLE = 1000  # cells that most often tell
STAND_INS = (-99, -999, -9999, -99999)
FIRST_DAY, LAST_DAY = 19000101, 21001231
COPIES = 0.05  # share of the rows; fewer change little
LabelledFrame = tuple[pd.DataFrame, np.ndarray]  # features and class codes


def check_almost(what: str, drop: str, texts: pa.ChunkedArray, wrong: np.ndarray) -> None:
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
        got = f"{counted(int(odd.sum()), 'value')} that cannot be read as {word}, such as {flaw}"
        cure = f"Correct that or leave it empty for a column of {word}."
        warnings.warn(f"{what} is a category for {got}. {cure}", DataWarning, stacklevel=5)
        return
    if _may_be_numbers_or_dates(present, repeated):
        flaw = repr(texts[int(np.argmax(wrong))].as_py())
        got = f"{what} is read as text, for values such as {flaw}."
        cure = f"If they are numbers or dates, write them as 1234.5 or 2024-01-31, {drop}"
        warnings.warn(f"{got} {cure}", DataWarning, stacklevel=5)


def _may_be_numbers_or_dates(texts: pa.ChunkedArray, repeated: bool) -> bool:
    """Whether most texts are numbers with the same few units, or all are months by name.

    Or all hardly repeat and are without letters. A few that repeat may be names.
    """

    def are(form: str) -> bool:
        return pc.all(pc.match_substring_regex(texts, form)).as_py()

    if repeated and len(texts.unique()) <= MANY:
        return False
    words = pc.utf8_lower(pc.replace_substring_regex(texts, NAMED_MONTH, r"\1")).unique()
    dated = len(words) <= 12 and are(NAMED_MONTH)  # 34-ABC-11, a part or a car, has more of them
    return dated or (not repeated and are(NO_LETTERS)) or _have_units(texts)


def _have_units(texts: pa.ChunkedArray) -> bool:
    numbers = texts.filter(pc.match_substring_regex(texts, UNIT))
    units = pc.utf8_trim_whitespace(pc.replace_substring_regex(numbers, UNIT, r"\1\2"))
    units = units.filter(pc.invert(pc.match_substring_regex(units, WORDS)))
    counts = units.filter(pc.not_equal(units, "")).value_counts().field("counts").to_pylist()
    return sum(sorted(counts)[-UNITS:]) >= MOST * len(texts)


def percent_signs(what: str, column: pa.ChunkedArray) -> bool | None:
    """Whether numbers have percent signs, or are beyond 1 without; None if neither or both.

    Both get a warning: all of them may be percentages. It is also None where most are beyond 100%,
    which other files hold as numbers beyond 1.
    """
    values = as_numbers(column)[0]
    signed, large = percent_masks(column, values)
    if signed.any() != large.any():
        return None if signed.any() and _most(np.abs(values) > 1, values) else bool(signed.any())
    if signed.any():
        one, other = (column[int(np.argmax(odd))].as_py().strip() for odd in (signed, large))
        read = f"{one!r}, which is {values[np.argmax(signed)]:g}, and {other!r}, which is {other}"
        cure = "If all are percentages, write the sign in all of its cells or in none."
        warnings.warn(f"{what} holds {read}. {cure}", DataWarning, stacklevel=4)
    return None


def warn_of_other_percents(
    what: str, column: pa.ChunkedArray, values: np.ndarray, signs: bool
) -> None:
    """Warn of numbers that have percent signs where those of the training table had none.

    Or the other way round, if most are beyond 1: a few may be those beyond 100%. Blocks of a table
    get the same text, which is shown once.
    """
    signed, large = percent_masks(column, values)
    if signs and _most(large, values):
        got = "holds numbers beyond 1 without a percent sign, which those of training have"
    elif not signs and signed.any():
        got = "holds percent signs, which the numbers of training do not have"
    else:
        return
    cure = "48% is read as 0.48: write percentages in one way in both tables."
    warnings.warn(f"{what} {got}. {cure}", DataWarning, stacklevel=4)


def _most(some: np.ndarray, values: np.ndarray) -> bool:
    """Whether these are more than half of the values, without the gaps."""
    return 2 * some.sum() > np.isfinite(values).sum()


def warn_of_thousands(what: str, column: pa.ChunkedArray) -> None:
    """Warn of numbers such as 1.230 beside whole ones below 1000: the point may mark thousands.

    Decimals that are written as short as can be do not end in 0, and others have a point in every
    cell. Blocks of a table get the same text, which is shown once.
    """
    if is_number(column.type):
        return
    texts, both = as_text(column).drop_null(), rf"^\s*[+-]?({MARKED}|{UNMARKED})\s*$"
    if not all(
        pc.all(pc.match_substring_regex(some, both)).as_py() for some in (texts[:SAMPLE], texts)
    ):
        return
    pointed = pc.match_substring(texts, ".")
    if pc.any(pc.match_substring_regex(texts, MARKED_ZERO)).as_py() and not pc.all(pointed).as_py():
        got = "holds numbers such as 1.230, and others without a point"
        cure = "If the point marks thousands, remove it: 1.230 is read as little more than 1."
        warnings.warn(f"{what} {got}. {cure}", DataWarning, stacklevel=4)


def warn_of_stand_ins(what: str, values: np.ndarray) -> None:
    """Warn of a number such as -999 far below all others, and of dates such as 20240131.

    One row may hold -999 by chance, and a few numbers may look like dates.
    """
    present = values[np.isfinite(values)]
    least = present.min()
    others, rows = present[present > least], int((present == least).sum())
    apart = len(others) > 0 and others.min() > least / 2
    apart = apart and (others.min() >= 0 or others.min() - least > np.ptp(others))
    if least in STAND_INS and rows > 1 and apart:
        got = f"holds {least:g} in {counted(rows)}, and no other number near it"
        text = f"{what} {got}. If it stands for a gap, leave it empty."
        warnings.warn(text, DataWarning, stacklevel=4)
    if least >= FIRST_DAY and present.max() <= LAST_DAY and not (present % 1).any():
        days = pd.Series(np.unique(present)).astype(int).astype(str)
        if (
            len(days) >= MIN_FOR_INTERVAL
            and pd.to_datetime(days, format="%Y%m%d", errors="coerce").notna().all()
        ):
            text = f"{what} holds what look like dates, such as {days[0]}. If they are, write them"
            warnings.warn(f"{text} as 2024-01-31.", DataWarning, stacklevel=4)


def warn_of_copies(source: str, X: pd.DataFrame, y: np.ndarray) -> None:
    """Warn of rows that are copies of others, as a table has that was appended twice."""
    whole = _labelled(X, y)
    copies = whole.duplicated().to_numpy()
    copied = np.flatnonzero(copies)[~whole.loc[copies].duplicated().to_numpy()]  # each once
    if _are_meant(X, copies, copied):
        text = f"{source} has {counted(int(copies.sum()))} that repeat others, label included"
        cure = "Remove them, or keep them together with --group: else the scores are too good."
        warnings.warn(f"{text}. {cure}", DataWarning, stacklevel=3)


def warn_of_shared(one: str, known: LabelledFrame, other: str, new: LabelledFrame) -> None:
    """Warn of rows of the other table that the one has, too."""
    of_one, of_other = (
        hash_rows(_labelled(*table), index=False).to_numpy() for table in (known, new)
    )
    shared = np.isin(of_other, of_one)
    copied = np.flatnonzero(shared)[np.unique(of_other[shared], return_index=True)[1]]
    if _are_meant(new[0], shared, copied):
        text = f"{shared.sum()} of the {other} rows are {one} rows, too"
        cure = "Remove them from one of the tables: else the scores are too good."
        warnings.warn(f"{text}, label included. {cure}", DataWarning, stacklevel=3)


def _labelled(X: pd.DataFrame, y: np.ndarray) -> pd.DataFrame:
    whole = X.copy(deep=False)
    whole[0] = y  # the names of the others are texts
    return whole


def _are_meant(X: pd.DataFrame, copies: np.ndarray, copied: np.ndarray) -> bool:
    """Whether rows that are copies (a mask, and each of them once) are not so by chance.

    Rows of a few values, or of zeros alone, are alike by chance. So one column must hardly repeat
    among the rows that have copies, and have different values in a quarter of all rows.
    """
    least = max(MIN_FOR_INTERVAL, len(copied) / 2)
    return bool(copies.mean() >= COPIES) and any(
        column.iloc[copied].nunique() > least and column.nunique() > len(X) / 4
        for _, column in X.items()
    )


def _not_dates(texts: pa.ChunkedArray) -> np.ndarray:
    """A mask of the texts that are not dates, such as the 30th of February."""
    given, looks = texts.is_valid().to_numpy(), pc.match_substring_regex(texts, LIKE_DATES)
    if 2 * (pc.sum(looks).as_py() or 0) <= given.sum():  # quick to tell
        return given
    return given & ~dates.are_dates(as_objects(texts))
