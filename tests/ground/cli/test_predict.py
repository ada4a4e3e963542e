"""`evalign predict`, `evaluate` and `report` on a run folder."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as parquet
import pytest
from sklearn.metrics import f1_score

from evalign.cli.outcome import judged
from evalign.cli.run import FinishedRun
from evalign.estimators import AlignedEnsemble
from evalign.estimators import ensemble as ensemble_module
from evalign.tables import files as tables
from tests.ground.cli.commands import done, files, fit, refused, table, written

PROBABILITIES = [f"probability_{label}" for label in ("high", "low", "middle")]


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


@pytest.mark.parametrize("source", ["csv", "tsv", "parquet", "csv.gz"])
@pytest.mark.parametrize("target", ["csv", "parquet"])
def test_formats(fitted, tmp_path, source, target):
    """All give the same labels and probabilities, and keep the columns of the input."""
    frame = table(100, seed=5).drop(columns="label")
    new, out = tmp_path / f"new.{source}", tmp_path / f"scored.{target}"
    if source == "parquet":
        frame.to_parquet(new)
    else:
        frame.to_csv(new, index=False, sep="\t" if source == "tsv" else ",")
    done("predict", fitted, new, "--out", out)
    scored = read(out)
    assert list(scored.columns) == [*frame.columns, "prediction", *PROBABILITIES]
    assert scored["age"].tolist() == frame["age"].tolist()
    assert scored["colour"].tolist() == frame["colour"].tolist()
    np.testing.assert_allclose(scored[PROBABILITIES].sum(axis=1), 1)
    plain = written(tmp_path / "plain.csv", frame)
    done("predict", fitted, plain, "--out", tmp_path / "plain.parquet")
    plain = read(tmp_path / "plain.parquet")
    assert scored["prediction"].tolist() == plain["prediction"].tolist()
    np.testing.assert_allclose(scored[PROBABILITIES], plain[PROBABILITIES], rtol=1e-12)


def test_labels_and_probabilities_of_one_pass(fitted, monkeypatch):
    run, passes = FinishedRun(fitted), []
    model, X = run.models["model"], table(50)[["age", "income", "colour", "member"]]
    labels, probabilities = model.predict(X), model.predict_proba(X)
    predict = ensemble_module.mean_probabilities
    monkeypatch.setattr(
        ensemble_module,
        "mean_probabilities",
        lambda *given: passes.append(1) or predict(*given),
    )
    columns = judged(model, run.labels, X)
    assert columns["prediction"].tolist() == labels.tolist()
    np.testing.assert_array_equal(
        np.stack([columns[name] for name in PROBABILITIES], 1), probabilities
    )
    assert len(passes) == 1


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_blocks(fitted, tmp_path, monkeypatch, source):
    """Many blocks give the same bytes as one."""
    new = written(tmp_path / f"new.{source}", table(1500, seed=6))
    done("predict", fitted, new, "--out", tmp_path / "one.csv")
    monkeypatch.setattr(tables, "BLOCK_CELLS", 1)
    assert len(list(tables.TableFile(new).blocks())) > 2
    done("predict", fitted, new, "--out", tmp_path / "many.csv")
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


def test_the_row_of_a_bad_number_in_a_later_block(fitted, tmp_path, monkeypatch):
    frame = table(1500).astype({"age": object})
    frame.loc[1234, "age"] = "old"
    new = written(tmp_path / "new.csv", frame)
    monkeypatch.setattr(tables, "BLOCK_CELLS", 1)
    text = refused("predict", fitted, new, "--out", tmp_path / "scored.csv")
    assert "new.csv, from row 1025: X of AlignedEnsemble must have the columns of fit. " in text
    assert "Got text ('old' in row 211; the first is 1) in column 'age', which held" in text
    assert list(tmp_path.iterdir()) == [new]


def test_text_passes_through(fitted, tmp_path):
    """CSV to CSV keeps what was written, gaps, zeros and quotation marks included."""
    lines = [
        "note,age,income,colour,member,code",
        '"a ""quoted"", note",50.10,NA,red,yes,007',
        '"two\nlines",+5e1,,green,no,1.50',
    ]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done("predict", fitted, tmp_path / "new.csv", "--out", tmp_path / "scored.csv")
    raw = {"dtype": str, "keep_default_na": False}
    before, after = (pd.read_csv(tmp_path / name, **raw) for name in ("new.csv", "scored.csv"))
    pd.testing.assert_frame_equal(after[before.columns], before)
    done("predict", fitted, tmp_path / "new.csv", "--out", tmp_path / "scored.parquet")
    scored = parquet.read_table(tmp_path / "scored.parquet")
    assert scored["age"].to_pylist() == [50.1, 50.0]
    assert scored["income"].to_pylist() == [None, None]
    assert scored["code"].to_pylist() == ["007", "1.50"]


def test_parquet_keeps_its_types(fitted, tmp_path):
    frame = table(20).assign(
        day=pd.Timestamp("2024-01-01"), count=pd.array([1, None] * 10, "Int64")
    )
    frame["colour"] = frame["colour"].astype("category")
    new, out = written(tmp_path / "new.parquet", frame), tmp_path / "scored.parquet"
    done("predict", fitted, new, "--out", out)
    before, after = parquet.read_schema(new), parquet.read_schema(out)
    assert all(after.field(name).type == before.field(name).type for name in frame.columns)
    done("predict", fitted, new, "--out", tmp_path / "scored.csv")
    assert pd.read_csv(tmp_path / "scored.csv", dtype=str)["count"].tolist()[0] == "1"


def test_dates_and_the_model_in_python(tmp_path):
    """A date is one in every format, and the model of a run takes the frame that pandas reads."""
    frame = table().assign(since=pd.date_range("2019-12-30", periods=240, freq="9h"))
    frame.loc[::7, "since"] = None
    data = written(tmp_path / "data.csv", frame)
    done(*fit(data, tmp_path / "run"))
    for new in (data, written(tmp_path / "new.parquet", frame)):
        done("predict", tmp_path / "run", new, "--out", tmp_path / f"{new.suffix[1:]}.csv")
    scored = pd.read_csv(tmp_path / "csv.csv")[PROBABILITIES]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "parquet.csv")[PROBABILITIES], scored)
    model = AlignedEnsemble.load(tmp_path / "run" / "model")
    found = model.predict_proba(pd.read_csv(data)[[*model.feature_names_in_]])
    np.testing.assert_allclose(found, scored, rtol=1e-12)
    wrong = written(tmp_path / "wrong.csv", pd.read_csv(data).fillna({"since": "soon"}))
    text = refused("predict", tmp_path / "run", wrong, "--out", tmp_path / "x.csv")
    assert "Got text ('soon' in row 1; the first is 1) in column 'since', which held da" in text


def test_labels_come_back_as_they_were(tmp_path):
    for labels, expected in [
        ([3, 1, 10], [1, 3, 10]),
        (["007", "010", "1"], ["007", "010", "1"]),
        ([True, False, True], ["False", "True"]),
    ]:
        folder = tmp_path / str(labels[0])
        folder.mkdir()
        names = dict(zip(["low", "middle", "high"], labels, strict=True))
        frame = table().assign(label=lambda frame, names=names: frame["label"].map(names))
        data = written(folder / "data.csv", frame)
        done(*fit(data, folder / "run"))
        done("predict", folder / "run", data, "--out", folder / "scored.parquet")
        scored = parquet.read_table(folder / "scored.parquet")
        assert set(scored["prediction"].to_pylist()) <= set(expected)
        stem = "probability_"
        names = [name[len(stem) :] for name in scored.column_names if name.startswith(stem)]
        assert names == [str(label) for label in expected]
        done("evaluate", folder / "run", written(folder / "data.parquet", frame))


def test_evaluate(fitted, tmp_path):
    """The scores are scikit-learn's of what predict gives."""
    frame = table(200, seed=8)
    new, out = written(tmp_path / "test.csv", frame), tmp_path / "scored.csv"
    done("predict", fitted, new, "--out", out)
    result = json.loads(done("evaluate", fitted, new, "--json").out)
    expected = f1_score(frame["label"], pd.read_csv(out)["prediction"], average="macro")
    assert result["methods"][0]["value"] == pytest.approx(expected)
    assert result["rows"] == 200
    assert [row["class"] for row in result["per_class"]] == ["high", "low", "middle"]
    shown = done("evaluate", fitted, new).out
    assert f"{expected:.3f}" in shown
    for word in ("accuracy", "balanced_accuracy", "matthews_corrcoef", "precision", "middle"):
        assert word in shown


