"""The kind of a column: one rule for each, whatever holds the cells."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evalign.tables import FrameEncoder, overview
from evalign.tables.kinds import UNREPEATED, as_kind
from evalign.tables.values import read_table

ROWS = 40
RNG = np.random.default_rng(0)
CODES = [f"A{i % 4}" for i in range(ROWS)]
NUMBERS = [f"{value:.2f}" for value in RNG.normal(size=ROWS)]
KINDS = {
    "numbers": (RNG.normal(size=ROWS), "number"),
    "whole numbers that repeat": (np.arange(ROWS) % 7, "number"),
    "numbers as text": (NUMBERS, "number"),
    "codes with leading zeros": ([f"{i % 5:03}" for i in range(ROWS)], "number"),
    "blank cells are gaps": (["1.5", " "] * (ROWS // 2), "number"),
    "booleans": ([True, False] * (ROWS // 2), "boolean"),
    "booleans with gaps": ([True, None, False, True] * (ROWS // 4), "boolean"),
    "text that repeats": (CODES, "category"),
    "numbers and words that repeat": (["1", "2", "many", "3"] * (ROWS // 4), "category"),
    "a declared category": (pd.Categorical([f"c{i}" for i in range(ROWS)]), "category"),
    "ISO days": ([f"2024-01-{1 + i % 28:02}" for i in range(ROWS)], "date"),
    "ISO times": ([f"2024-01-01T{i % 24:02}:30Z" for i in range(ROWS)], "date"),
    "other dates": ([f"{1 + i % 9:02}/01/2024" for i in range(ROWS)], "category"),
    "a date type": (pd.date_range("2024-01-01", periods=ROWS, freq="31h"), "date"),
    "counts rows": (np.arange(ROWS), "looks like an id"),
    "sorted whole numbers": (np.arange(ROWS) ** 2, "looks like an id"),
    "text that differs": ([f"u{i}" for i in range(ROWS)], UNREPEATED),
    "text that hardly repeats": ([f"note {i // 2 * (i % 3)}" for i in range(ROWS)], UNREPEATED),
    "sparse flags": (pd.arrays.SparseArray([True, False] * (ROWS // 2)), "boolean"),
    "constant": (["NL"] * ROWS, "constant"),
    "nothing": ([None] * ROWS, "empty"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    values, kind = KINDS[name]
    frame = pd.DataFrame({"column": values})
    others = [] if name == "sparse flags" else [pl.from_pandas(frame)]  # have no such columns
    frames = [frame, *others]
    if others and name != "nothing":
        frames.append(pa.Table.from_pandas(frame))
    for table in frames:
        assert as_kind("column", read_table("X", table).columns[0])[0] == kind


def test_ids_are_named():
    frame = pd.DataFrame({"code": RNG.permutation(3 * ROWS)[:ROWS]})
    assert overview(frame)[0]["kind"] == "number"
    for name in ("id", "user_id", "Unnamed: 0", "key"):
        found = overview(frame.set_axis([name], axis=1))[0]
        assert found["kind"] == "left out: looks like an id"


@pytest.mark.parametrize("cell", ["$1.50", "1,234", "12%", "n.a.", "1e999"])
def test_cells_that_are_not_numbers_are_named(cell):
    """Where most are and values hardly repeat: there is no guess at what they mean."""
    cells = [*NUMBERS]
    cells[6] = cells[20] = cell
    said = (
        rf"Column 'charge' must hold numbers only.* Got '{cell.replace('$', '[$]')}' in row 7 "
        r"\(the first is 1\)\. .*--missing.*na_values.*--drop 'charge'"
    )
    for table in (pd.DataFrame({"charge": cells}), pl.DataFrame({"charge": cells})):
        with pytest.raises(ValueError, match=said):
            FrameEncoder().fit(table)
    cells = ["1", "2", cell, "3"] * (ROWS // 4)
    assert overview(pd.DataFrame({"charge": cells}))[0]["kind"] == "category"


def test_overview():
    frame = pd.DataFrame(
        {
            "age": [1.5, np.nan, 2, 1.5] * 10,
            "colour": ["red", "blue", None, "red"] * 10,
            "sure": [True, False] * 20,
            "since": pd.to_datetime(["2024-01-31", "2024-02-29"] * 20),
            "person": np.arange(40),
        }
    )
    fields = ("name", "kind", "gaps", "values", "examples")
    assert [tuple(row[field] for field in fields) for row in overview(frame)] == [
        ("age", "number", 10, 2, ["1.5", "2"]),
        ("colour", "category", 10, 2, ["red", "blue"]),
        ("sure", "boolean", 0, 2, ["True", "False"]),
        ("since", "date", 0, 2, ["2024-01-31 00:00:00", "2024-02-29 00:00:00"]),
        ("person", "left out: looks like an id", 0, 40, ["0", "1", "2"]),
    ]
    with pytest.raises(TypeError, match="X of overview must be a frame"):
        overview(np.zeros((3, 2)))
