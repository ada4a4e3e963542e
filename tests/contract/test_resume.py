"""A run resumes with the loss that it began with: other arguments or buffers are refused."""

from functools import partial

import pytest
import torch
from torch import nn

from evalign import losses
from evalign.store.files import StoreError
from evalign.training import Settings, TemperatureAnnealing, fit
from tests.contract.cases import data

# A loss, the arguments of the first run, and other values with what is then said. That every other
# argument of every loss is told apart is shown in `test_settings`.
CASES = {
    "MetricLoss": (
        partial(losses.MetricLoss, metric="f1_macro"),
        {
            "metric": ("f2_macro", "loss.metric was .*beta=1.0.* and is now .*beta=2.0"),
            "threshold": ([0.5, 0.5, 0.5], r"loss.threshold was None and is now '\[0.5, "),
            "momentum": (0.1, "loss.momentum was None and is now 0.1"),
        },
    ),
    "AUROCLoss": (
        losses.AUROCLoss,
        {"thresholds": ([0.5], r"loss.thresholds was .*0.9, .* is now .*\[0.5\]")},
    ),
    "AlignedLoss": (
        partial(losses.AlignedLoss, metric="f1_macro", class_shares=[3, 2, 1]),
        {
            "ignore_index": (-1, "loss.ignore_index was -100 and is now -1"),
            "metric": ("f2_macro", "loss.metric was .*beta=1.0.* now .*beta=2.0"),
            "class_shares": ([9, 2, 1], r"loss.class_shares was '\[3.*\]' and is now '\[9.*\]'"),
        },
    ),
}


def train(folder, loss, *, resume, metric="accuracy", epochs=2, **more):
    """Train for two epochs, which leaves a checkpoint to resume from."""
    is_binary = getattr(loss, "task", None) == "binary"
    X = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
    y = data("binary" if is_binary else "multiclass")[1].long()
    network = nn.Linear(4, 2 if is_binary else 3)
    return fit(
        network,
        loss,
        X,
        y,
        validation=(X, y),
        metric=metric,
        settings=Settings(epochs=epochs, batch_size=24),
        checkpoint=folder,
        resume=resume,
        **more,
    )


pytestmark = pytest.mark.filterwarnings("ignore::evalign.training.TrainingWarning")


@pytest.mark.parametrize("name", CASES)
def test_another_argument_or_buffer_is_refused(name, tmp_path):
    """Every buffer that is not in the state dict is changed by hand."""
    (make, changes), folder = CASES[name], tmp_path / "run"
    train(folder, make(), resume=False)
    assert len(train(folder, make(), resume=True)) == 2
    for argument, (value, text) in changes.items():
        with pytest.raises(StoreError, match=f"belongs to another run: {text}"):
            train(folder, make(**{argument: value}), resume=True)
    for name, _ in make().named_buffers():
        changed = make()
        changed.get_buffer(name).mul_(0.5)
        if name in changed.state_dict() and not name.endswith("temperature"):
            assert len(train(folder, changed, resume=True)) == 2
        else:
            said = "temperature" if name.endswith("temperature") else name
            with pytest.raises(StoreError, match=f"run: loss.{said} was .* and is now"):
                train(folder, changed, resume=True)


@pytest.mark.parametrize(
    ("made_with", "changed", "text"),
    [
        ({"momentum": 0.1}, {"momentum": 0.2}, "loss.momentum was 0.1 and is now 0.2"),
        ({}, {"temperature": 0.1}, r"loss.temperature was 0.2 and is now 0.1\. Resume with"),
        ({"threshold": 0.3}, {"threshold": 0.4}, "loss.threshold was '0.3' and is now '0.4'"),
        (
            {"heaviside": "linear"},
            {"heaviside": "sigmoid"},
            "loss.heaviside was 'linear' and is now 'sigmoid'",
        ),
    ],
    ids=["momentum", "temperature", "threshold", "step"],
)
def test_what_a_metric_loss_is_made_with(tmp_path, made_with, changed, text):
    def make(**given):
        return losses.MetricLoss("f1_macro", task="binary", **({"momentum": 0.1} | given))

    train(tmp_path / "run", make(**made_with), resume=False)
    assert len(train(tmp_path / "run", make(**made_with), resume=True)) == 2
    with pytest.raises(StoreError, match=text):
        train(tmp_path / "run", make(**changed), resume=True)


def test_the_very_loss_whose_state_has_moved_is_accepted(tmp_path):
    """The temperature has cooled and the running statistics are no longer empty."""
    loss = losses.MetricLoss("f1_macro", momentum=0.1)
    annealing = TemperatureAnnealing(loss, patience=1, coolings=100)

    def stop(record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    common = {"epochs": 6, "annealing": annealing}
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", loss, resume=False, on_epoch=stop, **common)
    assert loss.temperature < 0.2
    assert loss.running.seen > 0
    assert len(train(tmp_path / "run", loss, resume=True, **common)) == 6


def test_another_annealing_is_refused(tmp_path):
    def go(resume, **made_with):
        loss = losses.MetricLoss("f1_macro")
        annealing = TemperatureAnnealing(loss, **made_with) if made_with else None
        return train(tmp_path / "run", loss, resume=resume, annealing=annealing)

    go(False, rate=0.5, start=0.3)
    assert len(go(True, rate=0.5, start=0.3)) == 2
    with pytest.raises(StoreError, match=r"annealing.rate was 0.5 and is now 0.6"):
        go(True, rate=0.6, start=0.3)
    with pytest.raises(StoreError, match="annealing was 'TemperatureAnnealing' and is now N"):
        go(True)


def test_another_metric_is_refused(tmp_path):
    def share(confusion):
        return confusion.tp.sum() / confusion.total

    loss = nn.CrossEntropyLoss()
    train(tmp_path / "run", loss, metric=share, resume=False)
    assert len(train(tmp_path / "run", loss, metric=share, resume=True)) == 2
    text = r"metric was 'FunctionMetric\(.*share.*\)' and is now 'Accuracy\("
    with pytest.raises(StoreError, match=text):
        train(tmp_path / "run", loss, metric="accuracy", resume=True)


@pytest.mark.parametrize("name", ["weight", "label_smoothing", "reduction"])
def test_torchs_own_loss(tmp_path, name):
    """Its weights are in the state dict, but they are settings: it never changes them."""
    changes = {"weight": torch.tensor([1.0, 2, 3]), "label_smoothing": 0.1, "reduction": "sum"}
    train(tmp_path / "run", nn.CrossEntropyLoss(), resume=False)
    assert len(train(tmp_path / "run", nn.CrossEntropyLoss(), resume=True)) == 2
    with pytest.raises(StoreError, match=f"run: loss.{name} was .* and is now"):
        train(tmp_path / "run", nn.CrossEntropyLoss(**{name: changes[name]}), resume=True)


def test_a_loss_that_is_a_function(tmp_path):
    scaled = partial(nn.functional.cross_entropy, label_smoothing=0.1)
    train(tmp_path / "run", scaled, resume=False)
    assert len(train(tmp_path / "run", scaled, resume=True)) == 2
    other = partial(nn.functional.cross_entropy, label_smoothing=0.2)
    with pytest.raises(StoreError, match=r"loss was .*smoothing=0.1.* and is now .*=0.2"):
        train(tmp_path / "run", other, resume=True)
