"""On a GPU, a step that is compiled and captured as a CUDA graph trains like a plain one."""

import pytest
import torch
from evalign_study.suite.plan import image_runs
from evalign_study.trainers import images, tailed
from evalign_study.trainers.images import train_image
from evalign_study.trainers.methods import OURS
from evalign_study.trainers.recipe import USUAL

from study.tests.trainers import made_data
from tests import tolerances

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

RUN = made_data.IMAGE_RUN.but(dataset="cifar10_frog", batch_size=32, epochs=3)


@pytest.fixture(autouse=True)
def fresh():
    images._stored.cache_clear()
    yield
    images._stored.cache_clear()


def losses(monkeypatch, learner, train, run):
    """Return the validation loss of every epoch."""
    found, loss_of = [], learner.loss_of

    def noted(*arguments):
        found.append(loss_of(*arguments))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(learner, "loss_of", noted)
        train(run)
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


# Plain, with running statistics, with a falling temperature, and with two losses in turn.
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
    monkeypatch.setattr(images, "load", lambda name: made_data.images(name, rows=400))
    run = RUN.but(method=method, rate=rate, cross_entropy_first=first)
    captured = losses(monkeypatch, images._PaperLearner, train_image, run)
    monkeypatch.setattr(images._PaperLearner, "_prepared", lambda training, step: step)
    monkeypatch.setattr(torch, "compile", lambda network: network)
    plain = losses(monkeypatch, images._PaperLearner, train_image, run)
    assert captured == pytest.approx(plain, rel=tolerances.CAPTURED)


@pytest.mark.parametrize("ema_decay", [None, 0.9])
@pytest.mark.parametrize("method", ["cross_entropy", f"{OURS}_f1"])
def test_captured_as_plain_with_a_long_tail(method, ema_decay, monkeypatch):
    monkeypatch.setattr(images, "load", lambda name: made_data.images(name, rows=600, classes=3))
    monkeypatch.setattr(tailed, "USUAL", USUAL._replace(ema_decay=ema_decay))
    # Crops are drawn from a generator that the steps before a capture have moved on.
    crops = images.Images.crops
    monkeypatch.setattr(images.Images, "crops", lambda data, rows, places=None: crops(data, rows))
    runs = image_runs([("cifar10", 10)], splits=[0], epochs=4)
    (run,) = (run for run in runs if run.method == method)
    captured = losses(monkeypatch, tailed._TailedLearner, tailed.train, run)
    monkeypatch.setattr(tailed._TailedLearner, "_prepared", lambda training, step: step)
    plain = losses(monkeypatch, tailed._TailedLearner, tailed.train, run)
    # bfloat16 has three digits, and the order of additions is the algorithm's.
    assert captured == pytest.approx(plain, rel=0.1, abs=0.05)
