"""From records to numbers, each compared with a small example by hand or with scipy."""

import math

import numpy as np
import pytest
from evalign_study.records.run import Run
from evalign_study.suite.standings import (
    OPPONENT,
    Choice,
    Contender,
    ScorePair,
    gains,
    intervals,
    means,
    over_splits,
    scores,
)
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import OPPONENTS
from evalign_study.trainers.methods import OURS as NAME
from scipy import stats

from study.tests.papers.made_tables import record

OURS = Choice((NAME,))


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


def trial(ours, opponents=(0.5, 0.5, 0.5, 0.5, 0.5), **where):
    return [
        *(made(name, score, **where) for name, score in zip(OPPONENTS, opponents, strict=True)),
        made(f"{NAME}_{where.get('metric', 'f1')}", ours, **where),
    ]


def test_scores_by_cell_split_and_contender():
    found = scores([made(f"{NAME}_mcc", 0.7, metric="matthews_corrcoef", split=2)])
    (trials,) = (found["adult", "matthews_corrcoef"],)
    assert list(trials) == [(2, 1)]
    assert len(trials[2, 1]) == 3
    assert trials[2, 1][Contender(NAME, "argmax")] == (0.6, 0.7)
    assert trials[2, 1][Contender(NAME, "tuned")] == (0.5, 0.7)
    east = scores([made("east_f1", 0.7)])["adult", "f1"][0, 1]
    assert {contender.method for contender in east} == {"east"}


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
    assert OPPONENT.score(found) is None  # three were not run
    assert Choice(("focal",), ("tuned",)).score(found) is None


def test_gains_are_points_of_trials_that_have_both():
    records = [*trial(0.62, (0.1, 0.2, 0.3, 0.4, 0.5)), made(f"{NAME}_f1", 0.9, split=1)]
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


def test_means_over_the_cells_of_a_data_set_and_of_a_metric():
    gained = {
        ("a", "f1"): {(0, 1): 1.0},
        ("a", "f2"): {(0, 1): 3.0},
        ("b", "f1_macro"): {(0, 1): 5.0},
    }
    found = intervals(gained)
    assert means(found, by=0) == {"a": 2, "b": 5}
    assert means(found, by=1) == {"f1": 3, "f2": 3}


def test_argmax_stands_for_tuned_where_nothing_is_tuned():
    few, others = {"argmax": 0.6, "expected": 0.5}, {"argmax": 0.55, "expected": 0.7}
    found = scores([made("focal", few), made("cross_entropy", others)])
    one, other = (Choice((name,), ("tuned",)) for name in ("focal", "cross_entropy"))
    assert gains(found, one, other)["adult", "f1"] == pytest.approx({(0, 1): 5})
