"""AlignedLoss: the odds that a metric needs, its two parts, and training with it."""

import copy
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    fbeta_score,
    jaccard_score,
    matthews_corrcoef,
)
from torch import nn
from torch.nn import functional as F

from evalign import AlignedLoss, MetricLoss, fit_decision, metrics
from evalign.losses.offsets import metric_offsets
from evalign.training import Settings, fit
from tests import tolerances

AVERAGED = {"f1": f1_score, "jaccard": jaccard_score}
AVERAGED["f2"] = lambda *of, **how: fbeta_score(*of, beta=2, **how)
WHOLE = {
    "matthews_corrcoef": matthews_corrcoef,
    "balanced_accuracy": balanced_accuracy_score,
    "accuracy": accuracy_score,
    "cohen_kappa": cohen_kappa_score,
}
SCORES = AVERAGED | WHOLE
PRIORS = [0.02, 0.1, 0.35, 0.7]  # of the positive class


def offsets(metric, counts):
    return metric_offsets(metrics.resolve(metric), counts)


def margin(metric, positive):
    """Compute the log-odds from which the positive class is the label."""
    negative, positive = offsets(metric, [1 - positive, positive]).tolist()
    return positive - negative


def scored(score, matrix, **how):
    """Compute scikit-learn's metric of a confusion matrix, with a row for each of its cells."""
    true, predicted = np.indices(matrix.shape).reshape(2, -1)
    return score(true, predicted, sample_weight=matrix.ravel(), **how)


def half_right(shares):
    """Make the matrix of a classifier that is right half of the time, and else guesses by share."""
    return shares[:, None] * (np.eye(len(shares)) + shares) / 2


# The odds.


def asked_for(shares, score, **how):
    """Compute the odds of `metric_offsets` from differences of scikit-learn's metric."""
    matrix, slope, step = half_right(shares), np.zeros((len(shares),) * 2), 1e-6
    for cell in np.ndindex(matrix.shape):
        ends = []
        for sign in (1, -1):
            moved = matrix.copy()
            moved[cell] += sign * step
            ends.append(scored(score, moved, **how))
        slope[cell] = (ends[0] - ends[1]) / (2 * step)
    most = shares.argmax()
    odds = [
        (slope[most, most] - slope[most, j]) / (slope[j, j] - slope[j, most]) if j != most else 1
        for j in range(len(shares))
    ]
    return np.log(odds)


@pytest.mark.parametrize("positive", PRIORS)
@pytest.mark.parametrize("name", SCORES)
def test_offsets_of_two_classes_are_those_of_differences(name, positive):
    shares = np.array([1 - positive, positive])
    expected = asked_for(shares, SCORES[name])
    found = offsets(name, 300 * shares)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerances.SLOPES)


@pytest.mark.parametrize("classes", [3, 4, 5])
@pytest.mark.parametrize("name", SCORES)
def test_offsets_of_more_classes_are_those_of_differences(name, classes):
    how = {"average": "macro"} if name in AVERAGED else {}
    full = f"{name}_macro" if name in AVERAGED else name
    shares = np.random.default_rng(classes).dirichlet(np.ones(classes)) + 0.02
    shares /= shares.sum()
    expected = asked_for(shares, SCORES[name], **how)
    np.testing.assert_allclose(offsets(full, shares), expected, rtol=0, atol=tolerances.SLOPES)


class ReadsTheMatrix(metrics.FBeta):
    """The same score, said to need the whole matrix."""

    needs_matrix = True


