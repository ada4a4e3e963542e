"""What a report tells beyond the scores: warnings, rules in words, columns that matter."""

import json
import shutil
import warnings
from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.inspection import permutation_importance

from evalign import AlignedClassifier, AlignedEnsemble, DecisionRule
from evalign.cli.dataset import LabelledFrame
from evalign.cli.outcome import cuts, importance
from evalign.cli.run import FinishedRun
from evalign.tables import DataWarning
from evalign.tables.labels import Labels
from tests.cli.commands import done, fit, refused, sign, table, written

LABELS = {number: Labels("label", tuple(range(number))) for number in (2, 3)}


def rows_of(frame, weight=None):
    X = frame[["age", "income", "colour", "member"]].astype(
        {"colour": "category", "member": "category"}
    )
    return LabelledFrame(
        X, frame["label"].astype("category").cat.codes.to_numpy(np.int64), weight, None
    )


def two(rows, seed=0):
    return table(rows, seed).replace({"label": {"middle": "low"}})


@pytest.fixture(scope="module")
def models():
    """An ensemble of one model, and a network, of three classes and of two."""
    made = {}
    for classes, frame in {3: table(240), 2: two(240)}.items():
        rows = rows_of(frame)
        ensemble = AlignedEnsemble("f1_macro", candidates=["linear"], cv=2, random_state=0)
        network = AlignedClassifier(
            "f1_macro", network="linear", epochs=3, validation_fraction=0.2, random_state=0
        )
        made[classes] = [model.fit(rows.X, rows.y) for model in (ensemble, network)]
    return made


def test_the_rule_of_two_classes(models):
    ensemble, network = models[2]
    assert cuts(ensemble, LABELS[2], 0) == [None, pytest.approx(ensemble.rule_.threshold, abs=1e-9)]
    # Of the network's probabilities, which the rule has mended.
    gain = network.rule_.gain.numpy()
    lost, won = gain[0, 0] - gain[0, 1], gain[1, 1] - gain[1, 0]
    assert cuts(network, LABELS[2], 0) == [None, pytest.approx(lost / (lost + won), abs=1e-9)]


def decided(model, rows):
    """Codes by a rule, which corrects the probabilities of an ensemble alone."""
    if isinstance(model, AlignedEnsemble):
        return model.rule_(probabilities=rows)
    return model.rule_.labels_of(torch.from_numpy(rows)).numpy()


def test_the_rule_of_three_classes(models):
    """Against all probabilities of a grid."""
    grid = np.linspace(0, 1, 1001)
    for model in models[3]:
        found = cuts(model, LABELS[3], 1)
        assert found[1] is None
        for code in (0, 2):
            rows = np.zeros((1001, 3))
            rows[:, code], rows[:, 1] = grid, 1 - grid
            given = decided(model, rows) == code
            assert grid[given].min() == pytest.approx(found[code], abs=0.001)
            assert (np.diff(given.astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("gain", "cut"), [([[1, 0], [1, 0]], None), ([[0, 1], [0, 1]], 0.0), ([[3, 0], [0, 1]], 0.75)]
)
def test_a_class_that_is_never_or_always_predicted(gain, cut):
    rule = DecisionRule(torch.tensor(gain, dtype=torch.float64), "tuned", "labels")
    assert cuts(SimpleNamespace(rule_=rule), LABELS[2], 0) == [None, cut]


def test_the_positive_class_need_not_be_the_last_in_order():
    """Of classes 1 and 0, of which 0 is positive, rows from the cut on are predicted 0."""
    rows = rows_of(two(240))
    network = AlignedClassifier("f1", pos_label=0, network="linear", epochs=3, random_state=0)
    network.fit(rows.X, rows.y)
    (cut,) = cuts(network, Labels("label", (1, 0)), 0)[1:]
    positive = network.predict_proba(rows.X)[:, 0]
    np.testing.assert_array_equal(network.predict(rows.X) == 0, positive > cut)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_columns_that_matter_are_scikit_learns(models, weighted):
    frame = table(300, seed=7)
    weight = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    rows, model = rows_of(frame, weight), copy(models[3][0])
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
    assert [len(row) for row in found["cuts"]] == [3, 3]
    counts = FinishedRun(fitted).about["rows_per_class"]
    assert found["against"] == np.argmax(counts)
    page = (fitted / "report.html").read_text(encoding="utf-8")
    assert "Column importance" in page
    assert len(page) < 10**6


@pytest.mark.parametrize(
    "change",
    [
        {"notes": [3]},
        {"cuts": [[0.5, None]] * 2},
        {"against": 3},
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
