"""Units of work that take no time, for processes of their own to find."""

import os
import signal
from pathlib import Path

from evalign_study.records.execute import execute
from evalign_study.records.results import Results, record
from evalign_study.records.run import Run


def run(seed, **more):
    return Run(dataset="mammography", variant="paper", method="cross_entropy", seed=seed, **more)


def made(run):
    return record(run, epochs=1, capped=False, seconds=0.0, picks={})


def train(unit):
    return [made(run) for run in unit]


def append_some(path, first, last):
    results = Results(path)
    for seed in range(first, last):
        results.append(made(run(seed)))


def train_but_three(unit):
    """A unit with the seed 3 fails after its first record."""
    for run in unit:
        if run.seed == 3:
            raise ArithmeticError("three")
        yield made(run)


UNITS = [[run(0), run(1)], [run(2), run(3)], [run(4)], [run(5), run(6), run(7)]]
KEYS = {run.key for unit in UNITS for run in unit}


def train_and_die(unit):
    """Killed in the middle of the third unit."""
    yield made(unit[0])
    if unit[0].seed == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from (made(run) for run in unit[1:])


def die(path):
    execute(UNITS, train_and_die, Results(Path(path)))
