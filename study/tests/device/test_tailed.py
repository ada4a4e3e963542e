"""On a GPU: long-tailed images learn the same in a captured step, also where weights average."""

import pytest
import torch
from evalign_study.suite.plan import image_runs
from evalign_study.trainers import images, tailed
from evalign_study.trainers.methods import OURS
from evalign_study.trainers.recipe import TRAINER
from evalign_study.trainers.tailed import train

from study.tests.trainers import made_data

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)


@pytest.fixture(autouse=True)
def made(monkeypatch):
    images._stored.cache_clear()
    monkeypatch.setattr(images, "load", lambda name: made_data.images(name, rows=600, classes=3))
    yield
    images._stored.cache_clear()


def losses(monkeypatch, run):
    """The validation loss of every epoch."""
    found, loss_of = [], tailed._TailedLearner.loss_of

    def noted(*arguments):
        found.append(loss_of(*arguments))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(tailed._TailedLearner, "loss_of", noted)
        train(run)
    return found


@pytest.mark.parametrize("ema_decay", [None, 0.9])
@pytest.mark.parametrize("method", ["cross_entropy", f"{OURS}_f1"])
def test_captured_as_plain(method, ema_decay, monkeypatch):
    monkeypatch.setattr(TRAINER, "ema_decay", ema_decay)
    # Crops are drawn from a generator that the steps before a capture have moved on.
    crops = images.Images.crops
    monkeypatch.setattr(images.Images, "crops", lambda data, rows, places=None: crops(data, rows))
    found = image_runs([("cifar10", 10)], splits=[0], epochs=4)
    (run,) = (run for run in found if run.method == method)
    captured = losses(monkeypatch, run)
    monkeypatch.setattr(tailed._TailedLearner, "_prepared", lambda training, step: step)
    # bfloat16 has three digits, and the order of additions is the algorithm's.
    assert captured == pytest.approx(losses(monkeypatch, run), rel=0.1, abs=0.05)


def test_learns():
    run = image_runs([("cifar10", 10)], splits=[0], epochs=20)[0]
    pick = train(run)["picks"]["f1_macro"]
    assert pick["decisions"]["argmax"]["test"]["f1_macro"] > 0.9
