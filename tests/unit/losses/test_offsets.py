"""The offsets of AlignedLoss: the metric's slopes, the fixed point, runaways, class shares."""

import math

import numpy as np
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

from evalign import AlignedLoss, Confusion, metrics
from evalign.losses.offsets import ODDS, half_skilled, metric_offsets
from tests import tolerances

AVERAGED = {"f1": f1_score, "jaccard": jaccard_score}
AVERAGED["f2"] = lambda *of, **how: fbeta_score(*of, beta=2, **how)
WHOLE = {
    "matthews_corrcoef": matthews_corrcoef,
    "balanced_accuracy": balanced_accuracy_score,
    "accuracy": accuracy_score,
    "cohen_kappa": cohen_kappa_score,
}
COST = "expected_cost[[0, 1], [5, 0]]"


# The slopes.


def scored(score, matrix, **how):
    """Compute scikit-learn's metric of a confusion matrix, with a row for each of its cells."""
    true, predicted = np.indices(matrix.shape).reshape(2, -1)
    return score(true, predicted, sample_weight=matrix.ravel(), **how)


def asked_for(matrix, score, **how):
    """Compute the odds of `metric_offsets` from differences of scikit-learn's metric."""
    slope, step = np.zeros_like(matrix), 1e-6
    for cell in np.ndindex(matrix.shape):
        moved = np.zeros_like(matrix)
        moved[cell] = step
        ends = (scored(score, matrix + sign * moved, **how) for sign in (1, -1))
        slope[cell] = (next(ends) - next(ends)) / (2 * step)
    own, most = slope.diagonal(), matrix.sum(1).argmax()
    gain, cost = own - slope[:, most], own[most] - slope[most]
    gain[most] = cost[most] = 1
    return np.log(cost / gain)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", AVERAGED | WHOLE)
def test_offsets_are_those_of_differences(name, classes):
    """They are those of scikit-learn's metric, at the Confusion of any classifier."""
    how = {"average": "macro"} if name in AVERAGED and classes > 2 else {}
    metric = metrics.resolve(f"{name}_macro" if how else name)
    random = np.random.default_rng(classes)
    for skill in (0.1, 0.5, 2.0):
        matrix = random.dirichlet(np.ones(classes), classes) + skill * np.eye(classes)
        matrix *= random.uniform(0.2, 1, (classes, 1))
        matrix /= matrix.sum()
        expected = asked_for(matrix, (AVERAGED | WHOLE)[name], **how)
        c = Confusion.from_matrix(torch.tensor(matrix))
        for kept in (c, Confusion(c.tp, c.predicted, c.actual, c.total)):
            found = metric_offsets(metric, kept, kept.actual)
            np.testing.assert_allclose(found, expected, rtol=0, atol=10 * tolerances.SLOPES)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("stem", ["f1", "jaccard"])
def test_offsets_of_labels_are_those_of_differences(stem, average):
    random, few = np.random.default_rng(0), 1e-6
    cells = random.uniform(0.1, 1, (2, 2, 3))  # true, predicted, label
    cells /= cells.sum((0, 1))

    def scores(cells):
        if average == "micro":
            cells = cells.sum(2, keepdims=True)
        each = [scored(AVERAGED[stem], cells[..., k]) for k in range(cells.shape[2])]
        return np.average(each, weights=cells[1].sum(0) if average == "weighted" else None)

    def slope(true, predicted, label):
        moved = np.zeros_like(cells)
        moved[true, predicted, label], moved[true, 1 - predicted, label] = few, -few
        return (scores(cells + moved) - scores(cells - moved)) / (2 * few)

    expected = [slope(0, 0, k) / slope(1, 1, k) for k in range(3)]
    tp, predicted, actual = (
        torch.tensor(x) for x in (cells[1, 1], cells[:, 1].sum(0), cells[1].sum(0))
    )
    c = Confusion(tp, predicted, actual, torch.ones_like(tp), multilabel=True)
    found = metric_offsets(metrics.resolve(f"{stem}_{average}"), c, torch.ones(3, 2))
    np.testing.assert_allclose(found, np.log(expected), rtol=0, atol=10 * tolerances.SLOPES)


