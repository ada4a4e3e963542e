"""`evalign fit`: the files it writes, and its output."""

import io
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest

import evalign
from evalign.cli import main
from evalign.cli.run import FinishedRun
from evalign.core.text import installing
from evalign.estimators import AlignedEnsemble
from evalign.tables.split import holdout_split
from tests.forged import opened
from tests.ground.cli.commands import done, files, fit, invoke, refused, table, written


def test_the_run_folder(fitted, data):
    names = {path.as_posix() for path in files(fitted)}
    whole = {"metrics.json", "details.json", "run.json", "report.html", "test_predictions.parquet"}
    assert names == whole | {"model"}
    run = FinishedRun(fitted)
    kinds = {"age": "number", "income": "number", "colour": "category", "member": "category"}
    assert run.columns.kinds == kinds
    assert run.labels.names == ["high", "low", "middle"]
    assert run.about["rows"] == {"training": 192, "test": 48}
    assert "<html" in (fitted / "report.html").read_text(encoding="utf-8")


def test_the_test_rows_are_those_held_out(fitted, data):
    """The predictions are of rows of the table that keep the classes' shares."""
    tested = pd.read_parquet(fitted / "test_predictions.parquet")
    truth = pd.read_csv(data)["label"].value_counts() / 5
    assert (tested["label"].value_counts() - truth).abs().max() <= 1
    columns = [f"model_probability_{label}" for label in ("high", "low", "middle")]
    np.testing.assert_allclose(tested[columns].sum(axis=1), 1)


def test_the_columns_are_learnt_from_the_training_rows(fitted, data):
    frame = pd.read_csv(data)
    kept, _ = holdout_split(frame["label"].astype("category").cat.codes, seed=0)
    median = frame["income"].iloc[kept].median()
    assert median != frame["income"].median()
    _, income, *_ = FinishedRun(fitted).models["model"].features_.columns
    assert income.fill == pytest.approx(median)


def test_it_learns(fitted):
    methods = {m["key"]: m for m in json.loads((fitted / "metrics.json").read_text())["methods"]}
    assert list(methods) == ["aligned", "aligned_argmax"]
    assert methods["aligned"]["value"] > 0.6
    assert methods["aligned"]["low"] < methods["aligned"]["value"] < methods["aligned"]["high"]


@pytest.mark.parametrize("more", [[], ["--metric", "accuracy"]])
def test_a_folder_that_is_there_stays_untouched(fitted, command, more):
    before = files(fitted)
    assert "run exists. Choose another --out, or delete it." in refused(*command, *more)
    assert files(fitted) == before


def test_seeds(data, tmp_path):
    """The same seed gives the same weights to the bit, another one others."""
    for name, seed in [("a", 3), ("b", 3), ("c", 4)]:
        done(*fit(data, tmp_path / name, "--seed", seed))
    tensors = {n: opened(tmp_path / n / "model")[1] for n in "abc"}
    weights = {n: {k: w.tolist() for k, w in tensors[n].items()} for n in tensors}
    assert weights["a"] == weights["b"] != weights["c"]
    predictions = {n: (tmp_path / n / "test_predictions.parquet").read_bytes() for n in "abc"}
    assert predictions["a"] == predictions["b"] != predictions["c"]


def test_json_stands_alone(data, tmp_path, capfd):
    """One object on standard output, all else on standard error."""
    with pytest.raises(SystemExit) as end:
        main([str(part) for part in fit(data, tmp_path / "run", "--json")])
    assert end.value.code == 0
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert said["run"] == str(tmp_path / "run")
    assert [method["key"] for method in said["methods"]] == ["aligned", "aligned_argmax"]
    assert [difference["against"] for difference in said["differences"]] == ["aligned_argmax"]
    assert "linear: f1_macro 0." in err


def test_quiet(data, tmp_path):
    assert invoke(*fit(data, tmp_path / "run", "--quiet")) == (0, "", "")


