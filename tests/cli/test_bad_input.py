"""Bad input: one line, exit code 2, nothing left behind."""

import errno
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evalign.cli import run as runs
from evalign.cli.dataset import Rows
from evalign.cli.errors import UsageError
from evalign.cli.labels import Labels
from evalign.training import holdout_split
from tests.cli.commands import done, files, fit, invoke, refused, small_disk, table, written


def text_of(frame):
    return frame.to_csv(index=False).encode()


def changed(**columns):
    return text_of(table().assign(**columns))


TWO = table(6).assign(label=["a", "a", "a", "a", "a", "b"])
REVIEWS = [f"this is the review number {i} of a long film" for i in range(240)]
TUNED = ["--decision", "tuned", "--constraint"]  # argmax heeds none
BAD_TABLES = {
    "empty": (b"", "is empty. Give a table with a line of names above its rows."),
    "header only": (b"age,label\n", "holds no rows. Give a table with one row or more."),
    "header alone": (b"age,label", "holds no rows. Give a table with one row or more."),
    "open quote": (b'age,"label\n3,a\n4,b\n', "a quote in its first line is open. Close it, or"),
    "a short row": (b"age,label\n1,a\n2\n", "must have as many cells as the header, 2. Got 1."),
    "a long row": (b"age,label\n1,a\n2,b,c\n", "needs quotes around it."),
    "no text": (b"age,label\n1,\0\n", "bytes that are not text. Save it as CSV in UTF-8,"),
    "one row": (b"age,label\n1,a\n", "Got 'a' alone, in 1 row. Add rows of another class"),
    "duplicate columns": (b"age,age,label\n1,2,a\n", "several columns named 'age'. Rename them."),
    "a title": (b"An export,,\nage,label,\n1,a,\n", "named ''. Name them. If lines stand above"),
    "no target": (b"age,Label\n1,a\n", "Got 'label'. Did you mean 'Label'?"),
    "nothing like the target": (b"x,y\n1,2\n", "Got 'label'. It has 'x', 'y'."),
    "two separators": (b"x;y,label\n1;2,a\n", "may be separated by commas or semicolons"),
    "a quantity": (changed(label=np.arange(240) / 7), "Got 240 different numbers, a quantity."),
    "a flaw": (
        changed(age=[*np.arange(239) / 7, "n.a.x"]),
        "Got 'n.a.x' in row 240. Correct it or",
    ),
    "infinite": (changed(age=[np.inf, *np.arange(239) / 7]), "Got 'inf' in row 1. Correct it or"),
    "a name of ours": (
        changed(prediction=["x", "y"] * 120),
        "has the name of one that `evalign pr",
    ),
    "another": (changed(probability_low=["x", "y"] * 120), "or leave it out with --drop 'probabi"),
    "one class": (changed(label="a"), "Got 'a' alone, in 240 rows. Add rows of another class, or"),
    "one row of a class": (text_of(TWO), "two rows or more of each class. Got one row of 'b'."),
    "too few rows": (
        b"age,label\n1,a\n2,a\n2,b\n4,b\n",
        "4 rows are too few to hold out a fifth of",
    ),
    "no label": (
        changed(label=["", *["a", "b"] * 119, "NA"]),
        "no label in row 1 and 1 other. Fill",
    ),
    "no one label": (changed(label=[*["a", "b", "c"] * 79, "", "a", "b"]), "no label in row 238. "),
    "empty column": (changed(age=""), "Column 'age' of"),
    "text": (changed(age=REVIEWS), "Got text, such as 'this is the review number 0"),
    "nothing to learn from": (text_of(table()[["person", "label"]]), "'person' (id). Give a"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_tables(tmp_path, name):
    content, words = BAD_TABLES[name]
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    assert words in refused(*fit(data, tmp_path / "run"))
    assert list(tmp_path.iterdir()) == [data]


def test_an_empty_column_names_the_cure(tmp_path):
    data = tmp_path / "data.csv"
    data.write_bytes(changed(age="NaN"))
    text = refused(*fit(data, tmp_path / "run"))
    cure = "must hold a value. Got 240 gaps. Fill it in, or leave it out with --drop 'age'."
    assert text.endswith(cure)


def test_all_columns_that_cannot_be_used_are_named_at_once(tmp_path):
    data = tmp_path / "data.csv"
    data.write_bytes(changed(age="NaN", income="NaN", colour=""))
    text = refused(*fit(data, tmp_path / "run"))
    assert "'age'. Nor can these be used as they are: 'income', 'colour'." in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--metric", "f2_makro"], "`evalign metrics` lists the names."),
        (["--metric", "f2_makro"], 'Did you mean "f2_macro"?'),
        (["--metric", "f1"], "--metric f1 is of one class, and the target has 3. Use f1_macro,"),
        (["--metric", "roc_auc"], "all thresholds: use a metric of labels, such as balanced_acc"),
        (["--metric", "expected_cost"], 'Did you mean "expected_cost[[0, 1], [5, 0]]"?'),
        (["--recipe", "east2"], "--recipe must be one of aligned, cross_entropy, east"),
        (["--decision", "best"], "'best' is not one of 'argmax', 'tuned', 'expected'."),
        (["--model", "boost"], "'catboost'. Did you mean 'boosting'?"),
        ([*TUNED, "recall >= 0.9"], "say which of the 3 classes it is about"),
        ([*TUNED, "recall[none] >= 0.9"], "name one of the classes"),
        ([*TUNED, "accuracy >= 0.5, accuracy >= 0.5"], "name each of its parts once"),
        ([*TUNED, "gap(accuracy) <= 0.1"], "must not be about gaps"),
        (["--seed", "-1"], "'--seed': Input should be greater than or equal to 0"),
        (["--epochs", "0"], "'--epochs': Input should be greater than or equal to 1"),
        (["--epochs", "many"], "'--epochs': Input should be a valid integer"),
        (["--group", "visits"], "--group must name a column of"),
        (["--weight", "mass"], "--weight must name a column of"),
        (
            ["--weight", "colour"],
            "must hold weights, numbers that are not negative. Got 'red' in row 1. A weight of 0",
        ),
        (["--group", "income"], "must name a group in every row"),
        (
            ["--group", "member"],
            "--group must leave two groups or more, of which some are held out as",
        ),
        (["--drop", "colours"], "Did you mean 'colour'?"),
        (["--drop", "label"], "must name different columns"),
        (["--positive", "high"], "must be left out, as 'label' has 3 classes, not two. Got 'high'"),
        (["--test", "nowhere.csv"], "nowhere.csv cannot be read: No such file or directory."),
        (["--validation", "t.csv.zip"], "t.csv.zip is packed. Unpack it, and give the table"),
        (
            [*TUNED, "accuracy >= 0.5", "--confidence", "2"],
            "confidence of evalign fit must lie from 0.5 to",
        ),
        (["--confidence", "0.9"], "must come with a constraint. Got 0.9. Give one"),
        (["--validation", "t.ods"], "must end in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .xlsx."),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_arguments(tmp_path, data, more, words):
    assert words in refused(*fit(data, tmp_path / "run", *more))
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_one_group(tmp_path):
    """Its group may be held out when a network of a blend is trained."""
    groups = [f"{i % 5}" if label != "high" else "h" for i, label in enumerate(table()["label"])]
    data = tmp_path / "data.csv"
    data.write_bytes(changed(home=groups))
    result = invoke(*fit(data, tmp_path / "run", "--model", "blend", "--group", "home"))
    assert result.code == 2
    text = "must leave rows of every class to train on. Got none of class ['high']. Give"
    assert text in result.err


def test_an_error_that_is_not_of_the_groups_keeps_its_traceback(tmp_path, data, monkeypatch):
    def broken(*given):
        raise ValueError("a bug")

    monkeypatch.setattr("evalign.cli.fit.train", broken)
    with pytest.raises(ValueError, match="a bug"):
        invoke(*fit(data, tmp_path / "run", "--group", "age"))


def test_a_metric_of_two_classes_says_so(tmp_path, data):
    said = refused(*fit(data, tmp_path / "run", "--metric", "precision"))
    assert said.endswith("the target has 3. Use precision_macro, the mean of the classes.")


def test_a_positive_class_that_is_misspelt(tmp_path):
    data = written(tmp_path / "data.csv", table().assign(label=["True", "False"] * 120))
    text = refused(*fit(data, tmp_path / "run", "--positive", "true"))
    assert text.endswith("the classes are 'False', 'True'. Did you mean 'True'?")
    text = refused(*fit(data, tmp_path / "run", "--positive", "0"))
    assert text.endswith("the classes are 'False', 'True'.")


def test_an_uneven_row_far_down(tmp_path):
    """Rows are counted as elsewhere: from 1, without the header and lines that are empty."""
    data = tmp_path / "data.csv"
    data.write_text("x,label\n\n" + "1,a\n" * 2_000_000 + "1,a,b\n" + "1,b\n" * 9)
    text = refused(*fit(data, tmp_path / "run"))
    assert f"Row 2000001 of {data} must have as many cells as the header, 2. Got 3." in text


def test_places(tmp_path, data):
    assert "No such file" in refused(*fit(tmp_path / "none.csv", tmp_path / "run"))
    assert "is a folder. Give one" in refused(*fit(_folder(tmp_path / "some"), tmp_path / "run"))
    assert "is a folder" in refused(*fit(_folder(tmp_path / "some.csv"), tmp_path / "run"))
    text = refused(*fit(data, tmp_path / "nowhere" / "run"))
    assert f"The folder {tmp_path / 'nowhere'} does not exist. Create it first." in text
    (tmp_path / "some.csv" / "mine.txt").write_text("mine")
    assert "is not a run of evalign" in refused(*fit(data, tmp_path / "some.csv"))
    assert "is not a run of evalign" in refused(*fit(data, tmp_path / "some.csv" / "mine.txt"))
    _folder(tmp_path / "run.partial").joinpath("mine.txt").write_text("mine")
    assert "run.partial exists and is not a run" in refused(*fit(data, tmp_path / "run"))
    assert len(files(tmp_path)) == 2
    _folder(tmp_path / "other.partial").joinpath("command.json").write_text("{")
    text = refused(*fit(data, tmp_path / "other"))
    assert "command.json cannot be read" in text
    assert text.endswith("Delete the folder to start afresh.")


def test_names_that_are_not_utf_8(tmp_path, data):
    name = tmp_path / os.fsdecode(b"caf\xe9.csv")  # as Latin-1 has it
    for arguments in (fit(name, tmp_path / "run"), fit(data, name)):
        assert refused(*arguments).endswith("caf\\udce9.csv' must be a name in UTF-8. Rename it.")
    assert list(tmp_path.iterdir()) == []


def test_places_that_take_no_file(fitted, data, tmp_path):
    """Said first of all, as training may take hours. In /proc not even root may write."""
    place = Path("/proc/place.csv")
    for command in (
        fit(data, place),
        ["predict", fitted, data, "--out", place],
        ["decide", data, "--target", "label", "--out", place.with_suffix(".json")],
        ["report", fitted, "--out", place],
    ):
        text = refused(*command)
        assert f"{place.with_suffix('')}" in text
        assert "cannot be written: the folder /proc takes no file (" in text
        assert text.endswith("Choose another --out.")


def test_a_report_does_not_take_the_place_of_a_table(fitted, tmp_path):
    new = written(tmp_path / "new.csv", table(5))
    before = files(tmp_path), files(fitted)
    assert "new.csv must end in .html or .htm." in refused("report", fitted, "--out", new)
    assert "must end in .html" in refused("report", fitted, "--out", fitted / "run.json")
    assert (files(tmp_path), files(fitted)) == before


def test_a_finished_run_in_a_place_that_takes_no_file(command, fitted, data, monkeypatch):
    """It is shown again, which writes nothing. Its report is not made again."""

    def refuse(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("evalign.cli.files.TemporaryFile", refuse)
    assert "is complete" in done(*command).err
    assert f"{fitted} takes no file (Read-only" in refused("report", fitted)


def test_a_place_where_another_command_writes(tmp_path, data):
    with runs._alone(tmp_path / "run.partial"):
        text = refused(*fit(data, tmp_path / "run", "--quiet"))
    assert "Another `evalign fit` is writing" in text
    assert text.endswith("Wait for it, or choose another --out.")


def _folder(path):
    path.mkdir()
    return path


def test_labels_that_training_never_saw(tmp_path, data):
    test = written(tmp_path / "test.csv", table(60).replace({"label": {"low": "lowest"}}))
    text = refused(*fit(data, tmp_path / "run", "--test", test))
    assert "labels that training never saw: 'lowest'. It knows 'high', 'low', 'middle'. W" in text
    assert list(tmp_path.iterdir()) == [test]


def test_a_class_in_one_group():
    """Held out with its group, it would never be learnt."""
    y = np.repeat([0, 1], 20)
    rows = Rows(pd.DataFrame({"x": y}), y, None, np.repeat(["a", "b"], 20))
    with pytest.raises(
        UsageError, match=r"All rows of '(no|yes)' were held out as test rows"
    ) as caught:
        rows.hold_out(Labels("y", ("no", "yes")), 0, "test")
    assert str(caught.value).endswith("Give a table with --test, or another --seed.")


def test_a_class_in_one_group_of_the_training_rows(tmp_path):
    frame = table(60).assign(label=np.repeat(["no", "yes"], 30), visit=np.repeat(["a", "b"], 30))
    data = written(tmp_path / "data.csv", frame)
    other = written(tmp_path / "test.csv", frame.assign(visit="c"))
    text = refused(*fit(data, tmp_path / "run", "--group", "visit", "--test", other))
    assert "were held out as validation rows. Give a table with --validation, or" in text


@pytest.mark.parametrize("weight", [1e-300, 1e-13, 1e39, "1e400"])
def test_weights_that_would_be_rounded_away(tmp_path, weight):
    weights = np.where(table().index == 5, str(weight), "1")
    data = written(tmp_path / "data.csv", table().assign(mass=weights))
    text = refused(*fit(data, tmp_path / "run", "--weight", "mass"))
    allowed = "must hold weights, 0 or numbers from 1e-12 to 3e+38."
    cure = "Only their ratios count: multiply all by one number, or make the smallest 0."
    assert f"{allowed} Got '{weight}' in row 6. {cure}" in text


def test_no_weight(tmp_path):
    weight = np.where(table()["label"] == "low", 0, 1)
    data = written(tmp_path / "data.csv", table().assign(mass=weight))
    text = refused(*fit(data, tmp_path / "run", "--weight", "mass"))
    assert text.endswith("must give each class some weight.")


@pytest.mark.parametrize("part", ["--validation", "--test"])
def test_no_weight_in_another_table(tmp_path, part):
    data = written(tmp_path / "data.csv", table().assign(mass=1))
    other = written(tmp_path / "other.csv", table(60).assign(mass=0))
    text = refused(*fit(data, tmp_path / "run", "--weight", "mass", part, other))
    assert text.endswith("other.csv must give some row a weight. Got 0 for all 60.")
    assert len(list(tmp_path.iterdir())) == 2


def test_no_weight_in_a_part(tmp_path):
    frame, weight = table(), np.zeros(240)
    kept, held_out = holdout_split(frame["label"].astype("category").cat.codes, seed=0)
    for part, words in [
        (kept, "Of the rows held out as test rows none is with a weight."),
        (held_out, "All rows of 'high', 'low', 'middle' with a weight were held out as test rows."),
    ]:
        weight[:] = 0
        weight[part] = 1
        data = written(tmp_path / "data.csv", frame.assign(mass=weight))
        text = refused(*fit(data, tmp_path / "run", "--weight", "mass"))
        assert text.endswith(f"{words} Give a table with --test, or another --seed.")
    assert list(tmp_path.iterdir()) == [data]


def test_a_group_alone(tmp_path, data):
    text = refused(*fit(data, tmp_path / "run", "--group", "country", "--test", data))
    assert text.endswith("Got 1. Give more groups, or a table with --validation.")


def test_parquet(tmp_path):
    frame = table()
    data = written(tmp_path / "data.parquet", frame.assign(day=[[1, 2]] * 240))
    assert "Make numbers or text of it, or leave" in refused(*fit(data, tmp_path / "run"))
    assert "must hold numbers, text or dates. Got list" in refused(
        *fit(data, tmp_path / "run", target="day")
    )
    written(data, frame.assign(day=[*range(5, 244), np.inf]))
    assert "must hold finite numbers. Got 'inf' in row 240" in refused(*fit(data, tmp_path / "run"))
    data.write_bytes(data.read_bytes()[:1000])
    assert "cannot be read" in refused(*fit(data, tmp_path / "run"))
    assert list(tmp_path.iterdir()) == [data]


def test_a_cut_archive(tmp_path):
    data = tmp_path / "data.csv.gz"
    data.write_bytes(gzip.compress(text_of(table(2000)))[:-5000])
    assert "cannot be read" in refused(*fit(data, tmp_path / "run"))


def test_predict(tmp_path, fitted, data):
    out = tmp_path / "scored.csv"

    def text_for(frame, *, to=out):
        return refused("predict", fitted, written(tmp_path / "new.csv", frame), "--out", to)

    assert "has no column 'age', 'colour'. It has" in text_for(
        table().drop(columns=["age", "colour"])
    )
    frame = table().astype({"age": object})
    frame.loc[17, "age"] = "old"
    text = text_for(frame)
    assert "must hold finite numbers. Got 'old' in row 18. Correct it, or leave it empty." in text
    assert "holds no rows" in text_for(table(0))
    assert "already has columns named 'prediction'" in text_for(table().assign(prediction=1))
    assert "does not exist. Create it first." in text_for(table(), to=tmp_path / "no" / "new.csv")
    assert text_for(table(), to=_folder(tmp_path / "f.csv")).endswith(
        "is a folder. Name a file in it."
    )
    (tmp_path / "f.csv").rmdir()
    assert "must end in" in text_for(table(), to=tmp_path / "scored.xlsx")
    before = (tmp_path / "new.csv").read_bytes()
    assert "must be another file than DATA" in text_for(table(), to=tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_bytes() == before
    assert "No such file" in refused("predict", fitted, tmp_path / "none.csv", "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_evaluate(tmp_path, fitted, monkeypatch):
    new = tmp_path / "new.csv"
    written(new, table().drop(columns="label"))
    assert "has no column 'label'" in refused("evaluate", fitted, new)
    written(new, table().assign(label="lowest"))
    assert "labels that training never saw: 'lowest'" in refused("evaluate", fitted, new)
    written(new, table(0))
    assert "holds no rows" in refused("evaluate", fitted, new)
    # Also in a later block of rows.
    monkeypatch.setattr("evalign.cli.tables.BLOCK_BYTES", 2**10)
    label = table()["label"].where(table().index != 200)
    written(new, table().assign(label=label))
    assert "has no label in row 201. Fill it in" in refused("evaluate", fitted, new)


def test_no_run(tmp_path, data):
    out = tmp_path / "scored.csv"
    text = refused("predict", tmp_path, data, "--out", out)
    assert text.endswith("it has no run.json. Give the folder that `evalign fit` wrote.")
    (tmp_path / "run.partial").mkdir()
    text = refused("report", tmp_path / "run")
    assert text.endswith("It is not finished: run the same command again.")


@pytest.fixture(params=["run.json", "model/state.json", "history.json"])
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
    if file.name != "run.json":
        assert "is damaged" in refused(*fit(data, run))
    assert not (tmp_path / "new.csv").exists()


def test_another_version(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"version": 1}))
    text = refused("report", tmp_path / "run")
    assert text.endswith(
        "has format version 1, this is 5. Use it with the version of evalign that wrote it."
    )
    file.write_text(json.dumps(about | {"format": "other"}))
    assert "is not a run of evalign: see its run.json" in refused("report", tmp_path / "run")


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
