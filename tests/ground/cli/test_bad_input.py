"""Bad input: one line, exit code 2, nothing left behind."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from evalign.cli.dataset import LabelledFrame
from evalign.cli.errors import UsageError
from evalign.store.files import VERSION
from evalign.tables.labels import Labels
from tests.ground.cli.commands import files, fit, refused, small_disk, table, written


def text_of(frame):
    return frame.to_csv(index=False).encode()


def changed(**columns):
    return text_of(table().assign(**columns))


TWO = table(6).assign(label=["a", "a", "a", "a", "a", "b"])
BAD_TABLES = {
    "empty": (b"", "Got: No columns to parse from file. For a CSV, see --sep, --encoding (such as"),
    "header only": (b"age,label\n", "holds no rows. Give a table with one row or more."),
    "a long row": (b"age,label\n1,a\n2,b,c\n", "Expected 2 fields in line 3, saw 3."),
    "no UTF-8": (b"age,label\n1,\xe9\n", "Got: 'utf-8' codec can't decode byte 0xe9 in"),
    "a name twice": (b"age,age,label\n1,2,a\n", "must name each column once. Got 'age' twice."),
    "no target": (b"age,Label\n1,a\n", "no column 'label'. Did you mean 'Label'?"),
    "nothing like the target": (b"x,y\n1,2\n", "has no column 'label'. It has 'x', 'y'."),
    "another separator": (b"x;label\n1;2\n", "If another mark separates its columns, pass --sep."),
    "a quantity": (
        changed(label=np.arange(240) / 7),
        "and 237 more. Merge rare classes, or make ranges of numbers.",
    ),
    "a flaw": (changed(age=[*np.arange(239) / 7, "n.a.x"]), "Got 'n.a.x' in row 240 (the first"),
    "infinite": (changed(age=[np.inf, *np.arange(239) / 7]), "Got inf in column 'age', row 1 "),
    "one class": (changed(label="a"), "must hold two classes or more. Got 'a' alone."),
    "one row of a class": (text_of(TWO), "two rows or more of each class. Got one row of 'b'."),
    "too few rows": (b"age,label\n1,a\n2,a\n2,b\n4,b\n", "cannot be held out as test rows"),
    "no label": (
        changed(label=["", *["a", "b"] * 119, "NA"]),
        "no label in 2 rows, the first of them row 1. Fill",
    ),
    "nothing to learn from": (
        text_of(table()[["person", "label"]]),
        "must hold a column to learn from. Got none: {'person': 'looks",
    ),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables(tmp_path, name):
    content, words = BAD_TABLES[name]
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    assert words in refused(*fit(data, tmp_path / "run"))
    assert list(tmp_path.iterdir()) == [data]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--metric", "f2_makro"], "Did you mean 'f2_macro'?"),
        (["--metric", "f1"], "classes of f1 must be two. Got 3 classes. Use f1_macro,"),
        (["--decision", "best"], "'best' is not one of 'argmax', 'tuned', 'expected'."),
        (["--seed", "-1"], "'--seed'"),
        (["--epochs", "many"], "'--epochs'"),
        (["--groups", "visits"], "has no column 'visits'"),
        (["--weight", "mass"], "has no column 'mass'"),
        (["--weight", "colour"], "finite numbers that are not negative. Got 'red' in row 1."),
        (["--groups", "income"], "must name a group in every row. Fill in its gaps."),
        (["--groups", "country"], "A fifth cannot be held out as test rows"),
        (["--drop", "colours"], "Did you mean 'colour'?"),
        (["--positive", "high"], "--positive must be one of two classes of 'label'. Got 'high'"),
        (["--test", "nowhere.csv"], "nowhere.csv"),
        (["--test", __file__], "must end in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .xlsx."),
        (["--encoding", "utf-17"], "Got: unknown encoding: utf-17. For a CSV, see"),
        (["--dates", "%d.%m.%Y"], "--dates must fit all cells of a column of "),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_arguments(tmp_path, data, more, words):
    assert words in refused(*fit(data, tmp_path / "run", *more))
    assert list(tmp_path.iterdir()) == []


def test_a_positive_class_that_is_misspelt(tmp_path):
    data = written(tmp_path / "data.csv", table().assign(label=["True", "False"] * 120))
    text = refused(*fit(data, tmp_path / "run", "--positive", "true"))
    assert text.endswith("the classes are 'False', 'True'. Did you mean 'True'?")


def test_places(tmp_path, data):
    text = refused(*fit(data, tmp_path / "nowhere" / "run"))
    assert f"The folder {tmp_path / 'nowhere'} does not exist. Create it first." in text
    _folder(tmp_path / "some").joinpath("mine.txt").write_text("mine")
    assert "some exists. Choose another" in refused(*fit(data, tmp_path / "some"))
    assert len(files(tmp_path)) == 1


def _folder(path):
    path.mkdir()
    return path


def test_labels_that_training_did_not_have(tmp_path, data):
    test = written(tmp_path / "test.csv", table(60).replace({"label": {"low": "lowest"}}))
    text = refused(*fit(data, tmp_path / "run", "--test", test))
    assert "labels that training never saw: 'lowest'. It knows 'high', 'low', 'middle'. W" in text
    assert list(tmp_path.iterdir()) == [test]


def test_a_class_in_one_group():
    """Held out with its group, it would never be learnt."""
    y = np.repeat([0, 1], 20)
    rows = LabelledFrame(pd.DataFrame({"x": y}), y, None, np.repeat(["a", "b"], 20), None)
    with pytest.raises(UsageError, match=r"leaves no '(no|yes)' on one side.*--test"):
        rows.hold_out(Labels("y", ("no", "yes")), 0)


def test_weights(tmp_path):
    weight = np.where(table()["label"] == "low", 0, 1)
    data = written(tmp_path / "data.csv", table().assign(mass=weight))
    text = refused(*fit(data, tmp_path / "run", "--weight", "mass"))
    assert text.endswith("must give each class some weight.")
    written(data, table().assign(mass=1))
    other = written(tmp_path / "other.csv", table(60).assign(mass=0))
    text = refused(*fit(data, tmp_path / "run", "--weight", "mass", "--test", other))
    assert text.endswith("other.csv must give some row a weight.")
    assert len(list(tmp_path.iterdir())) == 2


def test_parquet(tmp_path):
    data = written(tmp_path / "data.parquet", table().assign(day=[[1, 2]] * 240))
    text = refused(*fit(data, tmp_path / "run"))
    assert "must hold numbers, text, booleans or dates, one in a cell. Got " in text
    data.write_bytes(data.read_bytes()[:1000])
    assert "must be a table of the type its name says" in refused(*fit(data, tmp_path / "run"))
    assert list(tmp_path.iterdir()) == [data]


def test_predict(tmp_path, fitted):
    out = tmp_path / "scored.csv"

    def text_for(frame, *, to=out):
        return refused("predict", fitted, written(tmp_path / "new.csv", frame), "--out", to)

    missing = text_for(table().drop(columns=["age", "colour"]))
    assert "has no column 'age', 'colour'. " in missing
    frame = table().astype({"age": object})
    frame.loc[17, "age"] = "old"
    text = "Got text ('old' in row 18; the first is 1) in column 'age', which held numbers in fit."
    assert text in text_for(frame)
    assert "holds no rows" in text_for(table(0))
    assert "must end in" in text_for(table(), to=tmp_path / "scored.xlsx")
    before = (tmp_path / "new.csv").read_bytes()
    assert "must be another file than DATA" in text_for(table(), to=tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_evaluate(tmp_path, fitted):
    new = tmp_path / "new.csv"
    written(new, table().drop(columns="label"))
    assert "has no column 'label'" in refused("evaluate", fitted, new)
    written(new, table().assign(label="lowest"))
    assert "labels that training never saw: 'lowest'" in refused("evaluate", fitted, new)
    written(new, table(0))
    assert "holds no rows" in refused("evaluate", fitted, new)
    written(new, table().assign(age="old"))
    assert "new.csv: X of AlignedEnsemble must have the col" in refused("evaluate", fitted, new)


@pytest.fixture(params=["run.json", "model", "details.json"])
def damaged(request, fitted, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    return run, run / request.param


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_damage(damaged, data, tmp_path, damage):
    run, file = damaged
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    for command in (["predict", run, data, "--out", tmp_path / "new.csv"], ["report", run]):
        assert file.name in refused(*command)
    assert not (tmp_path / "new.csv").exists()


def test_another_version(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"version": 1}))
    text = refused("report", tmp_path / "run")
    assert text.endswith(f"has format 1, evalign now reads {VERSION}: fit again.")
    file.write_text(json.dumps(about | {"format": "other"}))
    assert "holds nothing that evalign saved: it is no run" in refused("report", tmp_path / "run")


def test_a_full_disk(fitted, data, tmp_path):
    """Nothing half-written, whatever was being written."""
    with small_disk(2000):
        for name in ("scored.csv", "scored.parquet", "scored.csv.gz"):
            text = refused("predict", fitted, data, "--out", tmp_path / name)
            assert "File too large" in text
        assert "File too large" in refused("report", fitted, "--out", tmp_path / "report.html")
        before = files(fitted)
        assert "File too large" in refused("report", fitted)
        assert "File too large" in refused(*fit(data, tmp_path / "run", "--quiet"))
    assert files(fitted) == before
    assert list(tmp_path.iterdir()) == []
