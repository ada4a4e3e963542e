"""`evalign fit --model`: ensembles, their runs, and the time they may take."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evalign
from evalign import AlignedEnsemble
from evalign.cli import run as runs
from evalign.cli.options import MODELS, seconds
from evalign.cli.outcome import shown
from evalign.cli.run import FinishedRun
from evalign.core import stairs
from evalign.estimators import candidates
from evalign.estimators.candidates import DEFAULT
from evalign.estimators.judge import Judge
from tests.ground.cli.commands import done, files, fit, invoke, refused, sign, table, written


def two(rows, seed=0):
    """A table of two classes, for which trees are trained fast."""
    return table(rows, seed).replace({"label": {"middle": "low"}})


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data") / "data.csv", two(150))


@pytest.fixture(scope="module")
def told(pair, tmp_path_factory):
    """What a fit of the default models says, the forest with few trees."""
    out = tmp_path_factory.mktemp("models") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "TREES", 5)
        return done(*fit(pair, out, "--json", model="blend"))


@pytest.fixture(scope="module")
def blend(told):
    return Path(json.loads(told.out)["run"])


def test_the_run_folder(blend):
    names = {path.as_posix() for path in files(blend)}
    assert {"details.json", "metrics.json", "run.json", "report.html", "model"} <= names
    assert "baseline" not in names
    run = FinishedRun(blend)
    assert [*run.models] == ["model", "baseline"]
    assert isinstance(run.models["model"], AlignedEnsemble)
    assert run.models["baseline"].weights_ == {run.about["baseline"]: 1.0}


def test_it_is_held_to_the_strongest_candidate(blend):
    """By the rows that were held out, not by the test rows."""
    saved = json.loads((blend / "metrics.json").read_text())
    *candidates, _ = saved["tried"]["rows"]
    best = max(candidates, key=lambda row: row["argmax_score"])["candidate"]
    assert FinishedRun(blend).about["baseline"] == best
    keys = [method["key"] for method in saved["methods"]]
    assert keys == ["aligned", "aligned_argmax", best, f"{best}_argmax"]
    assert f"{best} with argmax" in (blend / "report.html").read_text(encoding="utf-8")
    ensemble = FinishedRun(blend).models["model"]
    alone = ensemble.only(best)
    assert runs.strongest(alone) is None  # an ensemble is held to its own argmax then


def test_what_it_found(blend):
    saved = json.loads((blend / "metrics.json").read_text())
    tried = saved["tried"]
    names = [row["candidate"] for row in tried["rows"]]
    assert names == ["linear", "boosting", "forest", "blend"]
    assert tried["gain"].keys() == {"value", "low", "high", "against"}
    assert tried["verdict"].startswith("In cross-validation, ")
    lines = [part for part in shown(saved) if isinstance(part, str)]
    assert " ".join(lines).count(tried["verdict"]) == 1
    page = (blend / "report.html").read_text(encoding="utf-8")
    assert "<h2>Candidates</h2>" in page


def test_predict_evaluate_and_report(blend, tmp_path):
    done("report", blend, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (blend / "report.html").read_bytes()
    new = written(tmp_path / "new.csv", two(60, seed=5))
    done("predict", blend, new, "--out", tmp_path / "scored.parquet")
    scored = pd.read_parquet(tmp_path / "scored.parquet")
    said = json.loads(done("evaluate", blend, new, "--json").out)
    value = evalign.score(
        "f1_macro", y_true=codes(scored["label"]), y_pred=codes(scored["prediction"])
    )
    assert said["methods"][0]["value"] == pytest.approx(float(value))
    assert said["methods"][2]["key"] == FinishedRun(blend).about["baseline"]
    assert "tried" not in said


def codes(labels):
    return pd.Categorical(labels, ["high", "low"]).codes.astype(int)


def test_a_forged_run(blend, tmp_path):
    run = shutil.copytree(blend, tmp_path / "run")
    content = {"candidates": {"rows": [], "gain": {}, "left_out": {}}}
    (run / "details.json").write_text(json.dumps(content))
    (run / "model").write_text("no archive")
    sign(run)
    assert "cannot be opened" in refused("report", run)
    with pytest.raises(ValueError, match="model holds nothing that evalign saved"):
        evalign.load(run)


def test_a_run_opened_in_python(blend, fitted, tmp_path):
    frame = table(60, seed=5)
    new = written(tmp_path / "new.csv", frame)
    for run in (blend, fitted):
        done("predict", run, new, "--out", tmp_path / "scored.parquet")
        scored, opened = pd.read_parquet(tmp_path / "scored.parquet"), evalign.load(run)
        assert isinstance(opened, AlignedEnsemble)
        columns = [f"probability_{label}" for label in opened.classes_]
        known = frame[opened.feature_names_in_]
        for given in (known, pl.from_pandas(known)):
            assert opened.predict(given).tolist() == scored["prediction"].tolist()
            np.testing.assert_allclose(opened.predict_proba(given), scored[columns])


def test_other_things_that_were_saved(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    ensemble = AlignedEnsemble(candidates=["linear"], cv=2, decision="argmax").fit(X, y)
    ensemble.save(tmp_path / "ensemble")
    np.testing.assert_array_equal(
        evalign.load(str(tmp_path / "ensemble")).predict(X), ensemble.predict(X)
    )
    scores = pd.DataFrame({"1": (1 + np.sin(np.arange(200))) / 2})
    scores["label"] = (scores["1"] > np.random.default_rng(0).random(200)).astype(int)
    data, rule = written(tmp_path / "scores.csv", scores), tmp_path / "rule.json"
    done("decide", data, "--target", "label", "--metric", "f1", "--out", rule)
    assert isinstance(evalign.load(rule), evalign.DecisionRule)
    evalign.load(rule).save(tmp_path / "again.json")
    assert evalign.load(tmp_path / "again.json").state_dict() == evalign.load(rule).state_dict()


def test_one_model_and_groups(tmp_path):
    frame = table(300)
    frame["visit"] = frame["person"] // 4
    frame["mass"] = (frame["person"] % 3).astype(float)
    data = written(tmp_path / "data.csv", frame.drop(columns="person"))
    more = ["--groups", "visit", "--weight", "mass"]
    done(*fit(data, tmp_path / "run", *more, model="linear"))
    run = FinishedRun(tmp_path / "run")
    assert [*run.models] == ["model"]
    assert len(run.models["model"].models_["linear"]) == 5


def test_time(data, tmp_path, monkeypatch):
    """What reading the table leaves of the time is the ensemble's limit."""
    seen = []
    monkeypatch.setattr(
        AlignedEnsemble,
        "fit",
        lambda self, *arguments, **more: seen.append(self.get_params(deep=False)) or 1 / 0,
    )
    with pytest.raises(ZeroDivisionError):
        invoke(*fit(data, tmp_path / "run", "--time", "30m", "--seed", 3, model="blend"))
    (given,) = seen
    assert 1600 < given["time_limit"] < 1800
    assert given["random_state"] == 3
    assert given["candidates"] == DEFAULT


