"""`evalign compare`."""

import json

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from evalign.cli import compare as command
from evalign.core import stairs
from tests.ground.cli.commands import done, refused, table, written

NAMES = ["linear", "boosting", "forest", "blend"]
QUICK = ["--folds", 2]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Limit gradient boosting to one thread, as more would compete for the workers' cores."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_networks():
    """Compare what needs no PyTorch, also where it is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "RECIPES", ())
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
    """Compare only a few models, to save time."""
    monkeypatch.setattr(command, "DEFAULT", ("linear", "boosting"))


def compared(path, *options, metric="f1"):
    more = ["--target", "label", "--metric", metric, *QUICK, *options, "--json"]
    return json.loads(done("compare", path, *more).out)


@pytest.fixture(scope="module")
def result(binary):
    return compared(binary)


def scores(result):
    return {row["candidate"]: row["argmax_score"] for row in result["candidates"]}


def test_json_holds_candidates_and_verdict(result):
    """Every candidate by argmax and with its rule, and the strongest argmax as the opponent."""
    assert result["metric"] == "f1"
    assert result["greater_is_better"] is True
    assert (result["rows"], result["folds"]) == (160, 2)
    assert sorted(scores(result)) == sorted(NAMES)
    for row in result["candidates"]:
        for stem in ("rule_score", "argmax_score"):
            assert 0 <= row[f"{stem}_low"] <= row[stem] <= row[f"{stem}_high"] <= 1
    *rivals, own = result["candidates"]
    best = max(rivals, key=lambda row: row["argmax_score"])
    assert result["gain"]["against"] == best["candidate"]
    value = own["rule_score"] - best["argmax_score"]
    assert result["gain"]["value"] == pytest.approx(value)
    assert f"{best['candidate']} with argmax" in result["verdict"]


@pytest.mark.usefixtures("few")
def test_table_and_verdict_for_a_person(data):
    result = done("compare", data, "--target", "label", *QUICK)
    lines = result.out.splitlines()
    headings = "candidate with a rule 95% interval argmax 95% interval seconds"
    assert lines[0].split() == headings.split()
    assert [line.split()[0] for line in lines[1:4]] == ["linear", "boosting", "blend"]
    assert "f1_macro on held-out rows, 2 folds: with a rule and by argmax" in result.out
    assert "In cross-validation, " in result.out
    assert "linear: f1_macro" in result.err


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "options", [["--weight", "copies"], ["--groups", "household"], ["--positive", "a"]]
)
def test_options_change_the_scores(binary, result, options):
    other = scores(compared(binary, *options))
    assert other != {name: scores(result)[name] for name in other}


def test_it_tells_the_folds_that_there_were(binary, monkeypatch):
    """Of few groups there are fewer than were asked for."""
    monkeypatch.setattr(command, "DEFAULT", ("linear",))
    assert compared(binary, "--groups", "household", "--folds", 50)["folds"] == 20


@pytest.mark.usefixtures("few")
def test_a_cost_is_best_when_small(binary):
    result = compared(binary, "--classes", "a,b", metric="expected_cost[[0, 1], [9, 0]]")
    assert result["greater_is_better"] is False
    (*rivals, own), gain = result["candidates"], result["gain"]
    best = min(row["argmax_score"] for row in rivals)
    assert gain["value"] == pytest.approx(best - own["rule_score"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", 1], "Invalid value for '--folds'"),
        (["--metric", "f1_makro"], "Did you mean 'f1_macro'?"),
        (["--groups", "house"], "has no column 'house'"),
        (["--positive", "c"], "--positive must be one of two classes of 'label'"),
    ],
)
def test_bad_input(binary, options, message):
    assert message in refused("compare", binary, "--target", "label", *options)


def test_without_torch_no_network_is_compared(binary, monkeypatch):
    monkeypatch.setattr(stairs, "has_torch", lambda: False)
    monkeypatch.setattr(command, "DEFAULT", ("linear",))
    monkeypatch.setattr(command, "RECIPES", ("aligned",))
    given = ["compare", binary, "--target", "label", *QUICK]
    result = done(*given)
    needs = "needs PyTorch: pip install 'evalign[torch]'"
    assert f"No network is compared. It {needs}\n" in result.err
    assert "aligned" not in result.out
    assert refused(*given, "--epochs", 1) == f"evalign: --epochs {needs}"
