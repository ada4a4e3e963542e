"""Constraints in words: what they mean, and errors that say what to write instead."""

import re

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, recall_score

from evalign import Confusion, metrics
from evalign.core.constraints import parse
from tests.tolerances import FEW_ULPS, SAME

Y = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
LABELS = np.array([0, 0, 1, 2, 1, 1, 0, 2, 0, 2])
THREE = Confusion.from_predictions(LABELS, Y, num_classes=3, matrix=True)
TWO = Confusion.from_predictions(LABELS == 1, Y == 1, matrix=True)


def slack(text, confusion, classes=None):
    (constraint,) = parse(text, classes)
    return constraint.slack(confusion)


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_can_be_bounded(name):
    found = metrics.resolve(name)(TWO)
    assert slack(f"{name} >= 0.25", TWO) == pytest.approx(found - 0.25, abs=SAME)
    assert slack(f"  {name}<=0.25 ", TWO) == pytest.approx(0.25 - found, abs=SAME)


def test_rates_by_scikit_learn():
    (tn, fp), (fn, tp) = confusion_matrix(Y == 1, LABELS == 1)
    rates = {"fpr": fp / (fp + tn), "fnr": fn / (fn + tp), "predicted_rate": (fp + tp) / len(Y)}
    for name, rate in rates.items():
        assert slack(f"{name} <= 0.5", TWO) == pytest.approx(0.5 - rate, abs=SAME)
        assert slack(f"{name}[1] <= 0.5", THREE) == pytest.approx(0.5 - rate, abs=SAME)
    fnr = 1 - recall_score(Y, LABELS, average="macro")
    assert slack("fnr_macro <= 0.5", THREE) == pytest.approx(0.5 - fnr, abs=SAME)


def test_a_rate_without_rows_is_nought():
    none = Confusion.from_predictions([1, 1], [1, 1])
    assert slack("fpr <= 0", none) == 0
    assert slack("fnr[0] <= 0", none) == 0


@pytest.mark.parametrize("k", range(3))
def test_a_class(k):
    recall = recall_score(Y, LABELS, average=None)[k]
    classes = ["cat", "dog, or wolf", "a [b] >= 0.5, c"]
    for word in (str(k), f" {k} ", classes[k], f" {classes[k]} "):
        assert slack(f"recall[{word}] >= 0.5", THREE, classes) == pytest.approx(recall - 0.5)
    assert slack(f"recall[{k}] >= 0.5", THREE) == pytest.approx(recall - 0.5)


def test_both_classes_of_two():
    for word, k in {"0": 0, "1": 1, "ham": 0, "spam": 1}.items():
        expected = recall_score(Y == 1, LABELS == 1, average=None)[k] - 0.5
        assert slack(f"recall[{word}] >= 0.5", TWO, ["ham", "spam"]) == pytest.approx(expected)


def test_names_that_are_numbers_are_names():
    for classes in (["2", "0", "1"], np.array([2, 0, 1])):
        assert slack("recall[1] >= 0.5", THREE, classes) == slack("recall[2] >= 0.5", THREE)
    with pytest.raises(ValueError, match=r"must name one of the classes '1', '2', '3'\. Got '0'"):
        parse("recall[0] >= 0.5", [1, 2, 3])
    with pytest.raises(ValueError, match=r"'1\.0', '2\.0', '3\.0'\. Got '1'"):
        parse("recall[1] >= 0.5", [1.0, 2.0, 3.0])


def test_a_label_of_many():
    target = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)
    guess = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1], [1, 1, 0]], dtype=bool)
    many = Confusion.from_predictions(guess, target)
    expected = recall_score(target, guess, average=None)
    for k in range(3):
        assert slack(f"recall[{k}] >= 0.5", many) == pytest.approx(expected[k] - 0.5)
        share = guess[:, k].mean()
        assert slack(f"predicted_rate[{k}] <= 0.5", many) == pytest.approx(0.5 - share)
    with pytest.raises(ValueError, match=r'which of the 3 labels it is about\. Got "recall"'):
        slack("recall >= 0.5", many)


