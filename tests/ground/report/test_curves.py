"""The curves of the figures, against plain counts."""

from dataclasses import replace

import numpy as np
import pytest

from evalign.report.curves import (
    ALL_THRESHOLDS,
    BINS,
    SHOWN,
    THRESHOLDS,
    precision_recall,
    reliability,
    shown_classes,
)
from tests.ground.report.made import contents

MADE = contents(3, 2000)
ROUNDED = replace(MADE.aligned, probabilities=MADE.aligned.probabilities.round(2))


@pytest.mark.parametrize(
    "made",
    [
        contents(2),
        contents(5),
        replace(MADE, aligned=ROUNDED),
        contents(2, 5000),
        contents(3, weight=np.random.default_rng(0).uniform(0, 2, 400).round(1)),
    ],
    ids=["two", "five", "ties", "many rows", "weights"],
)
def test_counts_at_every_threshold(made):
    curves = precision_recall(made)
    codes = [1] if len(made.classes) == 2 else range(len(made.classes))
    assert [curve["name"] for curve in curves] == [made.classes[code] for code in codes]
    for curve, code in zip(curves, codes, strict=True):
        true = made.y == code
        assert curve["actual"] == pytest.approx(made.weights[true].sum())
        assert curve["total"] == pytest.approx(made.weights.sum())
        for model, counts in zip(made.models, curve["models"], strict=True):
            probability = model.probabilities[:, code]
            thresholds = counts["threshold"]
            assert len(thresholds) <= THRESHOLDS
            assert len(thresholds) > min(50, len(np.unique(probability)) - 1)
            assert thresholds == sorted(set(thresholds))
            said = probability >= np.array(thresholds)[:, None]
            np.testing.assert_allclose(counts["tp"], (said * true) @ made.weights, rtol=1e-8)
            np.testing.assert_allclose(counts["predicted"], said @ made.weights, rtol=1e-8)
            labelled = model.predicted == code
            assert counts["rule"]["tp"] == pytest.approx(made.weights[labelled & true].sum())
            assert counts["rule"]["predicted"] == pytest.approx(made.weights[labelled].sum())


def test_two_classes_of_many_rows():
    """The rule is one of the thresholds; between those that are kept, recall moves little."""
    curve = precision_recall(contents(2, 20_000))[0]
    for counts in curve["models"]:
        at = counts["at"]
        rule = {"tp": counts["tp"][at], "predicted": counts["predicted"][at]}
        assert counts["rule"] == rule
        recall = np.array(counts["tp"]) / curve["actual"]
        assert np.abs(np.diff(recall)).max() < 0.01
        assert recall[0] == 1
        assert counts["predicted"][-1] == 1  # down to the surest row


def test_absent_class_is_left_out():
    made = contents(4)
    made = replace(made, y=np.where(made.y == 2, 0, made.y))
    assert [curve["name"] for curve in precision_recall(made)] == ["class 0", "class 1", "class 3"]
    two = contents(2)
    assert precision_recall(replace(two, y=np.zeros(400, int))) == []


def test_many_classes_are_cut():
    made = contents(150, 2000)
    shown = shown_classes(made)
    wrong = made.aligned.predicted != made.y
    errors = sum(
        np.bincount(codes[wrong], minlength=150) for codes in (made.y, made.aligned.predicted)
    )
    left = np.setdiff1d(np.arange(150), shown)
    assert len(shown) == SHOWN
    assert errors[left].max() <= errors[shown].min()
    models = [model for curve in precision_recall(made) for model in curve["models"]]
    assert sum(len(model["tp"]) for model in models) <= 2 * ALL_THRESHOLDS


@pytest.mark.parametrize("classes", [2, 4])
def test_reliability(classes):
    rng = np.random.default_rng(0)
    made = contents(classes, 1000, weight=rng.uniform(0.5, 2, 1000))
    bins = reliability(made, made.aligned)
    probabilities = made.aligned.probabilities
    probability, right = probabilities[:, 1], made.y == 1
    if classes > 2:
        probability, right = probabilities.max(1), probabilities.argmax(1) == made.y
    parts = np.array_split(np.argsort(probability), BINS)
    assert bins.rows.sum() == 1000
    assert np.abs(bins.rows - [len(part) for part in parts]).max() <= 1
    for i in (0, BINS - 1):
        for found, values in ((bins.probability, probability), (bins.frequency, right)):
            expected = np.average(values[parts[i]], weights=made.weight[parts[i]])
            assert found[i] == pytest.approx(expected, abs=0.02)  # one row more or less in the bin


def test_equal_probabilities_share_a_bin():
    made = contents(2, 400)
    flat = np.where(np.arange(400)[:, None] < 350, [0.9, 0.1], [0.2, 0.8])
    bins = reliability(made, replace(made.aligned, probabilities=flat))
    assert bins.probability == pytest.approx([0.1, 0.8])
    assert bins.rows.tolist() == [350, 50]
