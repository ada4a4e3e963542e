"""`evalign fit`: what it leaves behind, and what it says."""

import json

import numpy as np
import pandas as pd
import pytest

from evalign.cli.columns import Columns
from evalign.cli.run import Run
from tests.cli.commands import done, files, fit, invoke, process, refused, table, written


def test_the_run_folder(fitted, data):
    names = {path.as_posix() for path in files(fitted)}
    model = {"manifest.json", "state.json", "tensors.safetensors"}
    whole = {"metrics.json", "history.json", "run.json", "report.html", "pipeline.skops"}
    whole |= {"test_predictions.parquet"}
    whole |= {f"{name}/{file}" for name in ("model", "baseline") for file in model}
    assert names == whole
    assert not fitted.with_name("run.partial").exists()
    run = Run(fitted)
    assert run.columns == Columns(
        "label",
        numbers=["age", "income"],
        categories=["colour", "member"],
        left_out={"person": "id", "country": "constant"},
    )
    assert run.labels.names == ["high", "low", "middle"]
    assert run.about["rows"] == {"training": 192, "test": 48}
    assert "<html" in (fitted / "report.html").read_text(encoding="utf-8")


def test_the_test_rows_are_those_held_out(fitted, data):
    """The predictions are of rows of the table that keep the classes' shares."""
    tested = pd.read_parquet(fitted / "test_predictions.parquet")
    truth = pd.read_csv(data)["label"].value_counts() / 5
    assert (tested["label"].value_counts() - truth).abs().max() <= 1
    for name in ("model", "baseline"):
        columns = [f"{name}_probability_{label}" for label in ("high", "low", "middle")]
        np.testing.assert_allclose(tested[columns].sum(axis=1), 1)


def test_it_learns(fitted):
    methods = {m["key"]: m for m in json.loads((fitted / "metrics.json").read_text())["methods"]}
    assert methods.keys() == {"aligned", "cross_entropy", "cross_entropy_argmax"}
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
    assert "belongs to another command: data was " in text


def test_seeds(data, tmp_path):
    """The same seed gives the same weights to the bit, another one others."""
    for name, seed in [("a", 3), ("b", 3), ("c", 4)]:
        done(*fit(data, tmp_path / name, "--seed", seed, "--no-baseline"))
    weights = {n: (tmp_path / n / "model/tensors.safetensors").read_bytes() for n in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]
    predictions = {n: (tmp_path / n / "test_predictions.parquet").read_bytes() for n in "abc"}
    assert predictions["a"] == predictions["b"] != predictions["c"]


def test_json_stands_alone(data, tmp_path):
    """Through a real process: one object on standard output, all else on standard error."""
    result = process(*fit(data, tmp_path / "run", "--json", "--no-baseline"))
    assert result.returncode == 0
    data = json.loads(result.stdout)
    assert data["run"] == str(tmp_path / "run")
    assert [method["key"] for method in data["methods"]] == ["aligned"]
    assert data["differences"] == []
    assert "Left out: person (id), country (constant)." in result.stderr
    assert "anchored: epoch 2/2" in result.stderr
    assert "Traceback" not in result.stderr


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
    assert "The positive class is 'low', the other one 'high'." in said
    more = ["--metric", "f1", "--no-baseline", "--positive", "high", "--recipe", "cross_entropy"]
    assert (
        "The positive class is 'high', the other one 'low'."
        in done(*fit(data, tmp_path / "b", *more)).err
    )
    saved = json.loads((tmp_path / "b/metrics.json").read_text())
    tested = pd.read_parquet(tmp_path / "b/test_predictions.parquet")
    right = (tested["label"] == "high") & (tested["model_prediction"] == "high")
    wrong = tested["label"] != tested["model_prediction"]
    assert saved["methods"][0]["value"] == pytest.approx(
        2 * right.sum() / (2 * right.sum() + wrong.sum())
    )


def test_other_files_groups_and_weights(tmp_path):
    """--validation and --test replace what is held out; groups and weights reach the report."""
    frame = table(360)
    frame["visit"] = frame["person"] // 4
    frame["mass"] = np.where(frame["colour"] == "red", 2.0, 0.5)
    paths = [tmp_path / name for name in ("data.csv", "valid.parquet", "test.csv")]
    for path, part in zip(paths, np.split(np.arange(360), [240, 300]), strict=True):
        written(path, frame.iloc[part].drop(columns="person"))
    more = ["--validation", paths[1], "--test", paths[2], "--group", "visit", "--weight", "mass"]
    done(*fit(paths[0], tmp_path / "run", *more))
    run = Run(tmp_path / "run")
    assert run.about["rows"] == {"training": 240, "validation": 60, "test": 60}
    assert not {"visit", "mass"} & set(run.columns.features)
    tested = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    assert tested["weight"].tolist() == frame["mass"].iloc[300:].tolist()
    assert tested["group"].tolist() == frame["visit"].iloc[300:].astype(str).tolist()
    assert tested["label"].tolist() == frame["label"].iloc[300:].tolist()
    saved = run.read("metrics.json")
    assert saved["groups"] == 15
    assert sum(row["rows"] for row in saved["per_class"]) == frame["mass"].iloc[300:].sum()


def test_groups_stay_together(tmp_path):
    frame = table()
    frame["visit"] = frame.pop("person") // 6
    data = written(tmp_path / "data.csv", frame)
    done(*fit(data, tmp_path / "run", "--group", "visit", "--no-baseline", epochs=1))
    held_out = pd.read_parquet(tmp_path / "run/test_predictions.parquet")["group"]
    assert (held_out.value_counts() == 6).all()


def test_cross_entropy_needs_no_baseline(data, tmp_path):
    done(*fit(data, tmp_path / "run", "--recipe", "cross_entropy", epochs=1))
    assert Run(tmp_path / "run").models == ["model"]


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
    assert "is a category for 1 values that are no numbers, such as '?'" in said


def test_help():
    said = done("fit", "--help").out
    assert "evalign fit data.csv --target label --metric f1_macro --out run" in said
    said = done().out
    assert "Exit codes: 0 done, 1 a bug, 2 bad input, 130 interrupted." in said
    for command in ("demo", "fit", "predict", "evaluate", "compare", "report"):
        assert command in said


def test_version():
    import evalign

    assert done("--version").out == f"evalign {evalign.__version__}\n"


def test_without_the_extra(tmp_path):
    """One line says what to install."""
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('No typer', name='typer')")
    result = process(before=f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    assert result.returncode == 1
    assert result.stderr == "evalign: typer is not installed. Run: pip install 'evalign[cli]'\n"


def test_a_bug_keeps_its_traceback(fitted, data, monkeypatch, tmp_path):
    def broken(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("evalign.cli.predict.Features.__call__", broken)
    with pytest.raises(ValueError, match="a bug"):
        invoke("predict", fitted, data, "--out", tmp_path / "scored.csv")
    assert list(tmp_path.iterdir()) == []