def test_the_matrix_and_its_sums_give_the_same_offsets():
    for beta in (0.5, 1, 2):
        of_sums, of_matrix = (
            metric_offsets(kind(beta=beta, average="macro"), [50, 3, 20, 20, 7])
            for kind in (metrics.FBeta, ReadsTheMatrix)
        )
        torch.testing.assert_close(of_sums, of_matrix, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize(
    "metric", ["f1_macro", "matthews_corrcoef", lambda c: c.tp.sum() / c.total]
)
def test_many_classes_do_not_make_a_matrix(metric):
    """Of 200,000 classes it would take 320 GB."""
    loss = AlignedLoss(metric, torch.ones(200_000))
    assert loss.offsets.shape == (200_000,)


@pytest.mark.parametrize("counts", [[90, 10], [10, 90], [50, 30, 20], [5, 1, 60, 34]])
def test_accuracy_asks_for_nothing_and_balanced_accuracy_for_the_prior(counts):
    assert offsets("accuracy", counts).abs().max() < tolerances.FEW_ULPS
    prior = torch.tensor(counts).double()
    expected = (prior / prior.max()).log()
    torch.testing.assert_close(
        offsets("balanced_accuracy", counts), expected, rtol=0, atol=tolerances.SAME
    )


@pytest.mark.parametrize("positive", PRIORS)
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0, 3.0])
def test_f_beta_has_a_closed_form(beta, positive):
    """Positive from the odds F / (1 + β² − F) on: for F1, from a probability of F/2."""
    score = 1 / 2 + positive / 2  # precision and recall alike
    expected = math.log(score / (1 + beta**2 - score))
    assert margin(f"f{beta:g}", positive) == pytest.approx(expected, abs=tolerances.SAME)


@pytest.mark.parametrize("positive", PRIORS)
@pytest.mark.parametrize("name", SCORES)
def test_a_row_is_worth_calling_positive_above_the_offset_alone(name, positive):
    """This is the claim itself: a few rows, positive with a probability η, get the other label.

    Each row counts η for the one class and 1 − η for the other.
    """
    matrix, few = half_right(np.array([1 - positive, positive])), 1e-6
    before, asked = scored(SCORES[name], matrix), margin(name, positive)
    for beyond in (-0.5, -0.01, 0.01, 0.5):
        eta = 1 / (1 + math.exp(-asked - beyond))
        moved = few * np.array([[eta - 1, 1 - eta], [-eta, eta]])
        assert (scored(SCORES[name], matrix + moved) > before) == (beyond > 0)


def test_metrics_that_mind_one_mistake_alone_are_held_back():
    assert margin("recall", 0.1) == pytest.approx(math.log(1e-4))
    assert margin("specificity", 0.1) == pytest.approx(math.log(1e4))


def relative(loss):
    """Subtract the value of the first class, as only differences count."""
    return loss.offsets - loss.offsets[0]


def f1(c):
    return 2 * c.tp[-1] / (c.actual[-1] + c.predicted[-1])


def f1_of_cells(c):
    matrix = c.matrix
    return 2 * matrix[1, 1] / (2 * matrix[1, 1] + matrix[0, 1] + matrix[1, 0])


@pytest.mark.parametrize(
    "metric", [f1, f1_of_cells, metrics.Minimize(lambda c: 1 - f1(c)), metrics.FBeta()]
)
def test_functions_and_costs_ask_for_what_their_name_would(metric):
    expected = offsets("f1", [9, 1])
    torch.testing.assert_close(offsets(metric, [9, 1]), expected, rtol=0, atol=tolerances.SAME)
    loss = AlignedLoss(metric, [9, 1], task="multiclass")
    torch.testing.assert_close(relative(loss), expected, rtol=0, atol=tolerances.SAME)


def test_a_price_is_what_is_asked_for():
    """A missed positive costs five, so the label is positive from a probability of 1/6 on."""
    loss = AlignedLoss("expected_cost[[0, 1], [5, 0]]", [3, 1])
    assert relative(loss).exp().tolist() == pytest.approx([1, 1 / 5])


def test_a_metric_that_gains_by_mistakes_asks_for_nothing():
    """Neither label is better at any odds."""
    assert offsets(lambda c: c.matrix[0, 0] - c.matrix[1, 1], [9, 1]).tolist() == [0, 0]


