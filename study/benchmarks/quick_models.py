"""Settings of boosting, repeated folds, and decisions, for the blend of quick models.

    EVALIGN_DATA=FOLDER python study/benchmarks/quick_models.py --out OUT.jsonl --processes 15
    python study/benchmarks/quick_models.py --summary --out OUT.jsonl

The blend is the mean of a linear model, extra trees and boosting, each of five folds, with a rule
that is tuned on their out-of-fold probabilities. Tables are the study's development tables, with at
most 1,500 and 5,000 training rows, and three splits.

Criterion, written before the first run: boosting gets the settings with the best mean F1 of the
blend on the test rows, over tables, sizes and splits. Of settings within 0.2 points of the best the
quickest wins. Repeated folds, or another decision, become the default only if they are 0.3 points
better on average and not 0.3 worse for tables of either size.

The record, `results/quick_models.jsonl`, is not whole: of 5,000 rows it has the first eight tables,
of 1,500 rows the first ten, without reuters_r8. Its seconds are comparable among 5,000 rows alone:
those of 1,500 rows were measured beside other work.
"""

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes side by side share the cores

import numpy as np
from evalign_study.suite.plan import SETS as ALL
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SETS = tuple(name for name in ALL if name not in ("creditcard", "caltech256_clip"))
SIZES, SPLITS, FOLDS, REPEATS = (1500, 5000), range(3), 5, 3
BOOSTING: dict[str, dict[str, Any]] = {
    "default": {},
    "l2": {"l2_regularization": 1.0},
    "l2_10": {"l2_regularization": 10.0},
    "slower": {"learning_rate": 0.05, "max_iter": 200, "l2_regularization": 1.0},
    "fewer_leaves": {"max_leaf_nodes": 15, "l2_regularization": 1.0},
    "half_columns": {"max_features": 0.5, "l2_regularization": 1.0},
    "half_columns_slower": {
        "max_features": 0.5,
        "learning_rate": 0.05,
        "max_iter": 200,
        "max_leaf_nodes": 15,
        "l2_regularization": 1.0,
    },
    "stopped": {
        "learning_rate": 0.05,
        "max_iter": 500,
        "early_stopping": True,
        "l2_regularization": 1.0,
    },
}
REPEATED = "l2"  # the settings of the models that are trained on repeated folds


