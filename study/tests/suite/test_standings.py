"""From records to numbers, each compared with a small example by hand or with scipy."""

import math

import numpy as np
import pytest
from evalign_study.records.run import Run
from evalign_study.suite.standings import (
    OPPONENT,
    TODAY,
    Choice,
    Contender,
    ScorePair,
    ablation,
    average_ranks,
    critical_difference,
    gains,
    headline,
    over_splits,
    ranks,
    scores,
    wilcoxon,
)
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import OPPONENTS
from scipy import stats

from study.tests.papers.made_tables import record

OURS = Choice(("aligned",))


def made(method, test, *, dataset="adult", metric="f1", split=0, seed=1, better="argmax", **more):
    """Make a record whose decisions score `test`; `better` has the highest validation score."""
    run = Run(dataset=dataset, variant="sound", method=method, seed=seed, split_seed=split, **more)
    decisions = {
        decision: {"validation": 0.5 + 0.1 * (decision == better), "test": {metric: value}}
        for decision, value in _by_decision(test).items()
    }
    return record(run, {metric: {"epoch": 1, "decisions": decisions}})


def _by_decision(test):
    return test if isinstance(test, dict) else dict.fromkeys(DECISIONS, test)


def trial(ours, opponents=(0.5, 0.5, 0.5, 0.5), **where):
    return [
        *(made(name, score, **where) for name, score in zip(OPPONENTS, opponents, strict=True)),
        made(f"aligned_{where.get('metric', 'f1')}", ours, **where),
    ]


def test_scores_by_cell_trial_and_contender():
    found = scores([made("aligned_mcc", 0.7, metric="matthews_corrcoef", split=2, seed=3)])
    (trials,) = (found["adult", "matthews_corrcoef"],)
    assert list(trials) == [(2, 3)]
    assert len(trials[2, 3]) == 3
    assert trials[2, 3][Contender("aligned", "argmax")] == (0.6, 0.7)
    assert trials[2, 3][Contender("aligned", "tuned")] == (0.5, 0.7)
    by_batch = scores([made("aligned_by_batch_f1", 0.7)])["adult", "f1"][0, 1]
    assert {contender.method for contender in by_batch} == {"aligned_by_batch"}


def test_a_choice_goes_by_validation_scores_alone():
    found = {
        Contender("focal", "argmax"): ScorePair(0.6, 0.1),
        Contender("focal", "expected"): ScorePair(0.5, 0.9),
        Contender("cross_entropy", "tuned"): ScorePair(0.7, 0.3),
        Contender("cross_entropy", "expected"): ScorePair(0.8, 0.4),
    }
    assert Choice(("focal",)).score(found) == 0.1
    assert Choice(("focal",), ("expected",)).score(found) == 0.9
    assert Choice(("focal", "cross_entropy")).score(found) == 0.4
    assert TODAY.score(found) == 0.3  # "expected" is not of today
    assert OPPONENT.score(found) is None  # two were not run
    assert Choice(("focal",), ("tuned",)).score(found) is None


def test_gains_are_points_of_trials_that_have_both():
    records = [*trial(0.62, (0.1, 0.2, 0.3, 0.4)), made("aligned_f1", 0.9, seed=2)]
    records[1] = made(OPPONENTS[1], 0.6, better="tuned")
    found = scores(records)
    # All validation scores are alike: the first opponent is taken.
    assert gains(found, OURS, OPPONENT)["adult", "f1"] == pytest.approx({(0, 1): 52})
    # A contender that is better on the validation rows is taken.
    best = found["adult", "f1"][0, 1]
    best[Contender("focal", "tuned")] = ScorePair(0.99, 0.6)
    assert gains(found, OURS, OPPONENT)["adult", "f1"] == pytest.approx({(0, 1): 2})


def test_the_interval_of_a_cell_is_over_splits_and_corrected():
    values = {(0, 1): 1.0, (0, 2): 3.0, (1, 1): 4.0, (1, 2): 4.0, (2, 1): 3.0}
    mean, low, high, n = over_splits(values)
    splits = np.array([2.0, 4.0, 3.0])
    error = math.sqrt((1 / 3 + 0.2 / 0.8) * splits.var(ddof=1))
    reach = stats.t.ppf(0.975, 2) * error
    assert (mean, low, high, n) == pytest.approx((3, 3 - reach, 3 + reach, 3))
    alone = over_splits({(0, 1): 1.0, (0, 2): 3.0})
    assert (alone.mean, alone.trials) == (2, 1)
    assert math.isnan(alone.low)


