"""Tables on disk, and the classes of a label column."""

import gzip

import numpy as np
import pandas as pd
import pytest

from evalign.core.errors import InputError
from evalign.tables import files
from evalign.tables.files import Reading, TableFile, check_size, writing
from evalign.tables.labels import Labels

FRAME = pd.DataFrame(
    {
        "age": [51.25, np.nan, 48.5],
        "zip": [7, 12, 30],
        "name": ["Köln", "a,b", 'say "so"\nhere'],
        "label": ["yes", "no", "yes"],
    }
)


def saved(path, frame=FRAME, **how):
    match path.name.split(".", 1)[1]:
        case "parquet":
            frame.to_parquet(path)
        case "xlsx":
            frame.to_excel(path, index=False)
        case name:
            frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ",", **how)
    return path


@pytest.mark.parametrize("name", ["csv", "csv.gz", "tsv", "tsv.gz", "parquet", "xlsx"])
def test_all_formats_hold_one_table(tmp_path, name, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_CELLS", 1)
    source = TableFile(saved(tmp_path / f"table.{name}"))
    assert source.names == list(FRAME.columns)
    pd.testing.assert_frame_equal(source.read(), FRAME)
    blocks = [block for block, _ in source.blocks()]
    found = pd.concat(blocks).astype(FRAME.dtypes.to_dict())
    pd.testing.assert_frame_equal(found, FRAME)


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("a;b\n1,5;x\n2,5;y\n", Reading(sep=";", decimal=",")),
        ("a|b\n1.5|x\n2.5|y\n", Reading(sep="|")),
        ("a,b\n1.5,x\n2.5,y\n?,?\nnone,NA\n", Reading(missing=("?", "none"))),
    ],
)
def test_options_of_reading(tmp_path, text, reading):
    (tmp_path / "table.csv").write_text(text)
    frame = TableFile(tmp_path / "table.csv", reading).read()
    assert frame["a"].tolist()[:2] == [1.5, 2.5]
    assert frame["b"].tolist()[:2] == ["x", "y"]
    assert frame[2:].isna().all(axis=None)


def test_missing_and_dates_of_parquet(tmp_path):
    frame = pd.DataFrame({"a": [-999, 1, 2], "b": ["?", "x", "-999"], "day": ["31/01/2024"] * 3})
    frame.to_parquet(path := tmp_path / "table.parquet")
    source = TableFile(path, Reading(missing=("?", "-999"), dates="%d/%m/%Y"))
    ((block, raw),) = source.blocks(text=["b"], dates=["day"])
    for found in (source.read(), block):
        assert found["a"].tolist()[1:] == [1, 2]
        assert found.isna().to_numpy().sum() == 3
        assert found["day"][0] == pd.Timestamp(2024, 1, 31)
    assert raw["a"].tolist() == frame["a"].tolist()


def test_encodings(tmp_path):
    path = saved(tmp_path / "table.csv", encoding="cp1252")
    with pytest.raises(InputError, match=r"Got: 'utf-8' codec can't.*see --sep, --enc"):
        TableFile(path).read()
    pd.testing.assert_frame_equal(TableFile(path, Reading(encoding="cp1252")).read(), FRAME)
    path = saved(tmp_path / "marked.csv", encoding="utf-8-sig")
    assert TableFile(path).names[0] == "age"


