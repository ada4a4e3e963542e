"""Losses that the library left behind: scikit-learn's values, their slopes, and a met bound."""

import numpy as np
import pytest
import torch
from evalign_study.refuted.constrained import (
    LARGEST_MULTIPLIER,
    RATE,
    ConstrainedLoss,
    undefined_without_rows,
)
from evalign_study.refuted.counted import CountedLoss
from evalign_study.refuted.curves import PartialAUCLoss, RecallAtPrecisionLoss
from sklearn.metrics import precision_recall_curve, recall_score, roc_auc_score

from evalign import Confusion
from evalign.core.constraints import parse
from evalign.losses import AveragePrecisionLoss
from tests import tolerances

FINE = {"thresholds": 401, "momentum": None}


def on_thresholds():
    """Make distinct scores that lie on thresholds, so that the counts are hard."""
    random = np.random.default_rng(0)
    y = random.random(200) < 0.2
    places = 100 + np.argsort(np.argsort(random.random(200) - 0.3 * y * random.random(200)))
    return torch.from_numpy(np.sinh(10 - 20 * places / 400)), torch.from_numpy(y), -places


def upside_down():
    """Make scores that are the lower, the more likely a row is positive."""
    y = torch.arange(200) % 10 == 0
    z = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 3 * y
    return z.requires_grad_(), y


def test_the_partial_area_is_that_of_scikit_learn():
    z, y, ranks = on_thresholds()
    standard = roc_auc_score(y, ranks, max_fpr=0.1)  # McClish's standardisation is undone below
    lowest = 0.1**2 / 2
    area = lowest + (2 * standard - 1) * (0.1 - lowest)
    for max_fpr, expected in [(1.0, roc_auc_score(y, ranks)), (0.1, area / 0.1)]:
        value = PartialAUCLoss(max_fpr, **FINE)(z, y).item()
        assert value == pytest.approx(1 - expected, abs=tolerances.REFERENCE)


@pytest.mark.parametrize("bound", [0.23, 0.41, 0.77])  # not a fraction of few rows
def test_a_cold_recall_at_precision_is_that_of_scikit_learn(bound):
    z, y, ranks = on_thresholds()
    precision, recall, _ = precision_recall_curve(y, ranks)
    value = RecallAtPrecisionLoss(bound, temperature=1e-12, **FINE)(z, y).item()
    expected = 1 - recall[precision >= bound].max()
    assert value == pytest.approx(expected, abs=tolerances.REFERENCE)


@pytest.mark.parametrize(
    ("loss", "instead"),
    [
        (PartialAUCLoss(0.05), PartialAUCLoss(1.0)),
        (RecallAtPrecisionLoss(0.9), AveragePrecisionLoss()),
    ],
)
def test_a_useless_ranking_has_the_slope_of_the_whole_curve(loss, instead):
    z, y = upside_down()
    slopes = [torch.autograd.grad(each(z, y), z)[0] for each in (loss, instead)]
    torch.testing.assert_close(*slopes, rtol=0, atol=tolerances.SAME)
    assert (slopes[0][y] < 0).any()


def test_labels_meet_the_bound():
    generator = torch.Generator().manual_seed(0)
    y = (torch.arange(400) % 4 == 0).long()
    margin = torch.randn(400, generator=generator, dtype=torch.float64) + 2 * y - 2
    shift = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([shift], 1.0)
    loss = ConstrainedLoss("precision", y.bincount().double(), constraint="recall >= 0.9")
    for _ in range(300):
        optimizer.zero_grad()
        loss(torch.stack([torch.zeros(400), margin + shift], 1), y).backward()
        optimizer.step()
    recall = recall_score(y, (margin + shift > 0).long())
    assert recall == pytest.approx(0.9, abs=0.02)
    assert 0 < loss.multipliers.values < LARGEST_MULTIPLIER


def test_a_bound_that_is_met_changes_nothing():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]], requires_grad=True)
    target = torch.tensor([0, 1, 0])
    free = CountedLoss("f1", [2, 1])
    bound = ConstrainedLoss("f1", torch.tensor([2.0, 1.0]), constraint="recall >= 0.5")
    assert torch.equal(bound(logits, target), free(logits, target))
    assert bound.multipliers.values == 0
    missed = bound(-logits, target)
    assert missed > free(-logits, target)
    assert 0 < bound.multipliers.values <= RATE


@pytest.mark.parametrize("rate", ["recall", "fnr", "specificity", "fpr", "precision"])
def test_a_rate_of_true_rows_is_unknown_without_any(rate):
    """Precision is broken by the rule itself, and has its value for 0/0."""
    none = torch.zeros(2)
    of = {"recall": none, "fnr": none, "specificity": none + 1, "fpr": none + 1, "precision": none}
    c = Confusion.from_predictions(torch.zeros(2).long(), of[rate].long(), num_classes=2)
    (constraint,) = parse(f"{rate} >= 0.5")
    assert undefined_without_rows(constraint.metric)(c).isnan() == (rate != "precision")
    assert not constraint.metric(c).isnan()
