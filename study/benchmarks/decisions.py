"""The runs of the table `decisions`, where the packages of the command line are not installed.

    EVALIGN_DATA=FOLDER python study/benchmarks/decisions.py --results OUT --workers 14

It needs numpy, pandas, scikit-learn, torch, safetensors, and the packages that are compared. Each
run is recorded when it ends, and what the file has is not run again: it can be stopped at any time.
With EVALIGN_PROBABILITIES=FOLDER the models' probabilities are kept there, and later runs use them.
"""

import argparse
from functools import partial
from pathlib import Path

from evalign_study.decided import plan
from evalign_study.pipeline.execute import execute
from evalign_study.records.results import SUFFIX, Results
from evalign_study.trainers.choice import DECIDED

# The longest first, so that no core waits for one at the end.
LONGEST = ("creditcard", "adult", "campaign", "caltech256_clip", "reuters_r8", "magic_gamma")
SLOWEST = ("random_forest", "extra_trees", "network")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder of the records")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--datasets", nargs="*", default=plan.SETS)
    parser.add_argument("--models", nargs="*", default=list(plan.MODELS))
    parser.add_argument("--splits", nargs="*", type=int, default=list(plan.SPLITS))
    asked = parser.parse_args()
    runs = plan.runs(asked.datasets, splits=asked.splits, models=asked.models)

    def place(run: plan.Run) -> tuple[int, ...]:
        names = (run.dataset, LONGEST), (run.method.removeprefix(plan.PREFIX), SLOWEST)
        return tuple(known.index(name) if name in known else len(known) for name, known in names)

    execute(
        DECIDED.units(sorted(runs, key=place)),
        DECIDED.train,
        Results(asked.results / f"decisions{SUFFIX}"),
        jobs=asked.workers,
        progress=partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
