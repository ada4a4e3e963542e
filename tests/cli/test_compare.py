"""`evalign compare` and `evalign demo`."""

import json

import numpy as np
import pytest
from evalign.comparison import METHODS, PLAIN, TUNED
from threadpoolctl import threadpool_limits

from evalign.cli import compare as command
from tests.cli.commands import done, refused, table, written

EAST = "EAST (argmax)"
FEW = [PLAIN, TUNED, "gradient boosting (argmax)"]  # the longest name
QUICK = ["--folds", 2, "--seeds", 1, "--epochs", 1]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Limit gradient boosting to one thread, as more would compete for the workers' cores."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    """Make a table of two classes, of which "b" is rare, with groups and weights."""
    rng = np.random.default_rng(0)
    frame = table(160).drop(columns="person")
    frame["label"] = np.where(frame["age"] > 56, "b", "a")
    frame["household"] = rng.integers(20, size=len(frame))
    frame["copies"] = np.where(frame["label"] == "b", 3.5, 1)
    return written(tmp_path_factory.mktemp("compare") / "binary.csv", frame)


@pytest.fixture
def few(monkeypatch):
    """Compare only a few methods, to save time."""
    monkeypatch.setattr(command, "METHODS", {method: METHODS[method] for method in FEW})


def compared(path, *options, metric="f1"):
    more = ["--target", "label", "--metric", metric, *QUICK, *options, "--json"]
    return json.loads(done("compare", path, *more).out)


@pytest.fixture(scope="module")
def result(binary):
    return compared(binary)


def scores(result):
    return [record["score"] for record in result["records"] if record["method"] in FEW]


def test_json_holds_methods_records_and_verdict(result):
    assert result["metric"] == "f1"
    assert result["greater_is_better"] is True
    assert (result["rows"], result["folds"], result["seeds"]) == (160, 2, 1)
    assert result["classes"] == ["a", "b"]
    assert {method["method"] for method in result["methods"]} == set(METHODS)
    means = [method["mean"] for method in result["methods"]]
    assert means == sorted(means, reverse=True)
    for method in result["methods"]:
        values = [r["score"] for r in result["records"] if r["method"] == method["method"]]
        assert len(values) == 2
        assert method["mean"] == pytest.approx(np.mean(values))
        assert 0 <= method["low"] <= method["mean"] <= method["high"] <= 1
        assert (method["difference"] is None) == (method["method"] == PLAIN)
    first = result["methods"][0]["method"]
    assert first in result["verdict"][0] or first == PLAIN


@pytest.mark.usefixtures("few")
def test_table_and_verdict_for_a_person(data):
    result = done("compare", data, "--target", "label", *QUICK)
    lines = result.out.splitlines()
    assert lines[0].split() == ["method", "mean", "95%", "interval", "difference", "p", "seconds"]
    assert all(len(line) <= 80 for line in lines[: len(FEW) + 1])  # no cell is broken
    assert {line[:26].strip() for line in lines[1 : len(FEW) + 1]} == set(FEW)
    assert "Mean f1_macro over 2 folds, 1 time, with its 95% interval" in result.out
    assert any(f"{word} mean f1_macro" in result.out for word in ("best", "better"))
    assert "Comparing" in result.err


def test_advice_that_nobody_can_follow_is_not_given(binary, monkeypatch):
    """EAST asks for larger batches, for which the command has no option."""
    monkeypatch.setattr(command, "METHODS", {name: METHODS[name] for name in (PLAIN, EAST)})
    said = done("compare", binary, "--target", "label", "--metric", "f1", *QUICK).err
    assert "The positive class is 'b'" in said
    assert "A batch of" not in said


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "options", [["--weight", "copies"], ["--group", "household"], ["--positive", "a"]]
)
def test_options_change_the_scores(binary, result, options):
    other = compared(binary, *options)
    assert scores(other) != scores(result)
    assert other["classes"] == (["b", "a"] if "--positive" in options else ["a", "b"])


@pytest.mark.usefixtures("few")
def test_a_cost_is_best_when_small(binary):
    result = compared(binary, metric="expected_cost[[0, 1], [9, 0]]")
    assert result["greater_is_better"] is False
    means = [method["mean"] for method in result["methods"]]
    assert means == sorted(means)
    best = result["methods"][0]
    assert best["difference"] is None or best["difference"]["value"] < 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", 1], "Invalid value for '--folds'"),
        (["--seeds", 0], "Invalid value for '--seeds'"),
        (["--metric", "f1_makro"], 'Did you mean "f1_macro"?'),
        (["--metric", "roc_auc"], "It ranks over all thresholds"),
        (["--group", "house"], "has no column 'house'"),
        (
            ["--group", "member", "--folds", 2],
            "groups of compare must name at least 3 groups. Got 2.",
        ),
        (["--positive", "c"], "--positive must be one of two classes of 'label'"),
    ],
)
def test_bad_input(binary, options, message):
    assert message in refused("compare", binary, "--target", "label", *options)


# The demo


def test_demo(monkeypatch):
    monkeypatch.setattr(command, "DEMO_METHODS", [PLAIN, "random forest (argmax)"])
    monkeypatch.setattr(command, "DEMO_SEEDS", 1)
    result = done("demo")
    shown = {line[:22].strip() for line in result.out.splitlines()[1:3]}
    assert shown == {PLAIN, "random forest (argmax)"}
    assert "Handwritten digits, long-tailed: from 178 rows of 0 to 9 of 9." in result.err
    assert result.err.splitlines()[-1] == command.NEXT


def test_demo_is_long_tailed():
    X, y = command.long_tailed_digits()
    counts = np.bincount(y)
    assert len(X) == len(y) == counts.sum()
    assert (np.diff(counts) < 0).all()
    assert counts[0] / counts[9] == pytest.approx(20, rel=0.05)
