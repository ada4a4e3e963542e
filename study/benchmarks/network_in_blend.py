r"""Where the network pays in the blend of `AlignedEnsemble`, by the number of rows and the device.

The criterion, written down before the first run. On a kind of device and for a size class the
network joins the blend by default where, over the development tables of that class,

1. it adds at least 0.5 points to the metric of the test rows, the mean over tables of a table's
   mean over splits and metrics,
2. the 95% interval of that mean (Student's t over tables, which are the independent units) lies
   above 0,
3. the median fit with it stays within the time goals: 6 s for 1,000 rows, 25 s for 10,000, 180 s
   for 100,000, linear between them, on two cores of a CPU; the same goals hold with a GPU.

If it holds for some sizes only, the threshold is the smallest size from which all larger ones hold.

Linear model, boosting, forest and network are cross-validated once, on the same folds. The blend of
the three and that of all four are weighted and given a rule from these out-of-fold probabilities,
exactly as `AlignedEnsemble` does, and score the same test rows, a fifth of the table. The three are
trained once for all metrics, the network for each. A table counts for a size if it has at least
three quarters of the rows.

Run with two cores for each process, on a CPU and then on the GPU, whose processes share it:

    export EVALIGN_DATA=local/data PYTHONPATH=src:study/src:local/site
    python study/benchmarks/network_in_blend.py --out OUT.jsonl --jobs 8 --minutes 9 --cpu
    python study/benchmarks/network_in_blend.py --out OUT.jsonl --jobs 16 --threads 1 --minutes 9
    python study/benchmarks/network_in_blend.py --out OUT.jsonl --summary

With a GPU the seconds are of processes that share it: the third point takes those of a few tables
alone, in another file (--jobs 1 --sets yeast annthyroid adult --splits 0).

Each cell (table, size, split) is a line when it ends, and what the file has is not run again. The
splits come one after the other, so that a run that is stopped has all tables of the first ones. For
a machine without these packages and data, copied from a folder DATA and from site-packages, SITE:

    mkdir -p local/data local/site
    cp -r DATA/{adult,cocktailparty,creditcard,mammography,extras} local/data
    cp -r SITE/{tabm.py,rtdl_num_embeddings.py,typing_extensions.py,safetensors,narwhals} local/site
    find local -name __pycache__ -prune -exec rm -r {} +
"""

import argparse
import json
import multiprocessing
import os
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from evalign_study import data
from evalign_study.suite.plan import SETS as ALL_SETS

SETS = tuple(name for name in ALL_SETS if name != "caltech256_clip")  # boosting of 257 classes
SIZES, SPLITS, GOALS = (1_000, 3_000, 10_000, 40_000), range(3), ("f1", "matthews_corrcoef")
QUICK, NETWORK = ("linear", "boosting", "forest"), "network"
# What is scored: both blends, and each model alone, with its rule.
SCORED = {"without": QUICK, "with": (*QUICK, NETWORK)} | {n: (n,) for n in (*QUICK, NETWORK)}
TRAINING, ENOUGH = 0.8, 0.75  # the share of a table that trains; of a size's rows at least
MOST_TEST = 40_000
TIMES = ([1_000, 10_000, 100_000], [6.0, 25.0, 180.0])  # rows, and the goal in seconds


now = time.monotonic


class Cell(NamedTuple):
    """One table, size and split, on one kind of device."""

    dataset: str
    size: int
    split: int
    device: str


def set_up(numbers: Any, threads: int) -> None:
    """Give a process cores of its own, as forests, boosting and networks take all they may."""
    import torch

    cores, number = sorted(os.sched_getaffinity(0)), numbers.get()
    os.sched_setaffinity(0, {cores[(number * threads + i) % len(cores)] for i in range(threads)})
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")  # of classes with few rows


def one(cell: Cell) -> dict[str, Any]:
    """Score both blends of a cell by every metric; or the text of the error."""
    try:
        return cell._asdict() | scored(cell)
    except Exception:
        return cell._asdict() | {"error": traceback.format_exc()}


def scored(cell: Cell) -> dict[str, Any]:
    import torch
    from evalign_study.records.made import made
    from evalign_study.trainers.deciding import split_rows, thin
    from evalign_study.trainers.methods import Problem

    from evalign import score
    from evalign.estimators import AlignedEnsemble
    from evalign.estimators.blend import Trial
    from evalign.estimators.ensemble import as_numbers
    from evalign.estimators.trials import mean_probabilities

    rows = split_rows(cell.dataset, cell.split, MOST_TEST)
    some = thin(rows.y, cell.size)
    X, y, groups = rows.X[some], rows.y[some], rows.groups[some]
    problem = Problem(torch.ones(rows.classes), cell.dataset)
    tried: dict[str, Trial] = {}
    test: dict[str, np.ndarray] = {}
    told: dict[str, Any] = {}
    for number, goal in enumerate(GOALS):
        metric = problem.metric(goal)
        names = [NETWORK] if number else [*QUICK, NETWORK]
        ensemble, start = AlignedEnsemble(metric, candidates=names, random_state=cell.split), now()
        targets, features, _, found, _ = ensemble._try(X, y, None, groups, None)
        took, classes = now() - start, rows.classes
        seen = as_numbers(features.matrix("test", rows.X_test))
        tried |= found
        for name, trial in found.items():
            test[name] = mean_probabilities(trial.models, seen, classes)
        labels = partial(blend, tried, test, ensemble._settings(targets))
        scores = {
            name: score(metric, y_true=rows.y_test, y_pred=labels(names)[0])
            for name, names in SCORED.items()
        }
        told[metric] = {
            "scores": scores,
            "weights": labels(SCORED["with"])[1],
            "seconds": {name: one.seconds for name, one in found.items()},
            "fit": took,
        }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "rows": len(y),
        "rarest": int(np.bincount(y).min()),
        "classes": rows.classes,
        "metrics": told,
        "threads": torch.get_num_threads(),
        "made": made(device) | {"host": made("cpu")["device"]},
    }


