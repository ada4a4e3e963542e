"""The file of a rule: applied by hand as its page says, it gives the labels of the rule."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evalign
from evalign.decisions import DecisionRule, fit_decision
from evalign.store.files import StoreError

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rule-file.md"
RNG = np.random.default_rng(0)
Y = RNG.choice(3, 400, p=[0.7, 0.2, 0.1])
LOGITS = 1.5 * np.eye(3)[Y] + RNG.normal(size=(400, 3))
LABELS = np.eye(3, dtype=int)[Y] | (RNG.random((400, 3)) < 0.1)
COST = "expected_cost[[0, 1, 9], [2, 0, 1], [9, 3, 0]]"
OFFSETS = [0.3, 0.0, -0.7]
NAMES = ["ant", "bee", "cow"]


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


P = softmax(LOGITS)
TWO = softmax(LOGITS[:, [0, 2]])
RARE = Y == 2


# Each rule, and the probabilities that it was fitted to.
RULES = {
    "two classes": lambda: fit_decision(y=RARE, probabilities=TWO, metric="f1"),
    "two classes with offsets": lambda: fit_decision(
        y=RARE, probabilities=TWO, metric="f1", offsets=[0.4, -0.1]
    ),
    "two classes by name": lambda: fit_decision(
        y=np.array(["no", "yes"])[RARE.astype(int)], probabilities=TWO, metric="f1"
    ),
    "two classes, argmax": lambda: fit_decision(
        y=RARE, probabilities=TWO, metric="f1", decision="argmax"
    ),
    "two classes, by probabilities": lambda: fit_decision(
        probabilities=TWO, metric="f1", decision="expected"
    ),
    "two classes, always the second": lambda: fit_decision(
        y=RARE, probabilities=TWO, metric="recall"
    ),
    "two classes, never the second": lambda: fit_decision(
        y=RARE, probabilities=TWO, metric=lambda c: -c.predicted[1]
    ),
    "classes": lambda: fit_decision(y=Y, probabilities=P, metric="f1_macro"),
    "classes by name": lambda: fit_decision(
        y=np.array(NAMES)[Y], probabilities=P, metric="balanced_accuracy"
    ),
    "classes with offsets": lambda: fit_decision(
        y=Y, probabilities=P, metric="f1_macro", offsets=OFFSETS
    ),
    "classes by probabilities": lambda: fit_decision(
        probabilities=P, metric="f1_macro", decision="expected"
    ),
    "a full matrix": lambda: fit_decision(y=Y, probabilities=P, metric="cohen_kappa_quadratic"),
    "a cost": lambda: fit_decision(y=Y, probabilities=P, metric=COST),
    "labels": lambda: fit_decision(y=LABELS, probabilities=P, metric="f1_macro"),
    "labels with offsets": lambda: fit_decision(
        y=LABELS, probabilities=P, metric="f1_micro", offsets=OFFSETS
    ),
}


@pytest.fixture(scope="module", params=RULES)
def rule(request):
    return RULES[request.param]()


@pytest.fixture
def path(rule, tmp_path):
    rule.save(tmp_path / "rule.json")
    return tmp_path / "rule.json"


def rows_for(rule):
    """Many rows of probabilities, with zeros and ones and with rows that are close to even."""
    rng = np.random.default_rng(1)
    number = len(rule.gain)
    wide = softmax(rng.normal(size=(2000, number)) * rng.choice([0.1, 1, 3, 30], (2000, 1)))
    if rule.multilabel:
        wide = rng.permuted(wide, axis=1)
        return np.concatenate([wide, np.zeros((1, number)), np.ones((1, number))])
    return np.concatenate([wide, np.eye(number), wide.round(1) / wide.round(1).sum(1)[:, None]])


def labels_of(rule, rows):
    """The labels of a rule as places, or 0 and 1."""
    labels = rule(probabilities=rows)
    if rule.classes is not None and not rule.multilabel:
        return np.array([rule.classes.index(label) for label in labels.tolist()])
    return np.asarray(labels)


def by_hand(file, p):
    """The label of one row."""

    def above(value, threshold):
        return int(value > threshold or threshold == 0)

    if file["task"] == "multilabel":
        return [above(*pair) for pair in zip(p, file["thresholds"], strict=True)]
    if "threshold" in file:
        return above(p[1], file["threshold"])
    return by_gain(file, p)


def by_gain(file, p):
    """The label of one row of classes that exclude each other, by the matrix."""
    offsets = file["offsets"] or [0.0] * len(p)
    weights = [
        max(value, file["floor"]) ** file["factor"] * math.exp(offset)
        for value, offset in zip(p, offsets, strict=True)
    ]
    scores = [
        sum(weight * row[place] for weight, row in zip(weights, file["gain"], strict=True))
        for place in range(len(p))
    ]
    return scores.index(max(scores))


def test_applied_by_hand(rule, path):
    file = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    rows = rows_for(rule)
    expected = labels_of(rule, rows).tolist()
    assert [by_hand(file, row) for row in rows.tolist()] == expected
    if not rule.multilabel:
        assert [by_gain(file, row) for row in rows.tolist()] == expected
    assert ("threshold" in file) == (len(rule.gain) == 2)
    assert ("thresholds" in file) == rule.multilabel


def test_opened_again(rule, path):
    rows = rows_for(rule)
    again = evalign.load(path)
    np.testing.assert_array_equal(again(probabilities=rows), rule(probabilities=rows))
    np.testing.assert_array_equal(again.scores(probabilities=rows), rule.scores(probabilities=rows))
    assert again.state_dict() == rule.state_dict()


@pytest.mark.skipif(shutil.which("node") is None, reason="no node to run JavaScript")
def test_applied_by_the_program_of_its_page(rule, path):
    rows = rows_for(rule)
    (program,) = re.findall(r"```javascript\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    program += """
        const [file, rows] = JSON.parse(require("fs").readFileSync(0));
        console.log(JSON.stringify(rows.map(row => label(file, row))));
    """
    given = json.dumps([json.loads(path.read_text(encoding="utf-8")), rows.tolist()])
    run = subprocess.run(
        ["node", "-e", program], input=given, capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == labels_of(rule, rows).tolist()


def test_a_page_of_at_most_thirty_lines():
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 30


def test_what_comes_first_is_what_a_reader_looks_for(path, rule):
    fields = [*json.loads(path.read_text(encoding="utf-8"))]
    assert fields[:6] == ["format", "version", "sha256", "metric", "task", "classes"]
    assert fields.index("gain") < fields.index("decision")


def test_a_changed_file_is_refused(path):
    text = path.read_text(encoding="utf-8")
    for name in ("floor", "factor", "gain"):
        path.write_text(text.replace(f'"{name}"', f'"{name}s"'), encoding="utf-8")
        with pytest.raises(StoreError, match="it has changed since it was written"):
            evalign.load(path)


NEEDS_NUMPY_ALONE = """
import json
import sys
import numpy
import evalign

rule = evalign.load(sys.argv[1])
labels = rule(probabilities=numpy.array(json.loads(sys.argv[2])))
slow = {"scipy", "sklearn", "pandas", "torch", "narwhals", "threadpoolctl", "safetensors"}
print(labels.tolist(), sorted(slow & {*sys.modules}))
"""


@pytest.mark.parametrize("rule", ["two classes", "classes by name", "labels"], indirect=True)
def test_applying_a_rule_needs_numpy_alone(rule, path):
    row = [[1 / len(rule.gain)] * len(rule.gain)]
    arguments = [sys.executable, "-c", NEEDS_NUMPY_ALONE, str(path), json.dumps(row)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{rule(probabilities=np.array(row)).tolist()} []"


@pytest.mark.parametrize("threshold", [0.3, 0.5])
def test_a_rule_without_data(tmp_path, threshold):
    gain = np.diag([threshold, 1 - threshold])
    rule = DecisionRule(gain, "tuned", "labels")
    rule.save(tmp_path / "rule.json")
    file = json.loads((tmp_path / "rule.json").read_text(encoding="utf-8"))
    assert file["threshold"] == pytest.approx(threshold, abs=1e-15)
