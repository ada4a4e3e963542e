"""The sentences: whether it helped, what to do next, and how many rows would tell."""

import re
from dataclasses import replace

import numpy as np
import pytest

from evalign.report import scores
from evalign.report.words import (
    NEEDED,
    TIMES,
    TOO_SMALL,
    _more_rows,
    is_clear,
    rows_to_tell,
    verdict,
    verdict_of_tried,
)
from tests.report.made import contents, tried


def against(metric, errors, other_errors):
    """Make two models, each wrong in its given number of rows, the first of 400."""
    made = contents(2, metric=metric)
    y = np.arange(400) % 2

    def model(scored, wrong):
        return replace(scored, predicted=np.where(np.arange(400) < wrong, 1 - y, y))

    made = replace(
        made, y=y, aligned=model(made.aligned, errors), baseline=model(made.baseline, other_errors)
    )
    return scores(made)["differences"][1]


COST = "expected_cost[[0, 1], [1, 0]]"


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), (COST, -1)])
def test_the_better_one_is_named(metric, sign):
    span = r"\(95% interval 0\.\d+ to 0\.\d+\)\."
    difference = against(metric, 40, 100)
    assert difference["value"] == pytest.approx(sign * 0.15)
    assert sign * difference["low"] > 0
    assert sign * difference["high"] > 0
    text = rf"Against cross-entropy: aligned is better by 0\.150 {span}"
    assert re.fullmatch(text, difference["verdict"])

    difference = against(metric, 100, 40)
    assert difference["value"] == pytest.approx(-sign * 0.15)
    text = rf"Against cross-entropy: cross-entropy is better by 0\.150 {span}"
    assert re.fullmatch(text, difference["verdict"])

    difference = against(metric, 50, 51)
    assert difference["low"] <= 0 <= difference["high"]
    assert difference["verdict"].startswith(
        "Against cross-entropy: no clear difference, the interval contains 0 ("
    )


def test_a_difference_that_is_not_known_is_not_clear():
    unknown = {"value": np.nan, "low": np.nan, "high": np.nan}
    assert not is_clear(unknown)
    assert not is_clear(dict.fromkeys(unknown))
    assert is_clear({"low": -0.2, "high": -0.1})
    made = tried()
    made = replace(made, gain=dict.fromkeys(unknown) | {"against": "trees"})
    text = "The rows held out in training are too few to tell blend from trees with argmax."
    assert verdict_of_tried(made, False) == text


def test_an_end_that_is_not_zero_does_not_read_so():
    assert "0.000" not in against("accuracy", 40, 100)["verdict"]
    text = verdict({"value": 0.001, "low": 0.00004, "high": 0.002}, "a", "b", True)
    assert text == "Against b: a is better by 0.001 (95% interval 4e-05 to 0.002)."


ROWS = 400
HOW = {"aligned": "how to get it", "cross_entropy_argmax": "how to get the other"}


def answered(own, own_argmax, other=None, other_argmax=None, metric="accuracy", **changes):
    """Return the answer for methods that are wrong in so many rows, the first ones."""
    y, rows = np.arange(ROWS) % 2, np.arange(ROWS)

    def model(scored, wrong, argmax_wrong):
        likely = np.where(rows < argmax_wrong, 1 - y, y)
        probabilities = np.stack([1 - likely, likely], 1) * 0.8 + 0.1
        return replace(
            scored, predicted=np.where(rows < wrong, 1 - y, y), probabilities=probabilities
        )

    made = contents(2, ROWS, metric=metric, how=HOW)
    baseline = None if other is None else model(made.baseline, other, other_argmax)
    changes = {"y": y, "aligned": model(made.aligned, own, own_argmax)} | changes
    return scores(replace(made, baseline=baseline, **changes))["answer"]


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), (COST, -1)])
def test_it_helped(metric, sign):
    found = answered(20, 60, 21, 100, metric)
    assert found["verdict"] == "helped"
    own, other = (0.95, 0.75) if sign > 0 else (0.05, 0.25)
    name = metric.split("[")[0]
    text = (
        f"It helped: {name} is {own:.3f} by aligned and {other:.3f} by cross-entropy with argmax, "
    )
    assert found["sentence"].startswith(f"{text}better by 0.200 (95% interval 0.1")
    use, simple = found["next"]
    assert use == "Use aligned with its rule (how to get it)."
    assert simple.startswith("Cross-entropy with a rule of its own has 0.")
    assert "which these rows cannot tell from it" in simple

    assert answered(20, 60, 80, 100, metric)["next"] == [
        "Use aligned with its rule (how to get it).",
        "It is better than cross-entropy with a rule of its own, too.",
    ]
    found = answered(60, 60, 10, 100, metric)
    assert found["next"][0] == "Use cross-entropy with its rule."
    use, why = answered(60, 10, 20, 100, metric)["next"]
    assert use == "Use aligned with argmax."
    assert why.startswith("Its rule makes it worse by 0.125 (95% interval 0.")


