"""Every loss shows its settings, and a resumed run recognises the loss by them."""

import inspect

import pytest

from evalign import losses, metrics
from evalign.losses.base import Loss
from evalign.training.configuration import configuration

COMMON = {"task": "binary", "ignore_index": 255, "class_dim": -1}
WEIGHTS = [1.0, 2.0]
CURVE = {"thresholds": 11, "momentum": 0.5, "ranks": "own"}


def hard(p, threshold):
    return (p > threshold).to(p.dtype)


# For every loss, the arguments it needs, and another value for each argument.
SETTINGS = {
    "AUROCLoss": (
        {},
        {
            "thresholds": [0.2, 0.5],
            "temperature": 0.1,
            "heaviside": "sigmoid",
            "momentum": 0.5,
            "ranks": "own",
        },
    ),
    "AlignedLoss": (
        {"metric": "f1_macro", "class_shares": [3, 1]},
        {
            "metric": "f1",
            "class_shares": [4, 1],
            "metric_weight": 2.0,
            "temperature": 0.1,
            "momentum": 0.5,
            "class_weight": WEIGHTS,
            "label_smoothing": 0.1,
            "per_image": True,
            "ranks": "own",
        },
    ),
    "AveragePrecisionLoss": ({}, CURVE),
    "DiceLoss": ({}, {"ranks": "own"}),
    "FocalLoss": ({}, {"gamma": 1.0, "class_weight": WEIGHTS}),
    "LogitAdjustedLoss": ({"class_counts": [3, 1]}, {"class_counts": [4, 1], "tau": 0.5}),
    "LovaszSoftmaxLoss": ({}, {}),
    "MAELoss": ({}, {"class_weight": WEIGHTS}),
    "MetricLoss": (
        {"metric": "f1"},
        {
            "metric": metrics.FBeta(beta=2.0),
            "temperature": 0.1,
            "heaviside": hard,
            "threshold": [0.3, 0.4],
            "momentum": 0.5,
            "per_image": True,
            "ranks": "own",
        },
    ),
    "SigmoidF1Loss": ({}, {"beta": 2.0, "eta": 0.5}),
    "SoftFBetaLoss": ({}, {"beta": 2.0, "average": "macro"}),
    "SurrogateFBetaLoss": (
        {"positive_rate": 0.3},
        {"positive_rate": 0.4, "beta": 2.0, "q": 0.5, "class_balanced": False},
    ),
    "WMWLoss": ({}, {"gamma": 0.5, "p": 3.0}),
}
# A resumed run does not compare them: the temperature is a state, and the others make no difference
# in one process and without running statistics.
STATES = ("temperature", "ranks", "momentum")
CHANGES = [
    (name, argument) for name, (_, other) in SETTINGS.items() for argument in [*other, *COMMON]
]


def make(name, **changed):
    needed, _ = SETTINGS[name]
    return getattr(losses, name)(**(needed | changed))


def test_every_argument_of_every_loss_is_listed():
    assert [*SETTINGS] == [name for name in losses.__all__ if name.endswith("Loss")]
    for name, (_, other) in SETTINGS.items():
        found = {*inspect.signature(getattr(losses, name)).parameters}
        assert found in ({*other, *COMMON}, {*other, "rows"}, COMMON.keys())


@pytest.mark.parametrize(("name", "argument"), CHANGES)
def test_another_argument_is_another_repr(name, argument):
    changed = {argument: (SETTINGS[name][1] | COMMON)[argument]}
    assert repr(make(name)) == repr(make(name))
    assert repr(make(name)) != repr(make(name, **changed))
    assert configuration("loss", make(name)) == configuration("loss", make(name))
    if argument not in STATES:
        assert configuration("loss", make(name)) != configuration("loss", make(name, **changed))


@pytest.mark.parametrize("name", SETTINGS)
def test_another_buffer_is_another_configuration(name):
    """This is about buffers that a state dict leaves out; it carries the others itself."""
    tensors = {"class_weight", "threshold"} & SETTINGS[name][1].keys()
    loss = make(name, **{argument: SETTINGS[name][1][argument] for argument in tensors})
    for key, buffer in loss.named_buffers():
        if key not in loss.state_dict():
            before = configuration("loss", loss)
            buffer[-1] *= 0.5
            assert configuration("loss", loss) != before, key


def test_arguments_are_shown_in_the_order_of_the_constructor():
    shown = repr(losses.FocalLoss(1.5, class_weight=WEIGHTS, task="binary"))
    assert shown == (
        "FocalLoss(gamma=1.5, class_weight=tensor([1., 2.], dtype=torch.float64), task='binary', "
        "ignore_index=-100, class_dim=None)"
    )


def test_settings_of_a_loss_on_the_meta_device_are_shown():
    assert "temperature=" in repr(losses.MetricLoss("f1").to("meta"))


@pytest.mark.parametrize("name", SETTINGS)
def test_losses_are_flat(name):
    """A reader finds a loss in its own file and that of `Loss`; AlignedLoss is a MetricLoss."""
    loss = getattr(losses, name)
    above = [kind for kind in loss.__mro__[1:] if issubclass(kind, Loss)]
    above.remove(losses.MetricLoss) if name == "AlignedLoss" else None
    assert {kind.__module__ for kind in above} <= {Loss.__module__, loss.__module__}
