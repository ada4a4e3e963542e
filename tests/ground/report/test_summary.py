"""The numbers against scikit-learn's, and bad contents."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn import metrics as reference

from evalign.report import scores
from tests.ground.report.made import contents, findings, tried
from tests.tolerances import HARD

WEIGHT = np.random.default_rng(9).uniform(0.5, 2, 400)
WEIGHTED = contents(weight=WEIGHT)


@pytest.mark.parametrize("made", [contents(), WEIGHTED, contents(2), contents(12, 300)])
def test_numbers_are_scikit_learns(made):
    result = scores(made)
    methods = {
        "aligned": made.aligned.predicted,
        "aligned_argmax": made.aligned.probabilities.argmax(1),
        "cross_entropy": made.baseline.predicted,
        "cross_entropy_argmax": made.baseline.probabilities.argmax(1),
    }
    names = ["accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef"]
    names += ["f1", "precision", "recall"] if len(made.classes) == 2 else []
    expected = {name: reference.get_scorer(name) for name in names}
    found = {entry["key"]: entry["value"] for entry in result["methods"]}
    assert list(found) == list(methods)
    assert {made.metric, *result["others"]} == set(expected)
    for name, score in expected.items():
        values = found if name == made.metric else result["others"][name]
        for key, predicted in methods.items():
            truth = score._score_func(made.y, predicted, sample_weight=made.weight, **score._kwargs)
            assert values[key] == pytest.approx(truth, abs=HARD)

    labels = range(len(made.classes))
    for key in ("aligned", "cross_entropy"):
        table = reference.precision_recall_fscore_support(
            made.y, methods[key], labels=labels, sample_weight=made.weight, zero_division=0
        )
        for code, row in enumerate(result["per_class"]):
            entry = row[key]
            got = [entry["precision"], entry["recall"], entry["f1"], row["rows"]]
            assert got == pytest.approx([column[code] for column in table])
            mass = made.weights[methods[key] == code].sum()
            assert entry["predicted"] == pytest.approx(mass)
    assert [row["class"] for row in result["per_class"]] == made.classes


def test_it_is_json_and_repeats():
    made = replace(WEIGHTED, groups=np.arange(400) // 7)
    result = scores(made)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert scores(made) == result
    assert result["rows"] == 400
    assert result["groups"] == 58
    assert scores(replace(made, seed=1))["methods"][0]["low"] != result["methods"][0]["low"]
    for entry in [*result["methods"], *result["differences"]]:
        assert entry["low"] < entry["value"] < entry["high"]


def test_without_baseline_and_an_absent_class():
    made = contents(4, baseline=False)
    result = scores(replace(made, y=np.where(made.y == 2, 0, made.y)))
    assert [entry["key"] for entry in result["methods"]] == ["aligned", "aligned_argmax"]
    assert [entry["against"] for entry in result["differences"]] == ["aligned_argmax"]
    absent = result["per_class"][2]
    assert absent.keys() == {"class", "rows", "aligned"}
    assert absent["rows"] == absent["aligned"]["recall"] == absent["aligned"]["f1"] == 0


def scarce(classes=4, rows=400, **changes):
    """Make contents whose last class has three rows, and the one before none."""
    made = contents(classes, rows, **changes)
    y = made.y.copy()
    y[y >= classes - 2] = 0
    y[[3, 50, 77]] = classes - 1
    return replace(made, y=y)


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("f1_macro", partial(reference.f1_score, average="macro", labels=[0, 1])),
        ("jaccard_weighted", partial(reference.jaccard_score, average="weighted", labels=[0, 1])),
        ("accuracy", reference.accuracy_score),
        ("matthews_corrcoef", reference.matthews_corrcoef),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_without_scarce_classes(metric, score, weighted):
    """scikit-learn's on the rows of the other classes, averaged over these."""
    made = scarce(metric=metric, weight=WEIGHT if weighted else None)
    found = scores(made)["scarce"]
    assert found["classes"] == {"class 2": 0, "class 3": 3}
    rows = made.y < 2
    given = {"sample_weight": WEIGHT[rows]} if weighted else {}
    argmax = made.baseline.probabilities.argmax(1)
    for key, labels in (("aligned", made.aligned.predicted), ("cross_entropy_argmax", argmax)):
        expected = score(made.y[rows], labels[rows], **given)
        assert found["values"][key] == pytest.approx(expected, abs=HARD)


def test_differences_without_scarce_classes():
    """Those of the same rows alone, if no class is left out of an average."""
    made = scarce(metric="accuracy")
    rows = made.y < 2
    some = [
        replace(model, predicted=model.predicted[rows], probabilities=model.probabilities[rows])
        for model in made.models
    ]
    alone = scores(replace(made, y=made.y[rows], aligned=some[0], baseline=some[1]))
    for each, expected in zip(scores(made)["differences"], alone["differences"], strict=True):
        assert each["without_scarce"] == {k: expected[k] for k in ("value", "low", "high")}
    assert "without_scarce" not in alone["differences"][0]
    assert scores(contents())["scarce"] == {"classes": {}, "values": None}
    assert scores(scarce(3))["scarce"]["values"] is None


MANY = {"column": "x", "value": float("inf"), "low": 0, "high": 0}


@pytest.mark.parametrize(
    ("made", "change", "text"),
    [
        (contents(), {"y": np.full(400, 3)}, "y of Contents must hold codes of the 3 classes."),
        (contents(), {"weight": np.ones(7)}, "weight of Contents must have shape (400,). Got (7,)"),
        (contents(), {"findings": findings(4)}, "rules of Contents must be of 2 models. Got 4."),
        (findings(), {"notes": [3]}, "notes of ModelFindings must hold texts."),
        (findings(), {"rules": [None]}, "rules of ModelFindings must hold texts."),
        (findings(), {"rows": 0.5}, "rows of ModelFindings must be a number of rows."),
        (findings(), {"columns": [MANY]}, "columns of ModelFindings must hold names and numbers."),
        (tried(), {"rows": []}, "rows of TriedModels must hold names and numbers."),
        (tried(), {"gain": tried().gain | {"low": None}}, "rows of TriedModels must hold names"),
        (tried(), {"left_out": {"network": 3}}, "rows of TriedModels must hold names and numbers."),
    ],
)
def test_errors(made, change, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        replace(made, **change)
