"""On a GPU, stacked networks replay CUDA graphs, and networks for images may be compiled."""

import pytest
import torch
from evalign_study import data
from evalign_study.fast import rows
from evalign_study.protocols import east

from study.tests.protocols import made

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHARED = {"dataset": "made", "batch_size": 64, "epochs": 12, "dropout": 0.0, "patience": 2}
RUNS = [
    east.Run(loss="cross_entropy", curve=True, **SHARED),
    east.Run(loss="f1", rate=0.8, curve=True, precision="float32", **SHARED),
    east.Run(loss="mcc", learning_rate=1e-4, curve=True, **SHARED),
]


@pytest.fixture
def give(monkeypatch):
    def given(dataset):
        monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
        east._prepared.cache_clear()

    yield given
    east._prepared.cache_clear()


def test_a_stack_is_replayed_as_its_members_train_alone(give):
    give(made.rows(3))
    runs = [run.but(precision="float32") for run in RUNS]
    (unit,) = rows.units(runs)
    together = {record["key"]: record for record in rows.train(unit, "cuda")}
    for run in runs:
        alone = east.train(run, "cuda")
        first = min(len(alone["curve"]), len(together[run.key]["curve"]), 5)
        assert together[run.key]["curve"][:first] == pytest.approx(alone["curve"][:first], abs=2e-3)


def test_a_compiled_network_learns_as_the_plain_one(give):
    give(made.images())
    run = east.Run(
        dataset="made", network="tiny_darknet", batch_size=24, epochs=2, dropout=0.0, curve=True
    )
    plain = east.train(run.but(precision="float32"), "cuda")
    (fused,) = rows.train([run.but(precision="float32")], "cuda", compiled=True)
    assert fused["curve"] == pytest.approx(plain["curve"], abs=2e-2)
