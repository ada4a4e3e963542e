"""`evalign fit`: the files it writes, and its output."""

import io
import json
import re
import runpy
import sys

import numpy as np
import pandas as pd
import pytest

import evalign
from evalign.cli import main
from evalign.cli.columns import Columns
from evalign.cli.run import FinishedRun
from evalign.core.text import installing
from evalign.estimator import AlignedClassifier
from evalign.training import holdout_split
from tests.cli.commands import done, files, fit, invoke, refused, table, written


def test_the_run_folder(fitted, data):
    names = {path.as_posix() for path in files(fitted)}
    model = {"manifest.json", "state.json", "tensors.safetensors"}
    whole = {"metrics.json", "history.json", "run.json", "report.html", "test_predictions.parquet"}
    whole |= {"findings.json"}
    whole |= {f"{name}/{file}" for name in ("model", "baseline") for file in model}
    assert names == whole
    assert not fitted.with_name("run.partial").exists()
    run = FinishedRun(fitted)
    assert run.columns == Columns(
        "label",
        numbers=["age", "income"],
        categories=["colour", "member"],
        dates=[],
        left_out={"person": "id", "country": "constant"},
        percents={"age": False, "income": False},
    )
    assert run.labels.names == ["high", "low", "middle"]
    assert run.about["rows"] == {"training": 192, "test": 48}
    assert "<html" in (fitted / "report.html").read_text(encoding="utf-8")


def test_the_report_tells_what_was_validated_on(fitted, tmp_path):
    def card(run):
        page = (run / "report.html").read_text(encoding="utf-8")
        return re.search(r"\d+ for training[^<]*", page)[0]

    folds = FinishedRun(fitted).classifier("model").network_.networks
    expected = f"192 for training, 48 for test; of the training rows all in {len(folds)} folds"
    assert card(fitted) == f"{expected} for validation"
    # From 100 rows of each class on, a fifth is enough.
    many = written(tmp_path / "many.csv", table(1200))
    done(*fit(many, tmp_path / "run", "--no-baseline", epochs=1))
    expected = "960 for training, 240 for test; of the training rows a fifth for validation"
    assert card(tmp_path / "run") == expected
    done(*fit(many, tmp_path / "given", "--no-baseline", "--validation", many, epochs=1))
    assert card(tmp_path / "given") == "960 for training, 240 for test, 1200 for validation"


def test_the_test_rows_are_those_held_out(fitted, data):
    """The predictions are of rows of the table that keep the classes' shares."""
    tested = pd.read_parquet(fitted / "test_predictions.parquet")
    truth = pd.read_csv(data)["label"].value_counts() / 5
    assert (tested["label"].value_counts() - truth).abs().max() <= 1
    for name in ("model", "baseline"):
        columns = [f"{name}_probability_{label}" for label in ("high", "low", "middle")]
        np.testing.assert_allclose(tested[columns].sum(axis=1), 1)


def test_the_columns_are_learnt_from_the_training_rows(fitted, data):
    frame = pd.read_csv(data)
    kept, _ = holdout_split(frame["label"].astype("category").cat.codes, seed=0)
    median = frame["income"].iloc[kept].median()
    assert median != frame["income"].median()
    for name in ("model", "baseline"):
        _, income, *_ = FinishedRun(fitted).classifier(name).features_.columns
        assert income.fill == pytest.approx(median)


def test_it_learns(fitted):
    methods = {m["key"]: m for m in json.loads((fitted / "metrics.json").read_text())["methods"]}
    assert list(methods) == [
        "aligned",
        "aligned_argmax",
        "cross_entropy",
        "cross_entropy_argmax",
    ]
    assert methods["aligned"]["value"] > 0.6
    assert methods["aligned"]["low"] < methods["aligned"]["value"] < methods["aligned"]["high"]


def test_the_same_command_again(fitted, command):
    before = files(fitted)
    again = done(*command, "--json")
    assert "is complete" in again.err
    assert json.loads(again.out)["metric"] == "f1_macro"
    assert files(fitted) == before


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--metric", "accuracy"], "--metric was f1_macro and is now accuracy"),
        (["--seed", 1], "--seed was 0 and is now 1"),
        (["--no-baseline"], "--baseline was True and is now False"),
        (["--drop", "age"], "--drop was [] and is now ['age']"),
    ],
)
def test_another_command(fitted, command, more, what):
    before = files(fitted)
    text = refused(*command, *more)
    assert f"belongs to another command: {what}. Choose another --out, or delete it." in text
    assert files(fitted) == before


