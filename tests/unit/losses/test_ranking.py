"""Losses over thresholds: scikit-learn's values, running statistics, and slopes."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from evalign import exact_backward
from evalign.losses import AUROCLoss, AveragePrecisionLoss
from evalign.losses.curves import log_odds
from evalign.membership.batch import as_batch
from tests import tolerances
from tests.contract.cases import data, perfect

LOSSES = {"auroc": AUROCLoss, "average precision": AveragePrecisionLoss}


def on_thresholds(rows=200, tied=False, seed=0):
    """Scores that lie on thresholds, where a row is above one or not: the counts are then hard."""
    random = np.random.default_rng(seed)
    y = random.random(rows) < 0.2
    places = random.integers(140, 260, rows) if tied else random.permutation(rows) + 100
    order = np.argsort(places - 30 * y * random.random(rows), kind="stable")
    places = np.sort(places)[np.argsort(order)]  # positives come a little earlier than others
    u = 10 - 20 * places / 400
    return torch.from_numpy(np.sinh(u)), torch.from_numpy(y), -places


# The step of 401 thresholds is 0.05 in asinh(z), and sinh and asinh lose a few digits of it: a row
# then counts for 1 − 1e-13 at its own threshold.
@pytest.mark.parametrize("tied", [False, True])
def test_hard_scores_give_the_number_of_scikit_learn(tied):
    for seed in range(3):
        z, y, ranks = on_thresholds(tied=tied, seed=seed)
        value = AveragePrecisionLoss(thresholds=401, momentum=None)(z, y).item()
        expected = 1 - average_precision_score(y, ranks)
        assert value == pytest.approx(expected, abs=tolerances.REFERENCE)


def test_classes_are_each_held_against_the_rest():
    logits, target = data("multiclass", rows=40)
    odds = log_odds(as_batch("test", logits, target))
    p = logits.softmax(1)
    torch.testing.assert_close(odds, (p / (1 - p)).log(), rtol=0, atol=tolerances.REFERENCE)
    for make in LOSSES.values():
        each = [make(momentum=None)(odds[:, c], target == c) for c in range(3)]
        whole = make(momentum=None)(logits, target)
        # AUROCLoss has its thresholds on p, which is here rounded once more.
        torch.testing.assert_close(whole, torch.stack(each).mean(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_label_of_every_row_does_not_count(make):
    """No row is to be ranked below another by it."""
    z, y = data("multilabel", rows=20)
    y[:, 1] = 1
    rest = [column for column in range(y.shape[1]) if column != 1]
    value = make(momentum=None, task="multilabel")(z, y)
    without = make(momentum=None, task="multilabel")(z[:, rest], y[:, rest])
    torch.testing.assert_close(value, without, rtol=0, atol=tolerances.SAME)


def test_odds_of_a_sure_class_keep_their_digits():
    logits = torch.tensor([[60.0, 0.0, -1.0]], requires_grad=True)
    odds = log_odds(as_batch("test", logits, torch.tensor([0])))
    expected = 60 - np.log(1 + np.exp(-1.0))  # p / (1 − p) would be infinite
    assert odds[0, 0].item() == pytest.approx(expected, abs=tolerances.REFERENCE)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_two_classes_are_the_binary_problem_of_the_second(make):
    logits, target = data("binary")
    two = torch.stack([torch.zeros_like(logits), logits], 1)
    torch.testing.assert_close(make()(two, target.long()), make()(logits, target))


def test_rare_positives_with_low_scores_have_slopes():
    """All probabilities are below 0.02, where thresholds of tenths see nothing."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(500) < 15
    z = (-6 + y.float() + torch.randn(500, generator=generator)).requires_grad_()
    AveragePrecisionLoss()(z, y).backward()
    assert (z.grad[y] <= 0).all()
    assert (z.grad[~y] >= 0).all()
    assert (z.grad[y] < 0).sum() >= 8  # most of the positives


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_the_loss_lies_between_0_and_1(make):
    for task in ("binary", "multiclass", "multilabel"):
        logits, target = data(task)
        for z in (logits, 1e4 * logits, -perfect(task, target), 0 * logits, 1e-6 * logits):
            assert 0 <= make()(z, target) <= 1 + 1e-12  # rounding of sums


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_running_statistics_have_the_average_and_the_gradient_of_the_batch(make):
    """The value is that of all rows where both batches weigh the same, momentum 0.5 of the second
    after one of 1: the corrected average is (a / 3 + 2 b / 3).
    """
    (first, y1), (second, y2) = data("binary", seed=1), data("binary", seed=2)
    loss = make(momentum=0.5)
    loss(first.requires_grad_(), y1)
    second = second.requires_grad_()
    value = loss(second, y2)
    both = torch.cat([first.detach(), second.detach()]).requires_grad_()
    weight = torch.cat([torch.full((24,), 1.0), torch.full((24,), 2.0)])
    expected = make(momentum=None)(both, torch.cat([y1, y2]), sample_weight=weight)
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerances.SAME)
    # The batch weighs 2 of 3 in the average, and its gradient is not scaled by that.
    (gradient,) = torch.autograd.grad(value, second)
    (of_both,) = torch.autograd.grad(expected, both)
    torch.testing.assert_close(gradient, of_both[24:] * 3 / 2, rtol=0, atol=tolerances.SAME)
    evaluated = make(momentum=None).eval()(second, y2)
    assert torch.equal(loss.eval()(second, y2), evaluated)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_micro_batches_have_the_gradient_of_the_whole(make):
    _, target = data("multiclass")
    x = torch.randn(24, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = []
    for parts in (1, 4):
        torch.manual_seed(0)
        model, loss = torch.nn.Linear(5, 3).double(), make(momentum=0.1)
        for _ in range(2):
            model.zero_grad()
            batches = list(zip(x.chunk(parts), target.chunk(parts), strict=True))
            value = exact_backward(loss, model, batches)
        gradients.append((value, model.weight.grad))
    for ours, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, whole, rtol=0, atol=tolerances.SAME)


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_network_that_has_diverged_stays_visible(make):
    logits, target = data("multiclass")
    logits[2] = torch.nan
    loss = make(momentum=0.1)
    assert loss(logits.requires_grad_(), target).isnan()
    logits, target = data("multiclass")
    assert loss(logits.requires_grad_(), target).isfinite()  # and is not remembered


