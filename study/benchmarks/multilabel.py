"""The runs of the table `multilabel`, where the packages of the command line are not installed.

    EVALIGN_DATA=FOLDER python study/benchmarks/multilabel.py --results OUT --workers 14

It needs numpy, pandas, scikit-learn, torch and safetensors. Each run is recorded when it ends, and
what the file has is not run again: it can be stopped at any time.
"""

import argparse
from functools import partial
from pathlib import Path

from evalign_study.pipeline.execute import execute
from evalign_study.records.results import SUFFIX, Results
from evalign_study.tasks import plan
from evalign_study.trainers.choice import LABELS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder of the records")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--datasets", nargs="*", default=list(plan.MULTILABEL))
    asked = parser.parse_args()
    # The last set is the largest: the longest first, so that no core waits for one at the end.
    runs = plan.multilabel(asked.datasets[::-1])
    execute(
        LABELS.units(runs),
        LABELS.train,
        Results(asked.results / f"multilabel{SUFFIX}"),
        jobs=asked.workers,
        progress=partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
