"""Tables as they are: separators, decimal marks, encodings, dates, Parquet and Excel."""

import datetime
import gzip
import html
import json
import os
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evalign.cli import dialects, sheets
from evalign.cli.columns import frame, plan
from evalign.cli.dates import FORMS, example, find_form, parsed
from evalign.cli.errors import DataWarning, UsageError
from evalign.cli.labels import Labels
from evalign.cli.run import _is_sound
from evalign.cli.tables import TableFile, writing
from tests.cli.commands import done, fit, refused, table, written

ROWS = {"who": ["Zoë", "Köln", ""], "n": ["1.5", "-20.25", "3e4"], "label": ["a", "b", "a"]}


def text(separator, decimal):
    """The rows of ROWS as a file has them."""
    return (
        pd.DataFrame(ROWS)
        .map(lambda cell: cell.replace(".", decimal))
        .to_csv(index=False, sep=separator)
    )


READ = [
    (",", ".", "utf-8", None),
    (",", ".", "utf-8-sig", None),
    (";", ".", "utf-8", "separated by semicolons"),
    (";", ",", "utf-8", "separated by semicolons, with decimal commas"),
    (",", ",", "utf-8", "with decimal commas"),  # in quotes
    ("|", ".", "utf-8-sig", "separated by bars"),
    ("\t", ",", "utf-16", "in UTF-16, separated by tabs, with decimal commas"),
    (",", ".", "utf-32", "in UTF-32"),
    (",", ".", "cp1252", "in Windows-1252, as it is not in UTF-8"),
    (";", ",", "cp1252", "in Windows-1252, as it is not in UTF-8, separated by semicolons, with"),
]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "CSV.GZ"])
@pytest.mark.parametrize(("separator", "decimal", "encoding", "said"), READ)
def test_dialects(tmp_path, recwarn, suffix, separator, decimal, encoding, said):
    path, content = tmp_path / f"data.{suffix}", text(separator, decimal).encode(encoding)
    path.write_bytes(gzip.compress(content) if suffix.lower().endswith("gz") else content)
    assert TableFile(path).read().to_pydict() == ROWS
    notes = [str(warning.message) for warning in recwarn]
    assert [f"{path} is read as a table {said}" in note for note in notes] == [True] * bool(said)


