"""A run resumes with the loss that it began with: other arguments or buffers are refused."""

import inspect
from functools import partial

import pytest
import torch
from torch import nn

from evalign import losses
from evalign.training import CheckpointError, Settings, TemperatureAnnealing, fit
from tests.contract.cases import data


def half_step(p, threshold):
    return torch.where(p > threshold, 0.75, 0.25) + 0 * p


COMMON = {
    "task": ("multiclass", "loss.task was None and is now 'multiclass'"),
    "ignore_index": (-1, "loss.ignore_index was -100 and is now -1"),
    "validate": (True, "loss.validate was False and is now True"),
    "class_dim": (-1, "loss.class_dim was None and is now -1"),
}
BINARY = COMMON | {"task": ("binary", "loss.task was None and is now 'binary'")}
STEP = {"heaviside": (half_step, "loss.heaviside was 'linear' and is now '.*half_step.*'")}
WEIGHT = {"class_weight": ([1, 2, 4], r"loss.class_weight was None and is now '\[1.0, 2.0, 4.0\]'")}
CURVE = {
    "thresholds": (11, "loss.thresholds was 101 and is now 11"),
    "statistics": ("batch", "loss.statistics was 'running' and is now 'batch'"),
}
# For each loss: the arguments of the first run, and each argument changed, with what is then said.
CASES = {
    losses.MetricLoss: (
        {"metric": "f1_macro"},
        {
            **COMMON,
            **STEP,
            "metric": ("f2_macro", "loss.metric was .*beta=1.0.* and is now .*beta=2.0"),
            "threshold": ([0.5, 0.5, 0.5], r"loss.threshold was None and is now '\[0.5, "),
            "zero_division": (float("nan"), "loss.metric was .* and is now .*zero_division=nan"),
            "statistics": ("running", "loss.statistics was 'batch' and is now 'running'"),
            "per_image": (True, "loss.per_image was False and is now True"),
        },
    ),
    losses.AUROCLoss: (
        {},
        {
            **COMMON,
            **STEP,
            "thresholds": ([0.5], r"loss.thresholds was .*0.9, .* is now .*\[0.5\]"),
            "statistics": ("running", "loss.statistics was 'batch' and is now 'running'"),
        },
    ),
    losses.AveragePrecisionLoss: ({}, {**COMMON, **CURVE}),
    losses.WMWLoss: (
        {},
        {
            **BINARY,
            "gamma": (0.4, "loss.gamma was 0.3 and is now 0.4"),
            "p": (3.0, "loss.p was 2.0 and is now 3.0"),
        },
    ),
    losses.SurrogateFBetaLoss: (
        {"positive_rate": 0.3},
        {
            **BINARY,
            "positive_rate": (0.2, "loss.positive_rate was 0.3 and is now 0.2"),
            "beta": (2.0, "loss.beta was 1.0 and is now 2.0"),
            "q": (0.5, "loss.q was 0.0 and is now 0.5"),
            "class_balanced": (False, "loss.class_balanced was True and is now False"),
        },
    ),
    losses.SoftFBetaLoss: (
        {"average": "macro"},
        {
            **COMMON,
            "beta": (2.0, "loss.beta was 1.0 and is now 2.0"),
            "average": ("micro", "loss.average was 'macro' and is now 'micro'"),
        },
    ),
    losses.DiceLoss: (
        {},
        COMMON,
    ),
    losses.LovaszSoftmaxLoss: ({}, COMMON),
    losses.SigmoidF1Loss: (
        {},
        {
            **COMMON,
            "beta": (2.0, "loss.beta was 1.0 and is now 2.0"),
            "eta": (0.5, "loss.eta was 0.0 and is now 0.5"),
        },
    ),
    losses.MAELoss: ({}, {**COMMON, **WEIGHT}),
    losses.FocalLoss: (
        {},
        {**COMMON, **WEIGHT, "gamma": (3.0, "loss.gamma was 2.0 and is now 3.0")},
    ),
    losses.LogitAdjustedLoss: (
        {"class_counts": [3, 2, 1]},
        {
            **COMMON,
            "class_counts": ([4, 2, 1], r"loss.class_counts was '\[3.*\]' and is now '\[4.*\]'"),
            "tau": (0.5, "loss.tau was 1.0 and is now 0.5"),
        },
    ),
    losses.AlignedLoss: (
        {"metric": "f1_macro", "class_counts": [3, 2, 1]},
        {
            **COMMON,
            "metric": ("f2_macro", "loss.metric_loss.metric was .*beta=1.0.* now .*beta=2.0"),
            "class_counts": ([9, 2, 1], r"loss.class_counts was '\[3.*\]' and is now '\[9.*\]'"),
            "class_weight": (None, "loss.class_weight was 'auto' and is now None"),
            "metric_weight": (2.0, "loss.metric_weight was 1.0 and is now 2.0"),
            "label_smoothing": (0.1, "loss.label_smoothing was 0.0 and is now 0.1"),
            "per_image": (True, "loss.metric_loss.per_image was False and is now True"),
            "labels": ([1], r"loss.metric_loss.metric was .* and is now .*labels=\(1,\)"),
        },
    ),
}
EXEMPT = {
    "temperature": "a state: it cools as the run goes on, and the checkpoint brings it back",
    "ranks": "makes no difference in one process",
    "momentum": "has no effect without running statistics; with them there is a test below",
}


