"""Long-tailed images: their rows and weights, and a trainer that equals `fit`."""

import json
import math

import numpy as np
import pytest
import torch
from evalign_study.records.run import Run
from evalign_study.suite.plan import image_runs
from evalign_study.suite.standings import scores
from evalign_study.trainers import decisions, images, methods, tailed
from evalign_study.trainers.decisions import Pick, decide
from evalign_study.trainers.images import prepare
from evalign_study.trainers.methods import NETWORKS, OPPONENTS, OURS, make
from evalign_study.trainers.recipe import USUAL
from evalign_study.trainers.tailed import profile, split, train, weights
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    fbeta_score,
    matthews_corrcoef,
)
from torch import nn

from evalign.training import Settings, fit
from study.tests.trainers import made_data

CPU = torch.device("cpu")
CLASSES = 3
METRICS = {
    "f1_macro": lambda *rows, **how: f1_score(*rows, average="macro", **how),
    "matthews_corrcoef": matthews_corrcoef,
    "balanced_accuracy": balanced_accuracy_score,
    "f2_macro": lambda *rows, **how: fbeta_score(*rows, beta=2, average="macro", **how),
}


def small(n_features, n_classes, dropout):
    # Without a bias, as in a ResNet: before a BatchNorm its gradient is rounding alone.
    layers = [nn.Conv2d(3, 8, 3, stride=8, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, n_classes))


@pytest.fixture
def made(monkeypatch):
    """Use 600 made images, 160 of each class to learn from, and a small network.

    No rule is tuned, as that would take far longer than all the rest.
    """
    dataset = made_data.images("cifar10", rows=600, classes=CLASSES)
    monkeypatch.setattr(images, "load", lambda asked: dataset)
    monkeypatch.setitem(methods.NETWORKS, "resnet18", small)
    monkeypatch.setattr(decisions, "MOST_TUNED", 2)
    images._stored.cache_clear()
    yield dataset
    images._stored.cache_clear()


def run_of(method="cross_entropy", **changes) -> Run:
    (run,) = (
        run
        for run in image_runs([("cifar10", 10)], splits=[0], epochs=changes.pop("epochs", 3))
        if run.method == method
    )
    return run.but(learning_rate=0.02, **changes)


