"""The promises of the fit loop, on networks that train fast."""

import re
from functools import partial
from itertools import chain

import pytest
import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from evalign import AlignedLoss, MetricLoss, metrics
from evalign.losses import FocalLoss, WMWLoss
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.loop import fit
from evalign.training.settings import Settings
from evalign.training.validation import validate
from tests import tolerances
from tests.unit.training.runs import averaged, bytes_of, mlp, rows, settings, steps_noted


def run(network=None, loss=None, data=None, **changes):
    network, loss = network or mlp(), loss or nn.CrossEntropyLoss()
    given = {"validation": rows(100, seed=1), "metric": "f1_macro"}
    given["settings"] = settings(ema_decay=None, epochs=5)
    history = fit(network, loss, *(data or rows()), **{**given, **changes})
    return network, history


def test_learns_and_records():
    history = run(settings=settings(epochs=40, ema_decay=None))[1]
    assert [record["epoch"] for record in history] == list(range(1, 41))
    assert history[-1]["validation_metric"] > 0.6 > history[0]["validation_metric"]
    assert history[-1]["loss"] < history[0]["loss"]
    keys = "epoch seconds learning_rate temperature loss gradient_norm validation_loss"
    keys += " validation_metric collapsed best warnings"
    assert list(history[0]) == keys.split()
    plain = (int, float, bool, list, type(None))
    assert all(type(value) in plain for record in history for value in record.values())


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_returns_the_best_epoch(ema_decay):
    network, history = run(settings=settings(ema_decay=ema_decay, learning_rate=0.03, epochs=15))
    X, y = rows(100, seed=1)
    best = [record["validation_metric"] for record in history if record["best"]][-1]
    assert best == max(record["validation_metric"] for record in history)
    assert not history[-1]["best"]  # or the test would show nothing
    assert not network.training
    with torch.no_grad():
        score = f1_score(y, network(X).argmax(1), average="macro")
    assert score == pytest.approx(best)


def test_validation_loss_and_metric_are_those_of_all_rows():
    X, y = rows(100, seed=1)
    loss = MetricLoss("f1_macro")
    network, history = run(loss=loss, settings=settings(ema_decay=None, epochs=1, batch_size=40))
    with torch.no_grad():
        expected = loss(network(X), y).item()
    assert history[0]["validation_loss"] == pytest.approx(expected, rel=1e-5)


def test_only_the_seed_decides_and_the_callers_randomness_is_left_alone():
    results = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        expected = torch.rand(3)
        torch.manual_seed(seed)
        results.append(bytes_of(run()[0]))
        assert torch.equal(torch.rand(3), expected)
    other = run(settings=settings(ema_decay=None, epochs=5, seed=4))[0]
    assert results[0] == results[1] != bytes_of(other)


@pytest.mark.parametrize("watch", ["metric", "loss"])
def test_a_cost_is_minimised(watch):
    cost = metrics.ExpectedCost([[0, 1, 1], [1, 0, 1], [5, 5, 0]])
    how = settings(ema_decay=None, learning_rate=0.03, epochs=15, watch=watch)
    history = run(metric=cost, settings=how)[1]
    best = [record for record in history if record["best"]][-1]
    value = f"validation_{watch}"
    assert best[value] == min(record[value] for record in history)


def test_annealing_cools_and_ends_the_run():
    loss = MetricLoss("f1_macro")
    annealing = TemperatureAnnealing(loss, rate=0.5, patience=1, coolings=1)
    history = run(loss=loss, annealing=annealing, settings=settings(epochs=200))[1]
    assert annealing.finished
    assert len(history) < 200
    assert history[0]["temperature"] == 0.2
    assert run()[1][0]["temperature"] is None
    assert history[-1]["temperature"] == annealing.temperature < 0.2


def test_annealing_of_the_other_direction_is_refused():
    loss = MetricLoss("f1_macro")
    annealing = TemperatureAnnealing(loss, greater_is_better=False)
    with pytest.raises(ValueError, match="greater_is_better of annealing must be True"):
        run(loss=loss, annealing=annealing)


