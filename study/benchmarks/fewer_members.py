"""What it costs in quality to cut the members of a trained network (`network_.keep`).

    EVALIGN_DATA=FOLDER python study/benchmarks/fewer_members.py --out OUT.json

The default network is trained for the F1 of tables of the suite. The test rows are then scored with
all members and with a part of them, by the rule of all, and the time of answers for 4,000 rows on
one core is taken. Of a small table each fold has a network, which keeps that part of its members.
Results are written after every split of a table.
"""

import argparse
import copy
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evalign_study.decided.plan import ROWS
from evalign_study.records.made import made
from evalign_study.suite.plan import SETS
from evalign_study.trainers.deciding import split_rows
from evalign_study.trainers.methods import GOALS, Problem

from evalign import AlignedClassifier
from evalign.estimators.members import Members

PARTS = (1, 2, 4, 8)  # of 32 members 32, 16, 8 and 4
ANSWERED = 4_000


def measure(dataset: str, split: int) -> dict[str, Any]:
    """Train on a split, and score the test rows with all members and with fewer."""
    torch.set_num_threads(1)
    rows = split_rows(dataset, split, ROWS)
    metric = Problem(torch.ones(rows.classes), dataset).metric(GOALS["f1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with few rows
        whole = AlignedClassifier(metric, random_state=0).fit(rows.X, rows.y, groups=rows.groups)
    whole.network_.to("cpu")
    each = next(part for part in whole.network_.modules() if isinstance(part, Members)).head.k
    X = np.resize(rows.X_test, (ANSWERED, *rows.X_test.shape[1:]))
    found = {}
    for part in PARTS:
        cut = copy.deepcopy(whole)
        cut.network_.keep(max(1, each // part))
        score = cut.score(rows.X_test, rows.y_test)
        start = time.perf_counter()
        cut.predict(X)
        found[f"1/{part}"] = {"test": score, "seconds": time.perf_counter() - start}
    return {"dataset": dataset, "split": split, "metric": metric, "each": each, "kept": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pairs = [(dataset, split) for split in asked.splits for dataset in asked.datasets]
    found = []
    with ProcessPoolExecutor(asked.workers, get_context("spawn")) as workers:
        for one in workers.map(measure, *zip(*pairs, strict=True)):
            found.append(one)
            print(one, flush=True)
            told = {"made": made(device), "scores": found}
            asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
