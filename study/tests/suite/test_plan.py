"""The runs that the suite compares."""

from evalign_study import data
from evalign_study.suite.plan import METHODS, SETS, image_runs, runs
from evalign_study.trainers.methods import EAST, GOALS, OPPONENTS, OURS
from evalign_study.trainers.recipe import USUAL, units


def test_runs_of_tables():
    found = runs()
    assert len({run.key for run in found}) == len(found) == 15 * 5 * len(METHODS)
    assert len(METHODS) == len(OPPONENTS) + 2 * len(GOALS)
    parts = units(found)
    assert len(parts) == 15 * 5
    assert all(len({(run.dataset, run.split_seed) for run in part}) == 1 for part in parts)
    assert {run.variant for run in found} == {"sound"}
    usual = USUAL.epochs
    for run in found:
        assert run.epochs == (30 if run.dataset == "creditcard" else usual)
    assert {run.epochs for run in runs(["creditcard"], epochs=2)} == {2}
    for name in SETS:
        data.card(name)  # is known


def test_runs_of_images():
    found = image_runs()
    assert len({run.key for run in found}) == len(found)
    methods = [*OPPONENTS, *(f"{OURS}_{goal}" for goal in GOALS)]
    assert list(dict.fromkeys(run.method for run in found)) == methods
    assert not any(run.method.startswith(EAST) for run in found)
    assert len(found) == 4 * 3 * len(methods)
    sets = {(run.dataset, run.imbalance) for run in found}
    assert sets == {(name, ratio) for name in ("cifar10", "fashion_mnist") for ratio in (10, 100)}
    assert {(run.network, run.variant, run.epochs) for run in found} == {("resnet18", "sound", 40)}
    for name, _ in sets:
        assert len(data.card(name).classes) == 10