def test_odds_that_do_not_depend_on_the_classifier():
    counts = torch.tensor([50.0, 30.0, 20.0], dtype=torch.float64)
    for matrix in (counts.diag(), torch.rand(3, 3, dtype=torch.float64) + 0.1):
        c = Confusion.from_matrix(matrix / matrix.sum(1, keepdim=True) * counts.unsqueeze(1))
        assert metric_offsets(metrics.resolve("accuracy"), c, counts).abs().max() < tolerances.SAME
        found = metric_offsets(metrics.resolve("balanced_accuracy"), c, counts)
        torch.testing.assert_close(found.exp(), counts / 50, rtol=0, atol=1e-8)


def f1_of_cells(c):
    return 2 * c.matrix[1, 1] / (2 * c.matrix[1, 1] + c.matrix[0, 1] + c.matrix[1, 0])


def test_functions_costs_and_names_ask_for_the_same():
    c = Confusion.from_matrix(torch.tensor([[70.0, 10.0], [8.0, 12.0]]).double())
    score = f1_of_cells(c).item()
    expected = math.log(score / (2 - score))  # of a threshold of F/2
    for metric in ("f1", f1_of_cells, metrics.Minimize(lambda c: 1 - f1_of_cells(c))):
        metric = metrics.resolve(metric)
        assert metric_offsets(metric, c, c.actual).tolist() == pytest.approx([0, expected])
    found = metric_offsets(metrics.resolve(COST), c, c.actual).exp()
    assert found.tolist() == pytest.approx([1, 1 / 5])


@pytest.mark.parametrize(("sign", "expected"), [(-1, ODDS), (1, 1.0)])
def test_odds_are_bounded(sign, expected):
    """A label that never pays is given from the largest odds on."""
    c = half_skilled(torch.tensor([9.0, 1.0]).double(), matrix=True)
    metric = metrics.resolve(lambda c: c.matrix[0, 0] + sign * c.matrix[1, 1])
    found = metric_offsets(metric, c, c.actual).exp()
    assert found.tolist() == pytest.approx([1, expected])


@pytest.mark.parametrize("metric", ["f1_macro", "matthews_corrcoef"])
def test_many_classes_do_not_make_a_matrix(metric):
    """Of 200,000 classes it would take 320 GB."""
    counts = torch.ones(200_000, dtype=torch.float64)
    found = metric_offsets(metrics.resolve(metric), half_skilled(counts), counts)
    assert found.shape == (200_000,)


# The fixed point, where the posteriors of the rows are known: the target of a row is its posterior.


def normal(rows):
    """Quantiles of the normal distribution."""
    return torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(rows) + 0.5).double() / rows)


def posteriors(task, rows=400):
    """Make logits with which argmax maximises accuracy, and the posteriors."""
    if task == "binary":
        logits = -2 + 1.6 * normal(rows)
        return logits, logits.sigmoid()
    noise = torch.randn(rows, 3, generator=torch.manual_seed(0), dtype=torch.float64)
    logits = 1.6 * noise + torch.tensor([1.0, 0.0, -1.0])
    if task == "multilabel":
        return logits - 1, (logits - 1).sigmoid()
    return logits.log_softmax(1), logits.softmax(1)


def without(logits, offsets):
    """The logits of a network that has learnt the posteriors with these offsets."""
    if offsets is None:
        return logits.clone()
    return logits - (offsets[1] - offsets[0] if logits.ndim == 1 else offsets)


def followed(loss, logits, target, steps=30):
    for _ in range(steps):
        loss(without(logits, loss.offsets).requires_grad_(), target)
    return loss.offsets


def of_argmax(metric, logits, posterior, shift):
    """The metric of the argmax of logits − shift, by the posteriors."""
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], 1)
        posterior = torch.stack([1 - posterior, posterior], 1)
    predicted = torch.nn.functional.one_hot((logits - shift).argmax(1), logits.shape[1])
    return metric(Confusion.from_matrix(posterior.T @ predicted.double())).item()


BINARY = ["f1", "f2", "jaccard", "matthews_corrcoef", "cohen_kappa", "g_mean", "informedness"]
BINARY += ["balanced_accuracy", "accuracy", "f1_macro", COST]


