"""The runs of the table `models`, where the packages of the command line are not installed.

    EVALIGN_DATA=FOLDER python study/benchmarks/models.py --results OUT --workers 14

It needs numpy, pandas, scikit-learn, torch, tabm, rtdl_num_embeddings and narwhals, and uses a GPU
where there is one. Each run is recorded when it ends, and what the file has is not run again: it
can be stopped at any time.
"""

import argparse
from functools import partial
from pathlib import Path

from evalign_study.modelled import plan
from evalign_study.pipeline.execute import execute
from evalign_study.records.results import SUFFIX, Results
from evalign_study.trainers.choice import MODELLED
from evalign_study.trainers.methods import GOALS
from evalign_study.trainers.modelling import DEFAULTS, WITH_NETWORK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder of the records")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--datasets", nargs="*", default=plan.SETS)
    parser.add_argument("--splits", nargs="*", type=int, default=list(plan.SPLITS))
    parser.add_argument("--goals", nargs="*", default=list(GOALS))
    parser.add_argument("--kinds", nargs="*", default=[DEFAULTS, WITH_NETWORK])
    asked = parser.parse_args()
    how = {"splits": asked.splits, "goals": asked.goals, "kinds": asked.kinds}
    execute(
        MODELLED.units(plan.runs(asked.datasets, **how)),
        MODELLED.train,
        Results(asked.results / f"models{SUFFIX}"),
        jobs=asked.workers,
        progress=partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
