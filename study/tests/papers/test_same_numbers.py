"""The script that compares the numbers of the pages' tables with those of a revision."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "same_numbers.py"))
PAGE = "# A\n\n| | f1 | mcc |\n|---|---|---|\n| CE | 0.70 | −0.1 |\n| `Loss2` | 0.81 | 0.2 |\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("CE", "cross-entropy", []),
        ("# A", "# Another heading", []),
        ("0.70 | −0.1", "0.71 | −0.1", ["Numbers changed"]),
        ("0.70 | −0.1", "−0.1 | 0.70", ["Numbers changed"]),
        ("| CE | 0.70 | −0.1 |\n", "", ["Rows or columns"]),
        (" | −0.1 |", " | −0.1 | 9 |", ["Rows or columns"]),
        (PAGE, "", ["Gone"]),
    ],
)
def test_only_numbers_of_rows_that_stay_are_changes(old, new, told):
    before, now = (SCRIPT["tables"]("page.md", text) for text in (PAGE, PAGE.replace(old, new)))
    texts = SCRIPT["compare"](before, now)
    assert all(text.startswith(start) for text, start in zip(texts, told, strict=True))