@pytest.mark.parametrize("name", BINARY)
def test_the_argmax_is_the_best_decision_for_known_posteriors(name):
    logits, posterior = posteriors("binary")
    loss = AlignedLoss(name, task="binary", momentum=0.5)
    first, second = followed(loss, logits, posterior).tolist()
    sign = 1 if loss.metric.greater_is_better else -1
    thresholds = torch.linspace(-4, 1, 251).tolist()
    scores = [of_argmax(loss.metric, logits, posterior, torch.tensor([0, t])) for t in thresholds]
    best = max(sign * score for score in scores)
    assert sign * loss.score == pytest.approx(best, abs=0.005)
    # Between two rows all thresholds are the same.
    near = [t for t, score in zip(thresholds, scores, strict=True) if sign * score > best - 1e-4]
    assert min(near) - 0.05 < second - first < max(near) + 0.05
    if name == "f1":
        half = loss.score.item() / 2
        assert second - first == pytest.approx(math.log(half / (1 - half)), abs=0.05)


def test_each_label_has_its_own_threshold():
    logits, posterior = posteriors("multilabel")
    loss = AlignedLoss("f1_macro", task="multilabel", momentum=0.5)
    offsets = followed(loss, logits, posterior)
    f1 = metrics.resolve("f1")
    for label in range(3):
        pair = logits[:, label], posterior[:, label]
        score = of_argmax(f1, *pair, torch.tensor([0, offsets[label]]))
        best = max(of_argmax(f1, *pair, torch.tensor([0, t])) for t in torch.linspace(-4, 2, 151))
        assert score == pytest.approx(best, abs=0.005)
        assert offsets[label].item() == pytest.approx(math.log(score / (2 - score)), abs=0.05)


@pytest.mark.parametrize("name", ["f1_macro", "balanced_accuracy", "matthews_corrcoef"])
def test_three_classes(name):
    logits, posterior = posteriors("multiclass")
    loss = AlignedLoss(name, task="multiclass", momentum=0.5)
    followed(loss, logits, posterior)
    grid = torch.linspace(-2.5, 0.5, 16).tolist()
    best = max(
        of_argmax(loss.metric, logits, posterior, torch.tensor([0, a, b]))
        for a in grid
        for b in grid
    )
    assert loss.score.item() == pytest.approx(best, abs=0.005)


# Metrics that run away.

KEPT = {"Precision", "Recall", "Specificity", "NegativePredictiveValue"}


def task_of(name):
    stem = type(metrics.resolve(name))
    if name.endswith(("_macro", "_micro", "_weighted")):
        return "multilabel"
    return "multiclass" if name in WHOLE or "kappa" in name or stem is metrics.GMean else "binary"


@pytest.mark.parametrize(
    ("momentum", "steps"), [(0.5, 48), pytest.param(0.1, 1000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", [*metrics.names(), COST])
def test_offsets_come_back_after_each_class_was_predicted_alone(name, momentum, steps):
    task = task_of(name)
    logits, posterior = posteriors(task, rows=300)
    loss = AlignedLoss(name, task=task, momentum=momentum)
    classes = 3 if task == "multiclass" else 2
    before = followed(loss, logits, posterior, steps // 4).clone()
    for alone in range(classes):
        sure = torch.full_like(logits, 30.0 * (2 * alone - 1))
        if task == "multiclass":
            sure = 30.0 * torch.nn.functional.one_hot(torch.full((300,), alone), 3).double()
        for _ in range(steps // 4 // classes):
            loss(sure.requires_grad_(), posterior)
            assert loss.offsets.abs().max() < math.log(ODDS) + tolerances.SAME
    after = followed(loss, logits, posterior, steps // 2)
    torch.testing.assert_close(after, before, rtol=0, atol=0.01)  # within the gap between rows
    kept = type(loss.metric).__name__ in KEPT
    assert kept == (not loss.metric.inner_optimum)
    if kept:  # the offsets of a classifier that is right half of the time
        there = metric_offsets(loss.metric, half_skilled(loss.counts), loss.counts)
        torch.testing.assert_close(after, there, rtol=0, atol=tolerances.SAME)