@pytest.mark.parametrize(("suffix", "pack"), [("csv", gzip.compress), ("csv.gz", bytes)])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_a_file_is_packed_whatever_its_name(tmp_path, suffix, pack, encoding):
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(pack(text(",", ".").encode(encoding)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert TableFile(path).read().to_pydict() == ROWS


def test_a_tsv_has_tabs(tmp_path, recwarn):
    path = tmp_path / "data.tsv"
    path.write_text(text("\t", "."), encoding="utf-8")
    assert TableFile(path).read().to_pydict() == ROWS
    assert not recwarn.list
    path.write_text("only\na\nb\n", encoding="utf-8")
    assert TableFile(path).read().to_pydict() == {"only": ["a", "b"]}
    names = {"a.tsv": "\t", "a.TSV.gz": "\t", "a.tsv.csv": ",", "a.csv": ","}
    assert {name: dialects.separator_of(Path(name)) for name in names} == names


def test_cells_may_hold_any_mark(tmp_path):
    """What counts is that the rows are even, and a row with a flaw does not hide them."""
    path = tmp_path / "data.csv"
    path.write_text('a;b\n1,5;"x;y, z"\n2,5;u,v,w\n3,5;w\n', encoding="utf-8")
    with pytest.warns(DataWarning, match="separated by semicolons, with decimal commas"):
        read = TableFile(path).read()
    assert read.to_pydict() == {"a": ["1.5", "2.5", "3.5"], "b": ["x;y, z", "u,v,w", "w"]}
    path.write_text("a;b\n" + "1,5;x\n" * 50 + "1,5\n", encoding="utf-8")
    with (
        pytest.warns(DataWarning, match="separated by semicolons"),
        pytest.raises(UsageError, match=r"header, 2\. Got 1"),
    ):
        TableFile(path).read()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_quotes_behind_a_byte_order_mark(tmp_path, encoding):
    path = tmp_path / "data.csv"
    path.write_text('"a;b, c";e\n1,5;2\n2,5;3\n', encoding=encoding)
    with pytest.warns(DataWarning, match="separated by semicolons, with decimal commas"):
        assert TableFile(path).read().to_pydict() == {"a;b, c": ["1.5", "2.5"], "e": ["2", "3"]}


def test_the_encoding_is_that_of_the_last_byte(tmp_path, monkeypatch):
    """All bytes are looked at, and letters may lie across blocks."""
    monkeypatch.setattr(dialects, "BLOCK", 7)
    for letters, encoding in (("é€ü" * 9, "utf-8"), ("abc" * 9, "cp1252")):
        path = tmp_path / "data.csv"
        path.write_bytes(f"a,b\n1,{letters}\n2,é\n".encode(encoding))
        assert dialects.find_dialect(path).encoding == encoding
        assert dialects.find_dialect(path).separator == ","


def test_a_long_table_is_told_by_its_start(tmp_path, monkeypatch):
    """The row at the end of the sample is cut off."""
    path = tmp_path / "data.csv"
    path.write_text("a;b;c\n" + "1,5;2;3\n" * 100, encoding="utf-8")
    for size in range(8, 24):
        monkeypatch.setattr(dialects, "SAMPLE", size)
        assert dialects.find_dialect(path).separator == ";"


THOUSANDS = "amount;label\n" + "1.234,50;a\n999,00;b\n-1.234.567,25;a\n"
DOUBTS = {
    "separators": (b"a;b,label\n1;2,x\n", "may be separated by commas or semicolons: both give"),
    "a mixture": (
        "a,label\né,x\n".encode() + b"\xe9,y\n",
        "it is neither all of it in UTF-8, nor in Windows-1252. Save it in UTF-8.",
    ),
    "another code page": (b"a,label\n\x81,x\n", "it is neither all of it in UTF-8"),
    "no byte order mark": ("a,label\n1,x\n".encode("utf-16-le"), "it holds bytes that are not"),
    "thousands or decimals": (
        b"x;y;label\n1,5;1.234;a\n2,5;1.234;b\n",
        "Column 'y' of {} must hold numbers that can be told. Got '1.234' in row 1, and decimal "
        "commas in other cells, or in the training table. Write it with a decimal comma, or "
        "without a mark of thousands.",
    ),
    "commas of thousands": (
        b'x,n,label\n0.5,"1,234",a\n0.7,"2,500",b\n' + b'0.9,"3,100",a\n0.1,700,b\n' * 9,
        "Got '1,234': is the comma a decimal one, or does it mark thousands? Write numbers with",
    ),
    "both marks": (
        b"x;n;label\n0.5;1,5;a\n0.7;2,5;b\n" + b"0.9;3,5;a\n0.1;7;b\n" * 9,
        "Got '1,5': is the comma a decimal one",
    ),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_what_may_be_read_in_two_ways_is_refused(tmp_path, name):
    content, words = DOUBTS[name]
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:  # noqa: PT012
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)
            read = TableFile(path).read()
        plan(read, path, target="label")
    assert words.format(path) in str(caught.value)


def test_marks_of_thousands_that_are_clear(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(THOUSANDS, encoding="utf-8")
    with pytest.warns(DataWarning, match="with decimal commas"):
        assert TableFile(path).read()["amount"].to_pylist() == ["1234.50", "999.00", "-1234567.25"]


def test_percentages_with_decimal_commas(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("rate;n\n12,5 %;1\n7%;2\n", encoding="utf-8")
    with pytest.warns(DataWarning, match="with decimal commas"):
        assert TableFile(path).read()["rate"].to_pylist() == ["12.5 %", "7%"]


def test_answers_to_several_questions_are_no_numbers():
    answers = pa.table({"q": ["1,2", "1,2,3", "2"] * 20, "y": ["a", "b"] * 30})
    assert plan(answers, "data.csv", target="y").categories == ("q",)


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_dates(form):
    """Read against Python's own parser, with gaps and blanks around."""
    days = pd.date_range("2023-11-25 13:05:07", periods=60, freq="31h")
    texts = np.array([f" {day.strftime(form)}" for day in days[:-1]] + [None], dtype=object)
    assert find_form("Column 'day'", texts) == form
    found = parsed(texts, form)
    assert np.isnat(found).tolist() == [False] * 59 + [True]
    for text, value in zip(texts[:-1], found.tolist(), strict=False):
        assert datetime.datetime.strptime(text.strip(), form) == value


def test_an_order_that_cannot_be_told():
    few = np.array(["03/04/2024", "05/06/2024", None], dtype=object)
    with pytest.raises(UsageError, match=r"Got '03/04/2024': day or month first\? Write them as 2"):
        find_form("Column 'day'", few)
    assert find_form("Column 'day'", np.array(["31/04/2024"], dtype=object)) is None
    assert find_form("Column 'day'", np.array(["1.5", "2.5"], dtype=object)) is None


def dated(form, days=60):
    day = pd.date_range("2024-01-01", periods=days).strftime(form)
    return pa.table({"day": day, "x": np.arange(days) % 7, "y": ["a", "b"] * (days // 2)})


def test_dates_of_new_rows():
    """They have the form of training, or that of ISO 8601, whatever the rows are."""
    columns = plan(dated("%m/%d/%Y"), "data.csv", target="y")
    assert columns.dates == ("day",)
    assert columns.date_forms == {"day": "%m/%d/%Y"}
    for form in ("%m/%d/%Y", "%Y-%m-%d"):
        new = frame(dated(form).slice(0, 3), columns, "new.csv")["day"]  # which alone is in doubt
        assert new.tolist() == list(pd.date_range("2024-01-01", periods=3))
    with pytest.raises(
        UsageError, match=r"must hold dates, such as 01/31/2024\. Got '13/01/2024' in row 13\."
    ):
        frame(dated("%d/%m/%Y"), columns, "new.csv")
    assert plan(dated("%Y-%m-%d"), "data.csv", target="y").date_forms == {}
    assert example("%d.%m.%Y %H:%M") == "31.01.2024 18:30"


def workbook(path, *sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"s{number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_workbook(tmp_path):
    day = datetime.datetime(2024, 1, 31)
    rows = [
        ["n", "whole", "day", "yes", "mixed", None],
        [1.5, 1, day, True, "x"],
        [None, 2, None, None, 3],
        [],
        [2, 3, day, False, None],
    ]
    path = workbook(tmp_path / "data.xlsx", rows)
    assert TableFile(path).read().to_pydict() == {
        "n": [1.5, None, 2.0],
        "whole": [1, 2, 3],
        "day": [day, None, day],
        "yes": [True, None, False],
        "mixed": ["x", "3", None],
    }


def edited(path, old, new):
    """A copy of a workbook with other XML."""
    other = path.with_name("edited.xlsx")
    with zipfile.ZipFile(path) as book, zipfile.ZipFile(other, "w") as copy:
        parts = {name: book.read(name).decode() for name in book.namelist()}
        assert any(old in part for part in parts.values())
        for name, part in parts.items():
            copy.writestr(name, part.replace(old, new))
    return other


@pytest.mark.parametrize("size", ["A1", "A1:B2", "A1:F9"])
def test_the_size_that_a_workbook_states_is_not_trusted(tmp_path, size):
    """Some programs write that of an empty sheet, or of the rows before the last change."""
    path = workbook(tmp_path / "data.xlsx", [["a", "b", "c"], [1, 2], [3, 4, 5]])
    found = TableFile(edited(path, 'ref="A1:C3"', f'ref="{size}"')).read().to_pydict()
    assert found == {"a": [1, 3], "b": [2, 4], "c": [None, 5]}


def test_a_workbook_that_openpyxl_fails_on(tmp_path):
    """Some programs write a fill without a pattern, which Excel forgives."""
    path = workbook(tmp_path / "data.xlsx", [["a"], [1]])
    with pytest.raises(UsageError, match=r"cannot be read by openpyxl: .*Fill.*save it again, or"):
        TableFile(edited(path, "<fill><patternFill /></fill>", "<fill />"))


def test_a_number_among_dates_is_not_a_date(tmp_path):
    rows = [["day"], [datetime.datetime(2024, 1, 31)], [45322]]
    found = TableFile(workbook(tmp_path / "data.xlsx", rows)).read()
    assert found.to_pydict() == {"day": ["2024-01-31 00:00:00", "45322"]}


def test_a_number_longer_than_arrow_has_room_for():
    """Excel itself writes fifteen digits and an exponent, other programs all digits."""
    assert sheets._typed([2**70, None, 1]).to_pylist() == [str(2**70), None, "1"]


def test_formulas_that_excel_has_not_computed(tmp_path):
    """Their values would be gaps. One that was computed may be an empty text."""
    path = workbook(tmp_path / "data.xlsx", [["a", "b"], [1, "=A2*2"], [2, "x"], [None, "y"]])
    with pytest.raises(UsageError, match=r"values of its formulas\. Got none in cell B2\. Open it"):
        TableFile(path)
    new = '<c r="B2" t="str"><f>A2*2</f>'
    path = edited(path, '<c r="B2"><f>A2*2</f>', new)
    assert TableFile(path).read().to_pydict() == {"a": [1, 2, None], "b": [None, "x", "y"]}


def test_what_openpyxl_says_of_cells(tmp_path):
    """It is told in one line; what it says of looks is not told."""
    path = tmp_path / "data.xlsx"
    workbook(path, [["day", "label"], *([datetime.date(2024, 1, 1), "a"] for _ in range(3))])
    path = edited(path, "<v>45292</v>", "<v>-5e7</v>")
    with pytest.warns(DataWarning, match=r"Cell A2 .* There are 3 such cells\.") as told:
        TableFile(path)
    assert len(told) == 1


def test_the_index_of_pandas_in_a_workbook(tmp_path):
    path = tmp_path / "data.xlsx"
    pd.DataFrame({"a": [1, 2]}, index=[7, 5]).to_excel(path)
    assert TableFile(path).read().to_pydict() == {"": [7, 5], "a": [1, 2]}


def test_several_sheets(tmp_path):
    path = workbook(tmp_path / "data.xlsx", [["a"], [1]], [["b"], [2]])
    with pytest.warns(DataWarning, match=r"from its first sheet, 's0', and not from 's1'\."):
        assert TableFile(path).schema.names == ["a"]


BAD_SHEETS = {
    "empty": ([], "must have the names of its columns in the first row. It is empty."),
    "a title": (
        [["Sales", None], ["a", "b"], [1, 2]],
        "first row. Got None. Give each a text, and",
    ),
    "numbers": ([[2023, 2024], [1, 2]], "in the first row. Got 2023."),
    "twice": ([["a", "a"], [1, 2]], "has several columns named 'a'. Rename them."),
    "no rows": ([["a", "b"]], "holds no rows. Give"),
}


@pytest.mark.parametrize("name", BAD_SHEETS)
def test_bad_sheets(tmp_path, name):
    rows, words = BAD_SHEETS[name]
    path = workbook(tmp_path / "data.xlsx", rows)
    with pytest.raises(UsageError) as caught:
        TableFile(path).read()
    assert words in str(caught.value)


def test_what_is_not_a_workbook(tmp_path, monkeypatch):
    path = tmp_path / "data.xlsx"
    path.write_bytes(b"PK no workbook")
    with pytest.raises(
        UsageError, match=r"it is not a workbook of Excel. If it is a CSV, name it \.csv\."
    ):
        TableFile(path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UsageError, match=r"without openpyxl\. .*pip install -e '\.\[excel\]'; or"):
        TableFile(path)


def test_parquet_of_polars(tmp_path):
    frame_of = pl.DataFrame(
        {
            "text": ["x", "y", None] * 20,
            "level": pl.Series(["u", "v"] * 30, dtype=pl.Categorical),
            "known": pl.Series(["u", "v"] * 30, dtype=pl.Enum(["u", "v"])),
            "n": pl.Series([1, 2, None] * 20, dtype=pl.UInt8),
            "day": [datetime.date(2024, 1, 1 + i % 28) for i in range(60)],
            "y": [True, False] * 30,
        }
    )
    frame_of.write_parquet(tmp_path / "data.parquet")
    found = plan(TableFile(tmp_path / "data.parquet").read(), "data.parquet", target="y")
    assert (found.numbers, found.dates) == (("n",), ("day",))
    assert found.categories == ("text", "level", "known")


def test_commands_read_alike(tmp_path):
    """A run of one kind of file labels the same rows in all others, and says how it reads them."""
    made = table(120).drop(columns="person").round(2)
    made["day"] = pd.date_range("2024-01-01", periods=120).strftime("%d/%m/%Y")
    made["label"] = made["label"].replace({"middle": "mäßig"})
    plain = written(tmp_path / "plain.csv", made)
    european, book = tmp_path / "european.csv", tmp_path / "book.xlsx"
    european.write_bytes(made.to_csv(index=False, sep=";", decimal=",").encode("cp1252"))
    made.to_excel(book, index=False)
    said = done(*fit(european, tmp_path / "run", model="linear")).err
    assert "is read as a table in Windows-1252" in said
    order = "The dates of 'day' are read in the order of 31/01/2024."
    assert f"Note: {order}\n" in said
    notes = json.loads((tmp_path / "run" / "findings.json").read_text())["notes"]
    assert order in notes
    assert order in html.unescape((tmp_path / "run" / "report.html").read_text())
    values = set()
    for data in (plain, european, book):
        scored = json.loads(done("evaluate", tmp_path / "run", data, "--json").out)
        values.add(scored["methods"][0]["value"])
        out = tmp_path / f"{data.stem}.parquet"
        done("predict", tmp_path / "run", data, "--out", out)
    assert len(values) == 1
    labels = [
        pd.read_parquet(tmp_path / f"{name}.parquet")["prediction"]
        for name in ("plain", "european", "book")
    ]
    assert labels[0].tolist() == labels[1].tolist() == labels[2].tolist()
    scored = pd.read_parquet(tmp_path / "european.parquet")
    scores = written(tmp_path / "scores.csv", scored[["label"]].join(scored.filter(like="prob")))
    content = pd.read_csv(scores).to_csv(index=False, sep=";", decimal=",")
    (tmp_path / "scores2.csv").write_text(content, encoding="utf-8")
    rules = []
    for name in ("scores", "scores2"):
        done("decide", tmp_path / f"{name}.csv", "--target", "label", "--out", tmp_path / "r.json")
        rules.append((tmp_path / "r.json").read_text())
    assert rules[0].replace('"decimal": "."', '"decimal": ","') == rules[1]


def test_a_row_is_read_as_the_training_table_where_it_does_not_tell_its_marks(tmp_path):
    """Among decimal commas 1,771 is 1.771, and 1.771 may be a thousand."""
    made = table(120)[["age", "label"]].assign(size=np.arange(120) / 7).round(3)
    runs, words = {}, "is the comma a decimal one, or does it mark thousands?"
    for decimal in ".,":
        data = tmp_path / "data.csv"
        data.write_text(made.to_csv(index=False, sep=";", decimal=decimal), encoding="utf-8")
        runs[decimal] = tmp_path / f"run{ord(decimal)}"
        done(*fit(data, runs[decimal], model="linear"))
    new, out = tmp_path / "new.csv", tmp_path / "out.parquet"
    new.write_text("size;age\n12;1,771\n", encoding="utf-8")
    said = done("predict", runs[","], new, "--out", out)
    assert "with decimal commas" in said.err
    assert said.out.startswith("Labelled 1 row: ")
    assert pd.read_parquet(out)["age"].tolist() == [1.771]
    text = refused("predict", runs["."], new, "--out", out, "--quiet")
    cure = "Write it with a decimal point, or without a mark of thousands."
    assert text.endswith(f"Got '1,771' in row 1. {words.capitalize()} {cure}")
    new.write_text("size;age\n12;1.771\n", encoding="utf-8")
    assert "Got '1.771'" in refused("predict", runs[","], new, "--out", out, "--quiet")
    for content in ("size,age\n12,1.771\n", "size;age\n12;1.7710\n"):
        new.write_text(content, encoding="utf-8")
        done("predict", runs[","], new, "--out", out)
        assert pd.read_parquet(out)["age"].tolist() == [1.771]


def test_a_mark_of_numbers_that_is_not_ours():
    about = {"columns": {"target": "y"}, "classes": ["a", "b"], "files": {}}
    assert _is_sound(about)
    for forged in ("", ";", [], None):
        assert not _is_sound(about | {"columns": {"target": "y", "decimal": forged}})


def test_a_form_of_dates_that_is_not_ours():
    columns = {"target": "y", "dates": ["day"]}
    about = {"columns": columns, "classes": ["a", "b"], "files": {}}
    assert _is_sound(about)
    assert _is_sound(about | {"columns": columns | {"date_forms": {"day": "%d.%m.%Y"}}})
    for forged in ({"day": "%s"}, {"other": "%d.%m.%Y"}, {"day": []}, []):
        assert not _is_sound(about | {"columns": columns | {"date_forms": forged}})


def test_percent_signs_that_are_not_ours():
    columns = {"target": "y", "numbers": ["c"]}
    about = {"columns": columns, "classes": ["a", "b"], "files": {}}
    assert _is_sound(about | {"columns": columns | {"percents": {"c": True}}})
    for forged in ({"c": 1}, {"c": None}, [], "c"):
        assert not _is_sound(about | {"columns": columns | {"percents": forged}})
    assert not _is_sound(about | {"columns": columns | {"blanks": 1}})


def test_spellings_of_truth_that_are_not_ours():
    columns = {"target": "y", "categories": ["c"]}
    about = {"columns": columns, "classes": ["a", "b"], "files": {}}
    assert _is_sound(about | {"columns": columns | {"truths": {"c": ["NO", "YES"]}}})
    for forged in ({"c": ["a"]}, {"c": ["a", 1]}, {"d": ["a", "b"]}, {"c": None}, [], "c"):
        assert not _is_sound(about | {"columns": columns | {"truths": forged}})


def test_truth_values_are_the_same_in_all_files(tmp_path):
    """CSV has them as TRUE, True or true, by whom it was written; Parquet and Excel as values."""
    rng = np.random.default_rng(0)
    values = rng.random(60) < 0.5
    made = pd.DataFrame({"yes": values, "n": rng.normal(size=60), "label": np.where(values, 1, 2)})
    paths = [tmp_path / name for name in ("True.csv", "values.parquet", "values.xlsx")]
    written(paths[0], made)
    made.to_parquet(paths[1])
    made.to_excel(paths[2], index=False)
    for spelled in ("TRUE FALSE", "true false"):
        paths.append(tmp_path / f"{spelled.split()[0]}.csv")
        written(paths[-1], made.assign(yes=np.where(values, *spelled.split())))
    read = [TableFile(path).read() for path in paths]
    digits = [made.assign(yes=values.astype(kind)) for kind in (int, float)]
    written(tmp_path / "digits.csv", digits[1])
    new = [*map(pa.Table.from_pandas, digits), TableFile(tmp_path / "digits.csv").read()]
    for training in read:
        columns = plan(training, "data", target="label")
        found = [frame(table, columns, "data")["yes"].tolist() for table in [*read, *new]]
        assert found == [found[0]] * len(found)
        assert len(set(found[0])) == 2
        labels = Labels.of(training, "yes", None, "data")
        assert all((labels.encode(table, "data") == values).all() for table in [*read, *new])


def test_several_spellings_of_truth_are_levels():
    for texts in (["true", "True", "no"], ["true", "false", "1"]):
        table = pa.table({"c": texts * 9, "y": ["a", "b", "b"] * 9})
        columns = plan(table, "data", target="y")
        assert columns.truths == {}
        assert set(frame(table, columns, "data")["c"]) == {*texts}


def test_a_copy_in_utf8_goes_with_its_table(tmp_path, monkeypatch):
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(aside))
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress("größe;ort\n1;Köln\n".encode("cp1252")))
    with pytest.warns(DataWarning, match="Windows-1252"):
        table = TableFile(path)
    assert table.read().to_pylist() == [{"größe": "1", "ort": "Köln"}]
    assert len(list(aside.iterdir())) == 1
    del table
    assert not list(aside.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device without room")
def test_a_copy_that_cannot_be_written_is_no_fault_of_the_table(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_bytes("größe,ort\n1,Köln\n".encode("cp1252"))
    cure = "Make room for temporary files, name another folder in TMPDIR, or save it in UTF-8."
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    for why in ("No such file or directory", "No space left on device"):
        with pytest.warns(DataWarning, match="1252"), pytest.raises(UsageError) as error:
            TableFile(path)
        what = f"{path} needs a copy in UTF-8, which cannot be written: {why}. {cure}"
        assert str(error.value) == what
        full = os.open("/dev/full", os.O_WRONLY), str(tmp_path / "copy.csv")
        (tmp_path / "copy.csv").touch()
        monkeypatch.setattr(tempfile, "mkstemp", lambda suffix, full=full: full)


@pytest.mark.parametrize("above", ["Sales of 2024\n\n", "sep=,\n"])
def test_lines_above_the_header(tmp_path, above):
    path = tmp_path / "data.csv"
    path.write_text(f"{above}a,b,c\n1,2,3\n4,5,6\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"If lines stand above the names of the columns, remove"):
        TableFile(path).read()


def test_a_quote_without_an_end_takes_no_rows_away(tmp_path):
    """Arrow ends such a cell with the file."""
    path = tmp_path / "data.csv.gz"
    rows = 'a,b\n1,x\n2,"y\n3,z\n'
    for swallowed in (rows, rows + '4,""\n', rows.rstrip(), rows.replace("\n", "\r\n")):
        path.write_bytes(gzip.compress(swallowed.encode()))
        with pytest.raises(UsageError, match=r"before 'y.* in row 2 that takes in all rows after"):
            TableFile(path).read()
    for whole in ('x\ny"', 'x\n"', '\n"', 'x""\n"', '\n"""', 'x"'):
        for end in ("", "\n", "\r\n", "\n\n"):
            path.write_bytes(gzip.compress(f'a,b\n1,x\n2,"{whole}{end}'.encode()))
            cell = whole[:-1].replace('""', '"')
            assert TableFile(path).read().to_pydict() == {"a": ["1", "2"], "b": ["x", cell]}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_two_quotes_without_an_end_take_no_rows_away(tmp_path, end):
    """Each ends the cell that the other begins."""
    path, told = tmp_path / "data.csv", r"in row 2 that takes in the rows up to the next quote\."
    rows = ["u,0,a", "v,1,b", "w,2,a", "x,3,b", "y,4,a"]
    for place in range(3):
        for second in (2, 3):
            for closed in ("", '"'):  # the second cell may be in order
                cells = [row.split(",") for row in rows]
                cells[1][place] = f'"{cells[1][place]}'
                cells[second][place] = f'"{cells[second][place]}{closed}'
                lines = ["n,m,l", *map(",".join, cells)]
                path.write_bytes(end.join(lines).encode())
                with pytest.raises(UsageError, match=told):
                    TableFile(path).read()
    # Texts with as many commas as rows have; the last ends where a quote is that begins none.
    texts = ["Sir,\nx", "a,1\nb,2\nc", "a,\n", 'a,\n"b"', "x\ny"]
    made = pd.DataFrame({"text": texts, "l": list("ababa")})
    made.to_csv(path, index=False, lineterminator=end)
    assert TableFile(path).read().to_pydict() == made.to_dict("list")


def test_a_carriage_return_in_a_cell_ends_no_row(tmp_path):
    rows = pa.table({"a": ["x\ry", "\r", "z"], "n": pa.array([1, None, 3])})
    for names in (["a", "n"], ["n", "a"]):  # at the end of a row it is not alone
        with writing(tmp_path / "data.csv", rows.select(names).schema) as write:
            write(rows.select(names))
        read = TableFile(tmp_path / "data.csv").read().to_pydict()
        assert read == {"a": ["x\ry", "\r", "z"], "n": ["1", "", "3"]}


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_labels_of_any_precision(kind):
    rows = pa.table({"y": np.array([0.1, 0.3, 0.3, 0.1], dtype=kind)})
    labels = Labels.of(rows, "y", None, "data")
    assert labels.encode(rows, "data").tolist() == [0, 1, 1, 0]
    if kind != "float16":  # which Arrow writes with all digits
        assert labels.values == (0.1, 0.3)


ALIKE = {
    "'a', 'a '": ["a", "a ", "b"],
    "'NO', 'no'": ["no", "NO", "yes"],
    "'1', '1.0'": ["0", "1", "1.0"],
    "": ["a", "b", "a b", "1", "2"],
}


@pytest.mark.parametrize("found", ALIKE)
def test_labels_that_may_be_one(recwarn, found):
    labels = Labels.of(pa.table({"y": 2 * ALIKE[found]}), "y", None, "data")
    assert len(labels.values) == len(ALIKE[found])  # they are not merged
    told = f"differ in blanks, capitals or digits alone: {found}. If they are one class, write"
    assert [told in str(one.message) for one in recwarn] == [True] * bool(found)
