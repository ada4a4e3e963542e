"""On a GPU, a step that is compiled and captured as a CUDA graph trains as a plain one does."""

import pytest
import torch
from evalign_study.records.run import LOSS, Run
from evalign_study.trainers import images
from evalign_study.trainers.images import train_image

from study.tests.trainers import made_data
from tests import tolerances

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

RUN = Run(
    dataset="cifar10_frog",
    variant="paper",
    method="cross_entropy",
    network="tiny_darknet",
    batch_size=32,
    learning_rate=0.001,
    epochs=3,
    patience=50,
)


@pytest.fixture(autouse=True)
def made(monkeypatch):
    images._stored.cache_clear()
    monkeypatch.setattr(images, "load", lambda name: made_data.images(name, rows=400))
    yield
    images._stored.cache_clear()


def losses(monkeypatch, run):
    """Return the validation loss of every epoch."""
    found = []
    loss_of = images._PaperLearner.loss_of

    def noted(*arguments):
        found.append(loss_of(*arguments))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(images._PaperLearner, "loss_of", noted)
        train_image(run)
    return found


@pytest.fixture
def double(monkeypatch):
    """Train in float64, where only a mistake makes a difference.

    In bfloat16, which has three digits, a compiled step rounds at other places than a plain one.
    After thirty steps of AdamW the networks differ, and their losses by a tenth and more.
    """
    make = images.NETWORKS[RUN.network]
    monkeypatch.setitem(images.NETWORKS, RUN.network, lambda *given: make(*given).double())
    forward = lambda learner, network, x: network(x.double())  # noqa: E731
    monkeypatch.setattr(images.Learner, "_forward", forward)


# Plain, with running statistics, with a temperature that falls, and with two losses in turn.
@pytest.mark.parametrize(
    ("method", "rate", "first"),
    [
        ("cross_entropy", None, 0),
        ("anchored_f1", None, 0),
        ("east_f1", 0.5, 0),
        ("anchored_f1", None, 2),
    ],
)
def test_captured_as_plain(method, rate, first, double, monkeypatch):
    run = RUN.but(method=method, rate=rate, cross_entropy_first=first)
    captured = losses(monkeypatch, run)
    monkeypatch.setattr(images._PaperLearner, "_prepared", lambda training, step: step)
    monkeypatch.setattr(torch, "compile", lambda network: network)
    assert captured == pytest.approx(losses(monkeypatch, run), rel=tolerances.CAPTURED)


def test_the_resnets_learn():
    # SurF's loss is left out: where half of the rows are positive, as here, it predicts all
    # positive.
    run = RUN.but(
        network="resnet18",
        method="balanced_cross_entropy",
        learning_rate=0.01,
        epochs=20,
        patience=None,
    )
    found = train_image(run)
    assert found["picks"][LOSS]["decisions"]["argmax"]["test"]["f1"] > 0.9
    assert len(found["curve"]) == 20