def test_what_it_says(fitted, said):
    """The table and the verdict are those of metrics.json."""
    saved = json.loads((fitted / "metrics.json").read_text())
    assert saved["answer"]["sentence"] in said.out
    assert "linear with argmax" in " ".join(said.out.split())
    assert f"{saved['methods'][0]['value']:.3f}" in said.out


def test_two_classes(tmp_path):
    """The positive class is the last one, or the one that is asked for."""
    frame = table().replace({"label": {"middle": "low"}})
    data = written(tmp_path / "data.parquet", frame)
    said = done(*fit(data, tmp_path / "a", "--metric", "f1")).err
    assert "The positive class is 'low', the other one 'high'.\n" in said
    more = ["--metric", "f1", "--positive", "high"]
    said = done(*fit(data, tmp_path / "b", *more)).err
    assert "The positive class is 'high', the other one 'low'.\n" in said
    saved = json.loads((tmp_path / "b/metrics.json").read_text())
    tested = pd.read_parquet(tmp_path / "b/test_predictions.parquet")
    right = (tested["label"] == "high") & (tested["model_prediction"] == "high")
    wrong = tested["label"] != tested["model_prediction"]
    assert saved["methods"][0]["value"] == pytest.approx(
        2 * right.sum() / (2 * right.sum() + wrong.sum())
    )


def test_a_constraint(tmp_path):
    """Of a class by its name, which is not its code: the rule meets it where it was fitted."""
    frame = table().replace({"label": {"middle": "low"}})
    data = written(tmp_path / "data.csv", frame)
    given = ["--metric", "precision", "--positive", "high", "--confidence", "0.8"]
    more = [*given, "--constraint", "recall[low] >= 0.5, recall >= 0.6"]
    said = done(*fit(data, tmp_path / "run", *more, decision="tuned"))
    saved = json.loads((tmp_path / "run/metrics.json").read_text())["constraints"]
    assert [row["constraint"] for row in saved] == ["recall[low] >= 0.5", "recall >= 0.6"]
    tested = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    for row, name, bound in zip(saved, ("low", "high"), (0.5, 0.6), strict=True):
        own = tested["label"] == name
        recall = (tested["model_prediction"][own] == name).mean()
        assert row["test"] == pytest.approx(recall)
        assert row["held_out"] >= bound - 1e-9
        assert row["met"] == (recall >= bound)
        assert f"{row['constraint']}: {row['verdict']}." in " ".join(said.out.split())
    page = (tmp_path / "run/report.html").read_text()
    assert "Constraint" in page
    assert saved[0]["verdict"] in page
    new = written(tmp_path / "new.csv", frame[:100])
    said = json.loads(done("evaluate", tmp_path / "run", new, "--json").out)["constraints"]
    done("predict", tmp_path / "run", new, "--out", tmp_path / "scored.csv")
    scored = pd.read_csv(tmp_path / "scored.csv")
    for row, name in zip(said, ("low", "high"), strict=True):
        recall = (scored["prediction"][scored["label"] == name] == name).mean()
        assert row["test"] == pytest.approx(recall)


@pytest.fixture
def fits(monkeypatch):
    """Collect the arguments of every training."""
    seen, fit = [], AlignedEnsemble.fit

    def spy(self, X, y, sample_weight=None, **more):
        seen.append({"X": X, "y": y, "weight": sample_weight, **more})
        return fit(self, X, y, sample_weight, **more)

    monkeypatch.setattr(AlignedEnsemble, "fit", spy)
    return seen


