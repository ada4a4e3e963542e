"""The sentences: whether it helped, what to do next, and how many rows would tell."""

import re
from dataclasses import replace

import numpy as np
import pytest

from evalign.report import scores
from evalign.report.words import _size, _until_clear, is_clear, rows_to_tell, verdict_of_tried
from tests.ground.report.made import contents, labelled, tried

ROWS = 400
KEPT = "accuracy >= 0"
COST = "expected_cost[[0, 1], [1, 0]]"


def result(own, own_argmax, other=None, other_argmax=None, metric="accuracy", **changes):
    """Score methods that are wrong in the given numbers of rows, the first ones."""
    y, rows = np.arange(ROWS) % 2, np.arange(ROWS)
    made = contents(2, ROWS, metric=metric, y=y)

    def model(scored, *errors):
        return labelled(scored, *(np.where(rows < wrong, 1 - y, y) for wrong in errors))

    baseline = None if other is None else model(made.baseline, other, other_argmax)
    made = replace(made, aligned=model(made.aligned, own, own_argmax), baseline=baseline)
    return scores(replace(made, **changes))


def answered(*errors, **changes):
    return result(*errors, **changes)["answer"]


def test_differences_that_are_unknown_or_close_to_zero():
    unknown = {"value": np.nan, "low": np.nan, "high": np.nan}
    assert not is_clear(unknown)
    assert not is_clear(dict.fromkeys(unknown))
    assert is_clear({"low": -0.2, "high": -0.1})
    made = replace(tried(), gain=dict.fromkeys(unknown) | {"against": "trees"})
    text = "There are too few held-out rows to compare blend with trees with argmax."
    assert verdict_of_tried(made, False) == text
    alone = replace(tried(), rows=tried().rows[:1])  # under a constraint it has no opponent
    text = "In cross-validation, trees has 0.600 with its rule, 0.500 with argmax, which ignores"
    assert verdict_of_tried(alone, True).startswith(text)
    difference = {"value": 0.001, "low": 0.00004, "high": 0.002}
    assert _size(difference) == "0.001 (95% interval 4e-05 to 0.002)"  # not 0.000


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), (COST, -1)])
def test_it_helped(metric, sign):
    found = answered(20, 60, 21, 100, metric=metric)
    assert found["verdict"] == "helped"
    own, plain, other = (0.95, 0.85, 0.75) if sign > 0 else (0.05, 0.15, 0.25)
    ours = f"{own:.3f} for aligned ({plain:.3f} with argmax)"
    values = f"{ours} and {other:.3f} for cross-entropy with argmax"
    text = f"It helped: {metric.split('[')[0]} is {values}, better by 0.200 (95% interval 0.1"
    assert found["sentence"].startswith(text)
    use, simple = found["next"]
    assert use == "Use aligned with its decision rule."
    assert simple.startswith("Cross-entropy with its own decision rule reaches 0.")
    # Not if its rule is clearly worse.
    assert answered(20, 60, 80, 100, metric=metric)["next"] == [use]
    # Another method is clearly better still.
    for errors, better in (
        ((60, 60, 10, 100), "cross-entropy with its decision rule"),
        ((60, 10, 20, 100), "aligned with argmax"),
    ):
        use, why = answered(*errors, metric=metric)["next"]
        assert use == f"Use {better}."
        assert why.startswith("It is better than aligned by 0.125 (95% interval 0.")


def test_it_did_not_help():
    use = "Use cross-entropy with argmax."
    found = answered(100, 100, 21, 20)
    assert found["verdict"] == "did not help"
    assert ", worse by 0.200 (95% interval 0.1" in found["sentence"]
    assert found["next"][0] == use
    found = answered(20, 30, 40, 20)
    same = "aligned and cross-entropy with argmax give all rows the same labels"
    assert found["sentence"] == f"It did not help: {same}."
    assert found["next"] == [use]
    assert answered(100, 20)["next"][0] == "Use aligned with argmax."
    assert answered(20, 20)["next"] == ["Use aligned with argmax."]


def test_the_rows_cannot_tell():
    found = answered(50, 60, 54, 53)
    assert found["verdict"] == "cannot tell"
    start = "Cannot tell whether it helped: accuracy is 0.875 for aligned"
    assert found["sentence"].startswith(start)
    assert re.match(r"About [\d,]+ test rows instead of 400 would probably tell", found["next"][0])
    assert found["next"][1] == "Until then, use either."
    # Another method is clearly better.
    assert answered(50, 10, 54, 53)["next"][0] == "Use aligned with argmax."
    use = answered(50, 60, 10, 53, tried=tried())["next"][0]
    assert use == "Use cross-entropy with its decision rule."
    # Cross-validation compared the candidates on more rows.
    found = answered(50, 60, 54, 53, tried=tried())
    assert "blend is better than trees with argmax by 0.200" in found["next"][0]
    assert found["next"][1] == "Use aligned with its decision rule."
    found = {"value": 0.0, "low": -0.1, "high": 0.1}
    advice = _until_clear(contents(), {}, found)
    assert advice == ["The measured difference is close to 0: use either."]
    # With fewer than ten rows of a class no difference would be clear.
    made = contents(2, 80, y=(np.arange(80) < 2).astype(int))
    advice = _until_clear(made, {}, {"value": -0.0125, "low": -0.0375, "high": 0.0})
    assert advice[0].startswith("About 400 test rows instead of 80")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"seen": True}, "the models have seen these rows"),
        ({"y": np.ones(ROWS, int), "metric": "f1_macro"}, "every row is of class class 1"),
        ({"groups": np.arange(ROWS) % 9}, "the rows come from too few groups (9, fewer than 10)"),
    ],
)
def test_rows_that_are_no_test(changes, why):
    found = result(20, 60, 21, 100, **changes)
    assert found["answer"]["verdict"] == "cannot tell"
    assert found["answer"]["sentence"] == f"Cannot tell whether it helped: {why}."