def blend(
    tried: dict[str, Any], test: dict[str, np.ndarray], settings: Any, names: Sequence[str]
) -> tuple[np.ndarray, dict[str, float]]:
    """The labels of the test rows by some of the models, and their weights."""
    from evalign.estimators.blend import blend as blended
    from evalign.estimators.blend import calibrated

    weights, calibrations, rule, _ = blended({name: tried[name] for name in names}, settings)
    each = [calibrated(calibrations[name], test[name]) for name in weights]
    mean = np.average(each, 0, weights=list(weights.values()))
    return rule(probabilities=mean), weights


def run(asked: argparse.Namespace, done: set[Cell]) -> None:
    """Run the cells that the file lacks, until the time is over."""
    device = "cpu" if asked.cpu else "cuda"
    cells = [
        Cell(name, size, split, device)
        for split, size, name in product(asked.splits, asked.sizes, asked.sets)
        if TRAINING * data.card(name).rows >= ENOUGH * size
    ]
    cells = [cell for cell in cells if cell not in done]
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    if asked.cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    numbers, end = spawn.Queue(), now() + 60 * asked.minutes
    for number in range(asked.jobs):
        numbers.put(number)
    with spawn.Pool(asked.jobs, set_up, (numbers, asked.threads)) as pool, asked.out.open("a") as f:
        made = pool.imap_unordered(one, cells)
        for count in range(1, len(cells) + 1):
            try:
                record = made.next(timeout=max(0.0, end - now()))
            except multiprocessing.TimeoutError:
                print(f"The time is over: {len(cells) - count + 1} cells are left.")
                return  # the pool ends its processes
            if "error" in record:
                print(record["error"], flush=True)
                continue
            f.write(json.dumps(record | {"jobs": asked.jobs}) + "\n")
            f.flush()
            gains = [gain(each) for each in record["metrics"].values()]
            about = f"{count} of {len(cells)}: {record['dataset']}, {record['rows']} rows"
            print(about, *(f"{one:+.1f}" for one in gains), flush=True)


def gain(told: dict[str, Any]) -> float:
    """What the network adds to the blend, in points."""
    return 100 * (told["scores"]["with"] - told["scores"]["without"])


def summary(records: list[dict[str, Any]]) -> None:
    """Print what the criterion asks for, by device and size."""
    from scipy import stats

    for device, size in sorted({(r["device"], r["size"]) for r in records}):
        some = [r for r in records if (r["device"], r["size"]) == (device, size)]
        gains, levels, weights = defaultdict(list), defaultdict(list), []
        for r in some:
            for each in r["metrics"].values():
                gains[r["dataset"]].append(gain(each))
                weights.append(each["weights"].get(NETWORK, 0.0))
                for way in ("without", "with"):
                    levels[way].append(100 * each["scores"][way])
        means = [fmean(each) for each in gains.values()]
        half = stats.t.ppf(0.975, len(means) - 1) * stats.sem(means) if len(means) > 1 else np.nan
        mean = fmean(means)
        first = [next(iter(r["metrics"].values())) for r in some]
        fit = median(each["fit"] for each in first)
        network = median(each["seconds"][NETWORK] for each in first)
        goal = float(np.interp(size, *TIMES))
        held = mean >= 0.5 and mean - half > 0 and fit <= goal
        print(
            f"{device}, {size:,} rows: {len(means)} tables, {len(some)} cells; without "
            f"{fmean(levels['without']):.2f}, with {fmean(levels['with']):.2f}; gain {mean:+.2f} "
            f"({mean - half:+.2f} to {mean + half:+.2f}), median {median(means):+.2f}, positive on "
            f"{sum(m > 0 for m in means)}; weight {fmean(weights):.2f}; median fit {fit:.1f} s of "
            f"{goal:.0f}, network {network:.1f} s: {'joins' if held else 'does not join'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--threads", type=int, default=2, help="cores of each process")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many")
    parser.add_argument("--cpu", action="store_true", help="also where there is a GPU")
    parser.add_argument("--summary", action="store_true", help="print what the file has")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--splits", nargs="*", type=int, default=list(SPLITS))
    asked = parser.parse_args()
    lines = asked.out.read_text("utf-8").splitlines() if asked.out.exists() else []
    records = [json.loads(line) for line in lines]
    if asked.summary:
        summary(records)
    else:
        run(asked, {Cell(*(r[name] for name in Cell._fields)) for r in records})


if __name__ == "__main__":
    main()