def test_other_files_groups_and_weights(tmp_path, fits):
    """--test replaces what is held out; groups and weights reach training and report."""
    frame = table(360)
    frame["visit"] = frame["person"] // 4
    frame["mass"] = np.where(frame["colour"] == "red", 2.0, 0.5)
    paths = [tmp_path / name for name in ("data.csv", "test.parquet")]
    for path, part in zip(paths, np.split(np.arange(360), [300]), strict=True):
        written(path, frame.iloc[part].drop(columns="person"))
    more = ["--test", paths[1], "--groups", "visit", "--weight", "mass"]
    said = done(*fit(paths[0], tmp_path / "run", *more)).err
    assert "too good" not in said
    (given,) = fits
    assert len(given["X"]) == 300
    assert given["y"].tolist() == frame["label"].iloc[:300].tolist()
    assert given["weight"].tolist() == frame["mass"].iloc[:300].tolist()
    assert given["groups"].tolist() == frame["visit"].iloc[:300].astype(str).tolist()
    run = FinishedRun(tmp_path / "run")
    assert run.about["rows"] == {"training": 300, "test": 60}
    assert not {"visit", "mass"} & set(run.columns.features)
    tested = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    assert tested["weight"].tolist() == frame["mass"].iloc[300:].tolist()
    assert tested["group"].tolist() == frame["visit"].iloc[300:].astype(str).tolist()
    assert tested["label"].tolist() == frame["label"].iloc[300:].tolist()
    saved = run.read("metrics.json")
    assert saved["groups"] == 15
    assert sum(row["rows"] for row in saved["per_class"]) == frame["mass"].iloc[300:].sum()

    # Rows of no weight change nothing.
    more = pd.concat([frame.iloc[300:], frame.iloc[:40].assign(mass=0)])
    again = done("evaluate", tmp_path / "run", written(tmp_path / "more.csv", more), "--json")
    assert json.loads(again.out) == {name: x for name, x in saved.items() if name != "tried"}


def test_groups_stay_together(tmp_path, fits):
    frame = table()
    frame["visit"] = frame.pop("person") // 6
    data = written(tmp_path / "data.csv", frame)
    done(*fit(data, tmp_path / "run", "--groups", "visit"))
    held_out = pd.read_parquet(tmp_path / "run/test_predictions.parquet")["group"]
    assert (held_out.value_counts() == 6).all()
    (given,) = fits
    assert (np.unique(given["groups"], return_counts=True)[1] == 6).all()
    assert not {*given["groups"]} & {*held_out}
    assert len(given["X"]) + len(held_out) == 240


def test_a_gap_between_groups(tmp_path):
    """The groups of a constraint are no column to learn from, and judge the test rows too."""
    frame = table()
    frame["place"] = np.where(np.arange(len(frame)) % 2, "here", "there")
    data = written(tmp_path / "data.csv", frame)
    bound = ["--constraint", "gap(accuracy) <= 0.9", "--constraint-groups", "place"]
    given = fit(data, tmp_path / "run", *bound, "--decision", "tuned", "--json")
    result = json.loads(done(*given).out)
    kept = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    right = kept["model_prediction"] == kept["label"]
    accuracies = right.groupby(kept["constraint_group"]).mean()
    assert result["constraints"][0]["test"] == pytest.approx(np.ptp(accuracies))
    assert "place" not in FinishedRun(tmp_path / "run").columns.features


def test_a_column_may_be_dropped_twice(data, tmp_path):
    done(*fit(data, tmp_path / "run", "--drop", "age", "--drop", "age"))
    assert "age" not in FinishedRun(tmp_path / "run").columns.features


def test_a_stream_in_ascii(monkeypatch):
    """What it cannot show does not stop the program, and is not lost."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit):
        main(["--version"])
    stream.write("−0.5 é")
    stream.flush()
    assert stream.buffer.getvalue().decode().endswith(r"\u22120.5 \xe9")


def test_metrics():
    """Each that the library knows has a line, as in JSON."""
    listed = json.loads(done("metrics", "--json").out)["metrics"]
    assert sorted(listed) == evalign.metrics.names()
    said = done("metrics").out
    for name, meaning in listed.items():
        assert re.search(rf"^{re.escape(f'{name}  ')} *{re.escape(meaning)}$", said, re.M)


def test_without_the_extra(monkeypatch):
    """One line says what to install: a text for an exit code is printed, and the code is 1."""
    monkeypatch.delitem(sys.modules, "evalign.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert invoke().code == f"evalign: typer is not installed. {installing('.[cli]')}"