def test_wilcoxon_is_scipys():
    values = [1.0, 2.0, -0.5, 3.0, 2.5, 0.7]
    assert wilcoxon(values) == stats.wilcoxon(values).pvalue
    assert wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 2**6)
    assert wilcoxon([0.0, 0.0]) == 1


def test_ranks_by_hand():
    records = [
        *trial(0.7, (0.6, 0.8, 0.5, 0.5)),
        *trial(0.9, (0.6, 0.6, 0.5, 0.5), seed=2),
        *trial(0.1, (0.6, 0.2, 0.2, 0.2), dataset="yeast"),
        made("cross_entropy", 1.0, dataset="yeast", seed=2),  # not all have this trial
    ]
    entries = {
        "ours": OURS,
        **{name: Choice((name,), ("argmax",)) for name in OPPONENTS},
    }
    ranked = ranks(scores(records), entries)
    adult = [cells["adult", "f1"] for cells in ranked.values()]  # 0.8, 0.6, 0.7, 0.5, 0.5
    assert adult == [1, 3, 2, 4.5, 4.5]
    assert [cells["yeast", "f1"] for cells in ranked.values()] == [5, 1, 3, 3, 3]
    assert average_ranks(ranked) == {
        "cross_entropy": 2,
        "balanced_cross_entropy": 2.5,
        "ours": 3,
        "focal": 3.75,
        "logit_adjusted": 3.75,
    }


def test_argmax_stands_for_tuned_where_nothing_is_tuned():
    few, others = {"argmax": 0.6, "expected": 0.5}, {"argmax": 0.55, "expected": 0.7}
    found = scores([made("focal", few), made("cross_entropy", others)])
    one, other = (Choice((name,), ("tuned",)) for name in ("focal", "cross_entropy"))
    assert gains(found, one, other)["adult", "f1"] == pytest.approx({(0, 1): 5})
    ranked = ranks(found, {"one": one, "other": other})
    assert [cells["adult", "f1"] for cells in ranked.values()] == [1, 2]


def test_critical_difference_is_the_published_one():
    """Demšar 2006, Table 5: q = 2.569 for four classifiers; its example has 14 data sets."""
    assert critical_difference(4, 14) == pytest.approx(
        2.569 * math.sqrt(4 * 5 / (6 * 14)), rel=1e-3
    )
    assert critical_difference(10, 1) == pytest.approx(3.164 * math.sqrt(110 / 6), rel=1e-3)


def judged(*ours):
    """Judge data sets with two splits each, on which the opponents always score 0.5."""
    return scores(
        record
        for i, score in enumerate(ours)
        for split in (0, 1)
        for record in trial(score, dataset=f"set {i}", split=split)
    )


def test_the_headline_of_a_mixed_result():
    """With gains of 4, 2 and −1 points, two thirds of the cells are won and one is surely lost."""
    found = judged(0.54, 0.52, 0.49)
    bars = headline(found, OURS)
    assert [bar.met for bar in bars] == [True, False, False, False, True, False]
    assert [bar.value for bar in bars[:5]] == pytest.approx([5 / 3, 5 / 3, 2 / 3, 1, 1])


def test_the_headline_of_equal_and_of_uncertain_cells():
    """A gain of 0 counts as one, and a cell whose interval reaches the margin is not lost."""
    splits = {"equal": (0.5, 0.5), "uncertain": (0.5, 0.44)}
    found = scores(
        record
        for dataset, ours in splits.items()
        for split, score in enumerate(ours)
        for record in trial(score, dataset=dataset, split=split)
    )
    values = [bar.value for bar in headline(found, OURS)]
    assert values[:4] == pytest.approx([-1.5, -1.5, 0.5, 0])


def test_ablation_is_paired_and_over_data_sets():
    found = scores(
        made(f"{variant}_f1", value, dataset=dataset)
        for dataset, values in {"a": (0.6, 0.5), "b": (0.6, 0.57), "c": (0.3, 0.3)}.items()
        for variant, value in zip(("aligned", "unadjusted"), values, strict=True)
    )
    over = ablation(found, "aligned")
    assert list(over) == ["unadjusted"]
    assert list(over["unadjusted"]) == ["argmax", "expected"]
    mean, low, high, n = over["unadjusted"]["expected"]
    reach = stats.t.ppf(0.975, 2) * stats.sem([10, 3, 0])
    assert (mean, low, high, n) == pytest.approx((13 / 3, 13 / 3 - reach, 13 / 3 + reach, 3))
    assert "aligned" in ablation(found, "unadjusted")
