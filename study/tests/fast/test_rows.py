"""Stacked networks are what the plain loop trains, member by member."""

import pytest
from evalign_study import data
from evalign_study.fast import rows
from evalign_study.protocols import btg, east
from evalign_study.protocols.east import Run

from study.tests.protocols import made
from tests import tolerances

SHARED = {"dataset": "made", "batch_size": 64, "epochs": 25, "dropout": 0.0, "patience": 2}
RUNS = {
    "cross-entropy": Run(loss="cross_entropy", learning_rate=1e-2, **SHARED),
    "slow": Run(loss="cross_entropy", learning_rate=1e-4, seed=2, **SHARED),
    "dice": Run(loss="dice", learning_rate=1e-3, **SHARED),
    "constant": Run(loss="f1", learning_rate=1e-3, **SHARED),
    "cooled": Run(loss="f1", rate=0.8, learning_rate=1e-3, coolings=2, **SHARED),
    "cooled, shared": Run(loss="f1", rate=0.9, seed=3, reading="shared patience", **SHARED),
    "warmer": Run(loss="f1", start=0.3, rate=0.7, **SHARED),
    "of betas": Run(loss="f1", betas=((1, 5.0),), rate=0.9, **SHARED),
    "mcc": Run(loss="mcc", rate=0.9, learning_rate=1e-4, **SHARED),
    "accuracy": Run(loss="accuracy", rate=0.9, learning_rate=1e-3, **SHARED),
}


BTG = {"average": "positive class", "patience": 2, "learning_rate": 1e-2}
BTG_RUNS = [
    btg.Run(**(SHARED | BTG), loss=loss, heaviside=heaviside)
    for loss, heaviside in [
        *[("f1", "linear"), ("f1", "sigmoid"), ("f3", "linear"), ("accuracy", "linear")],
        *[("auroc", "linear"), ("bce", "linear")],
    ]
]


@pytest.fixture
def give(monkeypatch):
    """Replace every data set by made rows, in float64: the order of sums makes no difference."""
    given = east.Rows.to

    def to(self, device):
        parts = ((X.double(), y) for X, y in self[:3])
        return given(east.Rows(*parts, self.classes), device)

    monkeypatch.setattr(east.Rows, "to", to)
    for protocol in (east, btg):
        build = protocol.network_of
        double = lambda *given, build=build: build(*given).double()  # noqa: E731
        monkeypatch.setattr(protocol, "network_of", double)

    def replace(classes):
        monkeypatch.setattr(data, "load", lambda name, preparation: made.rows(classes))
        east._prepared.cache_clear()

    yield replace
    east._prepared.cache_clear()


@pytest.mark.parametrize(
    ("runs", "classes", "least"), [(list(RUNS.values()), 3, 3), (BTG_RUNS, 2, 0)]
)
def test_every_member_is_as_if_trained_alone(runs, classes, least, give):
    give(classes)
    (unit,) = rows.units(runs)
    together = {record["key"]: record for record in rows.train(unit, "cpu")}
    cooled = 0
    for run in runs:
        alone = rows.protocol_of(run).train(run, "cpu")
        stacked = together[run.key]
        for name in ("epochs", "capped", "coolings", "last_temperature", "diverged"):
            assert stacked[name] == alone[name]
        cooled += len(alone["coolings"])
        assert stacked["picks"].keys() == alone["picks"].keys()
        for criterion, pick in alone["picks"].items():
            assert stacked["picks"][criterion]["epoch"] == pick["epoch"]
            assert stacked["picks"][criterion]["decisions"] == pick["decisions"]
            loss = stacked["picks"][criterion]["validation_loss"]
            assert loss == pytest.approx(pick["validation_loss"], abs=tolerances.PRINTED)
    assert cooled >= least


def test_units_hold_what_can_be_stacked():
    runs = list(RUNS.values())
    image = Run(dataset="cifar10", network="darknet19")
    own = Run(dataset="made", loss="a.module:loss")
    units = rows.units([*runs, runs[0].but(batch_size=128), image, image.but(seed=2), own])
    assert [len(unit) for unit in units] == [len(runs), 1, 1, 1, 1]
