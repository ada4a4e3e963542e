"""The runs of the table `goals`, where the packages of the command line are not installed.

    EVALIGN_DATA=FOLDER python study/benchmarks/goals.py --results OUT --workers 15 --seconds 500

It needs numpy, pandas, scikit-learn, torch, safetensors, tabm, narwhals and libauc. Tables are
trained on one core each, images on a GPU. Each run is recorded when it ends, and what the file has
is not run again: it can be stopped at any time. The search for learning rates comes first, then the
runs that count, of every method whose search is complete.
"""

import argparse
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from evalign_study.goals import plan
from evalign_study.pipeline.execute import execute
from evalign_study.records.made import Record
from evalign_study.records.results import SUFFIX, Results
from evalign_study.trainers.choice import GOALS, Unit
from evalign_study.trainers.goal_methods import METHODS


def until(end: float, unit: Unit) -> Iterable[Record]:
    """Train a unit, or leave it out if the time is over."""
    return GOALS.train(unit) if time.time() < end else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder of the records")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, required=True, help="no run begins after them")
    parser.add_argument("--datasets", nargs="*", default=list(plan.SETS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--splits", nargs="*", type=int, default=list(plan.SPLITS))
    asked = parser.parse_args()
    results = Results(asked.results / f"goals{SUFFIX}")
    train = partial(until, time.time() + asked.seconds)
    for stage in ("search", "runs"):
        runs = (
            plan.search(asked.datasets, methods=asked.methods)
            if stage == "search"
            else plan.runs(
                {record["key"]: record for record in results.records()},
                asked.datasets,
                methods=asked.methods,
                splits=asked.splits,
            )
        )
        print(f"{stage}: {sum(run.key not in results.keys for run in runs)} to do", flush=True)
        execute(
            GOALS.units(runs),
            train,
            results,
            jobs=asked.workers,
            progress=partial(print, flush=True),
        )


if __name__ == "__main__":
    main()