def test_other_data(fitted, command, tmp_path):
    other = written(tmp_path / "data.csv", table(seed=1))
    text = refused(*[other if part == command[1] else part for part in command])
    assert "belongs to another command: DATA is another table, or has changed since." in text


def test_seeds(data, tmp_path):
    """The same seed gives the same weights to the bit, another one others."""
    for name, seed in [("a", 3), ("b", 3), ("c", 4)]:
        done(*fit(data, tmp_path / name, "--seed", seed, "--no-baseline"))
    weights = {n: (tmp_path / n / "model/tensors.safetensors").read_bytes() for n in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]
    predictions = {n: (tmp_path / n / "test_predictions.parquet").read_bytes() for n in "abc"}
    assert predictions["a"] == predictions["b"] != predictions["c"]


def test_json_stands_alone(data, tmp_path, capfd):
    """One object on standard output, all else on standard error."""
    with pytest.raises(SystemExit) as end:
        main([str(part) for part in fit(data, tmp_path / "run", "--json", "--no-baseline")])
    assert end.value.code == 0
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert said["run"] == str(tmp_path / "run")
    assert [method["key"] for method in said["methods"]] == ["aligned", "aligned_argmax"]
    assert [difference["against"] for difference in said["differences"]] == ["aligned_argmax"]
    assert "Left out: person (id), country (constant)." in err
    assert "aligned: epoch 2/2" in err


def test_quiet(data, tmp_path):
    assert invoke(*fit(data, tmp_path / "run", "--quiet", "--no-baseline")) == (0, "", "")


def test_what_it_says(fitted, command):
    """The table and the verdicts are those of metrics.json."""
    result = done(*command)
    saved = json.loads((fitted / "metrics.json").read_text())
    assert all(difference["verdict"] in result.out for difference in saved["differences"])
    assert "cross-entropy with argmax" in " ".join(result.out.split())
    assert f"{saved['methods'][0]['value']:.3f}" in result.out


def test_two_classes(tmp_path):
    """The positive class is the last one, or the one that is asked for."""
    frame = table().replace({"label": {"middle": "low"}})
    data = written(tmp_path / "data.parquet", frame)
    said = done(*fit(data, tmp_path / "a", "--metric", "f1", "--no-baseline")).err
    share = (frame["label"] == "low").mean()
    assert share > 0.5
    assert (
        "The positive class is 'low', the other one 'high'. "
        f"It has {share:.0%} of the rows; see --positive." in " ".join(said.split())
    )
    more = ["--metric", "f1", "--no-baseline", "--positive", "high", "--recipe", "cross_entropy"]
    said = done(*fit(data, tmp_path / "b", *more)).err
    assert "The positive class is 'high', the other one 'low'.\n" in said
    saved = json.loads((tmp_path / "b/metrics.json").read_text())
    tested = pd.read_parquet(tmp_path / "b/test_predictions.parquet")
    right = (tested["label"] == "high") & (tested["model_prediction"] == "high")
    wrong = tested["label"] != tested["model_prediction"]
    assert saved["methods"][0]["value"] == pytest.approx(
        2 * right.sum() / (2 * right.sum() + wrong.sum())
    )


@pytest.mark.usefixtures("usual_networks")
@pytest.mark.parametrize("model", ["network", "linear"])
def test_a_constraint(tmp_path, model):
    """Of a class by its name, which is not its code: the rule meets it where it was fitted."""
    frame = table().replace({"label": {"middle": "low"}})
    data = written(tmp_path / "data.csv", frame)
    given = ["--metric", "precision", "--positive", "high", "--no-baseline", "--confidence", "0.8"]
    more = [*given, "--constraint", "recall[low] >= 0.5, recall >= 0.6"]
    result = done(*fit(data, tmp_path / "run", *more, decision="tuned", model=model))
    saved = json.loads((tmp_path / "run/metrics.json").read_text())["constraints"]
    assert [row["constraint"] for row in saved] == ["recall[low] >= 0.5", "recall >= 0.6"]
    tested = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    for row, name, bound in zip(saved, ("low", "high"), (0.5, 0.6), strict=True):
        own = tested["label"] == name
        recall = (tested["model_prediction"][own] == name).mean()
        assert row["test"] == pytest.approx(recall)
        assert row["held_out"] >= bound - 1e-9
        assert row["met"] == (recall >= bound)
        assert f"{row['constraint']}: {row['verdict']}." in " ".join(result.out.split())
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
    seen, fit = [], AlignedClassifier.fit

    def spy(self, X, y, sample_weight=None, **more):
        seen.append({"X": X, "y": y, "weight": sample_weight, **more})
        return fit(self, X, y, sample_weight, **more)

    monkeypatch.setattr(AlignedClassifier, "fit", spy)
    return seen