def test_sample_weight_zero_is_a_row_left_out():
    """Rows whose label is wrong and whose weight is 0 do not teach; with weight 1 they do."""
    X, y = rows()
    wrong = torch.cat([y, (y + 1) % 3])
    twice = torch.cat([X, X])
    scores = []
    for value in (0.0, 1.0):
        weight = torch.cat([torch.ones(300), torch.full((300,), value)])
        history = run(
            loss=FocalLoss(0.0),
            data=(twice, wrong),
            sample_weight=weight,
            settings=settings(ema_decay=None, epochs=20),
        )[1]
        scores.append(max(record["validation_metric"] for record in history))
    assert scores[0] > scores[1] + 0.1


def test_validation_weights_count():
    X, y = rows(100, seed=1)
    weight = (y != 2).float()
    with_weight = run(loss=FocalLoss(), validation=(X, y, weight))[1]
    without = run(loss=FocalLoss(), validation=(X[y != 2], y[y != 2]))[1]
    for key in ("validation_loss", "validation_metric"):
        assert with_weight[-1][key] == pytest.approx(without[-1][key], rel=1e-4)


@pytest.mark.parametrize("column", [True, False])
def test_binary_logits(column):
    X, y = rows(classes=2)
    network = mlp(1) if column else nn.Sequential(mlp(1), nn.Flatten(0))
    target = y.float().unsqueeze(1) if column else y.float()
    validation = (X[:100], target[:100])
    history = run(network, MetricLoss("f1"), (X, target), validation=validation, metric="f1")[1]
    network.eval()
    with torch.no_grad():
        predicted = network(X[:100]).flatten() > 0
    assert f1_score(y[:100], predicted) == pytest.approx(
        [record["validation_metric"] for record in history if record["best"]][-1]
    )


class Twice(nn.Module):
    """A loss around a loss."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, logits, target):
        return 2 * self.loss(logits, target)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        Twice(nn.CrossEntropyLoss()),
        F.cross_entropy,
        partial(F.cross_entropy, label_smoothing=0.1),
    ],
    ids=["module", "part", "function", "partial"],
)
def test_cross_entropy_has_one_class_a_row_however_its_target_is_written(loss, smoothing):
    (X, y), network = rows(), mlp().eval()
    form = (1 - smoothing) * torch.eye(3) + smoothing / 3
    given = network, loss, metrics.resolve("f1_macro")
    by_row, by_index = (validate(*given, (X, target), 64) for target in (form[y], y))
    assert by_row.metric == by_index.metric


def test_a_loss_over_pairs_is_validated_in_batches():
    (X, y), network, loss = rows(classes=2), mlp(1).eval(), WMWLoss()
    found = validate(network, loss, metrics.resolve("f1"), (X, y), 64).loss
    with torch.no_grad():
        parts = [loss(network(x), t) for x, t in zip(X.split(64), y.split(64), strict=True)]
        whole = loss(network(X), y)
    torch.testing.assert_close(found, torch.stack(parts).mean())
    assert abs(found - whole) > 1e-4  # pairs of rows in different batches do not count


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision(precision):
    half = settings(ema_decay=None, epochs=15, precision=precision)
    history = run(loss=MetricLoss("f1_macro"), settings=half)[1]
    full = run(loss=MetricLoss("f1_macro"), settings=settings(ema_decay=None, epochs=15))[1]
    assert history[-1]["validation_metric"] == pytest.approx(full[-1]["validation_metric"], abs=0.1)
    assert history[0]["loss"] != full[0]["loss"]


@pytest.mark.parametrize("clip", [0.5, None])
def test_clipping_bounds_the_gradient(clip):
    class Steep(nn.CrossEntropyLoss):
        def forward(self, logits, target):
            return 1e4 * super().forward(logits, target)

    norms = []

    def note(optimizer, *_):
        gradients = [p.grad for p in optimizer.param_groups[0]["params"]]
        norms.append(nn.utils.get_total_norm(gradients).item())

    handle = register_optimizer_step_post_hook(note)
    how = settings(ema_decay=None, clip_norm=clip, epochs=3)  # too few to give advice
    history = run(nn.Linear(6, 3), Steep(), settings=how)[1]
    handle.remove()
    assert history[0]["gradient_norm"] > 100
    assert (max(norms) <= 0.5 + 1e-5) == (clip is not None)


def test_the_learning_rate_rises_and_falls():
    rate = Settings(learning_rate=0.1, warmup=0.1).rate
    rates = [rate(step, 100) for step in range(100)]
    assert rates.index(max(rates)) == 9
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] < 1e-4
    assert rate(0, 17) == pytest.approx(0.05)  # 1.7 steps are two
    constant = Settings(learning_rate=0.1, warmup=0, schedule="constant").rate
    assert {constant(step, 100) for step in range(100)} == {0.1}


def test_every_row_is_seen_once_per_epoch_in_nearly_equal_batches():
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            if self.training:
                seen.append(x[:, 0].tolist())
            return super().forward(x)

    X, y = rows(129)
    run(Spy(6, 3), data=(X, y), settings=settings(ema_decay=None, epochs=2))
    assert [len(batch) for batch in seen] == [43] * 6
    epochs = [list(chain(*seen[:3])), list(chain(*seen[3:]))]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(X[:, 0].tolist())
    assert epochs[0] != epochs[1]


def test_averaging_follows_the_weights():
    """The average over 30 steps, half of them in its warm-up; buffers are the network's own."""
    network, buffers = mlp().double(), {}
    data, validation = ((X.double(), y) for X, y in (rows(), rows(100, seed=1)))

    def note(module, *_):
        if module.training:
            buffers.update({name: value.clone() for name, value in module.named_buffers()})

    network.register_forward_hook(note)
    how = settings(ema_decay=0.6, epochs=1, batch_size=10)
    with steps_noted() as steps:
        run(network, data=data, validation=validation, settings=how)
    assert len(steps) == 30
    for mine, expected in zip(network.parameters(), averaged(steps, 0.6), strict=True):
        torch.testing.assert_close(mine.detach(), expected, rtol=0, atol=tolerances.SAME)
    for name, value in network.named_buffers():
        assert torch.equal(value, buffers[name]), name