def test_enough_groups_and_rows():
    assert answered(20, 60, 21, 100, groups=np.arange(ROWS) % 10)["verdict"] == "helped"
    for rows, verdict in ((9, "cannot tell"), (10, "did not help")):
        y = np.arange(rows) % 2
        made = contents(2, rows, y=y)
        aligned, baseline = (labelled(model, y) for model in made.models)
        made = replace(made, aligned=aligned, baseline=baseline)
        assert scores(made)["answer"]["verdict"] == verdict


def with_a_rare_class(more_errors):
    """Score two models that differ in the only row of a class and some others."""
    y = np.where(np.arange(ROWS) == 0, 2, np.arange(ROWS) % 2)
    wrong = np.arange(ROWS) < 1 + more_errors
    made = contents(3, ROWS, y=y, tried=tried())
    aligned = labelled(made.aligned, y)
    baseline = labelled(made.baseline, np.where(wrong, 1 - y % 2, y))
    return scores(replace(made, aligned=aligned, baseline=baseline))


def test_a_difference_that_depends_on_a_scarce_class():
    """The only row of a class is in every resample, so that the interval excludes 0."""
    found = with_a_rare_class(0)
    difference = found["differences"][-1]
    assert difference["low"] > 0.3
    assert difference["without_scarce"] == {"value": 0, "low": 0, "high": 0}
    depends = "depends on classes with fewer than 10 test rows"
    assert found["answer"]["verdict"] == "cannot tell"
    assert found["answer"]["sentence"].endswith(f"; the difference {depends}.")
    assert found["answer"]["next"] == ["Evaluate on more rows of these classes."]
    assert with_a_rare_class(60)["answer"]["verdict"] == "helped"  # also without it
    # Of two classes, no other is left to average over.
    y = np.repeat([0, 1], [396, 4])
    made = contents(2, ROWS, baseline=False, y=y)
    found = scores(replace(made, aligned=labelled(made.aligned, y, np.zeros(ROWS, int))))
    assert found["differences"][0]["low"] == 1
    assert found["differences"][0]["without_scarce"]["low"] is None
    assert found["answer"]["verdict"] == "cannot tell"


def test_scarce_classes_that_do_not_matter():
    """Accuracy is decided by the rows of the other class; a class without rows is never drawn."""
    rows = np.arange(1000)
    for y, verdict in ((np.where(rows < 9, 1, 0), "helped"), (np.zeros(1000, int), "did not help")):
        made = contents(2, 1000, y=y, metric="accuracy")
        aligned = labelled(made.aligned, y)
        baseline = labelled(made.baseline, np.where(rows > 900, 1 - y, y))
        found = scores(replace(made, aligned=aligned, baseline=baseline))["answer"]
        assert found["verdict"] == verdict


def test_under_a_constraint_decision_rules_are_compared():
    found = answered(60, 20, 100, 20, constraint=KEPT)
    assert found["verdict"] == "helped"
    assert "0.750 for cross-entropy, better by 0.100" in found["sentence"]
    assert found["next"] == ["Use aligned with its decision rule."]
    made = scores(contents(constraint="recall_macro >= 0", tried=tried()))
    assert "blend is better than trees by" in made["tried"]["verdict"]


@pytest.mark.parametrize(
    ("constraint", "verdict", "text"),
    [
        ("accuracy >= 0.8", "helped", "aligned, which keeps to accuracy >= 0.8 on these rows, and"),
        ("accuracy >= 0.9", "did not help", "aligned, which does not keep to accuracy >= 0.9 on"),
        ("accuracy >= 0", "helped", "0.850 for aligned and 0.750 for aligned with argmax, better"),
    ],
)
def test_without_a_baseline_the_constraint_decides(constraint, verdict, text):
    """The rule is wrong in 60 of 400 rows, argmax in 100."""
    found = answered(60, 100, constraint=constraint)
    assert found["verdict"] == verdict
    assert text in found["sentence"]


def test_the_rows_that_would_tell():
    """With so many rows four of five tests tell; with those at hand few do."""
    assert rows_to_tell(0.0, 0.0, 0.0, 100) is None
    assert rows_to_tell(1e-6, -0.1, 0.1, 100) is None
    assert rows_to_tell(0.1, -0.05, 0.25, 100) == 460
    assert rows_to_tell(-0.3, -0.33, 0.0, 80) == 88  # an asymmetric interval
    # One method is right in 83 of 100 rows, the other, independently, in 80.
    wrong, rng = np.array([0.17, 0.2]), np.random.default_rng(0)
    variance = (wrong * (1 - wrong)).sum()

    def told(rows):
        """The share of tests with so many rows whose interval excludes 0."""
        share = rng.binomial(rows, wrong, (20_000, 2)) / rows
        return np.mean(share[:, 1] - share[:, 0] > 1.96 * np.sqrt(variance / rows))

    half = 1.96 * np.sqrt(variance / 500)
    needed = rows_to_tell(0.03, 0.03 - half, 0.03 + half, 500)
    assert told(500) < 0.3
    # The number has two digits, and the standard error of the share is 0.003.
    assert told(needed) == pytest.approx(0.8, abs=0.02)
