"""`evalign fit --model network` and the commands that use its run, and networks in `compare`."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from torch import nn

import evalign
from evalign import AlignedClassifier, AlignedEnsemble
from evalign.cli import compare as comparison
from evalign.cli.outcome import judged, own_rule
from evalign.cli.run import FinishedRun
from evalign.tables import DataWarning
from tests.forged import opened
from tests.ground.cli.commands import done, files, fit, refused, table, written
from tests.ground.cli.test_doors import AWKWARD, KINDS, LABEL
from tests.ground.cli.test_findings import rows_of, two

PROBABILITIES = [f"probability_{label}" for label in ("high", "low", "middle")]


def fit_network(data, out, *more, **options):
    return fit(data, out, *more, model="network", **options)


def test_the_run_folder(fitted):
    names = {path.as_posix() for path in files(fitted)}
    whole = {"metrics.json", "details.json", "run.json", "report.html", "test_predictions.parquet"}
    assert names == whole | {"model"}
    run = FinishedRun(fitted)
    assert [*run.models] == ["model"]
    assert isinstance(run.models["model"], AlignedClassifier)
    page = (fitted / "report.html").read_text(encoding="utf-8")
    assert run.about["versions"]["torch"] in page
    assert run.read("details.json")["findings"]["rows"] == 48


def test_it_learns(fitted, said):
    methods = {m["key"]: m for m in json.loads((fitted / "metrics.json").read_text())["methods"]}
    assert list(methods) == ["aligned", "aligned_argmax"]
    assert methods["aligned"]["value"] > 0.6
    assert "network with argmax" in " ".join(said[1].out.split())


def test_seeds(data, tmp_path):
    """The same seed gives the same weights to the bit, another one others."""
    for name, seed in [("a", 3), ("b", 3), ("c", 4)]:
        done(*fit_network(data, tmp_path / name, "--seed", seed))
    tensors = {n: opened(tmp_path / n / "model")[1] for n in "abc"}
    weights = {n: {k: w.tolist() for k, w in tensors[n].items()} for n in tensors}
    assert weights["a"] == weights["b"] != weights["c"]
    predictions = {n: (tmp_path / n / "test_predictions.parquet").read_bytes() for n in "abc"}
    assert predictions["a"] == predictions["b"] != predictions["c"]


def test_epochs_are_told(data, tmp_path):
    assert "aligned: epoch 1/2" in done(*fit_network(data, tmp_path / "run")).err


@pytest.mark.usefixtures("usual_networks")
def test_a_constraint(tmp_path):
    """Of a class by its name, which is not its code: the rule meets it where it was fitted."""
    frame = two(240)
    data = written(tmp_path / "data.csv", frame)
    given = ["--metric", "precision", "--positive", "high", "--confidence", "0.8"]
    more = [*given, "--constraint", "recall[low] >= 0.5, recall >= 0.6"]
    done(*fit_network(data, tmp_path / "run", *more, decision="tuned"))
    saved = json.loads((tmp_path / "run/metrics.json").read_text())["constraints"]
    tested = pd.read_parquet(tmp_path / "run/test_predictions.parquet")
    for row, name, bound in zip(saved, ("low", "high"), (0.5, 0.6), strict=True):
        own = tested["label"] == name
        recall = (tested["model_prediction"][own] == name).mean()
        assert row["test"] == pytest.approx(recall)
        assert row["held_out"] >= bound - 1e-9


def test_labels_and_probabilities_of_one_pass(fitted):
    run, passes = FinishedRun(fitted), []
    model, X = run.models["model"], table(50)[["age", "income", "colour", "member"]]
    labels, probabilities = model.predict(X), model.predict_proba(X)
    model.network_.register_forward_hook(lambda *_: passes.append(1))
    columns = judged(model, run.labels, X)
    assert columns["prediction"].tolist() == labels.tolist()
    np.testing.assert_array_equal(
        np.stack([columns[name] for name in PROBABILITIES], 1), probabilities
    )
    assert len(passes) == 1


def test_predict_evaluate_and_report(fitted, tmp_path):
    frame = table(60, seed=5)
    new = written(tmp_path / "new.csv", frame)
    done("predict", fitted, new, "--out", tmp_path / "scored.parquet")
    scored, model = pd.read_parquet(tmp_path / "scored.parquet"), evalign.load(fitted)
    assert isinstance(model, AlignedClassifier)
    known = frame[model.feature_names_in_]
    assert model.predict(known).tolist() == scored["prediction"].tolist()
    np.testing.assert_allclose(model.predict_proba(known), scored[PROBABILITIES])
    assert json.loads(done("evaluate", fitted, new, "--json").out)["rows"] == 60
    done("report", fitted, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == (fitted / "report.html").read_bytes()
    written(new, frame.assign(age="old"))
    assert "new.csv: X of AlignedClassifier must have the col" in refused("evaluate", fitted, new)


def test_a_saved_classifier_is_opened(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    AlignedClassifier(epochs=1, decision="argmax").fit(X, y).save(tmp_path / "classifier")
    assert isinstance(evalign.load(tmp_path / "classifier", device="cpu"), AlignedClassifier)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_rule_is_told_for_the_probabilities_of_the_network(classes):
    """They are those after the rule's offsets."""
    rows = rows_of(two(240) if classes == 2 else table(240))
    model = AlignedClassifier("f1_macro", network=nn.Linear, epochs=3, random_state=0)
    model.fit(rows.X, rows.y)
    X = rows_of(table(300, seed=7)).X
    told, given = str(own_rule(model)), model.predict(X)
    if classes == 2:
        positive = model.predict_proba(X)[:, 1]
        low, high = positive[given == 0].max(), positive[given == 1].min()
        assert told.startswith("1 above a probability of ")
        assert low <= float(told.split()[-1]) <= high
    else:
        _, *lines = told.splitlines()
        p = model.predict_proba(X)
        if "plus" in told:
            by_hand = np.log(p) + np.array([line.split()[-1] for line in lines], float)
        else:
            by_hand = p @ np.array([line.split()[1:] for line in lines[1:]], float)
        assert (by_hand.argmax(1) == given).all()