def models(seed: int) -> dict[str, Any]:
    """The models of the blend, and boosting with other settings."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    boosting = {
        name: HistGradientBoostingClassifier(random_state=seed, **settings)
        for name, settings in BOOSTING.items()
    }
    return {"linear": linear, "forest": ExtraTreesClassifier(200, random_state=seed)} | boosting


def one(task: tuple[str, int, int]) -> dict[str, Any]:
    """Score the blends of one table, size and split."""
    import torch
    from evalign_study.trainers.deciding import split_rows, thin
    from evalign_study.trainers.methods import Problem
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedGroupKFold

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dataset, size, split = task
    rows = split_rows(dataset, split, max(SIZES))
    some = thin(rows.y, size)
    X, y, groups = rows.X[some], rows.y[some], rows.groups[some]
    metric = Problem(torch.ones(rows.classes), dataset).metric("f1")
    known: dict[tuple[str, int], np.ndarray] = {}
    test: dict[tuple[str, int], np.ndarray] = {}
    seconds: dict[str, float] = defaultdict(float)
    for repeat in range(REPEATS):
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=repeat)
        parts = list(folds.split(X, y, groups))
        for name, model in models(repeat).items():
            if repeat and name not in ("linear", "forest", REPEATED):
                continue
            start = time.perf_counter()
            out, new = np.zeros((len(y), rows.classes)), np.zeros((len(rows.y_test), rows.classes))
            for training, held in parts:
                fitted = clone(model).fit(X[training], y[training])
                out[np.ix_(held, fitted.classes_)] = fitted.predict_proba(X[held])
                new[:, fitted.classes_] += fitted.predict_proba(rows.X_test) / FOLDS
            known[name, repeat], test[name, repeat] = out, new
            seconds[name] += 0 if repeat else time.perf_counter() - start
    found: dict[str, float] = {}

    def judge(name: str, p: np.ndarray, new: np.ndarray, decision: str = "tuned") -> None:
        found[name] = scored(metric, p, y, new, rows.y_test, decision)

    def blend(boosting: str, repeats: range) -> tuple[np.ndarray, np.ndarray]:
        names = [(name, r) for name in ("linear", "forest", boosting) for r in repeats]
        return tuple(np.mean([kind[name] for name in names], 0) for kind in (known, test))

    for name in BOOSTING:
        judge(f"blend {name}", *blend(name, range(1)))
        judge(f"alone {name}", known[name, 0], test[name, 0])
    judge("expected", *blend(REPEATED, range(1)), decision="expected")
    judge("argmax", *blend(REPEATED, range(1)), decision="argmax")
    judge("repeated", *blend(REPEATED, range(REPEATS)))
    for name in ("linear", "forest"):
        judge(f"alone {name}", known[name, 0], test[name, 0])
    return {
        "dataset": dataset,
        "size": size,
        "split": split,
        "rows": len(y),
        "rarest": int(np.bincount(y).min()),
        "classes": rows.classes,
        "scores": found,
        "seconds": dict(seconds),
    }


def scored(
    metric: str, p: np.ndarray, y: np.ndarray, new: np.ndarray, y_new: np.ndarray, decision: Any
) -> float:
    """The metric of the test rows, by a rule that is fitted to the out-of-fold probabilities."""
    import torch

    from evalign import fit_decision
    from evalign.core.confusion import Confusion
    from evalign.metrics import resolve

    rule = fit_decision(y=y, probabilities=p, metric=metric, decision=decision)
    labels = torch.from_numpy(np.asarray(rule(probabilities=new))).long()
    confusion = Confusion.from_predictions(
        labels, torch.from_numpy(y_new).long(), num_classes=p.shape[1], matrix=True
    )
    return float(resolve(metric)(confusion))


def summary(records: list[dict[str, Any]]) -> None:
    """Print the means, by size and by the number of rows of the rarest class."""
    names = list(records[0]["scores"])
    groups: dict[str, list[dict[str, Any]]] = {
        "all": records,
        **{f"{size:,} rows": [r for r in records if r["size"] == size] for size in SIZES},
        "rarest ≤ 60": [r for r in records if r["rarest"] <= 60],
    }
    groups = {name: some for name, some in groups.items() if some}
    print("| | " + " | ".join(f"{g} ({len(rs)})" for g, rs in groups.items()) + " | seconds |")
    print("| --- |" + " --- |" * (len(groups) + 1))
    for name in names:
        cells = [f"{100 * fmean(r['scores'][name] for r in rs):.2f}" for rs in groups.values()]
        model = name.split()[-1]
        took = [r["seconds"][model] for r in records if model in r["seconds"]]
        print(
            f"| {name} | {' | '.join(cells)} | {fmean(took):.2f} |"
            if took
            else f"| {name} | {' | '.join(cells)} | |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    asked = parser.parse_args()
    lines = asked.out.read_text("utf-8").splitlines() if asked.out.exists() else []
    records = [json.loads(line) for line in lines]
    if asked.summary:
        summary(records)
        return
    done = {(r["dataset"], r["size"], r["split"]) for r in records}
    sizes = sorted(asked.sizes, reverse=True)  # the longest first
    tasks = [(name, size, split) for size in sizes for name in asked.sets for split in SPLITS]
    tasks = [task for task in tasks if task not in done]
    with ProcessPoolExecutor(asked.processes) as pool, asked.out.open("a", encoding="utf-8") as out:
        for future in as_completed([pool.submit(one, task) for task in tasks]):
            record = future.result()
            out.write(json.dumps(record) + "\n")
            out.flush()
            print(record["dataset"], record["size"], record["split"], flush=True)


if __name__ == "__main__":
    main()