def test_a_class_without_rows_is_refused():
    text = (
        "class_counts of AlignedLoss must hold two or more positive numbers, one for each class. "
        "Got [10, 0]. Such as numpy.bincount(y); count a class without examples as one, or leave "
        "it out."
    )
    with pytest.raises(ValueError, match=r"^class_counts of AlignedLoss") as error:
        AlignedLoss("f1", [10, 0])
    assert str(error.value) == text
    with pytest.raises(ValueError, match=r"classes of f1 must be two\. Got"):
        AlignedLoss("f1", [10, 5, 1])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"metric": "f1_marco"},
            "metric of AlignedLoss must be a name of metrics.names(). Got 'f1_",
        ),
        (
            {"metric": lambda c: c.tp.detach().sum()},
            "metric of AlignedLoss must be finite, and dif",
        ),
        (
            {"metric": lambda c: c.tp.sum() * math.nan},
            "metric of AlignedLoss must be finite, and d",
        ),
        (
            {"class_counts": pd.Series([1] * 9 + [0]).value_counts()},
            "class_counts of AlignedLoss must be in the order of the classes. Got [1, 0]. Use .so",
        ),
        (
            {"class_counts": [[9, 1], [1, 0]]},
            "class_counts of AlignedLoss must hold a number for each class, or a pair (negative, "
            "positive) for each label, all > 0. Got [[9, 1], [1, 0]]. For Y of shape (N, L) use "
            "torch.stack([len(Y) - Y.sum(0), Y.sum(0)], 1); None learns them.",
        ),
        (
            {"metric_weight": -1},
            "metric_weight of AlignedLoss must be finite and not negative. Got -1.",
        ),
        (
            {"metric_weight": "much"},
            "metric_weight of AlignedLoss must be finite and not negative. Got 'much'.",
        ),
        ({"label_smoothing": 1}, "label_smoothing of AlignedLoss must lie in [0, 1). Got 1."),
        (
            {"class_weight": [1, 2, 3]},
            "class_weight of AlignedLoss must hold a number for each of the 2 classes. Got 3 num",
        ),
        (
            {"class_weight": "balance"},
            'class_weight of AlignedLoss must be "auto", "balanced", numbers or None. Got ',
        ),
        (
            {"class_counts": [[9, 1]], "class_weight": "balanced"},
            "class_weight of AlignedLoss must be numbers or None for a multilabel problem. Got "
            "'balanced'. A label has its own two classes. Give a number for each label, or None.",
        ),
        (
            {"labels": [1]},
            "labels of AlignedLoss must be None unless the metric is an average over classes that "
            "has no labels of its own. Got [1] for f1.",
        ),
        (
            {"metric": "matthews_corrcoef", "labels": [1]},
            "labels of AlignedLoss must be None unless the metric is an average over classes",
        ),
        (
            {"metric": "f1_macro", "labels": []},
            "labels of FBeta must hold class indices, each once. Got [].",
        ),
        (
            {"metric": "f1_macro", "labels": 1},
            "labels of FBeta must hold class indices, each once. Got 1.",
        ),
        ({"temperature": 0.5}, "temperature of MetricLoss must lie in (0, 0.4]. Got 0.5."),
        ({"momentum": 0}, "momentum of MetricLoss must lie in (0, 1]"),
    ],
)
def test_what_is_refused(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        AlignedLoss(**{"metric": "f1", "class_counts": [9, 1]} | arguments)


@pytest.mark.parametrize(
    ("settings", "labels", "text"),
    [
        (
            {"class_counts": [4, 2]},
            False,
            "class_counts of AlignedLoss must hold a number for each of the 3 classes. Got 2 num",
        ),
        (
            {"class_counts": [[4, 2]] * 3},
            False,
            "class_counts of AlignedLoss must hold a number for each of the 3 classes. Got 3 pairs",
        ),
        (
            {"class_counts": [4, 2, 1]},
            True,
            "class_counts of AlignedLoss must hold a pair (negative, positive) for each of the 3 "
            "labels. Got 3 numbers. For Y of shape (N, L) use torch.stack([len(Y)",
        ),
        (
            {"class_weight": [4, 2]},
            False,
            "class_weight of AlignedLoss must hold a number for each of the 3 classes. Got 2 num",
        ),
        (
            {"class_weight": "balanced"},
            True,
            "class_weight of AlignedLoss must be numbers or None for a multilabel problem. Got",
        ),
    ],
)
def test_numbers_of_other_classes_are_refused(settings, labels, text):
    target = torch.ones(5, 3) if labels else torch.arange(5) % 3
    with pytest.raises(ValueError, match=re.escape(text)):
        AlignedLoss("f1_macro", **settings)(torch.zeros(5, 3), target)


def test_offsets_are_found_where_no_gradients_are():
    with torch.no_grad():
        found = relative(AlignedLoss("f1", [9, 1]))
    torch.testing.assert_close(found, offsets("f1", [9, 1]), rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("metric", ["f1_macro", "matthews_corrcoef"])
def test_offsets_are_found_whatever_the_default_device_is(metric):
    expected = offsets(metric, [9, 1])
    with torch.device("meta"):
        found = relative(AlignedLoss(metric, [9, 1]))
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerances.SAME)


# The loss.

COUNTS = {"binary": [70, 30], "multiclass": [50, 35, 15]}
METRICS = {"binary": "f1", "multiclass": "matthews_corrcoef"}


def batches(task, count=3, rows=40):
    """Yield weighted batches with some ignored rows."""
    generator = torch.Generator().manual_seed(0)
    shape = (rows,) if task == "binary" else (rows, 3)
    for _ in range(count):
        logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
        y = torch.randint(len(COUNTS[task]), (rows,), generator=generator)
        y[::7] = 255
        weight = torch.rand(rows, generator=generator, dtype=torch.float64)
        yield logits.requires_grad_(), y, weight


def cross_entropy(logits, y, weight, offsets):
    counts = y != 255
    logits, y, weight = logits[counts], y[counts], weight[counts]
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], 1)
    losses = F.cross_entropy(logits + offsets, y, reduction="none")
    return (weight * losses).sum() / weight.sum()