def test_classes_are_called_by_their_names(tmp_path):
    frame = table(120)
    frame["group"] = np.where(frame["label"] == "high", "all", np.arange(120) % 40)
    frame.loc[frame["label"].eq("high").cumsum().eq(1).idxmax(), "group"] = "one"
    given = fit(written(tmp_path / "data.csv", frame), tmp_path / "run", model="linear")
    given = done(*given, "--groups", "group", "--seed", 1)  # one by which "all" is trained on
    assert "All rows of the classes ['high'] are held out at once" in given.err
    bound = ["--constraint", "recall[low] >= 0.999, recall[high] >= 0.999"]
    hard = written(tmp_path / "hard.csv", two(120)[["income", "member", "label"]])
    result = invoke(*fit(hard, tmp_path / "no", *bound, model="linear", decision="tuned"))
    assert result.code == 2
    assert "linear: left out: " in result.err
    last = result.err.splitlines()[-1]
    assert "must be met by some rule on these rows. Got " in last
    assert "is possible with recall[high] up to " in last


def test_without_intervals(tmp_path, monkeypatch):
    """As of too few rows to compare anything."""
    data = written(tmp_path / "data.csv", two(120))
    unknown = [(math.nan,) * 3]
    monkeypatch.setattr(Judge, "compare", lambda _, *labels: unknown * (2 * len(labels) - 1))
    command = fit(data, tmp_path / "run", model="linear")

    def no(constant):
        raise ValueError(f"{constant} is not JSON")

    shown, (result, _) = (
        done(*command).out,
        [
            json.loads((tmp_path / "run" / name).read_text(), parse_constant=no)
            for name in ("metrics.json", "details.json")
        ],
    )
    assert result["tried"]["rows"][0]["rule_score"] is None
    text = "There are too few held-out rows to compare linear with linear with argmax."
    assert result["tried"]["verdict"] == text
    assert text in shown
    assert "nan" not in shown
    done("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert text in (tmp_path / "page.html").read_text()


def test_a_cost_is_shown_as_it_is(tmp_path):
    data = written(tmp_path / "data.csv", two(120))
    cost = "expected_cost[[0, 1], [2, 0]]"
    how = ["--metric", cost, "--classes", "high,low"]
    said = done(*fit(data, tmp_path / "run", *how, model="linear")).err
    assert re.search(r"^linear: expected_cost\S* .* 0\.\d+ with its rule, 0\.\d+ by", said, re.M)
    # One model is its own blend, and has one row.
    details = json.loads((tmp_path / "run/details.json").read_text())
    (row,) = details["candidates"]["rows"]
    assert row["candidate"] == "linear"
    assert 0 <= row["rule_score_low"] <= row["rule_score"] <= row["rule_score_high"]


def test_wrong_options(data, tmp_path):
    run = tmp_path / "run"
    assert "such as 90s, 5m or 1h. Got 'soon'." in refused(*fit(data, run, "--time", "soon"))
    text = refused(*fit(data, run, "--time", "5m", model="network"))
    assert "--time must be left out with --model network: --epochs is for --model net" in text
    assert "'nosuch'" in refused(*fit(data, run, model="nosuch"))
    text = refused(*fit(data, run, "--epochs", 3, model="blend"))
    assert "--epochs must be left out with --model blend: --epochs is for --model net" in text
    assert list(tmp_path.iterdir()) == []


def test_times():
    given = {"90": 90, "90s": 90, "5m": 300, "0.5h": 1800}
    assert {text: seconds(text) for text in given} == given
    assert seconds(None) is None
    for text in ("", "m", "-5m", "0", "nan", "inf", "5 days"):
        with pytest.raises(ValueError, match="--time must be a time such as"):
            seconds(text)
    for text in ("1s", "5.9", "0.05m"):
        with pytest.raises(ValueError, match=rf"at least 6s, .* report take. Got '{text}'"):
            seconds(text)


def test_the_first_line_says_what_the_least_is(told):
    lines = told.err.splitlines()
    assert lines[0].startswith("Loading. A fit takes 6 s or more")
    assert any(line.startswith("150 rows; columns: ") for line in lines[1:])


def test_the_models_are_those_of_the_library():
    assert {*MODELS.__args__} == {*DEFAULT, "blend", "network"}


def test_what_is_missing_without_torch_is_said(data, tmp_path, monkeypatch):
    """A blend says that it has no network, and a network is refused."""
    monkeypatch.setattr(candidates, "TREES", 5)
    monkeypatch.setattr(stairs, "has_torch", lambda: False)
    needs = "needs PyTorch: pip install 'evalign[torch]'"
    said = done(*fit(data, tmp_path / "run", model="blend"))
    assert f"network: left out: it {needs}" in said.err
    assert f"Left out: network: it {needs}" in " ".join(said.out.split())
    assert needs.replace("'", "&#39;") in (tmp_path / "run/report.html").read_text("utf-8")
    said = refused(*fit(data, tmp_path / "no", model="network"))
    assert said == "evalign: --model network needs PyTorch: pip install 'evalign[torch]'"
    assert not (tmp_path / "no").exists()
