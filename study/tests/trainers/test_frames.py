"""A network over the people of a frame."""

import pytest
import torch
from evalign_study.records.run import BINARY, LOSS, Run
from evalign_study.trainers import frames
from evalign_study.trainers.frames import _OverPairs, _Pairs, train_frames
from evalign_study.trainers.methods import make

from study.tests.trainers import made_data

RUN = Run(
    dataset="cocktailparty_frames",
    variant="paper",
    method="cross_entropy",
    network="people",
    batch_size=8,
    learning_rate=0.01,
    epochs=8,
    patience=100,
)


@pytest.mark.parametrize(
    "method", [pytest.param("cross_entropy", marks=pytest.mark.slow), "anchored_f1"]
)
def test_learns_who_stands_together(method, monkeypatch):
    monkeypatch.setattr(frames, "load", lambda name: made_data.frames())
    found = train_frames(RUN.but(method=method))
    assert found["picks"].keys() == {LOSS, *BINARY}
    assert (found["epochs"], found["capped"]) == (8, True)
    test = found["picks"]["f1"]["decisions"]["argmax"]
    assert sum(count for *_, count in test["matrix"]) == 20 * 6  # a fifth of the frames, all pairs
    share = sum(count for true, _, count in test["matrix"] if true) / 120
    # The score of predicting all pairs positive.
    assert test["test"]["f1"] > 2 * share / (1 + share) + 0.1


def test_the_loss_is_that_of_all_pairs_at_once():
    z, y = torch.randn(3, 15), torch.randint(2, (3, 15))
    loss = make("btg_f1", torch.tensor([1, 2])).loss
    pairs = _Pairs(torch.nn.Identity())(z)
    assert pairs.shape == (3, 2, 15)
    alone = torch.stack([torch.zeros(45), z.flatten()], 1)
    assert _OverPairs(loss)(pairs, y) == loss(alone, y.flatten())