@pytest.mark.parametrize("ema_decay", [None, 0.6])
def test_offsets_are_averaged_and_kept_with_the_weights(ema_decay):
    steps, validated = [], []  # in training mode, and in eval mode

    class Spy(AlignedLoss):
        def forward(self, logits, target):
            assert self.training == logits.requires_grad
            if not self.training:
                validated.append((len(steps), self.offsets.clone()))
            elif steps:  # each step begins with the offsets that the step before has left
                assert torch.equal(self.offsets, steps[-1][0])
            value = super().forward(logits, target)
            if self.training:
                steps.append([self.offsets.clone()])
            return value

    network, loss = mlp(), Spy("f1_macro")
    how = settings(ema_decay=ema_decay, epochs=15, learning_rate=0.03)
    history = run(network, loss, settings=how)[1]
    for done, found in validated:
        (expected,) = averaged(steps[:done], ema_decay or 0.0)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerances.SAME)
    best = max(record["epoch"] for record in history if record["best"])
    assert best < 15
    assert torch.equal(loss.offsets, validated[best - 1][1])
    torch.testing.assert_close(network.offsets, loss.offsets.float(), rtol=0, atol=0)
    assert loss.training


def test_nothing_is_read_from_the_device_within_an_epoch(monkeypatch):
    """A read waits for the GPU; there may be a few per epoch, none per batch."""
    counts = []
    for batch_size in (100, 10):
        reads = 0
        original = torch.Tensor.item

        def item(self, original=original):
            nonlocal reads
            reads += 1
            return original(self)

        monkeypatch.setattr(torch.Tensor, "item", item)
        run(settings=settings(ema_decay=None, epochs=2, batch_size=batch_size))
        monkeypatch.setattr(torch.Tensor, "item", original)
        counts.append(reads)
    assert counts[0] == counts[1]


X, Y = rows(20)
NETWORK, CE = mlp(), nn.CrossEntropyLoss()
OK = {"validation": (X, Y), "metric": "f1_macro"}

WRONG = {
    "X of fit must come with y, as tensors. Got ['Tensor', 'ndarray']. Use torch": lambda: fit(
        NETWORK, CE, X, Y.numpy(), **OK
    ),
    "have rows, and a target for each. Got [20, 19]": lambda: fit(NETWORK, CE, X, Y[:-1], **OK),
    "validation of fit must come with y": lambda: fit(
        NETWORK, CE, X, Y, validation=(X,), metric="f1_macro"
    ),
    "have parameters to train. Got none": lambda: fit(nn.Flatten(), CE, X, Y, **OK),
    "ema_decay of Settings must lie between 0 and 1": lambda: Settings(ema_decay=1.0),
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_input(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        WRONG[text]()
