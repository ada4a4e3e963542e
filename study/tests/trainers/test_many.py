"""Many models trained at once, each as if it had been trained alone."""

import copy
from dataclasses import replace

import pytest
import torch
from evalign_study.refuted.counted import CountedLoss
from evalign_study.trainers.many import Member, fit_many
from torch import nn

from evalign import AlignedLoss, MetricLoss
from evalign.losses import WMWLoss
from evalign.metrics import resolve
from evalign.training import Settings, TemperatureAnnealing, fit
from tests import tolerances

pytestmark = pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")
torch.manual_seed(0)
X = torch.randn(500, 6, dtype=torch.float64)
Y = (X[:, 0] + X[:, 1] ** 2 > 1).long() + (X[:, 2] > 1.2).long()
ROWS, HELD_OUT = (X[:400], Y[:400]), (X[400:], Y[400:])
SETTINGS = Settings(epochs=8, batch_size=64, patience=3)

CE, F1, RUNNING = (
    nn.CrossEntropyLoss(),
    MetricLoss("f1_macro"),
    MetricLoss("f1_macro", momentum=0.1),
)
COOLING = {"rate": 0.8, "patience": 2}
MEMBERS = {
    "cross-entropy": Member(CE, 1e-2, 0),
    "slow": Member(CE, 1e-3, 1),
    "cooled": Member(F1, 1e-2, 2, annealing=COOLING),
    "constant": Member(F1, 3e-3, 3),
    "mcc": Member(MetricLoss("matthews_corrcoef"), 1e-2, 0),
    "running": Member(RUNNING, 1e-2, 5),
    "running, cooled": Member(RUNNING, 1e-3, 6, annealing=COOLING),
    "counted": Member(CountedLoss("f1_macro", [3, 2, 1]), 1e-2, 7),
    "counted, rarer": Member(CountedLoss("f1_macro", [9, 2, 1]), 1e-2, 7),  # alike but for buffers
    "aligned": Member(AlignedLoss("f1_macro"), 1e-2, 7),
    "aligned, of a matrix": Member(AlignedLoss("matthews_corrcoef"), 1e-2, 7),
    "running, slower": Member(MetricLoss("f1_macro", momentum=0.5), 1e-2, 5),
}


def network(dropout=0.0):
    layers = nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3)
    return nn.Sequential(*layers).double()


def alone(member, settings, metric="f1_macro", greater=True):
    torch.manual_seed(member.seed)
    model, loss = network(), copy.deepcopy(member.loss)
    own = replace(settings, learning_rate=member.learning_rate, seed=member.seed)
    annealing = None
    if member.annealing is not None:
        annealing = TemperatureAnnealing(loss, greater_is_better=greater, **member.annealing)
    history = fit(
        model, loss, *ROWS, validation=HELD_OUT, metric=metric, settings=own, annealing=annealing
    )
    return model.state_dict(), history


@pytest.fixture(scope="module")
def together():
    members = list(MEMBERS.values())
    found = fit_many(
        network, members, *ROWS, validation=HELD_OUT, metric="f1_macro", settings=SETTINGS
    )
    return dict(zip(MEMBERS, found, strict=True))


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_as_if_trained_alone(together, name):
    weights, history = alone(MEMBERS[name], SETTINGS)
    trained = together[name]
    assert [r["best"] for r in trained.history] == [r["best"] for r in history]
    for key, value in weights.items():
        torch.testing.assert_close(trained.weights[key], value, rtol=0, atol=tolerances.STACKED)
    for key in ("temperature", "loss", "validation_loss", "validation_metric"):
        for mine, theirs in zip(trained.history, history, strict=True):
            assert mine[key] == pytest.approx(theirs[key], abs=tolerances.STACKED)


@pytest.mark.parametrize("ema_decay", [pytest.param(None, marks=pytest.mark.slow), 0.9])
def test_offsets_that_change_are_those_of_the_best_epoch(ema_decay):
    settings = replace(SETTINGS, ema_decay=ema_decay)
    rows = {"validation": HELD_OUT, "metric": "f1_macro", "settings": settings}
    member, other = MEMBERS["aligned"], MEMBERS["counted"]
    trained, plain = fit_many(network, [member, other], *ROWS, **rows)
    assert plain.offsets == {}
    assert trained.offsets.keys() == trained.best.keys()
    last = max(r["epoch"] for r in trained.history if r["best"])
    loss, averaged = copy.deepcopy(member.loss), torch.zeros(3).double()
    step, seen = loss.forward, []

    def note(*batch):
        value = step(*batch)
        if loss.learns():
            averaged.lerp_(loss.offsets, 1 - settings.decay(len(seen)))
            seen.append(averaged.clone())
        return value

    loss.forward = note
    torch.manual_seed(member.seed)
    alone = replace(settings, learning_rate=member.learning_rate, seed=member.seed)
    fit(network(), loss, *ROWS, **rows | {"settings": alone})
    expected = seen[7 * last - 1].float()  # an epoch has seven batches
    torch.testing.assert_close(trained.offsets["metric"], expected)


def test_averages_of_weights_are_as_if_alone():
    """The stack is narrowed, as one member ends early."""
    settings = replace(SETTINGS, ema_decay=0.9, patience=2)
    members = [MEMBERS[name] for name in ("cross-entropy", "slow", "counted", "aligned")]
    rows = {"validation": HELD_OUT, "metric": "f1_macro"}
    found = fit_many(network, members, *ROWS, settings=settings, **rows)
    assert len({len(trained.history) for trained in found}) > 1
    for member, trained in zip(members, found, strict=True):
        weights, history = alone(member, settings)
        assert [r["best"] for r in trained.history] == [r["best"] for r in history]
        for key, value in weights.items():
            torch.testing.assert_close(trained.weights[key], value, rtol=0, atol=tolerances.STACKED)


