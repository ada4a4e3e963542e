"""Classes without true rows: in a macro average of a soft Confusion, and in a Lovász loss."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, precision_score, recall_score

from evalign import Confusion, MetricLoss, metrics
from evalign.losses import LovaszSoftmaxLoss
from tests import tolerances

SCORES = {"f1_macro": f1_score, "jaccard_macro": jaccard_score, "recall_macro": recall_score}


def batch(seed=0, rows=6, classes=8, true=4):
    """Rows of the first classes only; any class may be predicted."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(true, (rows,), generator=generator)


def of_indicators(name, target, labels):
    """A micro average over the labels that occur, as scikit-learn's scores of their indicators."""
    occur = np.unique(np.concatenate([target, labels]))
    true, given = ((x[:, None] == occur).ravel() for x in (target.numpy(), labels.numpy()))
    recall, specificity = (recall_score(true, given, pos_label=x) for x in (1, 0))
    npv = precision_score(true, given, pos_label=0)
    return {
        "specificity_micro": specificity,
        "npv_micro": npv,
        "informedness_micro": recall + specificity - 1,
    }[name]


OF_TRUE_NEGATIVES = ("specificity_micro", "npv_micro", "informedness_micro")


@pytest.mark.parametrize("name", [*SCORES, *OF_TRUE_NEGATIVES])
def test_at_a_low_temperature_as_in_scikit_learn(name):
    """Which counts the labels that occur in y_true or in y_pred."""
    lacking, predicted = 0, 0
    for seed in range(20):
        logits, target = batch(seed)
        labels = logits.argmax(1)
        lacking += len(set(range(8)) - {*labels.tolist(), *target.tolist()})
        predicted += len({*labels.tolist()} - {*target.tolist()})
        value = 1 - MetricLoss(name, temperature=1e-9)(logits, target)
        if name in SCORES:
            expected = SCORES[name](target, labels, average="macro", zero_division=0)
        else:
            expected = of_indicators(name, target, labels)
        assert value.item() == pytest.approx(expected, abs=tolerances.LIMIT)
    assert min(lacking, predicted) > 0


def test_a_class_has_true_negatives_by_its_predicted_rows():
    """Of its share of the rows those that are not predicted as it."""
    logits, target = batch(1)
    c = Confusion.from_logits(logits, target)
    share = torch.where(c.actual > 0, 1, c.predicted.clamp(max=1))
    assert ((share > 0.01) & (share < 0.99)).any()
    fp, tn = c.fp.sum(), (share * c.total - c.tp - c.fp - c.fn).sum()
    specificity = metrics.Specificity(average="micro")
    torch.testing.assert_close(specificity(c), tn / (tn + fp), rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_jump_where_a_probability_becomes_zero(dtype):
    """e^(−gap) underflows in float32 between the gaps 103 and 104. Nine classes have no rows."""
    target, rows = torch.zeros(4, dtype=torch.int64), torch.zeros(4, 10, dtype=dtype)
    rows[:, 0] = 1
    loss = MetricLoss("f1_macro")
    values = torch.stack([loss(gap * rows, target) for gap in torch.linspace(90, 110, 41)])
    assert values.abs().max() < tolerances.LIMIT
    values = torch.stack([loss(gap * rows, target) for gap in torch.linspace(0.2, 20, 100)])
    assert values[0] > 0.5
    assert values.diff().abs().max() < 0.2  # no more than the F1 of the one class moves


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_class_counts_by_its_predicted_rows(unit):
    """Whatever a weight of 1 is. Rows without weight are not rows."""
    logits, target = batch(1)
    weight = unit * torch.tensor([1.0, 2.0, 3.0, 0.0, 1.0, 0.5], dtype=torch.float64)
    c = Confusion.from_logits(logits, target, sample_weight=weight)
    share = torch.where(c.actual > 0, 1, (c.predicted / (weight.sum() / 5)).clamp(max=1))
    assert ((share > 0.01) & (share < 0.99)).any()
    f1 = metrics.FBeta(average="macro")
    expected = (share * f1.score(c)).sum() / share.sum()
    torch.testing.assert_close(f1(c), expected, rtol=0, atol=tolerances.SAME)


def test_gradient_takes_the_share_as_a_constant():
    logits, target = batch(2)
    c = Confusion.from_logits(logits, target)
    share = torch.where(c.actual > 0, 1, c.predicted.clamp(max=1))

    def with_fixed_shares(z):
        score = metrics.FBeta(average=None)(Confusion.from_logits(z, target))
        return (1 - (share * score).sum() / share.sum()).item()

    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(MetricLoss("f1_macro")(leaf, target), leaf)
    step = 1e-6
    for index in np.ndindex(*logits.shape):
        up, down = logits.clone(), logits.clone()
        up[index] += step
        down[index] -= step
        slope = (with_fixed_shares(up) - with_fixed_shares(down)) / (2 * step)
        assert gradient[index].item() == pytest.approx(slope, abs=tolerances.SECANT)


def test_parts_of_a_batch_are_the_batch():
    """Alone, each row has less than one predicted row of most classes."""
    logits, target = batch(3)
    whole = Confusion.from_logits(logits, target)
    single = zip(logits.split(1), target.split(1), strict=True)
    parts = [Confusion.from_logits(z, y) for z, y in single]
    f1 = metrics.FBeta(average="macro")
    torch.testing.assert_close(f1(sum(parts)), f1(whole), rtol=0, atol=tolerances.SAME)


def test_running_statistics_count_the_rows_of_the_average():
    loss, plain = MetricLoss("f1_macro", momentum=0.1), MetricLoss("f1_macro")
    first, second = batch(4, rows=4), batch(5, rows=12)
    loss(*first)
    value = loss(*second)
    parts = [Confusion.from_logits(*rows) for rows in (first, second)]
    weights = 0.09, 0.1  # momentum 0.1, after two batches
    average = sum(w / sum(weights) * c for w, c in zip(weights, parts, strict=True))
    expected = 1 - plain.metric(average)
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerances.SAME)


def test_a_sum_with_hard_labels_counts_every_class_whole():
    hard = Confusion.from_predictions(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1]))
    assert (hard + Confusion.from_logits(*batch(classes=3, true=2))).rows is None


def test_lovasz_of_a_label_that_no_row_has():
    """Any row that is given it costs the whole index: what is left is the largest error."""
    z = torch.tensor([-2.0, 0.5, -1.0])
    value = LovaszSoftmaxLoss()(z, torch.zeros(3))
    torch.testing.assert_close(value, z.max().sigmoid())
