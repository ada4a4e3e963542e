"""Trainings of images side by side are those of one after the other."""

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from evalign_study.trainers import side_by_side
from evalign_study.trainers.images import ImageTraining, train_image
from evalign_study.trainers.side_by_side import train_side_by_side

from study.tests.trainers.made_data import IMAGE_RUN

DARKNET = IMAGE_RUN.but(learning_rate=0.01, epochs=3)
RESNET = DARKNET.but(network="resnet18", method="surf_1", patience=None)
RUNS = [
    DARKNET,
    DARKNET.but(method="east_f1", rate=0.5, seed=1),
    RESNET.but(seed=2),
    DARKNET.but(method="aligned_f1", seed=3),
    RESNET.but(seed=4, split_seed=4),
]


@pytest.fixture(autouse=True)
def made(give, quick):
    give(rows=50)


def train(runs, keep, seconds=math.inf, side=3, begin=ImageTraining):
    how = {"side": side, "seconds": seconds}
    with ThreadPoolExecutor() as assessors:
        return train_side_by_side(begin, runs, keep, **how, assessors=assessors)


@pytest.mark.slow
def test_records_are_those_of_each_alone():
    found = []
    assert train(RUNS, found.extend) == []
    told = ("key", "run", "epochs", "capped", "picks", "diverged", "curve")
    expected = {run.key: train_image(run) for run in RUNS}
    assert len(found) == len(RUNS)
    for record in found:
        alone = expected[record["key"]]
        assert {name: record[name] for name in told} == {name: alone[name] for name in told}


def test_what_would_not_end_in_time_is_not_begun(monkeypatch):
    """An epoch takes a second: three seconds each, of which the fourth would end at twelve."""
    now, begun, found = [0.0], [], []

    class Timed(ImageTraining):
        def __init__(self, run):
            begun.append(run)
            super().__init__(run)

        def epoch(self):
            super().epoch()
            now[0] += 1

    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert train(RUNS, found.extend, seconds=11.0, side=1, begin=Timed) == RUNS[3:]
    assert begun == RUNS[:3]
    assert len(found) == 3


def test_one_that_fails_does_not_stop_the_others():
    found, bad = [], DARKNET.but(method="no_such_loss")
    with pytest.raises(ExceptionGroup, match="1 of 3 trainings failed") as caught:
        train([RUNS[0], bad, RUNS[1]], found.extend)
    assert {record["key"] for record in found} == {RUNS[0].key, RUNS[1].key}
    (error,) = caught.value.exceptions
    assert "no_such_loss" in error.__notes__[0]
