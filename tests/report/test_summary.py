"""The numbers against scikit-learn's, and the words against the numbers."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from evalign.core.confusion import Confusion
from evalign.report import scores
from tests.report.made import contents, findings
from tests.tolerances import HARD


def weighted(rows=400, classes=3, **changes):
    weight = np.random.default_rng(9).uniform(0.5, 2, rows)
    return contents(classes, rows, weight=weight, **changes)


@pytest.mark.parametrize("made", [contents(), weighted(), contents(2), contents(12, 300)])
def test_numbers_are_scikit_learns(made):
    result = scores(made)
    methods = {
        "aligned": made.aligned.predicted,
        "aligned_argmax": made.aligned.probabilities.argmax(1),
        "cross_entropy": made.baseline.predicted,
        "cross_entropy_argmax": made.baseline.probabilities.argmax(1),
    }
    two = len(made.classes) == 2
    expected = {
        "accuracy": reference.accuracy_score,
        "balanced_accuracy": reference.balanced_accuracy_score,
        "f1_macro": lambda *a, **k: reference.f1_score(*a, average="macro", **k),
        "matthews_corrcoef": reference.matthews_corrcoef,
        **({"f1": reference.f1_score, "precision": reference.precision_score} if two else {}),
        **({"recall": reference.recall_score} if two else {}),
    }
    found = {entry["key"]: entry["value"] for entry in result["methods"]}
    assert list(found) == list(methods)
    assert {made.metric, *result["others"]} == set(expected)
    for name, score in expected.items():
        values = found if name == made.metric else result["others"][name]
        for key, predicted in methods.items():
            truth = score(made.y, predicted, sample_weight=made.weight)
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
            said = methods[key] == code
            mass = said.sum() if made.weight is None else made.weight[said].sum()
            assert entry["predicted"] == pytest.approx(mass)
    assert [row["class"] for row in result["per_class"]] == made.classes


def test_values_lie_in_their_intervals():
    result = scores(contents())
    for entry in [*result["methods"], *result["differences"]]:
        assert entry["low"] < entry["value"] < entry["high"]


def test_it_is_json_and_repeats():
    made = weighted(groups=np.arange(400) // 7)
    result = scores(made)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert scores(made) == result
    assert result["rows"] == 400
    assert result["groups"] == 58
    assert scores(replace(made, seed=1))["methods"][0]["low"] != result["methods"][0]["low"]


def test_the_soft_confusion():
    """Weighted, at the final temperature; logits are known up to a number per row."""
    made = weighted(temperature=0.07)
    logits = np.log(made.aligned.probabilities) + np.arange(400)[:, None]
    expected = Confusion.from_logits(
        torch.tensor(logits),
        torch.tensor(made.y),
        temperature=0.07,
        sample_weight=torch.tensor(made.weight),
        matrix=True,
    )
    got = made.soft(made.aligned)
    torch.testing.assert_close(got.matrix, expected.matrix, rtol=0, atol=HARD)
    assert replace(made, temperature=None).soft(made.aligned) is None


def test_without_baseline():
    result = scores(contents(baseline=False))
    assert [entry["key"] for entry in result["methods"]] == ["aligned", "aligned_argmax"]
    assert [entry["against"] for entry in result["differences"]] == ["aligned_argmax"]
    assert "cross_entropy" not in result["per_class"][0]


def test_absent_class():
    made = contents(4)
    made = replace(made, y=np.where(made.y == 2, 0, made.y))
    row = scores(made)["per_class"][2]
    assert row["rows"] == 0
    assert row["aligned"]["recall"] == row["aligned"]["f1"] == 0


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
        ("f1_macro", lambda *a, **k: reference.f1_score(*a, average="macro", **k)),
        ("f1_micro", lambda *a, **k: reference.f1_score(*a, average="micro", **k)),
        ("jaccard_weighted", lambda *a, **k: reference.jaccard_score(*a, average="weighted", **k)),
        ("accuracy", reference.accuracy_score),
        ("matthews_corrcoef", reference.matthews_corrcoef),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_score_without_classes_of_few_rows(metric, score, weighted):
    """scikit-learn's on the rows of the other classes, averaged over these."""
    weight = np.random.default_rng(9).uniform(0.5, 2, 400) if weighted else None
    made = scarce(metric=metric, weight=weight)
    found = scores(made)["scarce"]
    assert found["classes"] == {"class 2": 0, "class 3": 3}
    rows = made.y < 2
    more = {"labels": [0, 1]} if "_" in metric and "matthews" not in metric else {}
    more |= {"sample_weight": weight[rows]} if weighted else {}
    for key, predicted in {
        "aligned": made.aligned.predicted,
        "cross_entropy_argmax": made.baseline.probabilities.argmax(1),
    }.items():
        expected = score(made.y[rows], predicted[rows], **more)
        assert found["values"][key] == pytest.approx(expected, abs=HARD)


def test_classes_of_few_rows_that_leave_nothing():
    assert scores(contents())["scarce"] == {"classes": {}, "values": None}
    assert scores(scarce(3))["scarce"]["values"] is None


def test_differences_without_classes_of_few_rows():
    """Those of the same rows alone, where no class is left out."""
    made = scarce(metric="accuracy")
    found = scores(made)["differences"]
    rows = made.y < 2

    def some(model):
        return replace(
            model, predicted=model.predicted[rows], probabilities=model.probabilities[rows]
        )

    alone = scores(
        replace(made, y=made.y[rows], aligned=some(made.aligned), baseline=some(made.baseline))
    )["differences"]
    for each, expected in zip(found, alone, strict=True):
        assert each["without_scarce"] == {k: expected[k] for k in ("value", "low", "high")}
    assert "without_scarce" not in scores(contents())["differences"][0]


def test_methods_with_the_same_labels():
    made = contents()
    made = replace(made, baseline=replace(made.aligned, name="cross_entropy"))
    result = scores(made)
    assert [method["same_as"] for method in result["methods"]] == [
        None,
        None,
        "aligned",
        "aligned_argmax",
    ]
    assert result["differences"][1]["verdict"] == "Against cross-entropy: the labels are the same."


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"y": np.full(400, 3)}, "y of Contents must hold codes of the 3 classes. Got 3 to 3."),
        ({"weight": np.ones(7)}, "weight of Contents must have shape (400,). Got (7,)."),
        ({"classes": ["a", "b"]}, "y of Contents must hold codes of the 2 classes. Got 0 to 2."),
        (
            {"findings": findings(4)},
            "cuts of Contents must be of 3 classes for each model. Got [4, 4].",
        ),
        (
            {"findings": replace(findings(), against=3)},
            "against of Contents must be the code of a class. Got 3.",
        ),
        ({"y": np.zeros(0, int)}, "y of Contents must hold rows of two classes or more. Got 0."),
    ],
)
def test_errors(change, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        replace(contents(), **change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"notes": [3]}, "notes of ModelFindings must hold texts."),
        ({"cuts": [[1.5]]}, "cuts of ModelFindings must hold probabilities or None."),
        ({"rows": 0.5}, "rows of ModelFindings must be a number of rows."),
        (
            {"columns": [{"column": "x", "value": float("inf"), "low": 0, "high": 0}]},
            "columns of ModelFindings must hold names and numbers.",
        ),
    ],
)
def test_errors_of_findings(change, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        replace(findings(), **change)
