"""Trainings of images side by side are those of one after the other."""

import itertools
import math
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from evalign_study.records.run import Run
from evalign_study.trainers import side_by_side
from evalign_study.trainers.images import ImageTraining, train_image
from evalign_study.trainers.side_by_side import train_side_by_side

DARKNET = Run(
    dataset="cifar10",
    variant="paper",
    method="cross_entropy",
    network="tiny_darknet",
    batch_size=8,
    learning_rate=0.01,
    epochs=3,
    patience=50,
)
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


def test_records_are_those_of_each_alone():
    found = []
    assert train(RUNS, found.extend) == []
    told = ("key", "run", "epochs", "capped", "picks", "diverged", "curve")
    expected = {run.key: train_image(run) for run in RUNS}
    assert len(found) == len(RUNS)
    for record in found:
        alone = expected[record["key"]]
        assert {name: record[name] for name in told} == {name: alone[name] for name in told}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.method)
def test_a_process_can_assess(run):
    """What is sent to it arrives as it was."""
    training = ImageTraining(run.but(epochs=1))
    training.epoch()
    picks, target = pickle.loads(pickle.dumps((training.picks, training.method.target)))
    assert picks.assessed(target) == training.picks.assessed(training.method.target)


def test_nobody_trains_while_one_sets_up(monkeypatch):
    setting_up, training, seen, lock = [0], [0], [], threading.Lock()

    def noted(call, own):
        def wrapped(*arguments):
            with lock:
                own[0] += 1
                seen.append((setting_up[0], training[0]))
            time.sleep(0.01)
            try:
                return call(*arguments)
            finally:
                with lock:
                    own[0] -= 1

        return wrapped

    monkeypatch.setattr(ImageTraining, "epoch", noted(ImageTraining.epoch, training))
    train(RUNS, lambda records: None, begin=noted(ImageTraining, setting_up))
    assert max(ups for ups, _ in seen) == 1
    assert max(trainings for _, trainings in seen) > 1
    assert not any(ups and trainings for ups, trainings in seen)


def test_what_does_not_end_in_time_is_told(monkeypatch):
    """The clock is read at the beginning, before every set-up and epoch, and at the end."""
    reads = itertools.count(1)
    clock = SimpleNamespace(monotonic=lambda: 0.0 if next(reads) <= 8 else 1000.0)
    monkeypatch.setattr(side_by_side, "time", clock)
    found = []
    assert set(train(RUNS, found.extend, seconds=500.0, side=1)) == set(RUNS[1:])
    assert [record["key"] for record in found] == [RUNS[0].key]


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


class Made:
    """A training of three epochs that calls a function in each."""

    def __init__(self, run, work):
        self.run, self.work, self.left = run, work, 3

    @property
    def finished(self):
        return not self.left

    def epoch(self):
        self.work(self.run)
        self.left -= 1

    def record(self, assessors):
        return {"key": self.run.key}


@pytest.mark.parametrize("at", ["set-up", "epoch"])
def test_one_that_failed_takes_no_time_from_the_others(monkeypatch, at):
    """Two of three seconds each fit into seven, whatever failed between them."""
    now, found, failing = [0.0], [], RUNS[1:4]

    def fail(run):
        if run in failing:
            raise ArithmeticError

    def work(run):
        fail(run)
        now[0] += 1

    def begin(run):
        if at == "set-up":
            fail(run)
        return Made(run, work)

    monkeypatch.setattr(side_by_side, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with pytest.raises(ExceptionGroup, match="3 of 5 trainings failed"):
        train(RUNS, found.extend, seconds=7.0, side=1, begin=begin)
    assert [record["key"] for record in found] == [RUNS[0].key, RUNS[4].key]


def test_nothing_is_trained_that_cannot_be_kept():
    begun = []

    def begin(run):
        begun.append(run)
        return Made(run, lambda run: time.sleep(0.1))

    def full(records):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        train(RUNS, full, side=1, begin=begin)
    assert len(begun) <= 2
