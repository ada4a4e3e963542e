"""Classes without true rows in averages, of confusions that were made in NumPy."""

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score, jaccard_score, precision_score, recall_score

from evalign import Confusion, metrics
from tests import tolerances

SCORES = {"f1_macro": f1_score, "jaccard_macro": jaccard_score, "recall_macro": recall_score}
OF_TRUE_NEGATIVES = ("specificity_micro", "npv_micro", "informedness_micro")


def of_indicators(name, target, labels):
    """A micro average over the labels that occur, as scikit-learn's scores of their indicators."""
    occur = np.unique(np.concatenate([target, labels]))
    true, given = ((x[:, None] == occur).ravel() for x in (target, labels))
    recall, specificity = (recall_score(true, given, pos_label=x) for x in (1, 0))
    npv = precision_score(true, given, pos_label=0)
    return {
        "specificity_micro": specificity,
        "npv_micro": npv,
        "informedness_micro": recall + specificity - 1,
    }[name]


@pytest.mark.parametrize("name", [*SCORES, *OF_TRUE_NEGATIVES])
def test_hard_averages_are_scikit_learns(name):
    """Which counts the labels that occur in y_true or in y_pred."""
    lacking, predicted_only = 0, 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        target, labels = random.integers(4, size=6), random.integers(8, size=6)
        lacking += len(set(range(8)) - {*labels.tolist(), *target.tolist()})
        predicted_only += len({*labels.tolist()} - {*target.tolist()})
        value = metrics.resolve(name)(Confusion.from_predictions(labels, target, num_classes=8))
        if name in SCORES:
            expected = SCORES[name](target, labels, average="macro", zero_division=0)
        else:
            expected = of_indicators(name, target, labels)
        assert value == pytest.approx(expected, abs=tolerances.HARD)
    assert min(lacking, predicted_only) > 0


def soft_confusion():
    """Six rows, of four true classes, whose memberships spread over eight."""
    random = np.random.default_rng(1)
    memberships = random.dirichlet(np.full(8, 0.3), size=6)
    matrix = np.zeros((8, 8))
    np.add.at(matrix, random.integers(4, size=6), memberships)
    c = Confusion.from_matrix(matrix)
    return Confusion(c.tp, c.predicted, c.actual, c.total, rows=np.float64(6))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_class_of_a_soft_confusion_counts_by_its_predicted_rows(unit):
    """Whatever a weight of 1 is."""
    c = soft_confusion()
    c = Confusion(unit * c.tp, unit * c.predicted, unit * c.actual, unit * c.total, rows=c.rows)
    share = np.where(c.actual > 0, 1, np.minimum(c.predicted / unit, 1))
    assert ((share > 0.01) & (share < 0.99)).any()
    f1 = metrics.FBeta(average="macro")
    expected = (share * f1.score(c)).sum() / share.sum()
    assert f1(c) == pytest.approx(expected, abs=tolerances.SAME)
    fp, tn = c.fp.sum(), (share * c.total - c.tp - c.fp - c.fn).sum()
    specificity = metrics.Specificity(average="micro")
    assert specificity(c) == pytest.approx(tn / (tn + fp), abs=tolerances.SAME)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("kind", ["FBeta", "Specificity", "Informedness"])
def test_slopes_take_the_share_as_a_constant(kind, average):
    c = soft_confusion()
    metric = getattr(metrics, kind)(average=average)
    share = np.where(c.actual > 0, 1, np.minimum(c.predicted, 1))

    def with_fixed_shares(tp, predicted, actual):
        moved = Confusion(tp, predicted, actual, actual.sum())
        if average == "micro":
            counts = share > 0
            sums = ((counts * x).sum(keepdims=True) for x in (tp, predicted, actual))
            pooled = Confusion(*sums, (share * moved.total).sum(keepdims=True), multilabel=True)
            return metric.score(pooled)[0]
        weight = share * actual if average == "weighted" else share
        return (weight * metric.score(moved)).sum() / weight.sum()

    sums = {"tp": c.tp, "predicted": c.predicted, "actual": c.actual}
    assert with_fixed_shares(**sums) == pytest.approx(metric(c), abs=tolerances.SAME)
    slopes = metric.slopes(c)
    step = 1e-6
    for name, k in ((name, k) for name in sums for k in np.flatnonzero(c.actual)):
        moved = step * (np.arange(8) == k)
        above = with_fixed_shares(**{**sums, name: sums[name] + moved})
        below = with_fixed_shares(**{**sums, name: sums[name] - moved})
        slope = (above - below) / (2 * step)
        assert getattr(slopes, name)[k] == pytest.approx(slope, abs=tolerances.SECANT)


def test_labels_that_are_predicted_count_whole_whatever_their_weight():
    """Also if a light row alone is predicted so, as in scikit-learn."""
    predicted, target, weight = [0, 1, 2], [0, 1, 1], [1.0, 1.0, 1e-3]
    c = Confusion.from_predictions(predicted, target, sample_weight=weight)
    expected = f1_score(target, predicted, average="macro", sample_weight=weight)
    value = metrics.FBeta(average="macro")(c)
    assert value == pytest.approx(expected, abs=tolerances.HARD)
    hard = Confusion.from_predictions([0] * 8, [*range(8)])
    assert (hard + soft_confusion()).rows is None


def test_nan_of_a_class_is_not_taken_for_one_without_rows():
    """Where 0/0 leaves a class out of the average, that of a network that diverged stays."""
    recall = metrics.Recall(average="macro", zero_division=math.nan)
    of_nothing, right = np.array([0.0, 2.0]), np.array([0.0, 1.0])
    c = Confusion(tp=right, predicted=right + 1, actual=of_nothing, total=of_nothing.sum())
    assert recall(c) == 0.5
    diverged = np.array([math.nan, 1.0])
    c = Confusion(tp=diverged, predicted=diverged, actual=right + 1, total=np.float64(3))
    assert math.isnan(recall(c))