def test_training_ranks_the_rows():
    """From scores that say nothing, by the loss alone."""
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(400, generator=generator) < 0.1
    x = torch.randn(400, 3, generator=generator) + torch.tensor([1.5, 0.0, 0.0]) * y.unsqueeze(1)
    best = average_precision_score(y, x[:, 0])
    weight, loss = torch.full((3,), 0.01, requires_grad=True), AveragePrecisionLoss(momentum=0.3)
    for _ in range(40):
        (slope,) = torch.autograd.grad(loss(x @ weight, y), weight)
        weight = (weight - 0.1 * slope / slope.norm()).detach().requires_grad_()
    found = average_precision_score(y, (x @ weight).detach())
    assert found > best - 0.05


@pytest.mark.parametrize(("thresholds", "low", "high"), [(101, 0.02, 0.055), (1001, 0.002, 0.005)])
def test_how_far_soft_average_precision_is_from_the_score(thresholds, low, high):
    """The page of the loss has these numbers. With less spread it is further."""
    y = (torch.arange(60_000) % 10 == 0).long()
    noise = torch.randn(60_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def excess(z):
        soft = AveragePrecisionLoss(thresholds=thresholds)(z, y).item()
        return soft - (1 - average_precision_score(y, z))

    for apart in (1, 2, 3):
        z = noise + apart * y
        assert low < excess(z) < high
        assert excess(z / 2) > excess(z)
