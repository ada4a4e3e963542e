"""On a GPU: networks for pixels learn the same in a captured step, also side by side."""

import pytest
import torch
from evalign_study.trainers import dense
from evalign_study.trainers.dense import train_dense
from evalign_study.trainers.pixel_methods import METHODS

from study.tests.trainers.test_dense import RUN, scenes

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)


@pytest.fixture(autouse=True)
def made(monkeypatch):
    dataset = scenes("camvid", 3, size=(32, 48))
    monkeypatch.setattr(dense, "load", lambda name: dataset)
    monkeypatch.setattr(dense, "SAMPLED", 2000)
    dense._stored.cache_clear()
    dense.prepare.cache_clear()
    yield
    dense._stored.cache_clear()
    dense.prepare.cache_clear()


@pytest.mark.parametrize("method", METHODS)
def test_captured_as_plain(method, monkeypatch):
    run = RUN.but(method=method, epochs=4)
    captured = train_dense(run)
    monkeypatch.setattr(dense._DenseLearner, "_prepared", lambda learner, step: step)
    # bfloat16 has three digits, and the order of additions is the algorithm's.
    assert captured["curve"] == pytest.approx(train_dense(run)["curve"], abs=0.1)