def test_other_files_groups_and_weights(tmp_path, fits):
    """--validation and --test replace what is held out; groups and weights reach training and
    report."""
    frame = table(360)
    frame["visit"] = frame["person"] // 4
    frame["mass"] = np.where(frame["colour"] == "red", 2.0, 0.5)
    paths = [tmp_path / name for name in ("data.csv", "valid.parquet", "test.csv")]
    for path, part in zip(paths, np.split(np.arange(360), [240, 300]), strict=True):
        written(path, frame.iloc[part].drop(columns="person"))
    more = ["--validation", paths[1], "--test", paths[2], "--group", "visit", "--weight", "mass"]
    said = done(*fit(paths[0], tmp_path / "run", *more)).err
    assert "too good" not in said
    assert len(fits) == 2
    for given in fits:
        assert len(given["X"]) == 240
        assert given["y"].tolist() == frame["label"].iloc[:240].tolist()
        assert given["weight"].tolist() == frame["mass"].iloc[:240].tolist()
        assert given["groups"].tolist() == frame["visit"].iloc[:240].astype(str).tolist()
        X, y, weight = given["validation_data"]
        assert X.shape == (60, given["X"].shape[1])
        assert y.tolist() == frame["label"].iloc[240:300].tolist()
        assert weight.tolist() == frame["mass"].iloc[240:300].tolist()
    run = FinishedRun(tmp_path / "run")
    assert run.about["rows"] == {"training": 240, "test": 60, "validation": 60}
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
    assert json.loads(again.out) == saved


