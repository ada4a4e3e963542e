"""`evalign compare` and `evalign demo`."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from evalign.cli import compare as command
from evalign.comparison import METHODS, PLAIN, TUNED
from tests.cli.commands import done, refused, table, written

QUICK = ["--folds", 2, "--seeds", 1, "--epochs", 1]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Gradient boosting has threads of its own, which would fight for the workers' cores."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    """Two classes, of which "b" is rare; groups and weights."""
    rng = np.random.default_rng(0)
    frame = table(160).drop(columns="person")
    frame["label"] = np.where(frame["age"] > 56, "b", "a")
    frame["household"] = rng.integers(20, size=len(frame))
    frame["copies"] = np.where(frame["label"] == "b", 3.5, 1)
    return written(tmp_path_factory.mktemp("compare") / "binary.csv", frame)


def compared(path, *options, metric="f1"):
    more = ["--target", "label", "--metric", metric, *QUICK, *options, "--json"]
    return json.loads(done("compare", path, *more).out)


@pytest.fixture(scope="module")
def result(binary):
    return compared(binary)


def scores(result):
    return [record["score"] for record in result["records"]]


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
        assert method["low"] <= method["mean"] <= method["high"]
        assert (method["difference"] is None) == (method["method"] == PLAIN)
    first = result["methods"][0]["method"]
    assert first in result["verdict"][0] or first == PLAIN


def test_table_and_verdict_for_a_person(data):
    result = done("compare", data, "--target", "label", *QUICK)
    lines = result.out.splitlines()
    assert lines[0].split() == ["method", "mean", "95%", "interval", "difference", "p", "seconds"]
    assert all(len(line) <= 80 for line in lines[: len(METHODS) + 1])  # no cell is broken
    assert {line[:22].strip() for line in lines[1 : len(METHODS) + 1]} == set(METHODS)
    assert "Mean f1_macro over 2 folds" in result.out
    assert "best mean f1_macro" in result.out or "cross-entropy wins" in result.out
    assert "Comparing" in result.err
    assert "Left out: person (id), country (constant)." in result.err


def test_quiet_says_nothing(binary):
    result = done("compare", binary, "--target", "label", *QUICK, "--quiet")
    assert (result.out, result.err) == ("", "")


@pytest.mark.parametrize(
    "options", [["--weight", "copies"], ["--group", "household"], ["--positive", "a"]]
)
def test_options_change_the_scores(binary, result, options):
    other = compared(binary, *options)
    assert scores(other) != scores(result)
    assert other["classes"] == (["b", "a"] if "--positive" in options else ["a", "b"])


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
        (
            ["--folds", 60],
            "--folds must be at most 47, the rows of the rarest class. Got 60; 'b' has 47.",
        ),
        (["--folds", 1], "Invalid value for '--folds'"),
        (["--seeds", 0], "Invalid value for '--seeds'"),
        (["--metric", "f1_makro"], 'Did you mean "f1_macro"?'),
        (["--metric", "roc_auc"], "It ranks over all thresholds"),
        (["--group", "house"], "--group must name a column of"),
        (["--group", "member", "--folds", 2], "groups of compare must name at least 3 groups"),
        (["--positive", "c"], "--positive must be a class of 'label'"),
    ],
)
def test_bad_input(binary, options, message):
    assert message in refused("compare", binary, "--target", "label", *options)


def test_metric_of_two_classes_on_three(data):
    line = refused("compare", data, "--target", "label", "--metric", "f1")
    assert 'Use average="macro", by name "f1_macro"' in line


def test_a_class_that_lives_in_one_group(tmp_path):
    frame = table(160)
    frame["household"] = np.where(frame["label"] == "low", 99, np.arange(160) % 12)
    path = written(tmp_path / "data.csv", frame)
    line = refused("compare", path, "--target", "label", "--group", "household", "--folds", 2)
    assert "groups of compare must leave every class in every fold" in line


def test_nothing_but_json_on_standard_output(binary, result):
    options = ["--target", "label", "--metric", "f1", *map(str, QUICK), "--json"]
    program = "from evalign.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "compare", str(binary), *options],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert scores(json.loads(ran.stdout)) == scores(result)
    assert "Comparing" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Warning" not in ran.stderr


# The demo


def test_demo(monkeypatch):
    monkeypatch.setattr(command, "DEMO_METHODS", [PLAIN, TUNED, "random forest"])
    monkeypatch.setattr(command, "DEMO_SEEDS", 1)
    result = done("demo")
    assert {line[:22].strip() for line in result.out.splitlines()[1:4]} == {
        PLAIN,
        TUNED,
        "random forest",
    }
    assert "Handwritten digits, long-tailed: from 178 rows of 0 to 9 of 9." in result.err
    assert "evalign fit data.csv --target label" in result.err


def test_demo_is_long_tailed():
    X, y = command.long_tailed_digits()
    counts = np.bincount(y)
    assert len(X) == len(y) == counts.sum()
    assert (np.diff(counts) < 0).all()
    assert counts[0] / counts[9] == pytest.approx(20, rel=0.05)