@pytest.mark.parametrize("task", COUNTS)
def test_value_and_gradient_are_the_sum_of_both_parts(task):
    loss = AlignedLoss(METRICS[task], COUNTS[task], ignore_index=255)
    alone = MetricLoss(METRICS[task], statistics="running", ignore_index=255)
    asked = offsets(METRICS[task], COUNTS[task])
    for logits, y, weight in batches(task):
        value = loss(logits, y, sample_weight=weight)
        entropy = cross_entropy(logits, y, weight, asked)
        metric = alone(logits, y, sample_weight=weight)
        assert value.item() == pytest.approx((entropy + metric).item(), abs=tolerances.SAME)
        found, wanted = (
            torch.autograd.grad(loss_value, logits)[0] for loss_value in (value, entropy + metric)
        )
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerances.SAME)
        assert found[y != 255].abs().min() > 0  # every row has a gradient
        assert not found[y == 255].any()
    for logits, y, weight in batches(task, 1):  # of the batch alone
        value = loss.eval()(logits, y, sample_weight=weight)
        metric = MetricLoss(METRICS[task], ignore_index=255)(logits, y, sample_weight=weight)
        expected = cross_entropy(logits, y, weight, asked) + metric
        assert value.item() == pytest.approx(expected.item(), abs=tolerances.SAME)


