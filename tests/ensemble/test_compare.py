"""Candidates on repeated folds, by the judge of an ensemble."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from evalign import AlignedEnsemble
from evalign.core.resampling import bootstrap, interval
from evalign.estimators.compare import compare
from evalign.metrics import resolve
from tests.estimator.models import imbalanced

X, Y = imbalanced(300)
OWN = {"bayes": GaussianNB(), "tree": DecisionTreeClassifier(max_depth=3, random_state=0)}
ENSEMBLE = AlignedEnsemble("f1", candidates=list(OWN.items()), cv=3)


def test_scores_are_means_over_the_seeds_of_scores_of_all_rows():
    """By hand, by argmax; of one seed it is the table of the ensemble itself."""
    table, gain = compare(ENSEMBLE, X, Y, seeds=[4, 5])
    fitted = [clone(ENSEMBLE).set_params(random_state=seed).fit(X, Y) for seed in (4, 5)]
    each = [one.cv_results_ for one in fitted]
    for column in ("rule_score", "argmax_score", "weight"):
        means = np.mean([one[column] for one in each], 0)
        np.testing.assert_allclose(table[column], means)
    once, lead = compare(ENSEMBLE, X, Y, seeds=[5])
    for column in ("rule_score_low", "argmax_score_high", "gain_low"):
        np.testing.assert_allclose(once[column], each[1][column])
    assert lead == fitted[1].gain_
    best = table["candidate"][np.argmax(table["argmax_score"][:2])]
    assert gain["against"] == best
    own, rival = table["rule_score"][2], max(table["argmax_score"][:2])
    assert gain["value"] == pytest.approx(own - rival)
    assert gain["low"] < gain["value"] < gain["high"]


def test_intervals_are_of_the_mean():
    """By hand, of the labels of a tree on folds that are given."""
    seeds, labels = [0, 1], []
    for seed in seeds:
        rng = int(np.random.RandomState(seed).randint(2**31 - 1))
        folds = StratifiedKFold(3, shuffle=True, random_state=rng)
        labels.append(cross_val_predict(OWN["tree"], X, Y, cv=folds))
    table, _ = compare(ENSEMBLE, X, Y, seeds=seeds)
    score = np.mean([f1_score(Y, one) for one in labels])
    assert table["argmax_score"][1] == pytest.approx(score)
    drawn = bootstrap(resolve("f1"), Y, labels, classes=2).mean(0)
    low, high = interval(score + np.sqrt(1 / 2 + 100 / 200 * 3) * (drawn - score))
    assert table["argmax_score_low"][1] == pytest.approx(low, abs=0.01)
    assert table["argmax_score_high"][1] == pytest.approx(high, abs=0.01)


@pytest.mark.parametrize("seeds", [[], [0, 1, 0]])
def test_seeds_differ(seeds):
    with pytest.raises(ValueError, match="seeds of compare must be different numbers, at least"):
        compare(ENSEMBLE, X, Y, seeds=seeds)