def test_formats_of_dates(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("day,other,label\n31/01/2024,01/02/2024,01/02/2024\n,soon,\n28/02/2024,,\n")
    assert TableFile(path).read()["day"].tolist()[0] == "31/01/2024"
    source = TableFile(path, Reading(dates="%d/%m/%Y"))
    frame = source.read(text=["label"])
    assert frame["day"].tolist()[::2] == [pd.Timestamp(2024, 1, 31), pd.Timestamp(2024, 2, 28)]
    assert frame["other"].tolist()[:2] == ["01/02/2024", "soon"]  # not all cells are dates
    assert frame["label"].tolist()[0] == "01/02/2024"
    ((block, raw),) = source.blocks(text=["label", "other"], dates=["day"])
    assert block["day"].equals(frame["day"])
    assert raw["day"].tolist() == ["31/01/2024", "", "28/02/2024"]


def test_blocks_do_not_decide_what_a_column_is(tmp_path, monkeypatch):
    """Text of a CSV stays as the file has it, also where a block holds numbers alone."""
    monkeypatch.setattr(files, "BLOCK_CELLS", 1)
    codes = ["007"] * 600 + ["A1", "08"] * 300
    path = saved(tmp_path / "table.csv", pd.DataFrame({"code": codes, "x": range(1200)}))
    pairs = list(TableFile(path).blocks(text=["code"]))
    assert len(pairs) > 2
    for part in (0, 1):
        found = pd.concat([pair[part] for pair in pairs])
        assert found["code"].tolist() == codes
    assert pairs[0][1]["x"].tolist()[:2] == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "t.csv",
            b"",
            "must be a table of the type .* Got: No columns to parse .* see --sep",
        ),
        ("t.csv", b"a,b\n", "holds no rows. Give a table with one row or more."),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ("t.csv", b"a,b\n1,2,3\n1,2,3\n", "Expected 2 fields in line 2, saw 3"),
        ("t.csv", b"a,b,,a,\n1,2,3,4,5\n", "must name each column once. Got 'a' twice. Rename or"),
        ("t.csv.gz", gzip.compress(b"a,b\n" * 9999, mtime=0)[:-20], "Got: Compressed file ended"),
        ("t.parquet", b"PAR1 and no more", "must be a table of the type its name says"),
        ("t.xlsx", b"a,b\n1,2\n", "must be a table of the type its name says"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        TableFile(tmp_path / name).read()
    assert "\n" not in str(caught.value)


def test_columns_that_are_missing(tmp_path):
    source = TableFile(saved(tmp_path / "table.csv"))
    source.need(["age", "zip"])
    with pytest.raises(InputError, match=r"has no column 'ages'. Did you mean 'age'"):
        source.need(["age", "ages"])
    (tmp_path / "other.csv").write_text("a;b\n1;2\n")
    with pytest.raises(
        InputError, match=r"It has 'a;b'. If another mark separates its columns, pass --sep"
    ):
        TableFile(tmp_path / "other.csv").need(["a"])


@pytest.mark.parametrize("name", ["csv", "tsv.gz", "parquet"])
def test_written_blocks_are_read_again(tmp_path, name):
    path, frame = tmp_path / f"out.{name}", FRAME.assign(name=["a\rb", "c", '"d"'])
    with writing(path, path) as write:
        for row in range(3):
            write(frame[row : row + 1])
    pd.testing.assert_frame_equal(TableFile(path).read(), frame)
    if name == "parquet":
        with pytest.raises(InputError, match=r"holds [\d,]+ bytes, more than 10\."):
            check_size(path, 10)


def labels(*cells, positive=None):
    return Labels.of(pd.DataFrame({"y": cells}), "y", positive, "data.csv")


def test_labels():
    assert labels("b", "a", "b", "a").values == ("a", "b")
    assert labels("10", "9", "10", "9").values == (9, 10)  # numbers, where that loses nothing
    assert labels("010", "009", "010", "009").values == ("009", "010")
    assert labels(1.0, 0.0, 0.0, 1.0).values == (0, 1)
    assert labels(True, False, True, False).values == ("False", "True")
    found = labels("yes", "no", "no", "yes", positive="no")
    assert (found.values, found.positive) == (("yes", "no"), "no")
    frame = pd.DataFrame({"y": ["no", "yes"]})
    assert found.encode(frame, "new.csv").tolist() == [1, 0]
    with pytest.raises(InputError, match=r"Column 'y' of new.csv holds labels that .*: 'maybe'\."):
        found.encode(frame.replace("no", "maybe"), "new.csv")
    with pytest.raises(InputError, match=r"has no label in 2 rows, the first of them row 2\. Fill"):
        found.encode(pd.DataFrame({"y": ["no", None, None]}), "new.csv")


@pytest.mark.parametrize(
    ("cells", "positive", "words"),
    [
        (["a", "a"], None, "must hold two classes or more. Got 'a' alone"),
        (["a", "a", "b"], None, "two rows or more of each class. Got one row of 'b'"),
        (range(30), None, "Got one row of '0', '1', '10' and 27 more. Merge rare classes, or make"),
        (["a", "a", "b", "b"], "c", r"--positive must be one of two classes of 'y'. Got 'c'; the"),
        (["a", "a", "b", "b", "c", "c"], "c", "--positive must be one of two classes"),
    ],
)
def test_labels_that_are_no_classes(cells, positive, words):
    with pytest.raises(InputError, match=words):
        labels(*cells, positive=positive)


LATE = ["red", "1.5", "", "true", str(2**63 + 5)]


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("early", ["7", "blue", "true"])
def test_a_column_that_changes_late_is_read_as_a_whole(tmp_path, early, late):
    """pandas can read a large file in parts, none of which may decide on a column."""
    rows = pd.DataFrame({"a": [early] * 5_000 + [late] * 3})
    rows = rows.join(pd.DataFrame(1, rows.index, [f"b{i}" for i in range(256)]))  # parts are small
    path = tmp_path / "data.csv"
    rows.to_csv(path, index=False)
    frame = TableFile(path).read()
    pd.testing.assert_frame_equal(frame, pd.read_csv(path, low_memory=False))
    if early == "7" and late == LATE[-1]:  # as floats, these ids would be others
        assert frame["a"].tolist() == [7] * 5_000 + [2**63 + 5] * 3