@pytest.mark.parametrize(("ratio", "total"), [(10, 20431), (100, 12406)])
def test_the_profile_is_that_of_cifar10_lt(ratio, total):
    counts = profile(5000, ratio, 10)
    # The totals are those of Cao et al.; the logarithms of the counts fall evenly.
    assert (counts[0], counts[-1], counts.sum()) == (5000, 5000 // ratio, total)
    steps = np.log(5000) - np.arange(10) * np.log(ratio) / 9
    assert np.all(np.abs(counts + 0.5 - np.exp(steps)) <= 0.5 + 1e-9)


def test_parts(made):
    run = run_of()
    training, validation, test = split(made, run)
    assert not set(training) & set(validation)
    assert set(made.split[[*training, *validation]]) == {"train"}
    assert np.array_equal(test, np.flatnonzero(made.split == "test"))
    drawn = np.bincount(made.y[training]) + np.bincount(made.y[validation])
    assert drawn.tolist() == [160, 50, 16]  # 160 / √10 = 50.6
    assert np.abs(np.bincount(made.y[validation]) - 0.2 * drawn).max() <= 1
    assert len(validation) == round(0.2 * 226)

    again, other = split(made, run), split(made, run.but(split_seed=1))
    assert all(map(np.array_equal, again, (training, validation, test)))
    rare = [
        {row for row in (*parts[0], *parts[1]) if made.y[row] == 2}
        for parts in ((training, validation), other)
    ]
    assert len(rare[0]) == len(rare[1]) == 16
    assert rare[0] != rare[1]


@pytest.mark.parametrize("metric", METRICS)
def test_the_test_score_is_weighted_as_in_sklearn(metric, monkeypatch):
    monkeypatch.setattr(decisions, "MOST_TUNED", 2)
    torch.manual_seed(0)
    y = torch.arange(300) % CLASSES
    logits = torch.randn(300, CLASSES) + torch.eye(CLASSES)[y]
    weight = torch.tensor([2.0, 0.9, 0.1]).double()
    pick = Pick(1, logits, logits)
    plain, weighted = (
        decide(pick, y, y, metric, names=[metric], weights=given)["decisions"]["argmax"]
        for given in (None, weight)
    )
    labels, score = logits.argmax(1), METRICS[metric]
    assert plain["test"][metric] == plain["validation"] == pytest.approx(score(y, labels))
    assert weighted["test"][metric] == pytest.approx(score(y, labels, sample_weight=weight[y]))
    assert (weighted["validation"], weighted["matrix"]) == (plain["validation"], plain["matrix"])
    if metric != "balanced_accuracy":  # the recalls of classes do not depend on their weights
        assert abs(weighted["test"][metric] - plain["test"][metric]) > 0.01


@pytest.mark.parametrize(
    "method", [pytest.param("cross_entropy", marks=pytest.mark.slow), f"{OURS}_mcc"]
)
def test_a_record_is_that_of_the_suite(made, method):
    record = train(run_of(method, epochs=20))
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    wanted = list(METRICS) if method in OPPONENTS else ["matthews_corrcoef"]
    assert list(record["picks"]) == wanted
    assert (record["epochs"], record["batch_size"], record["diverged"]) == (20, 30, False)
    weight = torch.tensor([160, 50, 16]).double() / 226 * 3
    for metric, pick in record["picks"].items():
        assert 1 <= pick["epoch"] <= 20
        assert pick["decisions"].keys() == {"argmax", "expected"}
        for decided in pick["decisions"].values():
            true, predicted, counts = torch.tensor(decided["matrix"]).T
            assert true.bincount(counts).tolist() == [40, 40, 40]
            rows = true.repeat_interleave(counts), predicted.repeat_interleave(counts)
            score = METRICS[metric](*rows, sample_weight=weight[rows[0]])
            assert decided["test"] == pytest.approx({metric: score}, abs=1e-6)
        assert pick["decisions"]["argmax"]["test"][metric] > 0.9
    assert scores([record]).keys() == {("cifar10 1:10", metric) for metric in wanted}


def noted(monkeypatch):
    """Collect the validation losses, epoch by epoch."""
    losses, loss_of = [], tailed._TailedLearner.loss_of

    def note(training, *arguments):
        losses.append(loss_of(training, *arguments))
        return losses[-1]

    monkeypatch.setattr(tailed._TailedLearner, "loss_of", note)
    return losses


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_the_trainer_is_that_of_fit(made, monkeypatch, ema_decay):
    """Without augmentation, the two agree epoch by epoch."""
    crops = images.Images.crops
    monkeypatch.setattr(images.Images, "crops", lambda data, rows, places=None: crops(data, rows))
    monkeypatch.setattr(tailed, "USUAL", USUAL._replace(ema_decay=ema_decay))
    run, losses = run_of(f"{OURS}_f1", epochs=4, rows=180), noted(monkeypatch)
    record = train(run)
    data = prepare(run, CPU, split)
    assert len(data.training) == 180  # six batches of 30
    counts = data.y[data.training].bincount()
    torch.manual_seed(run.seed)
    network = NETWORKS["resnet18"](3, CLASSES, 0.0)
    rows, held_out = (
        (data.crops(part).contiguous(), data.y[part]) for part in (data.training, data.validation)
    )
    settings = Settings(
        epochs=4,
        batch_size=32,
        learning_rate=run.learning_rate,
        weight_decay=USUAL.weight_decay,
        ema_decay=ema_decay,
        patience=None,
        seed=run.seed,
    )
    loss = make(run.method, counts).loss
    history = fit(network, loss, *rows, validation=held_out, metric="f1_macro", settings=settings)
    assert losses == pytest.approx([epoch["validation_loss"] for epoch in history], rel=1e-4)
    # The epoch is picked by labels without offsets, and the first of equals is the best.
    f1 = [epoch["validation_metric"] for epoch in history]
    assert record["picks"]["f1_macro"]["epoch"] == 1 + int(np.argmax(np.round(f1, 9)))


def test_what_logit_adjustment_takes_out_of_logits_is_added_back(made, monkeypatch):
    """It is added once, by the rule, to the logits as they are."""
    asked = []
    monkeypatch.setattr(
        tailed, "decide", lambda pick, *labels, **how: asked.append((pick, how)) or {}
    )
    monkeypatch.setattr(tailed, "finite", torch.zeros_like)
    train(run_of("logit_adjusted"))
    data = prepare(run_of(), CPU, split)
    counts = data.y[data.training].bincount()
    for pick, how in asked:
        torch.testing.assert_close(how["offsets"].softmax(0), counts / counts.sum())
        assert torch.equal(how["weights"], weights(data))
        assert not pick.validation.any()
        assert not pick.test.any()
    assert len(asked) == 4


def test_offsets_that_follow_are_kept_with_the_epoch(made, monkeypatch):
    asked = []
    monkeypatch.setattr(
        tailed, "decide", lambda pick, *labels, **how: asked.append((pick, how)) or {}
    )
    train(run_of(f"{OURS}_f1").but(method="following_f1"))
    ((pick, how),) = asked
    assert how["offsets"] is None
    assert pick.offsets.shape == (CLASSES,)
    assert pick.offsets.argmin() == CLASSES - 1  # the rarest class


def test_a_training_that_diverges_says_the_first_class(made):
    record = train(run_of("cross_entropy").but(learning_rate=1e38))
    assert record["diverged"]
    assert record["epochs"] < 3
    for metric, pick in record["picks"].items():
        assert pick["epoch"] == 0
        for decided in pick["decisions"].values():
            assert {predicted for _, predicted, _ in decided["matrix"]} == {0}
            assert math.isfinite(decided["test"][metric])
