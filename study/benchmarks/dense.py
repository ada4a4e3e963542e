"""The runs of the table `dense`, many side by side on one GPU.

    EVALIGN_DATA=FOLDER python study/benchmarks/dense.py dense --seconds 540 --out OUT

It needs numpy, pandas, scikit-learn, torch, safetensors, pillow and rankseg. Each run is recorded
when it ends, and what the file has is not trained again; what is not finished in time is lost.
"""

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # else streams share eight queues

import torch
from evalign_study.records.made import Record
from evalign_study.records.results import SUFFIX, Results
from evalign_study.tasks import plan
from evalign_study.trainers.dense import DICE, MIOU, DenseTraining
from evalign_study.trainers.side_by_side import train_side_by_side

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["dense", "candidates"])
    parser.add_argument("--datasets", nargs="*", default=list(plan.DENSE))
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=list(plan.SEEDS))
    parser.add_argument("--epochs", type=int, help="instead of the plan's, to try it out")
    parser.add_argument("--rows", type=int, help="images of each part, to try it out")
    parser.add_argument("--side", type=int, default=8, help="trainings at a time")
    parser.add_argument("--seconds", type=float, required=True, help="no epoch begins after them")
    parser.add_argument("--assessors", type=int, default=10, help="processes that fit rules")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the records")
    asked = parser.parse_args()
    some = {} if asked.methods is None else {"methods": asked.methods}
    if asked.what == "candidates":
        runs = plan.candidates(**some)
    else:
        runs = plan.dense(asked.datasets, seeds=asked.seeds, **some)
    smaller = {name: getattr(asked, name) for name in ("epochs", "rows") if getattr(asked, name)}
    results = Results(asked.out / f"{asked.what}{SUFFIX}")
    runs = [run.but(**smaller) for run in runs]
    runs = [run for run in runs if run.key not in results.keys]
    start = time.monotonic()
    print(f"{len(runs)} are not recorded", flush=True)

    def keep(records: Sequence[Record]) -> None:
        results.append(records)
        for record in records:
            run = record["run"]
            scores = {
                decision: f"{100 * found['test'][MIOU]:.1f}"
                for decision, found in record["picks"][MIOU]["decisions"].items()
            }
            dice = record["picks"][DICE]["decisions"]["argmax"]["test"][DICE]
            at = time.monotonic() - start
            took = f"{record['seconds']:.0f} s, epoch {record['picks'][MIOU]['epoch']}"
            names = run["dataset"], run["method"], run["split_seed"], run["seed"]
            print(f"{at:.0f}", *names, scores, f"dice {100 * dice:.1f}", took, flush=True)

    one_thread = {"initializer": torch.set_num_threads, "initargs": (1,)}
    with ProcessPoolExecutor(asked.assessors, get_context("spawn"), **one_thread) as assessors:
        unfinished = train_side_by_side(
            DenseTraining,
            runs,
            keep,
            side=asked.side,
            seconds=asked.seconds,
            assessors=assessors,
        )
    print(f"{len(unfinished)} not finished, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