def test_it_did_not_help():
    found = answered(100, 100, 21, 20)
    assert found["verdict"] == "did not help"
    assert ", worse by 0.200 (95% interval 0.1" in found["sentence"]
    use = "Use cross-entropy with argmax (how to get the other)."
    assert found["next"] == ["Cross-entropy is enough.", use]
    found = answered(20, 30, 40, 20)
    same = "aligned gives all 400 rows the labels of cross-entropy with argmax"
    assert found["sentence"] == f"It did not help: {same}."
    assert found["next"] == ["Cross-entropy is enough.", use]
    found = answered(100, 20)
    assert found["verdict"] == "did not help"
    assert found["next"] == ["The rule is not needed.", "Use aligned with argmax."]


def test_it_cannot_be_told():
    found = answered(50, 60, 54, 53)
    assert found["verdict"] == "cannot tell"
    assert found["sentence"].startswith(
        "Cannot tell whether it helped: accuracy is 0.875 by aligned"
    )
    assert re.match(r"About \d+,?\d* test rows, where there are \d+, would tell", found["next"][0])
    assert found["next"][1] == "Until then either will do."
    # Either will not do if one of the others is better.
    use, why = answered(50, 10, 54, 53)["next"][1:]
    assert use == "Use aligned with argmax."
    assert why.startswith("Its rule makes it worse by 0.100 (95% interval 0.")
    use, why = answered(50, 60, 10, 53, tried=tried())["next"][1:]
    assert use == "Use cross-entropy with its rule."
    assert why.startswith("It is better by 0.100 (95% interval 0.")
    # The candidates were compared on more rows.
    clear = answered(50, 60, 54, 53, tried=tried())
    assert "it, blend is better than trees with argmax by 0.200" in clear["next"][1]
    assert clear["next"][2] == "Use aligned with its rule (how to get it)."
    groups = answered(50, 60, 54, 53, groups=np.arange(ROWS) // 2)
    assert re.match(r"About [\d.]+ times as many groups of test rows", groups["next"][0])
    seen = answered(20, 60, 21, 100, seen=True)
    assert seen["verdict"] == "cannot tell"
    assert "trained on these rows" in seen["sentence"]
    assert answered(20, 20)["verdict"] == "cannot tell"  # there is nothing else


@pytest.mark.parametrize("number", [1, 2, 9, 10])
def test_few_groups_tell_nothing(number):
    """Resamples of one group are all the same, so that their interval is a point."""
    found = answered(20, 60, 21, 100, groups=np.arange(ROWS) % number)
    assert answered(20, 60, 21, 100)["verdict"] == "helped"
    assert found["verdict"] == ("helped" if number == 10 else "cannot tell")
    if number == 1:
        assert found["sentence"].endswith(
            ", but all rows are of one group, and it takes 10 to tell chance from a difference."
        )
        assert found["next"][0] == "Test rows of more groups would tell."
        difference = scores(contents(2, groups=np.zeros(400)))["differences"][-1]
        assert ": no clear difference, it may rest on few groups (" in difference["verdict"]
    if number == 9:
        assert ", but the rows are of 9 groups, and it takes 10 to tell" in found["sentence"]


def with_a_rare_class(more_errors, **changes):
    """Return the scores of two models that differ in the one row of a class and some others."""
    y = np.where(np.arange(ROWS) == 0, 2, np.arange(ROWS) % 2)
    wrong = np.arange(ROWS) < 1 + more_errors
    made = contents(3, ROWS, y=y, **changes)
    aligned, baseline = (
        replace(model, predicted=labels, probabilities=np.eye(3)[labels] * 0.7 + 0.1)
        for model, labels in ((made.aligned, y), (made.baseline, np.where(wrong, 1 - y % 2, y)))
    )
    return scores(replace(made, aligned=aligned, baseline=baseline))


def test_a_difference_that_rests_on_a_class_of_few_rows():
    """The one row is in every resample, so that 0 is far from their interval."""
    found = with_a_rare_class(0)
    difference = found["differences"][-1]
    assert difference["low"] > 0.3
    assert difference["without_scarce"] == {"value": 0, "low": 0, "high": 0}
    assert ": no clear difference, it may rest on few rows (0.33" in difference["verdict"]
    answer = found["answer"]
    assert answer["verdict"] == "cannot tell"
    assert answer["sentence"].endswith(
        "but the difference may rest on classes with fewer than 10 test rows; without them it may "
        "be 0.000 to 0.000 (95% interval)."
    )
    assert answer["next"][0] == "More test rows of these classes would tell."
    assert with_a_rare_class(60)["answer"]["verdict"] == "helped"  # without it, too


def test_two_classes_of_which_one_has_few_rows():
    y = np.repeat([0, 1], [396, 4])
    rule, argmax = y, np.zeros(ROWS, int)
    made = contents(2, ROWS, baseline=False, y=y)
    likely = np.eye(2)[argmax] * 0.8 + 0.1
    found = scores(
        replace(made, aligned=replace(made.aligned, predicted=rule, probabilities=likely))
    )
    assert found["differences"][0]["low"] == 1
    assert found["differences"][0]["without_scarce"]["low"] is None
    assert found["answer"]["sentence"].endswith("rest on classes with fewer than 10 test rows.")


def test_few_rows_on_which_nothing_rests():
    """Of accuracy, the rows of the other class tell; a class without rows is in no resample."""
    rows = np.arange(1000)
    for y in (np.where(rows < 9, 1, 0), np.zeros(1000, int)):
        made = contents(2, 1000, y=y, metric="accuracy")
        aligned, baseline = (
            replace(model, predicted=labels, probabilities=np.eye(2)[labels] * 0.8 + 0.1)
            for model, labels in zip(made.models, (y, np.where(rows > 900, 1 - y, y)), strict=True)
        )
        found = scores(replace(made, aligned=aligned, baseline=baseline))["answer"]
        assert found["verdict"] == "helped"


def test_a_difference_that_no_number_of_rows_would_tell():
    y, rows = np.arange(ROWS) % 2, np.arange(ROWS)
    made = contents(2, ROWS, y=y, metric="accuracy")
    aligned, baseline = (
        replace(model, predicted=labels, probabilities=np.eye(2)[labels] * 0.8 + 0.1)
        for model, wrong in zip(made.models, (rows < 40, rows >= ROWS - 40), strict=True)
        for labels in [np.where(wrong, 1 - y, y)]
    )
    found = scores(replace(made, aligned=aligned, baseline=baseline))["answer"]
    assert found["next"] == [TOO_SMALL, "Either will do."]


def test_models_of_which_neither_finds_a_row_are_not_said_to_do():
    y, rows = np.arange(ROWS) % 2, np.arange(ROWS)
    made = contents(2, ROWS, y=y)
    aligned, baseline = (
        replace(model, predicted=labels, probabilities=np.eye(2)[labels] * 0.8 + 0.1)
        for model, wrong in zip(made.models, (rows < 40, rows >= ROWS - 40), strict=True)
        for labels in [np.where(wrong, 1 - y, 0)]
    )
    made = replace(made, aligned=aligned, baseline=baseline)
    for metric in ("f1", COST):
        found = scores(replace(made, metric=metric))["answer"]
        assert ("Neither will do." in found["next"]) == (metric == "f1")
        assert ("Either will do." in found["next"]) == (metric == COST)
    rare = np.where(rows < 3, 1, 0)
    aligned, baseline = (
        replace(model, predicted=labels, probabilities=np.eye(2)[labels] * 0.8 + 0.1)
        for model, wrong in zip(made.models, (rows == 100, rows == 200), strict=True)
        for labels in [np.where(wrong, 1, 0)]
    )
    made = replace(made, y=rare, aligned=aligned, baseline=baseline, metric="f1")
    assert scores(made)["answer"]["next"][1:] == [NEEDED]


@pytest.mark.parametrize("own", [20, 100])  # better and worse than the other
def test_rows_of_one_class_tell_nothing(own):
    y = np.ones(ROWS, int)
    wrong = np.where(np.arange(ROWS) < own, 0, 1), np.where(np.arange(ROWS) < 60, 0, 1)
    made = contents(2, ROWS, metric="f1_macro")
    aligned, baseline = (
        replace(model, predicted=labels, probabilities=np.eye(2)[labels] * 0.8 + 0.1)
        for model, labels in zip(made.models, wrong, strict=True)
    )
    found = scores(replace(made, y=y, aligned=aligned, baseline=baseline))
    assert found["answer"]["verdict"] == "cannot tell"
    assert found["answer"]["sentence"].endswith(
        "every row is of the class class 1, and to label all so would be right."
    )
    assert found["answer"]["next"] == ["Score rows of others, too."]
    against = "Against cross-entropy: no verdict, as all rows are of one class."
    assert against in [each["verdict"] for each in found["differences"]]


@pytest.mark.parametrize(("rows", "verdict"), [(1, "cannot tell"), (10, "did not help")])
def test_few_rows_with_the_same_labels_tell_little(rows, verdict):
    y = np.arange(rows) % 2
    made = contents(2, rows, y=y)
    aligned, baseline = (
        replace(model, predicted=y, probabilities=np.eye(2)[y] * 0.8 + 0.1) for model in made.models
    )
    found = scores(replace(made, aligned=aligned, baseline=baseline))["answer"]
    assert found["verdict"] == verdict


def test_evidence_that_may_rest_on_few_rows_advises_nothing():
    found = with_a_rare_class(0, tried=tried())["answer"]
    assert found["next"][1:] == ["Until then either will do."]


def test_models_that_give_every_row_one_label():
    never = np.zeros(ROWS, int)
    made = contents(2, ROWS)
    aligned, baseline = (
        replace(model, predicted=never, probabilities=np.tile([0.9, 0.1], (ROWS, 1)))
        for model in made.models
    )
    found = scores(replace(made, aligned=aligned, baseline=baseline))["answer"]
    assert found["verdict"] == "did not help"
    assert found["sentence"].endswith(
        "aligned and cross-entropy with argmax label all 400 rows class 0."
    )
    assert found["next"] == ["What is needed is more rows, or columns that tell the classes apart."]


def test_a_few_more_rows_where_the_interval_is_uneven():
    found = {"value": -0.3, "low": -0.33, "high": 0.0}
    assert rows_to_tell(**found, rows=80) == 80
    assert _more_rows(contents(), found).startswith("A few more test rows would tell")


def test_as_many_rows_that_every_class_has_enough():
    """Below ten rows of a class no difference is clear."""
    found = {"value": -0.3, "low": -0.33, "high": 0.0}
    made = contents(2, 80, y=(np.arange(80) < 4).astype(int))
    assert _more_rows(made, found).startswith("About 200 test rows, where there are 80, would tell")


def test_under_a_constraint_rules_are_compared():
    """The most probable classes need not keep to it."""
    found = answered(60, 20, 100, 20, constrained=True)
    assert found["verdict"] == "helped"
    assert "0.750 by cross-entropy, better by 0.100" in found["sentence"]
    assert answered(60, 20, constrained=True)["verdict"] == "cannot tell"
    made = scores(contents(constrained=True, tried=tried()))
    plain, rule, other = made["differences"]
    for text in (plain["verdict"], other["verdict"], made["tried"]["verdict"]):
        assert text.endswith("). Labels by argmax need not keep to the constraint.")
    assert rule["verdict"].endswith(").")


def test_the_rows_that_would_tell():
    """With as many rows four of five tests tell; with those at hand few do."""
    assert rows_to_tell(0.0, 0.0, 0.0, 100) is None
    assert rows_to_tell(1e-6, -0.1, 0.1, 100) is None
    assert rows_to_tell(0.1, -0.05, 0.25, 100) == 460
    assert rows_to_tell(0.1, -0.05, 0.25, 100) <= TIMES * 100
    # One method is right in 83 of 100 rows, the other, by itself, in 80.
    wrong, rng = np.array([0.17, 0.2]), np.random.default_rng(0)
    variance = (wrong * (1 - wrong)).sum()

    def told(rows):
        """The share of tests of so many rows whose interval does not hold 0."""
        share = rng.binomial(rows, wrong, (20_000, 2)) / rows
        return np.mean(share[:, 1] - share[:, 0] > 1.96 * np.sqrt(variance / rows))

    half = 1.96 * np.sqrt(variance / 500)
    needed = rows_to_tell(0.03, 0.03 - half, 0.03 + half, 500)
    assert told(500) < 0.3
    # The figure has two digits, and the standard error of the share is 0.003.
    assert told(needed) == pytest.approx(0.8, abs=0.02)