@pytest.mark.parametrize("task", COUNTS)
@pytest.mark.parametrize(
    "again",
    [
        copy.deepcopy,
        lambda loss: pickle.loads(pickle.dumps(loss)),
        lambda loss: restored(loss.state_dict(), loss),
    ],
    ids=["deepcopy", "pickle", "state dict"],
)
def test_a_copy_goes_on_where_the_loss_was(task, again):
    *before, last = batches(task)
    loss = AlignedLoss(METRICS[task], COUNTS[task], ignore_index=255)
    for logits, y, weight in before:
        loss(logits, y, sample_weight=weight)
    other, fresh = again(loss), AlignedLoss(METRICS[task], COUNTS[task], ignore_index=255)
    logits, y, weight = last
    values = [each(logits, y, sample_weight=weight).item() for each in (loss, other, fresh)]
    assert values[0] == values[1]
    assert abs(values[0] - values[2]) > tolerances.FLOAT32  # the batches before are remembered
    loss.metric_loss.running.reset()
    assert other.metric_loss.running.seen > 0  # and the copy's own


def restored(state, loss):
    task = "binary" if len(loss.offsets) == 2 else "multiclass"
    other = AlignedLoss(METRICS[task], COUNTS[task], ignore_index=255)
    other.load_state_dict(state)
    return other


def test_who_validates_leaves_out_the_same_rows():
    """`fit` asks the loss which label to ignore."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.arange(60) % 2
    y[::5] = 255
    loss = AlignedLoss("f1", [1, 1], ignore_index=255)
    settings = Settings(epochs=1, batch_size=32)
    (record,) = fit(nn.Linear(4, 2), loss, x, y, validation=(x, y), metric="f1", settings=settings)
    assert 0 <= record["validation_metric"] <= 1


# In a loop of one's own.


def rare(rows, seed):
    """Make rows with log-odds 2·x₀ − 3: one in eight is positive, and few are surely so."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 4, generator=generator)
    return x, (torch.rand(rows, generator=generator) < (2 * x[:, 0] - 3).sigmoid()).long()


def trained(network, loss, x, y, *, epochs, lr):
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval()


@torch.no_grad()
def logits_of(network, x):
    return network(x)


def test_a_plain_loop_learns_a_table():
    (x, y), (fresh, truth) = rare(2000, 0), rare(20_000, 1)
    scores = []
    for loss in (AlignedLoss("f1", y.bincount()), nn.CrossEntropyLoss()):
        torch.manual_seed(0)
        network = trained(nn.Linear(4, 2), loss, x, y, epochs=10, lr=0.02)
        scores.append(f1_score(truth, logits_of(network, fresh).argmax(1)))
    # By the true probabilities, the best threshold has 0.55 and ½ has 0.46.
    assert scores[0] > 0.52
    assert scores[0] > scores[1] + 0.05


def patches(rows, seed):
    """Make images of noise, with a faint bright patch somewhere in one of eight."""
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(rows, generator=generator) < 1 / 8).long()
    x = torch.randn(rows, 1, 12, 12, generator=generator)
    where = torch.randint(9, (rows, 2), generator=generator)
    for image, (i, j), label in zip(x, where.tolist(), y.tolist(), strict=True):
        image[:, i : i + 4, j : j + 4] += 0.7 * label
    return x, y


def convolutional():
    torch.manual_seed(0)
    features = nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()
    return nn.Sequential(*features, nn.Linear(8, 2))


def test_in_the_place_of_cross_entropy_in_a_network_of_images():
    (x, y), (held_out, known), (fresh, truth) = patches(2000, 0), patches(1000, 1), patches(5000, 2)
    loss = AlignedLoss("f1", y.bincount())
    aligned, plain = (
        trained(convolutional(), criterion, x, y, epochs=8, lr=0.01)
        for criterion in (loss, nn.CrossEntropyLoss())
    )
    rule = fit_decision(logits_of(aligned, held_out), known, metric="f1", offsets=loss.offsets)
    baseline = f1_score(truth, logits_of(plain, fresh).argmax(1))
    logits = logits_of(aligned, fresh)
    # Of 5,000 images some 625 are positive: an F1 has a standard error of about 0.017.
    for labels in (logits.argmax(1), rule(logits)):
        assert f1_score(truth, labels) > baseline + 0.02
