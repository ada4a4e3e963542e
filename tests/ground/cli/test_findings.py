"""What a report tells beyond the scores: warnings, rules in words, columns that matter."""

import json
import shutil
import warnings
from copy import copy

import numpy as np
import pytest
from sklearn.inspection import permutation_importance

from evalign import AlignedEnsemble
from evalign.cli.dataset import LabelledFrame
from evalign.cli.outcome import importance, own_rule
from evalign.cli.run import FinishedRun
from evalign.tables import DataWarning
from evalign.tables.labels import Labels
from tests.ground.cli.commands import done, fit, refused, sign, table, written

LABELS = {number: Labels("label", tuple(range(number))) for number in (2, 3)}


def rows_of(frame, weight=None):
    X = frame[["age", "income", "colour", "member"]].astype(
        {"colour": "category", "member": "category"}
    )
    return LabelledFrame(
        X, frame["label"].astype("category").cat.codes.to_numpy(np.int64), weight, None, None
    )


def two(rows, seed=0):
    return table(rows, seed).replace({"label": {"middle": "low"}})


@pytest.fixture(scope="module")
def models():
    """An ensemble of one model, of three classes and of two."""
    made = {}
    for classes, frame in {3: table(240), 2: two(240)}.items():
        rows = rows_of(frame)
        ensemble = AlignedEnsemble("f1_macro", candidates=["linear"], cv=2, random_state=0)
        made[classes] = ensemble.fit(rows.X, rows.y)
    return made


def test_the_rule_is_told_for_the_probabilities_of_the_model(models):
    """They are those before the rule corrects them."""
    X = rows_of(table(300, seed=7)).X
    positive, given = models[2].predict_proba(X)[:, 1], models[2].predict(X)
    low, high = positive[given == 0].max(), positive[given == 1].min()
    told = str(own_rule(models[2]))
    assert told.startswith("1 above a probability of ")
    assert low <= float(told.split()[-1]) <= high
    assert own_rule(models[3]) is models[3].rule_


@pytest.mark.parametrize("weighted", [False, True])
def test_the_columns_that_matter_are_scikit_learns(models, weighted):
    frame = table(300, seed=7)
    weight = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    rows, model = rows_of(frame, weight), copy(models[3])
    model.models_ = {name: found[:1] for name, found in model.models_.items()}  # of one fold
    found = {row["column"]: row for row in importance(model, LABELS[3], rows, 0)[0]}
    expected = permutation_importance(
        model, rows.X, rows.y, sample_weight=weight, n_repeats=8, random_state=0
    )
    for name, mean, spread in zip(
        rows.X.columns, expected.importances_mean, expected.importances_std, strict=True
    ):
        # Of three shuffles and of eight.
        error = 4 * spread * np.sqrt(1 / 3 + 1 / 8)
        assert found[name]["value"] == pytest.approx(mean, abs=error + 1e-12)
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    values = [row["value"] for row in found.values()]
    assert list(found)[:2] == ["age", "colour"]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.1


def test_warnings_stand_in_the_report(tmp_path, monkeypatch):
    """Those of the data and of the training, of evalign and of others, once."""
    data = written(tmp_path / "data.csv", table(120))
    train = AlignedEnsemble.fit

    def warning(*given, **more):
        warnings.warn("something <odd>", UserWarning, stacklevel=2)
        warnings.warn("said twice", DataWarning, stacklevel=2)
        warnings.warn("said twice", DataWarning, stacklevel=2)
        return train(*given, **more)

    monkeypatch.setattr(AlignedEnsemble, "fit", warning)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        more = ["--quiet", "--test", data]
        done(*fit(data, tmp_path / "run", *more, model="linear"))
    assert shown == []
    notes = FinishedRun(tmp_path / "run").read("details.json")["findings"]["notes"]
    assert notes[-2:] == ["something <odd>", "said twice"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<li>Note: something &lt;odd&gt;</li>" in page
    assert page.count("said twice") == 1


def test_what_the_run_holds(fitted):
    found = FinishedRun(fitted).read("details.json")["findings"]
    assert {row["column"] for row in found["columns"]} == {"age", "income", "colour", "member"}
    assert found["rows"] == 48
    assert [rule.count("\n") for rule in found["rules"]] in ([3], [4])  # numbers, or a matrix
    page = (fitted / "report.html").read_text(encoding="utf-8")
    assert "Column importance" in page
    assert len(page) < 10**6


@pytest.mark.parametrize(
    "change",
    [
        {"notes": [3]},
        {"rules": ["one", "two"]},
        {"more": 1},
    ],
)
def test_forged_findings(fitted, tmp_path, change):
    run, name = shutil.copytree(fitted, tmp_path / "run"), "details.json"
    details = json.loads((run / name).read_text())
    details["findings"] |= change
    (run / name).write_text(json.dumps(details))
    sign(run)
    assert "or details.json: " in refused("report", run)
