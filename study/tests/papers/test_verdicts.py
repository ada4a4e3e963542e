"""The verdicts on a claim, and the intervals behind them."""

import numpy as np
import pytest
from evalign_study.papers import verdicts as module
from evalign_study.papers.evidence import View
from evalign_study.papers.verdicts import judge, verdicts
from evalign_study.pipeline.intervals import interval
from scipy import stats

from study.tests.papers.made_tables import TABLES, curves, evidence

MADE = TABLES["made"]
BETTER, SIMILAR, ABOVE = MADE.claims
MAMMOGRAPHY, ADULT = MADE.panels
PAPERS = View("paper", "papers", "argmax")
LEVEL = [0.70, 0.71, 0.72]


def verdict(first, second, claim=BETTER, panel=MAMMOGRAPHY, view=PAPERS):
    return judge(evidence({"F1*": first, "CE": second}), claim, panel, view)


def test_interval_is_students():
    values = np.random.default_rng(0).normal(0.3, 0.1, 10)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    mean, low, high, trials = interval(values)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert (mean, trials) == (pytest.approx(values.mean()), 10)


@pytest.mark.parametrize(
    ("relation", "gains", "word", "reason"),
    [
        ("higher", (0.02, 0.021, 0.019), "confirmed", ""),
        ("higher", (0.02, 0.02, 0.02), "confirmed", ""),
        ("higher", (0, 0, 0), "not confirmed", ""),
        ("higher", (-0.02, 0.02, 0.03), "not confirmed", ""),
        ("higher", (-0.02, -0.021, -0.019), "not confirmed", "the reverse holds"),
        ("not lower", (-0.005, -0.004, -0.006), "confirmed", ""),
        ("not lower", (-0.02, 0.02, 0.01), "not confirmed", ""),
        ("not lower", (-0.02, -0.021, -0.019), "not confirmed", "the reverse holds"),
        ("unchanged", (0.005, 0.004, 0.006), "confirmed", ""),
        ("unchanged", (-0.02, 0.02, 0.01), "not confirmed", ""),
        ("unchanged", (0.2, 0.21, 0.19), "not confirmed", "the reverse holds"),
    ],
)
def test_relations(relation, gains, word, reason):
    first = [x + gain for x, gain in zip(LEVEL, gains, strict=True)]
    found = verdict(first, LEVEL, BETTER._replace(relation=relation))
    assert (found.word, found.reason) == (word, reason)
    assert found.difference.mean == pytest.approx(np.mean(gains))


def test_trials_are_paired_by_seed():
    """The lines vary together, so that only pairs of trials tell them apart."""
    first, second = [0.61, 0.81, 0.91], [0.60, 0.80, 0.90]
    assert verdict(first, second).word == "confirmed"
    assert verdict(first, second[::-1]).word == "not confirmed"


def test_a_line_against_a_number():
    found = judge(evidence({"CE": [0.9, 0.91, 0.89]}), ABOVE, MAMMOGRAPHY, PAPERS)
    assert found.word == "confirmed"  # 0.9 with half the rows positive is a recall of 0.8
    assert found.difference.mean == pytest.approx(0.8 - 0.5)


def test_not_comparable_has_its_reason_and_its_difference():
    found = verdict([x + 0.1 for x in LEVEL], LEVEL, panel=ADULT)
    assert (found.word, found.reason) == ("not comparable", "other rows")
    assert found.difference.mean == pytest.approx(0.1)


def test_seen_as_in_the_paper_and_strictly():
    found = list(verdicts(evidence({"F1*": LEVEL, "CE": LEVEL})))
    assert [(claim.text, panel.label) for claim, panel, _ in found] == [
        ("F1* is better", "Mammography"),
        ("F1* is better", "Adult"),
        ("F1* matches", "Mammography"),
        ("F1* matches", "Adult"),
        ("CE recalls", "Mammography"),
    ]
    assert all(list(seen) == ["as in the paper", "strictly"] for *_, seen in found)
    assert module.views(MADE, MAMMOGRAPHY)["strictly"] == ("sound", "strict", "tuned")
    assert module.views(MADE, ADULT)["strictly"] == ("paper", "strict", "tuned")


@pytest.mark.parametrize(("f1", "word"), [((0.1, 0.2, 0.3), "confirmed"), ((0.2, 0.1, 0.3), "not")])
def test_a_figure_is_judged_by_its_curves(f1, word):
    ((_, _, seen),) = verdicts(curves("drawn", f1))
    assert list(seen) == ["as in the paper"]
    assert seen["as in the paper"].word.startswith(word)


@pytest.mark.parametrize(
    ("f1", "loss"),
    [
        ((0.18, 0.184, 0.189), (3.0, 2.0, 1.0)),
        ((0.1, 0.2, 0.3), (None,) * 3),
        ((0.1, 0.2, 0.3), (1, None, 1)),
    ],
)
def test_a_curve_that_hardly_changes_has_no_correlation(f1, loss):
    """A curve whose loss was not a number has none either."""
    ((_, _, seen),) = verdicts(curves("drawn", f1, loss=loss))
    assert seen["as in the paper"] == ("not comparable", "the trials have no such value", None)


@pytest.mark.parametrize(
    ("surrogate", "mae", "more"),
    [
        ((0.1, 0.95, 1.0), (0.1, 0.94, 0.96), 1),
        ((0.95, 1.0, 1.0), (0.1, 0.2, 0.3), 5),  # never there: more than the 5 there may be
        ((0.95, 1.0, 1.0), (0.0, 0.0, 0.0), 5),  # nor if it learns nothing at all
        ((0.0, 0.0, 0.0), (0.1, 0.2, 0.3), -3),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0),
    ],
)
def test_epochs_are_counted_to_what_the_best_line_reaches(surrogate, mae, more):
    ((_, _, seen),) = verdicts(curves("raced", surrogate, mae, (0.0, 0.0, 0.0)))
    assert seen["as in the paper"].difference.mean == more


@pytest.mark.parametrize(
    ("still", "said"),
    [
        (1, ("confirmed", "2 of 3 trials")),
        (2, ("not comparable", "all but one of 3 trials have no such value")),
    ],
)
def test_a_verdict_of_some_of_the_trials_says_so(still, said):
    found = curves("drawn", (0.1, 0.2, 0.3), trials=3)
    for record in list(found.records.values())[:still]:
        for epoch in record["curve"]:
            epoch["train_f1"] = 0.2
    ((_, _, seen),) = verdicts(found)
    assert seen["as in the paper"][:2] == said
