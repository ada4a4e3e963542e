"""EAST's protocol: a short run gives its recorded numbers, and a flag changes one thing."""

import pytest
import torch
from evalign_study import data, networks
from evalign_study.protocols import east
from evalign_study.protocols.east import Run
from evalign_study.records.journal import holds, triples

import evalign
from study.tests.protocols import made
from tests import tolerances
from tests.estimator.test_east import loop_of_the_docs


@pytest.fixture
def give(monkeypatch):
    """Put made rows in the place of every data set."""

    def given(dataset):
        monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
        east._prepared.cache_clear()

    yield given
    east._prepared.cache_clear()


SHORT = Run(dataset="made", batch_size=64, epochs=60, patience=3, dropout=0.0, seed=1)
# What the protocol gave when VERSION was 1. Where these change, so do the numbers of all tables:
# raise the version, and record them anew.
RECORDED = {
    1: {
        "cross_entropy": (11, [], [0.35]),
        "f1": (31, [9, 13, 20, 24], [0.21]),
    }
}


@pytest.mark.parametrize("loss", ["cross_entropy", "f1"])
def test_a_short_run_gives_its_recorded_numbers(loss, give):
    give(made.rows(2))
    rate = 1.0 if loss == "cross_entropy" else 0.8
    record = east.train(SHORT.but(loss=loss, rate=rate), "cpu")
    found = [round(record["picks"]["loss"]["validation_loss"], 3)]
    assert (record["epochs"], record["coolings"], found) == RECORDED[east.VERSION][loss]


def test_colours_are_standardised():
    images = torch.from_numpy(made.images().X)
    found = east.colours(images)(images)
    assert found.shape == (120, 3, 32, 32)
    assert found.mean((0, 2, 3)).abs().max() < tolerances.FLOAT32_MOMENTS
    assert (found.std((0, 2, 3), correction=0) - 1).abs().max() < tolerances.FLOAT32_MOMENTS


def test_a_network_of_images_learns(give):
    give(made.images())
    run = SHORT.but(network="tiny_darknet", batch_size=16, learning_rate=0.01, epochs=3, loss="f1")
    record = east.train(run, "cpu")
    assert record["epochs"] == 3
    assert record["capped"]
    assert record["picks"]["f1_macro"]["validation"]["f1_macro"] > 0.5
    cells = record["picks"]["loss"]["decisions"]["argmax"]["matrix"]
    assert sum(count for *_, count in cells) == 24


def test_a_training_that_ended_by_itself_counts_under_every_cap(give):
    give(made.rows(2))
    run = SHORT.but(loss="cross_entropy")
    ended, capped = (east.train(run.but(epochs=cap), "cpu") for cap in (60, 4))
    assert ended["epochs"] < 60
    assert not ended["capped"]
    assert capped["capped"]
    assert holds(ended, run.but(epochs=2000))
    assert not holds(ended, run.but(epochs=4))
    assert holds(capped, run.but(epochs=4))
    assert not holds(capped, run)
    assert not holds(ended, run.but(seed=2))


def test_where_it_stops_early_is_one_setting(give):
    give(made.rows(2))
    run = SHORT.but(loss="cross_entropy")
    lengths = [east.train(run.but(patience=patience), "cpu")["epochs"] for patience in (1, 3, 9)]
    assert lengths == sorted({*lengths})


def test_the_setting_of_the_lowest_validation_loss_is_chosen(give):
    give(made.rows(2))
    runs = east.grid(SHORT.but(loss="cross_entropy", epochs=3), {"learning_rate": [1e-2, 1e-5]})
    records = [east.train(run, "cpu") for run in runs]
    assert east.chosen(records) is records[0]
    assert east.chosen(records[::-1], "f1_macro") is records[0]
    assert [run.seed for run in east.trials(runs[0], range(3))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"loss": "dise"}, r"loss of east must be one of f1, .* Got 'dise'. Did you mean 'dice'"),
        ({"network": "darknet"}, "network of east must be one of mlp, .*Did you mean 'darknet19'"),
        ({"average": "macro"}, "average of east must be one of all classes, present classes, pos"),
        ({"rate": 0.9, "loss": "cross_entropy"}, "rate of east must be 1 for the loss cross_entr"),
        ({"precision": "half"}, "precision of east must be one of float32, tf32, bfloat16"),
    ],
)
def test_what_is_allowed_is_said(changes, text, give):
    give(made.rows(2))
    with pytest.raises(ValueError, match=text):
        east.train(SHORT.but(**changes), "cpu")


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"a setting of east must be one of .* Got 'patienc'. Did"):
        east.run_from({"dataset": "adult", "patienc": 3})


def test_the_protocol_is_the_loop_of_the_docs(give):
    """The recipe is, too (tests/estimator/test_east.py)."""
    give(made.rows(3))
    run = SHORT.but(loss="f1", rate=0.9, learning_rate=1e-3, epochs=400)
    record = east.train(run.but(curve=True), "cpu")
    rows = east.rows_of(run, "cpu")
    (X, y), validation = rows.training, rows.validation
    with torch.random.fork_rng([]):
        torch.manual_seed(run.seed)
        net = networks.mlp(X.shape[1], 3, dropout=0.0)
    losses, temperatures = [], []
    order = torch.Generator().manual_seed(run.seed)
    loss = evalign.MetricLoss(evalign.metrics.FBeta(average="macro", labels=range(3)))

    def train_one_epoch(net, loss, optimizer):
        temperatures.append(loss.temperature.item())
        for batch in torch.randperm(len(X), generator=order).tensor_split(-(-len(X) // 64)):
            optimizer.zero_grad()
            loss(net(X[batch]), y[batch]).backward()
            optimizer.step()

    def validation_loss(net):
        with torch.no_grad():
            losses.append(loss(net(validation[0]), validation[1]).item())
        return losses[-1]

    optimizer = torch.optim.AdamW(net.parameters(), run.learning_rate, fused=True)
    loop = loop_of_the_docs()
    loop(net, loss, optimizer, train_one_epoch, validation_loss, rate=0.9, patience=3)
    assert not record["capped"]
    assert losses == pytest.approx(record["curve"], abs=tolerances.PRINTED)
    assert record["last_temperature"] == pytest.approx(loss.temperature.item())
    assert [i for i in range(1, len(losses)) if temperatures[i] < temperatures[i - 1]] == record[
        "coolings"
    ]
    matrix = east.counted(net(rows.test[0]), rows.test[1])
    found = record["picks"]["loss"]["decisions"]["argmax"]["matrix"]
    assert triples(matrix) == found


def test_a_compiled_step_is_for_speed_alone(give, monkeypatch):
    give(made.rows(2))
    seen = []
    monkeypatch.setattr(torch, "compile", lambda network, **how: seen.append(how) or network)
    plain, compiled = (east.train(SHORT.but(epochs=2), "cpu", compiled=x) for x in (False, True))
    assert seen == [{"dynamic": False}]
    assert compiled["picks"] == plain["picks"]