def test_overlap_is_pointed_out(tmp_path):
    frame = table(120).assign(visit=lambda frame: "v" + (frame.pop("person") // 4).astype(str))
    data = written(tmp_path / "data.csv", frame)
    some = written(tmp_path / "some.csv", frame.iloc[:40])
    more = ["--group", "visit", "--validation", some, "--test", data, "--no-baseline"]
    notes = [
        line
        for line in done(*fit(data, tmp_path / "run", *more, epochs=1)).err.splitlines()
        if "too good" in line
    ]
    ten = "'v0', 'v1', 'v2' and 7 more, so that the scores are too good."
    thirty = "'v0', 'v1', 'v10' and 27 more, so that the scores are too good."
    assert notes == [
        "Note: DATA and --test are the same file, so that the scores are too good.",
        f"Note: Groups are in the training rows and in the test rows: {thirty}",
        f"Note: Groups are in the training rows and in the validation rows: {ten}",
        f"Note: Groups are in the test rows and in the validation rows: {ten}",
    ]


def test_classes_with_few_rows_are_pointed_out(tmp_path):
    frame = table(120)
    data = written(tmp_path / "data.csv", frame)
    test = written(tmp_path / "test.csv", frame[frame["label"] != "low"].iloc[:30])
    few = written(tmp_path / "few.csv", frame.groupby("label").head(4))
    more = ["--test", test, "--validation", few, "--no-baseline"]
    said = done(*fit(data, tmp_path / "a run", *more, epochs=1)).err
    rough = "what is said of them is rough."
    assert f"Note: Some classes have few test rows ('low': 0): {rough}" in said
    assert f"few validation rows ('high': 4, 'low': 4, 'middle': 4): {rough}" in said
    assert f"Next: evalign predict '{tmp_path / 'a run'}' new.csv --out scored.csv" in said
    assert "few training rows" not in said
    assert "3 classes: 'high', 'low', 'middle'.\n" in said
    said = done("evaluate", tmp_path / "a run", test, "--json").err
    assert f"Note: Some classes have few test rows ('low': 0): {rough}" in said
    scarce = written(tmp_path / "scarce.csv", frame.drop(frame.index[frame["label"] == "low"][3:]))
    more = ["--model", "linear", "--test", test]
    said = done(*fit(scarce, tmp_path / "scarce run", *more)).err
    unlearnt = "they can hardly be learnt, and some folds have none of them."
    assert f"Note: Some classes have few training rows ('low': 3): {unlearnt}" in said
    assert unlearnt in (tmp_path / "scarce run" / "report.html").read_text()


def test_a_class_in_few_groups_is_pointed_out(tmp_path):
    """Training keeps the class, and the held-out rows have none of it."""
    frame = table(200).assign(household=lambda frame: frame.pop("person") // 10)
    frame["label"] = np.where(frame["household"] < 2, "rare", "common")
    data = written(tmp_path / "data.csv", frame)
    more = ["--group", "household", "--no-baseline"]
    said = done(*fit(data, tmp_path / "run", *more, epochs=1)).err
    for part in ("test", "validation"):
        assert f"Some classes have few {part} rows ('rare': 0)" in said


def test_groups_stay_together(tmp_path, fits):
    frame = table()
    frame["visit"] = frame.pop("person") // 6
    data = written(tmp_path / "data.csv", frame)
    done(*fit(data, tmp_path / "run", "--group", "visit", "--no-baseline", epochs=1))
    held_out = pd.read_parquet(tmp_path / "run/test_predictions.parquet")["group"]
    assert (held_out.value_counts() == 6).all()
    (given,) = fits
    assert (np.unique(given["groups"], return_counts=True)[1] == 6).all()
    assert not {*given["groups"]} & {*held_out}
    assert len(given["X"]) + len(given["validation_data"][1]) + len(held_out) == 240


def test_cross_entropy_needs_no_baseline(data, tmp_path):
    drop = ["--drop", "age", "--drop", "age"]
    done(*fit(data, tmp_path / "run", "--recipe", "cross_entropy", *drop, epochs=1))
    assert FinishedRun(tmp_path / "run").models == ["model"]


def test_an_empty_folder_is_taken(data, tmp_path):
    (tmp_path / "run").mkdir()
    done(*fit(data, tmp_path / "run", "--no-baseline", epochs=1))
    assert (tmp_path / "run" / "run.json").exists()


def test_numbers_with_a_flaw_are_pointed_out(tmp_path):
    frame = table().astype({"age": str})
    frame.loc[7, "age"] = "?"
    frame.loc[frame["age"].index[8:], "age"] = "50"
    data = written(tmp_path / "data.csv", frame)
    said = done(*fit(data, tmp_path / "run", "--no-baseline", epochs=1)).err
    assert "is a category for 1 value that cannot be read as numbers, such as '?'" in said


def test_a_stream_in_ascii(monkeypatch):
    """What it cannot show does not stop the program, and is not lost."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit):
        main(["--version"])
    stream.write("−0.5 é")
    stream.flush()
    assert stream.buffer.getvalue().decode().endswith(r"\u22120.5 \xe9")


def test_help():
    said = done("fit", "--help").out
    assert "evalign fit data.csv --target label --metric f1_macro --out run" in said
    said = done().out
    assert "Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted, 141 not read on." in said
    for command in ("demo", "fit", "predict", "evaluate", "compare", "report"):
        assert command in said


def test_metrics():
    """Each that the library knows has a line, as in JSON."""
    listed = json.loads(done("metrics", "--json").out)["metrics"]
    assert sorted(listed) == evalign.metrics.names()
    said = done("metrics").out
    for name, meaning in listed.items():
        assert re.search(rf"^{re.escape(f'{name}  ')} *{re.escape(meaning)}$", said, re.M)
    assert "evalign metrics" in done("fit", "--help").out


def test_version():
    assert done("--version").out == f"evalign {evalign.__version__}\n"


def test_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["evalign", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("evalign", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"evalign {evalign.__version__}\n"


def test_without_the_extra(monkeypatch):
    """One line says what to install: a text for an exit code is printed, and the code is 1."""
    monkeypatch.delitem(sys.modules, "evalign.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    assert invoke().code == f"evalign: typer is not installed. {installing('.[cli]')}"


def test_without_a_part_of_the_extra(monkeypatch, data, tmp_path):
    """It is missed when a command needs it."""
    monkeypatch.delitem(sys.modules, "evalign.cli.fit", raising=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in ("columns", "tables"):
        monkeypatch.delitem(sys.modules, f"evalign.cli.{name}", raising=False)
    code = invoke(*fit(data, tmp_path / "run")).code
    assert code == f"evalign: pandas is not installed. {installing('.[cli]')}"


def test_a_bug_keeps_its_traceback(fitted, data, monkeypatch, tmp_path):
    def broken(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("evalign.cli.predict.UnseenLevels.count", broken)
    with pytest.raises(ValueError, match="a bug"):
        invoke("predict", fitted, data, "--out", tmp_path / "scored.csv")
    assert list(tmp_path.iterdir()) == []