@pytest.mark.parametrize("watch", ["loss", "metric"])
def test_a_cost_or_the_loss_is_made_small(watch):
    settings = replace(SETTINGS, watch=watch, epochs=6, schedule="constant", clip_norm=None)
    cost = resolve("f1_macro") if watch == "loss" else _error
    (trained,) = fit_many(
        network, [MEMBERS["cooled"]], *ROWS, validation=HELD_OUT, metric=cost, settings=settings
    )
    weights, history = alone(MEMBERS["cooled"], settings, metric=cost, greater=False)
    assert len(trained.history) == len(history)
    for key, value in weights.items():
        torch.testing.assert_close(trained.weights[key], value, rtol=0, atol=tolerances.STACKED)


def _error(confusion):
    return 1 - confusion.tp.sum() / confusion.total


_error.greater_is_better = False


def test_dropout_is_each_members_own():
    members = [Member(CE, 1e-2, 0, dropout=p) for p in (0.0, 0.0, 0.9)]
    none, same, much = fit_many(
        lambda: network(0.5),
        members,
        *ROWS,
        validation=HELD_OUT,
        metric="f1_macro",
        settings=replace(SETTINGS, epochs=3),
    )
    assert torch.equal(none.weights["0.weight"], same.weights["0.weight"])
    assert not torch.allclose(none.weights["0.weight"], much.weights["0.weight"])
    assert much.history[0]["loss"] > none.history[0]["loss"]


def test_equal_calls_are_equal_to_the_bit_and_leave_the_random_numbers_alone():
    def trained(seed):
        members = [Member(CE, 1e-2, seed, dropout=p) for p in (0.25, 0.5)]
        rows = {"validation": HELD_OUT, "metric": "f1_macro"}
        return fit_many(lambda: network(0.5), members, *ROWS, **rows, settings=settings)

    settings = replace(SETTINGS, epochs=3)
    before = torch.random.get_rng_state()
    first = trained(3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(7)  # what ran before in the process
    again, other = trained(3), trained(4)
    for one, two, three in zip(first, again, other, strict=True):
        assert [epoch["loss"] for epoch in one.history] == [epoch["loss"] for epoch in two.history]
        assert all(torch.equal(w, two.weights[key]) for key, w in one.weights.items())
        assert one.history[-1]["loss"] != three.history[-1]["loss"]


def test_other_criteria_keep_their_best_epochs():
    """Each is as if it had been watched, as without patience no criterion ends a training."""
    members = [MEMBERS["cross-entropy"], MEMBERS["mcc"]]
    settings = replace(SETTINGS, epochs=8, patience=None)

    def trained(metric, watch="metric", **more):
        own = replace(settings, watch=watch)
        rows = {"validation": HELD_OUT, "metric": metric, "settings": own}
        return fit_many(network, members, *ROWS, **rows, **more)

    also = {"accuracy": resolve("accuracy"), "error": _error}
    found = trained("f1_macro", also=also)
    watched = {
        "loss": trained("f1_macro", watch="loss"),
        "metric": found,
        "accuracy": trained("accuracy"),
        "error": trained(_error),
    }
    for i, one in enumerate(found):
        assert one.best.keys() == watched.keys()
        for name, many in watched.items():
            for key, value in many[i].weights.items():
                assert torch.equal(one.best[name][key], value)
            record = [epoch for epoch in one.history if name in epoch["best_of"]][-1]
            wanted = [epoch for epoch in many[i].history if epoch["best"]][-1]
            assert record["epoch"] == wanted["epoch"]
            values = {"loss": record["validation_loss"], "metric": record["validation_metric"]}
            values |= record["also"]
            assert values[name] == wanted["watched"]
    assert len({one.history[-1]["epoch"] for one in found}) == 1


def test_a_member_that_diverges_at_once_has_no_best_epoch():
    members = [Member(CE, 1e-2), Member(CE, 1e200)]
    rows = {"validation": HELD_OUT, "metric": "f1_macro"}
    settings = replace(SETTINGS, epochs=3, watch="loss", clip_norm=None)
    also = {"accuracy": resolve("accuracy")}
    sane, wild = fit_many(network, members, *ROWS, **rows, settings=settings, also=also)
    assert wild.weights == wild.best["loss"] == wild.best["metric"] == wild.best["accuracy"] == {}
    assert len(wild.history) == 1
    assert len(sane.history) == 3


def test_a_loss_over_pairs_is_validated_in_batches():
    member, two = Member(WMWLoss(task="binary"), 1e-2), (Y > 0).long()
    settings = replace(SETTINGS, epochs=2, learning_rate=1e-2)
    rows = {"validation": (X[400:], two[400:]), "metric": "f1", "settings": settings}

    def pair():
        return nn.Linear(6, 2).double()

    (trained,) = fit_many(pair, [member], X[:400], two[:400], **rows)
    torch.manual_seed(member.seed)
    history = fit(pair(), member.loss, X[:400], two[:400], **rows)
    for mine, theirs in zip(trained.history, history, strict=True):
        assert mine["validation_loss"] == pytest.approx(
            theirs["validation_loss"], abs=tolerances.STACKED
        )
