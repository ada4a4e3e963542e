"""The kinds of columns, tables on disk, and labels."""

import warnings
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evalign.cli import tables
from evalign.cli.cells import as_numbers, as_text
from evalign.cli.columns import frame, plan
from evalign.cli.errors import DataWarning, UsageError
from evalign.cli.labels import Labels
from evalign.cli.tables import TableFile, writing
from evalign.estimator import FrameEncoder
from tests.cli.commands import table

ROWS = 60


def kind_of(values, name="column"):
    """Return the kind that `plan` gives a column, in a table with one more number."""
    number = np.random.default_rng(0).normal(size=ROWS)
    made = pa.table({name: pa.array(values), "x": number, "y": ["a", "b"] * (ROWS // 2)})
    found = plan(made, "data.csv", target="y")
    if name in found.left_out:
        return found.left_out[name]
    kinds = {"number": found.numbers, "category": found.categories, "date": found.dates}
    return next(kind for kind, names in kinds.items() if name in names)


SHUFFLED = np.random.default_rng(1).permutation(ROWS)
KINDS = [
    (["1", "2.5", "", "NA", "-1e3", " +7. "] * 10, "number"),
    (["1", "2", "3"] * 20, "number"),
    ([True, False, None] * 20, "category"),
    (["True", "False", "maybe"] * 20, "category"),
    (["x", "NA", "x"] * 20, "category"),  # the gap is a level
    ([7.0] * ROWS, "constant"),
    (["same"] * ROWS, "constant"),
    ([7.0, None] * (ROWS // 2), "number"),  # the gap tells something
    (list(range(ROWS)), "id"),
    ([str(100 + i) for i in range(ROWS)], "id"),
    (SHUFFLED.tolist(), "id"),  # counts the rows, in any order
    ((SHUFFLED * 3).tolist(), "number"),
    (sorted((SHUFFLED**2).tolist()), "id"),
    ((SHUFFLED / 7).tolist(), "number"),
    ([f"u{i}" for i in range(ROWS)], "id"),
    ([f"Mr. Number {i}, Town" for i in range(ROWS)], "id"),  # a name is not a text
    ([f"u{i // 2}" for i in range(ROWS)], "category"),
    (pd.Categorical(["a", "b", "c"] * 20), "category"),
    # More digits than float64 has: it would round all of them to one number.
    ([str(10**19 + i) for i in range(ROWS)], "id"),
    ((2**60 + SHUFFLED).tolist(), "id"),
    ([str(10**19 + i // 2) for i in range(ROWS)], "category"),
    (["", *(str(10**19 + i % 2) for i in range(1, ROWS))], "category"),
    ([str(10**19)] * ROWS, "constant"),
    ([str(10**40 + i // 2) for i in range(ROWS)], "category"),
    ((17 * 10**17 + SHUFFLED * 10**12).tolist(), "number"),  # times in nanoseconds
]


INDEX = ["", "Unnamed: 0", "__index_level_0__"]  # what pandas calls it in a file


@pytest.mark.parametrize(("values", "kind"), KINDS)
def test_kinds(values, kind):
    assert kind_of(values) == kind


# Whole numbers, most of them longer than 64 bits, and one gap.
LONG = [
    [10**19 + i for i in range(ROWS)],
    [10**19 + i // 2 for i in range(ROWS)],
    [None, *(10**19 + i % 2 for i in range(1, ROWS))],
    [10**19] * ROWS,
    [-(10**30) - i % 3 for i in range(ROWS)],
    [10**40 + i for i in range(ROWS)],
    [10**40 + i // 2 for i in range(ROWS)],
    [10**40 * (i + 1) // 7 for i in (SHUFFLED // 2).tolist()],  # which float64 tells apart
    [10**20 * (i + 1) // 7 for i in (SHUFFLED // 2).tolist()],
    [i % 3 for i in range(ROWS)],
]


@pytest.mark.parametrize("values", LONG, ids=lambda values: str(values[1]))
def test_whole_numbers_are_in_python_what_they_are_in_a_file(values):
    texts = [None if value is None else str(value) for value in values]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of text that may be numbers, and of ids
        kind = kind_of(texts)
        X = pd.DataFrame({"x": np.random.default_rng(0).normal(size=ROWS)})
        encoders = [
            FrameEncoder().fit(X.assign(column=pd.Series(column, dtype=object)))
            for column in (values, texts)
        ]
    found = encoders[0].features_
    columns = {column.name: column.kind for column in found.columns}
    assert (columns | found.left_out)["column"] == kind
    if kind != "number":
        assert found == encoders[1].features_


def test_names_of_ids():
    values = (SHUFFLED * 3).tolist()
    for name in ("id", "customer_id", "Customer ID", "uuid", "row", *INDEX):
        assert kind_of(values, name) == "id"
    for name in ("acid", "covid", "price", "idle"):
        assert kind_of(values, name) == "number"


def test_text_is_refused():
    with pytest.raises(UsageError, match="Got text, such as 'it was the best"):
        kind_of([f"it was the best of times, part {i}" for i in range(ROWS)])


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M", " %Y-%m-%d %H:%M:%S.%fZ"])
@pytest.mark.parametrize("repeated", [1, 5])
def test_dates(form, repeated):
    """Text that is a date in every row, and the dates of Parquet, are the same."""
    days = pd.date_range("2024-01-01", periods=ROWS // repeated, freq="37h").repeat(repeated)
    texts = [*days.strftime(form)[:-1], ""]
    assert kind_of(texts) == "date"
    with pytest.warns(
        DataWarning, match=r"for \d+ values that cannot be read as dates, such as 'never'"
    ):
        assert kind_of([*texts[:2], "never"] * (ROWS // 3)) == "category"
    typed = pd.Series(pd.to_datetime([text.strip() or None for text in texts], format="ISO8601"))
    read = []
    for values in (texts, typed):
        made = pa.table({"day": pa.array(values), "y": ["a", "b"] * (ROWS // 2)})
        read.append(frame(made, plan(made, "data.csv", target="y"), "data.csv"))
    pd.testing.assert_frame_equal(*read)
    assert read[0]["day"].isna().tolist() == [False] * (ROWS - 1) + [True]


def test_what_is_no_date():
    days = [f"2024-01-{1 + i % 28:02}" for i in range(ROWS)]
    made = pa.table({"day": days, "y": ["a", "b"] * (ROWS // 2)})
    found = plan(made, "data.csv", target="y")
    other = pa.table({"day": ["2024-01-31", "2024-02-30"]})
    with pytest.raises(UsageError, match=r"must hold dates, such as 2024-01-31\. Got '2024-02-30'"):
        frame(other, found, "new.csv")
    other = pa.table({"day": ["2024-01-31 12:00", "2024-01-31 12:00Z"]})
    with pytest.raises(UsageError, match=r"with or without a zone\. Got both\."):
        frame(other, found, "new.csv")


@pytest.mark.parametrize(
    "form", ["{} kg", "{} m²", "{}.5k", "USD {}", "{}-Jan-24", "{} mars 2024", "€ {}"]
)
def test_numbers_with_a_unit_and_months_by_name_are_noted(form):
    """Of more than twenty values also those that repeat. Fewer, and other words, may be names."""
    with pytest.warns(DataWarning, match=r"is read as text, for values such as"):
        assert kind_of([form.format(i % 21) for i in range(ROWS)]) == "category"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind_of([form.format(i % 20) for i in range(ROWS)])
        kind_of([f"Store {i % 30}" for i in range(ROWS)])
        kind_of([f"{i % 30}-AB{chr(65 + i % 15)}-11" for i in range(ROWS)])


def test_units_are_few_and_in_most_cells():
    def of(*units):
        return [f"{i % 30} {units[i % len(units)]}" for i in range(ROWS)]

    for cells in (of("kg", "lb"), [*of("sq ft")[: -ROWS // 10], *["unknown"] * (ROWS // 10)]):
        with pytest.warns(DataWarning, match=r"is read as text, for values such as"):
            kind_of(cells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for words in (["Main St"], ["pieces per set"], ["kg", "lb", "g", "t"], ["kg", "Oak St"]):
            kind_of(of(*words))


def test_almost_numbers():
    with pytest.warns(
        DataWarning, match=r"category for 2 values that cannot be read as numbers, such as '1,5'"
    ):
        assert kind_of(["1", "2", "3"] * 19 + ["1", "1,5", "inf"]) == "category"


def test_a_percentage_is_a_number():
    for blank in ("", " ", "\u00a0", "\u202f"):
        given = pa.chunked_array([["12.5" + blank + "%", None, "0.125", " 7 ", "-3%", "%", "5%%"]])
        values, wrong = as_numbers(given)
        np.testing.assert_allclose(values, [0.125, np.nan, 0.125, 7, -0.03, np.nan, np.nan])
        assert wrong.tolist() == [False] * 5 + [True] * 2
    assert kind_of([f"{i % 7}%" for i in range(ROWS)]) == "number"
    assert kind_of(["0.5" if i % 2 else f"{i % 7}%" for i in range(ROWS)]) == "number"
    with pytest.warns(DataWarning, match="holds '4%', which is 0.04, and '4', which is 4. If all"):
        assert kind_of(["4" if i % 2 else "4%" for i in range(ROWS)]) == "number"


def test_percent_signs_in_one_of_two_tables():
    """Whether those of training had them is known, unless they had both or tell nothing."""
    made = pa.table(
        {
            "with": [f"{i}%" for i in range(ROWS)],
            "without": [str(i % 50) for i in range(ROWS)],
            "share": [str(i / ROWS) for i in range(ROWS)],
            "growth": [f"{i + 100}%" for i in range(ROWS)],
            "y": ["a", "b"] * (ROWS // 2),
        }
    )
    found = plan(made, "data.csv", target="y")
    assert found.percents == {"with": True, "without": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame(made, found, "data.csv")
        new = {"with": [0.5, 1.5], "without": ["4"] * 2, "share": ["4%"] * 2, "growth": [1.5] * 2}
        frame(pa.table(new), found, "new.csv")  # 1.5 is 150%
    for name, given, text in (
        ("with", [48.0], "holds numbers beyond 1 without a percent sign, which those of training"),
        ("without", ["48 %"], "holds percent signs, which the numbers of training do not have. 48"),
    ):
        usual = {"with": ["1%"], "without": ["1"], "share": ["1"], "growth": ["150%"]}
        other = pa.table(usual | {name: given})
        with pytest.warns(DataWarning, match=f"Column '{name}' of new.csv {text}"):
            frame(other, found, "new.csv")


def test_a_number_that_may_stand_for_a_gap():
    values = np.random.default_rng(0).normal(size=ROWS).round(3)
    coded = np.where(np.arange(ROWS) < 2, -999, values)
    with pytest.warns(DataWarning, match=r"holds -999 in 2 rows, .* near it. If it stands for a g"):
        assert kind_of(coded) == "number"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kind_of(np.where(np.arange(ROWS) < 1, -999, values))  # once may be chance
        kind_of(np.where(np.arange(ROWS) < 2, -998, values))
        kind_of(np.where(np.arange(ROWS) < 2, -999, 300 * values))  # others are near it
        kind_of(np.where(np.arange(ROWS) < 2, -99, np.linspace(1e6, -40, ROWS)))  # of a wide range
    assert not told


def test_dates_that_are_numbers_are_noted():
    days = pd.date_range("2024-01-01", periods=20).strftime("%Y%m%d").astype(int).to_numpy()
    with pytest.warns(DataWarning, match=r"holds what look like dates, such as 20240101"):
        assert kind_of(np.resize(days, ROWS)) == "number"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kind_of(np.resize([*days[1:], 20240230], ROWS))  # not a day
        kind_of(np.resize(days[:9], ROWS))  # a few
        kind_of(np.resize(days, ROWS) + 0.5)
    assert not told


def test_points_that_may_mark_thousands():
    """Decimals have no 0 at their end, as the mean among ages, or a point in every cell."""
    made = {"column": [f"{i}.125" for i in range(ROWS)], "y": ["a", "b"] * (ROWS // 2)}
    found = plan(pa.table(made), "data.csv", target="y")

    def read(cells):
        return frame(pa.table({"column": cells}), found, "new.csv")

    text = r"new\.csv holds numbers such as 1\.230, .* remove it: 1\.230 is"
    with pytest.warns(DataWarning, match=text):
        read(["1.234", "801", None, "-12.500"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in ("0.125", "1.5", "1234"):
            read(["1.230", "801", other])
        read(["1.230", "801.000"])
        read(["29.699", "22", "35"])
        read(["5", "801"])
        read([1.234, 801.0])


@pytest.mark.parametrize("form", ["${}.50", "{:02}.01.24", "{} 500", "\u2212{}.5"])
def test_what_may_be_numbers_or_dates_is_not_left_out_unseen(form):
    values = [form.format(i % 28 + 1) + "0" * (i // 28) for i in range(ROWS)]
    with pytest.warns(DataWarning, match=r"is read as text, for values such as .*2024-01-31, or"):
        assert kind_of(values) == "id"


@pytest.mark.parametrize("flaw", ["#VALUE!", "0000-00-00", "2024-02-30", "5-1-2024 noon"])
@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y %H:%M", "%m/%d/%Y"])
def test_a_flaw_makes_no_id_of_dates(form, flaw):
    values = pd.date_range("2024-01-01", periods=ROWS).strftime(form).tolist()
    values[7] = flaw
    with pytest.raises(UsageError, match=rf"must hold dates\. Got '{flaw}' in row 8\. Correct it"):
        kind_of(values)


@pytest.mark.parametrize("form", ["2024.{}.3", "12-34-{}"])
def test_numbers_with_marks_are_not_dates(form):
    """Versions and the numbers of parts."""
    assert kind_of([form.format(5000 + i if i % 9 else f"0{i}x") for i in range(ROWS)]) == "id"


def test_dates_with_and_without_a_zone_are_text_and_not_left_out_unseen():
    days = pd.date_range("2024-01-01", periods=ROWS).strftime("%Y-%m-%d %H:%M").tolist()
    with pytest.warns(DataWarning, match=r"read as text, as some of its times have a zone"):
        assert kind_of([f"{day}Z" if i % 2 else day for i, day in enumerate(days)]) == "id"


def test_a_flaw_makes_no_id_of_numbers():
    values = [f"{i / 7}" for i in range(ROWS)]
    values[7] = "n.a.x"
    with pytest.raises(UsageError, match=r"must hold finite numbers\. Got 'n\.a\.x' in row 8\."):
        kind_of(values)
    assert kind_of([f"u{i}" if i % 2 else str(i) for i in range(ROWS)]) == "id"


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.decimal128(5, 1), pa.uint64()])
def test_numbers_of_parquet(kind):
    values, wrong = as_numbers(pa.chunked_array([pa.array([1, None, 3], kind)]))
    np.testing.assert_array_equal(values, [1, np.nan, 3])
    assert not wrong.any()


def test_a_large_integer_is_rounded():
    values, _ = as_numbers(pa.chunked_array([pa.array([2**60 + 1])]))
    assert values == 2.0**60


def test_text_of_numbers():
    """A level is the same text from CSV and from Parquet."""
    mixed = pa.chunked_array([pa.array([1, 2, None])])
    assert as_text(mixed).to_pylist() == ["1", "2", None]
    truth = pa.chunked_array([pa.array([True, None])])
    assert as_text(truth).to_pylist() == ["True", None]


def made():
    return pa.Table.from_pandas(table().drop(columns="person"))


def test_features():
    found = plan(made(), "data.csv", target="label")
    X = FrameEncoder().fit_transform(frame(made(), found, "data.csv"))
    # age, income, whether income is missing, three colours, yes and no
    assert X.shape == (240, 8)
    income = table()["income"]
    np.testing.assert_array_equal(X[:, 0], table()["age"])  # the estimator scales
    np.testing.assert_array_equal(X[:, 1], income.fillna(income.median()))
    np.testing.assert_array_equal(X[:, 2], income.isna())
    assert set(np.unique(X[:, 3:])) == {0, 1}


def test_rare_levels_are_grouped():
    levels = ["often"] * 200 + [f"rare{i % 10}" for i in range(40)]
    rare = pa.table({"c": levels, "y": ["a", "b"] * 120})
    found = plan(rare, "data.csv", target="y")
    X = FrameEncoder().fit_transform(frame(rare, found, "data.csv"))
    assert X.shape == (240, 2)


def test_a_gap_never_seen_in_training():
    found = plan(made(), "data.csv", target="label")
    X = frame(made(), found, "data.csv")
    fitted = FrameEncoder().fit(X)
    holes = (
        made()
        .slice(0, 2)
        .set_column(made().column_names.index("colour"), "colour", pa.array([None, "NA"]))
    )
    new = frame(holes, found, "new.csv")
    assert not fitted.features_.unseen(new)["colour"].any()  # it is not a new level
    assert fitted.transform(new)[:, 3:6].sum() == 0


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet"])
def test_tables_round_trip(tmp_path, suffix):
    path = tmp_path / f"table.{suffix}"
    text = pa.table({"a": ["1", "", 'x "y", z'], "b": ["tab\there", "é", "line\nbreak"]})
    with writing(path, text.schema) as write:
        write(text.slice(0, 2))
        write(text.slice(2))
    assert TableFile(path).read().to_pydict() == text.to_pydict()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_is_bounded(tmp_path, monkeypatch, suffix):
    """Reading through a table holds only a part of it in memory."""
    monkeypatch.setattr(tables, "BLOCK_BYTES", 2**14)
    monkeypatch.setattr(tables, "BLOCK_CELLS", 2**10)
    noise = np.random.default_rng(0).normal(size=100_000).astype(str)
    whole = pa.table({"a": noise, "b": noise})
    path, size = tmp_path / f"table.{suffix}", whole.nbytes
    with writing(path, whole.schema) as write:
        for start in range(0, len(noise), 1000):
            write(whole.slice(start, 1000))
    del whole
    file = TableFile(path)  # first, so that what was read ahead for the header is gone
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in file.blocks()]
    assert len(held) > 50
    assert max(held) < size / 2


def test_an_error_leaves_the_old_table(tmp_path):
    path, one = tmp_path / "table.csv", pa.table({"a": ["1"]})
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), writing(path, one.schema) as write:  # noqa: PT012
        write(one)
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]


def test_a_byte_order_mark_is_no_name(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n", encoding="utf-8-sig")
    assert TableFile(tmp_path / "t.csv").schema.names == ["a", "b"]


def labels(values, positive=None):
    return Labels.of(pa.table({"y": [*values, *values]}), "y", positive, "data.csv").values


def test_the_order_of_labels():
    assert labels(["b", "a"]) == ("a", "b")
    assert labels(["10", "9"]) == (9, 10)
    assert labels(["1.5", "1.0"]) == (1.0, 1.5)
    assert labels(["010", "9"]) == ("9", "010")
    assert [str(value) for value in labels([2.0, 1.0])] == ["1.0", "2.0"]
    assert labels(["a", "b"], positive="a") == ("b", "a")
    assert labels([0, 1], positive="0") == (1, 0)


def test_codes():
    known = Labels("y", (0, 1))
    for same in (["1", "0"], [1, 0], [1.0, 0.0], ["1.0", " 0"]):
        assert known.encode(pa.table({"y": same}), "data.csv").tolist() == [1, 0]
    assert known.decode(np.array([1, 0])).to_pylist() == [1, 0]
    with pytest.raises(UsageError, match=r"never saw: 'True'\. It knows '0', '1'"):
        known.encode(pa.table({"y": [True]}), "data.csv")


def test_of_two_writers_the_last_one_wins_whole(tmp_path):
    path, tables = tmp_path / "table.csv", [pa.table({"a": [name] * 3}) for name in "xy"]
    with ExitStack() as first, ExitStack() as second:
        writes = [stack.enter_context(writing(path, tables[0].schema)) for stack in (first, second)]
        for _ in range(2):
            for write, one in zip(writes, tables, strict=True):
                write(one)
        second.close()
        assert TableFile(path).read()["a"].to_pylist() == ["y"] * 6
        first.close()
    assert TableFile(path).read()["a"].to_pylist() == ["x"] * 6
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]


def test_an_error_of_one_writer_leaves_the_other_one_alone(tmp_path):
    path, one = tmp_path / "table.parquet", pa.table({"a": [1, 2]})
    with writing(path, one.schema) as write:
        with pytest.raises(KeyboardInterrupt), writing(path, one.schema):
            raise KeyboardInterrupt
        write(one)
    assert TableFile(path).read() == one