def test_several():
    text = "recall[dog, or wolf] >= 0.5,expected_cost[[0, 1, 2], [5, 0, 1], [1, 1, 0]] <= 1e0"
    text += ", f0.5_macro<=.75 ,predicted_rate[0] <= 0.05"
    found = parse(text, ["cat", "dog, or wolf", "x"])
    assert [each.text for each in found] == [
        "recall[dog, or wolf] >= 0.5",
        "expected_cost[[0, 1, 2], [5, 0, 1], [1, 1, 0]] <= 1e0",
        "f0.5_macro<=.75",
        "predicted_rate[0] <= 0.05",
    ]
    assert [each.metric.name for each in found] == [
        "recall[1]",
        "expected_cost[[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [1.0, 1.0, 0.0]]",
        "f0.5_macro",
        "predicted_rate[0]",
    ]
    assert [(each.at_least, each.bound) for each in found] == [
        (True, 0.5),
        (False, 1.0),
        (False, 0.75),
        (False, 0.05),
    ]
    assert [each.metric.needs_matrix for each in found] == [False, True, False, False]


def test_bounds_at_the_ends_are_allowed():
    for text in ("recall >= 1", "recall >= 0", "fpr <= 0", "matthews_corrcoef >= -1"):
        parse(text)


def test_a_bounded_metric_has_slopes():
    (constraint,) = parse("recall >= 0.9")
    slopes = constraint.metric.slopes(Confusion.from_matrix([[5, 2], [1, 4]])).of_matrix()
    # recall = tp / (fn + tp): by fn −tp / 25, by tp fn / 25
    np.testing.assert_allclose(slopes, [[0, 0], [-4 / 25, 1 / 25]], rtol=0, atol=FEW_ULPS)


def test_a_constraint_of_several_confusions():
    several = np.random.default_rng(0).uniform(1, 9, (2, 4, 3, 3))
    together = Confusion.from_matrix(several)
    for text in ("recall[2] >= 0.5", "f1_macro >= 0.5", "gap(recall[2]) <= 0.5"):
        (constraint,) = parse(text)
        parts = [together, Confusion.from_matrix(several[::-1])]
        slacks = constraint.slack(together, parts)
        for place in np.ndindex(2, 4):
            alone = [part.map(lambda x, place=place: x[place]) for part in parts]
            expected = constraint.slack(alone[0], alone)
            assert slacks[place] == pytest.approx(expected, abs=SAME)


# Gaps between groups.

GROUPS = np.array([0, 0, 0, 1, 0, 1, 1, 0, 1, 1])
PARTS = [
    Confusion.from_predictions(LABELS[rows], Y[rows], num_classes=3, matrix=True)
    for rows in (GROUPS == 0, GROUPS == 1)
]


@pytest.mark.parametrize("name", ["recall", "precision", "fpr", "predicted_rate", "f1"])
def test_a_gap_is_the_largest_value_minus_the_smallest(name):
    (bound,) = parse(f"{name}[2] <= 0.5")
    values = [0.5 - bound.slack(part) for part in PARTS]
    for text in (f"gap({name}[2]) <= 0.25", f" gap ( {name}[dog, or wolf] )<=0.25"):
        (constraint,) = parse(text, ["cat", "ant", "dog, or wolf"] if "dog" in text else None)
        assert constraint.name == f"gap({name}[2])"
        found = constraint.slack(THREE, PARTS)
        assert found == pytest.approx(0.25 - (max(values) - min(values)), abs=SAME)
    (mean,) = parse(f"gap({name}_macro) <= 1")
    assert 0 <= mean.slack(THREE, PARTS) <= 1


def test_a_group_without_rows_of_the_class_does_not_count():
    (constraint,) = parse("gap(recall[1]) <= 0.5")
    without = Confusion.from_predictions([0, 1], [0, 2], num_classes=3, matrix=True)
    assert constraint.slack(THREE, [*PARTS, without]) == constraint.slack(THREE, PARTS)
    assert constraint.slack(THREE, [without]) == 0.5
    assert constraint.slack(THREE, PARTS[:1]) == 0.5


