"""On a GPU: a step compiled and captured as a CUDA graph trains as a plain one."""

import pytest
import torch
from evalign_study.records.run import LOSS, Run
from evalign_study.trainers import images
from evalign_study.trainers.images import train_image

from study.tests.trainers import made_data

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
    """The validation loss of every epoch."""
    found = []
    loss_of = images._Training.loss_of

    def noted(*arguments):
        found.append(loss_of(*arguments))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(images._Training, "loss_of", noted)
        train_image(run)
    return found


# Plain, with running statistics, and with a temperature that falls.
@pytest.mark.parametrize(
    ("method", "rate"), [("cross_entropy", None), ("anchored_f1", None), ("east_f1", 0.5)]
)
def test_captured_as_plain(method, rate, monkeypatch):
    run = RUN.but(method=method, rate=rate)
    captured = losses(monkeypatch, run)
    monkeypatch.setattr(images._Training, "_captured", lambda training: training._step)
    monkeypatch.setattr(torch, "compile", lambda network: network)
    # bfloat16 has three digits, and the order of additions is the algorithm's.
    assert captured == pytest.approx(losses(monkeypatch, run), rel=0.1, abs=0.05)


def test_the_resnets_learn():
    # Not by SurF's loss: where half of the rows are positive, as here, it says so of all of them.
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