def train(folder, loss, *, resume, metric="accuracy", epochs=2, **more):
    """Train for two epochs, which leaves a checkpoint to resume from."""
    two = losses.WMWLoss | losses.SurrogateFBetaLoss
    is_binary = isinstance(loss, two) or getattr(loss, "task", None) == "binary"
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


def test_every_argument_of_every_loss_is_tried():
    named = {loss for loss in vars(losses).values() if isinstance(loss, type)}
    assert named == CASES.keys()
    for loss, (_, changes) in CASES.items():
        arguments = inspect.signature(loss).parameters.keys() - {"self"}
        assert arguments - EXEMPT.keys() == changes.keys(), loss


@pytest.fixture(scope="module", params=CASES, ids=lambda loss: loss.__name__)
def begun(request, tmp_path_factory):
    """Return a loss, the arguments it was made with, and the checkpoint of its run."""
    given, changes = CASES[request.param]
    folder = tmp_path_factory.mktemp("begun") / "run"
    train(folder, request.param(**given), resume=False)
    return request.param, given, changes, folder


def test_another_argument_is_refused(begun):
    loss, given, changes, folder = begun
    for argument, (value, text) in changes.items():
        with pytest.raises(CheckpointError, match=f"belongs to another run: {text}"):
            train(folder, loss(**given | {argument: value}), resume=True)


def test_the_same_arguments_are_accepted(begun):
    loss, given, _, folder = begun
    assert len(train(folder, loss(**given), resume=True)) == 2


def test_another_buffer_is_refused(begun):
    """Every buffer that is not in the state dict, changed by hand."""
    loss, given, _, folder = begun
    names = [name for name, _ in loss(**given).named_buffers()]
    for name in names:
        changed = loss(**given)
        changed.get_buffer(name).mul_(0.5)
        if name in changed.state_dict():
            assert len(train(folder, changed, resume=True)) == 2
        else:
            with pytest.raises(CheckpointError, match=f"run: loss.{name} was .* and is now"):
                train(folder, changed, resume=True)


@pytest.mark.parametrize(
    ("made_with", "changed", "text"),
    [
        ({"momentum": 0.1}, {"momentum": 0.2}, "loss.momentum was 0.1 and is now 0.2"),
        ({"threshold": 0.3}, {"threshold": 0.4}, "loss.threshold was '0.3' and is now '0.4'"),
        (
            {"heaviside": "linear"},
            {"heaviside": "sigmoid"},
            "loss.heaviside was 'linear' and is now 'sigmoid'",
        ),
    ],
    ids=["momentum", "threshold", "step"],
)
def test_what_a_metric_loss_is_made_with(tmp_path, made_with, changed, text):
    def make(**given):
        return losses.MetricLoss("f1_macro", statistics="running", task="binary", **given)

    train(tmp_path / "run", make(**made_with), resume=False)
    assert len(train(tmp_path / "run", make(**made_with), resume=True)) == 2
    with pytest.raises(CheckpointError, match=text):
        train(tmp_path / "run", make(**changed), resume=True)


def test_the_very_loss_whose_state_has_moved_is_accepted(tmp_path):
    """The temperature has cooled and the running statistics are no longer empty."""
    loss = losses.MetricLoss("f1_macro", statistics="running")
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
    with pytest.raises(CheckpointError, match=r"annealing.rate was 0.5 and is now 0.6"):
        go(True, rate=0.6, start=0.3)
    with pytest.raises(CheckpointError, match="annealing was 'TemperatureAnnealing' and is now N"):
        go(True)


def test_another_metric_is_refused(tmp_path):
    def share(confusion):
        return confusion.tp.sum() / confusion.total

    loss = nn.CrossEntropyLoss()
    train(tmp_path / "run", loss, metric=share, resume=False)
    assert len(train(tmp_path / "run", loss, metric=share, resume=True)) == 2
    text = r"metric was 'FunctionMetric\(.*share.*\)' and is now 'Accuracy\("
    with pytest.raises(CheckpointError, match=text):
        train(tmp_path / "run", loss, metric="accuracy", resume=True)


@pytest.mark.parametrize("name", ["weight", "label_smoothing", "reduction"])
def test_torchs_own_loss(tmp_path, name):
    """Its weights are in the state dict, but they are settings: it never changes them."""
    changes = {"weight": torch.tensor([1.0, 2, 3]), "label_smoothing": 0.1, "reduction": "sum"}
    train(tmp_path / "run", nn.CrossEntropyLoss(), resume=False)
    assert len(train(tmp_path / "run", nn.CrossEntropyLoss(), resume=True)) == 2
    with pytest.raises(CheckpointError, match=f"run: loss.{name} was .* and is now"):
        train(tmp_path / "run", nn.CrossEntropyLoss(**{name: changes[name]}), resume=True)


def test_a_loss_that_is_a_function(tmp_path):
    scaled = partial(nn.functional.cross_entropy, label_smoothing=0.1)
    train(tmp_path / "run", scaled, resume=False)
    assert len(train(tmp_path / "run", scaled, resume=True)) == 2
    other = partial(nn.functional.cross_entropy, label_smoothing=0.2)
    with pytest.raises(CheckpointError, match=r"loss was .*smoothing=0.1.* and is now .*=0.2"):
        train(tmp_path / "run", other, resume=True)