def test_the_groups_of_a_gap_have_slopes_without_nan():
    """A group without rows of the class has none: the gap is between the others."""
    matrices = [[5, 2], [1, 4]], [[3, 2], [3, 3]], [[4, 2], [0, 0]]
    parts = [Confusion.from_matrix(matrix) for matrix in matrices]
    (constraint,) = parse("gap(recall) <= 0.1")
    assert constraint.slack(sum(parts), parts) == pytest.approx(0.1 - (4 / 5 - 3 / 6), abs=SAME)
    slopes = [constraint.metric.slopes(part).of_matrix() for part in parts]
    expected = [[0, 0, -4 / 25, 1 / 25], [0, 0, -3 / 36, 3 / 36], [0, 0, 0, 0]]
    for slope, of_group in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope.ravel(), of_group, rtol=0, atol=FEW_ULPS)
    assert np.isnan(constraint.slack(sum(parts) * np.nan, parts))


FORM = "constraint of fit must be a metric's name, >= or <=, and a number. Got {}. As in"
ANIMALS = ["cat", "dog", "horse"]
# text: what the error says
BAD = {
    "": FORM.format("''"),
    "recall >= 0.9,": FORM.format("''"),
    "recall == 0.9": FORM.format("'recall == 0.9'"),
    "recall > 0.9": FORM.format("'recall > 0.9'"),
    "recall ≥ 0.9": FORM.format("'recall ≥ 0.9'"),
    "recall >= 0,9": FORM.format("'9'"),
    "0.8 <= recall <= 0.9": FORM.format("'0.8 <= recall <= 0.9'"),
    "recall[1], precision[2] >= 0.5": FORM.format("'recall[1]'"),
    "recall >= nan": FORM.format("'recall >= nan'"),
    "recall >= 1.2": (
        "must have a bound from 0 to 1, where recall lies. Got 'recall >= 1.2'. "
        "No rule can meet it."
    ),
    "recall >= -0.1": "Got 'recall >= -0.1'. Every rule meets it: leave it out.",
    "matthews_corrcoef >= -2": "from -1 to 1, where matthews_corrcoef lies.",
    "expected_cost[[0, 1], [5, 0]] <= 6": "from 0 to 5, where expected_cost",
    "recal >= 0.9": "metric of fit's constraint must be a name of metrics.names(). Got 'recal'. "
    "Did you mean 'recall'?",
    "expected_cost <= 0.1": "Did you mean 'expected_cost[[0, 1], [5, 0]]'?",
    "accuracy[1] >= 0.9": "must have a class behind a score of one class only. "
    'Got "accuracy[1]". Use "accuracy" alone.',
    "recall_macro[1] >= 0.9": 'Use "recall_macro" alone.',
    "recall[hors] >= 0.9": "must name one of the classes 'cat', 'dog', 'horse'. Got 'hors'. "
    "Did you mean 'horse'?",
    "recall[3] >= 0.9": "must name one of the classes 'cat', 'dog', 'horse'. Got '3'.",
    "gap(recall >= 0.9": FORM.format("'gap(recall >= 0.9'"),
    "gap(recall) >= 0.1": "must bound a gap from above, by <=. Got 'gap(recall) >= 0.1'.",
    "gap(recall) <= 1.1": "from 0 to 1, where gap(recall) lies.",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text)[:40])
def test_a_wrong_constraint_says_what_to_write(text):
    with pytest.raises((ValueError, TypeError), match=re.escape(BAD[text])):
        parse(text, ANIMALS, owner="fit")


def test_what_is_not_the_same_may_stand_together():
    text = "recall >= 0.5, recall <= 0.5, recall >= 0.6, recall[0] >= 0.5, gap(recall) <= 0.5"
    assert len(parse(text)) == 5


def test_without_names():
    cure = re.escape("by its index from 0. Got 'cat'. Or pass classes=, the names in order.")
    with pytest.raises(ValueError, match=cure):
        parse("recall[cat] >= 0.9", owner="fit")


def test_what_only_the_rows_show():
    text = 'constraint of fit must say which of the 3 classes it is about. Got "recall". '
    text += 'Use "recall_macro" for their mean, or "recall[2]" for one of them.'
    with pytest.raises(ValueError, match=re.escape(text)):
        parse("recall >= 0.9", owner="fit")[0].slack(THREE)
    text = 'constraint of fit must be about one of the 3 classes from 0 to 2. Got "recall[7]".'
    with pytest.raises(ValueError, match=re.escape(text)):
        parse("recall[7] >= 0.9", owner="fit")[0].slack(THREE)