def test_one_file_gives_one_set_of_columns(tmp_path):
    data = written(tmp_path / "data.csv", AWKWARD.assign(label=LABEL))
    other = written(tmp_path / "test.csv", AWKWARD[:60].assign(label=LABEL[:60]))
    done(*fit_network(data, tmp_path / "run", "--test", other))
    frame = pd.read_csv(data)
    network = AlignedClassifier("f1", epochs=1, pos_label="yes")
    with pytest.warns(DataWarning, match=r"'person' \(looks like an id\), 'note' \(text"):
        network.fit(frame.drop(columns="label"), frame["label"])
    run = evalign.load(tmp_path / "run")
    assert list(run.features_.given) == list(KINDS)
    assert network.features_.columns == run.features_.columns
    charge = [f"${i}.25" if i % 10 == 3 else f"{i * 7.3:.2f}" for i in range(len(frame))]
    with pytest.raises(ValueError, match="Column 'charge' must hold numbers only"):
        AlignedClassifier().fit(AWKWARD.assign(charge=charge), LABEL)


def test_a_class_of_few_rows():
    y = ["few"] * 4 + ["no", "yes"] * (len(AWKWARD) // 2 - 2)
    said = r"Classes with few training rows \('few: 4'\) are hard to learn\."
    network = AlignedClassifier(epochs=1, random_state=0)
    blend = AlignedEnsemble(candidates=["linear", ("network", network)], cv=2, random_state=0)
    for estimator in (network, blend):
        with pytest.warns() as shown:
            estimator.fit(AWKWARD[["age", "part"]], y)
        of_data = [str(one.message) for one in shown if one.category is DataWarning]
        assert len(of_data) == 1
        assert re.fullmatch(said, of_data[0])


def test_networks_of_all_recipes_are_compared(data, monkeypatch):
    monkeypatch.setattr(comparison, "DEFAULT", ("linear",))
    given = ["compare", data, "--target", "label", "--folds", 2, "--epochs", 1, "--json"]
    result = json.loads(done(*given).out)
    names = {row["candidate"] for row in result["candidates"]}
    assert names == {"linear", "aligned", "cross_entropy", "east", "blend"}
