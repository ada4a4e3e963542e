"""Dates that are not written as ISO 8601 has them: the form of a column, and its values."""

import numpy as np
import pandas as pd

from evalign.cli.errors import UsageError
from evalign.estimator.cells import parsed_dates

DAYS = ("%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMS = [day + time for day in DAYS for time in TIMES]
SAMPLE = 100  # texts, one of which at least has the form of most
EXAMPLE = pd.Timestamp("2024-01-31 18:30")


def find_form(what: str, texts: np.ndarray) -> str | None:
    """The form of a column's dates, None if they have none; one that may be another is refused.

    Args:
        what: how an error calls the column.
        texts: str, None for a gap.
    """
    present = texts[texts != None]  # noqa: E711
    found = [form for form in FORMS if not np.isnat(parsed(present[:1], form)).any()]
    found = [form for form in found if not np.isnat(parsed(present, form)).any()]
    if len(found) > 1:
        got = f"Got {present[0]!r}: day or month first?"
        cure = "Write them as 2024-01-31, or leave it out with --drop."
        raise UsageError(f"{what} must hold dates of which the order can be told. {got} {cure}")
    return found[0] if found else None


def are_dates(texts: np.ndarray) -> np.ndarray:
    """A mask of the texts that are dates in the form that most of them have, perhaps ISO 8601."""
    forms = [form for form in FORMS if not np.isnat(parsed(texts[:SAMPLE], form)).all()]
    iso = [text is not None and parsed_dates([text]) is not None for text in texts]
    return max([np.array(iso), *(~np.isnat(parsed(texts, form)) for form in forms)], key=np.sum)


def parsed(texts: np.ndarray, form: str) -> np.ndarray:
    """The dates of texts, NaT for a gap and for what is not one."""
    given = pd.Series(texts, dtype="str").str.strip()
    values = pd.to_datetime(given, format=form, errors="coerce")
    return values.to_numpy().astype("datetime64[us]")


def example(form: str) -> str:
    """A date in a form."""
    return EXAMPLE.strftime(form)
