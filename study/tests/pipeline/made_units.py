"""Units of work that take no time, in a module that other processes can import."""

import os
import signal
from pathlib import Path

from evalign_study.pipeline.execute import execute
from evalign_study.records.results import Results

from study.tests.records.made_runs import made, run


def train(unit):
    return [made(run) for run in unit]


def train_but_three(unit):
    """Train; a unit with the seed 3 fails after its first record."""
    for member in unit:
        if member.seed == 3:
            raise ArithmeticError("three")
        yield made(member)


UNITS = [[run(0), run(1)], [run(2), run(3)], [run(4), run(5), run(6)], [run(7)]]
KEYS = {run.key for unit in UNITS for run in unit}


def by_company(unit):
    """Make results that depend on the other runs of the unit, as in a stack with dropout."""
    company = sum(run.seed for run in unit)
    return [made(run) | {"seconds": 100.0 * company + run.seed} for run in unit]


def train_and_die(unit):
    """Kill the process in the middle of the third unit."""
    for member, record in zip(unit, by_company(unit), strict=True):
        if member.seed == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        yield record


def die(path):
    execute(UNITS, train_and_die, Results(Path(path)))