def test_names_with_commands_for_the_terminal(tmp_path):
    """No control character reaches the terminal or the page; the table keeps the name."""
    name = "low\x1b]0;owned\x07\x9b31m"
    frame = table().replace({"label": {"low": name}}).rename(columns={"country": "c\x1b[2J"})
    data = written(tmp_path / "data.parquet", frame)
    out = tmp_path / "scored.parquet"
    said = [
        done(*fit(data, tmp_path / "run")),
        done("evaluate", tmp_path / "run", written(tmp_path / "new.parquet", frame.iloc[:100])),
        done("predict", tmp_path / "run", data, "--out", out),
    ]
    text = "".join(result.out + result.err for result in said)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "low\\x1b]0;owned\\x07\\x9b31m" in text
    assert "x1b[2J' (constant)" in text
    assert "low\\x1b]0;owned" in page
    for shown in (text, page.split("<script")[0]):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert name in set(read(out)["label"])


def test_the_training_file_is_no_test(fitted, data, tmp_path):
    said = done("evaluate", fitted, data)
    assert "the models have seen these rows. Evaluate on rows not used in training." in said.out
    assert "test rows" not in said.out
    assert "is better" not in said.out
    result = json.loads(done("evaluate", fitted, data, "--json").out)
    assert result["test"] is False
    assert "the models have seen these rows" in result["answer"]["sentence"]
    new = written(tmp_path / "new.csv", table(200, seed=8))
    said = done("evaluate", fitted, new, "--json")
    assert json.loads(said.out)["test"] is True


def test_a_report_on_the_training_file_says_so(data, tmp_path):
    said = done(*fit(data, tmp_path / "run", "--test", data))
    assert "the models have seen these rows" in said.out
    page = (tmp_path / "run" / "report.html").read_text()
    done("report", tmp_path / "run", "--out", tmp_path / "again.html")
    for html in (page, (tmp_path / "again.html").read_text()):
        assert "This is not a test:" in html
        assert "rows seen in training" in html
        assert "is better by" not in html


def test_report(fitted, tmp_path):
    """The command renders the page of the run again, to the byte, and changes nothing else."""
    run = tmp_path / "run"
    shutil.copytree(fitted, run)
    page = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    said = json.loads(done("report", run, "--json").out)
    assert said == {"out": str(run / "report.html")}
    assert files(run) == files(fitted)
    done("report", run, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == page


def test_the_report_tells_where_it_comes_from(fitted, data):
    page = (fitted / "report.html").read_text(encoding="utf-8")
    about = json.loads((fitted / "run.json").read_text())
    told = (about["arguments"]["data"], "data.csv", "192 for training, 48 for test")
    for words in (*told, about["versions"]["scikit-learn"]):
        assert words in page
