"""Ways to tune the thresholds of a multilabel network on few labels, each as the only rule.

    EVALIGN_DATA=FOLDER python study/benchmarks/multilabel_rules.py --out OUT.json --workers 2

The networks are those of the table `multilabel`. Every rule is fitted to the same validation rows
and scored on the same test rows:

- 0.5: the network's own labels.
- labels: the thresholds that are best on the labels.
- expected: the thresholds that are best if the probabilities are right.
- calibrated: likewise, after a factor and an offset for each label (Platt scaling with a prior).
- halfway: the mean of "labels" and "calibrated". It is what `fit_decision` does.
- evidence 30, 100, 300: the thresholds that are best on the labels plus what the calibrated
  probabilities say, which count as much as so many rows of each class. It is what `fit_decision`
  does for two classes, with 100.
- tournament: "0.5", "expected", "calibrated", "halfway" or "labels", whichever scores best on five
  folds that the rules have not seen. `fit_decision` did so until November 2026.

Results are written after every network, with the sets, methods and splits that were asked for.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from evalign_study.records.made import made
from evalign_study.records.run import Run
from evalign_study.tasks import plan
from evalign_study.trainers.multilabel import MACRO, METHODS, MICRO, score, train_network
from torch import Tensor

from evalign.decisions import calibration, multilabel
from evalign.decisions.objective import Objective
from evalign.decisions.tuned import FOLDS, folds

EVIDENCE = (30, 100, 300)
Rule = Callable[[Tensor], Tensor]  # from the weights of rows (N, L) to thresholds (L,)


def rules(z: Tensor, y: Tensor, metric: str) -> dict[str, Rule]:
    """Make the rules that learn from log-odds and labels (N, L)."""
    objective = Objective.of("rules", metric, None, multilabel=True)
    ones = torch.ones_like(z)

    def best(z: Tensor, positive: Tensor, weight: Tensor) -> Tensor:
        return multilabel.thresholds(z, positive, weight, objective)

    def scaling(weight: Tensor) -> tuple[Tensor, Tensor]:
        columns = zip(z.T, y.T, weight.T, strict=True)
        numbers = [calibration.factor_and_offset(*column) for column in columns]
        a, b = (torch.stack(each) for each in zip(*numbers, strict=True))
        return a, b

    def labels(weight: Tensor) -> Tensor:
        return best(z, y, weight)

    def calibrated(weight: Tensor) -> Tensor:
        a, b = scaling(weight)
        return (best(a * z + b, (a * z + b).sigmoid(), ones) - b) / a

    def halfway(weight: Tensor) -> Tensor:
        return (labels(weight) + calibrated(weight)) / 2

    def with_evidence(weight: Tensor, rows: int) -> Tensor:
        a, b = scaling(weight)
        p = (a * z + b).sigmoid()
        present, absent = (weight * y).sum(0), (weight * (1 - y)).sum(0)
        # Each class's rows are so many labels, and `rows` more of the probabilities.
        trust = torch.stack([absent, present]) / (torch.stack([absent, present]) + rows)
        no = trust[0] * (1 - y) + (1 - trust[0]) * (1 - p)
        yes = trust[1] * y + (1 - trust[1]) * p
        return best(z, yes / (no + yes), weight * (no + yes))

    found: dict[str, Rule] = {
        "0.5": lambda weight: torch.zeros_like(z[0]),
        "expected": lambda weight: best(z, z.sigmoid(), ones),
        "calibrated": calibrated,
        "halfway": halfway,
        "labels": labels,
    }
    for rows in EVIDENCE:
        found[f"evidence {rows}"] = lambda weight, rows=rows: with_evidence(weight, rows)
    return found


def tournament(z: Tensor, y: Tensor, metric: str, known: dict[str, Rule]) -> Tensor:
    """The thresholds of the rule that is best on rows that it has not seen."""
    fold = torch.stack([folds(column.long()) for column in y.T], 1)
    names = ("0.5", "expected", "calibrated", "halfway", "labels")
    given = {name: torch.zeros_like(y) for name in names}
    for k in range(FOLDS):
        for name in names:
            at = known[name]((fold != k).double())
            given[name] = torch.where(fold == k, (z > at).double(), given[name])
    best = max(names, key=lambda name: score(metric, given[name], y))
    return known[best](torch.ones_like(z))


def measure(run: Run) -> dict[str, Any]:
    """Train a network and score every rule on its test rows, in points."""
    trained = train_network(run)
    z, test = (x.double() + trained.offsets for x in (trained.logits, trained.test))
    y, found = trained.known.double(), {}
    for metric in (MACRO, MICRO):
        known = rules(z, y, metric)
        at = {name: rule(torch.ones_like(z)) for name, rule in known.items()}
        at["0.5"] = at["0.5"] + trained.offsets  # of the network's own logits
        at["tournament"] = tournament(z, y, metric, known)
        found[metric] = {
            name: 100 * score(metric, (test > each).long(), trained.unseen)
            for name, each in at.items()
        }
    return {"dataset": run.dataset, "method": run.method, "split": run.split_seed, "test": found}


def means(runs: list[dict[str, Any]], metric: str) -> dict[str, float]:
    """Average each rule over networks, every data set alike."""
    sets = {run["dataset"] for run in runs}
    return {
        rule: float(
            np.mean(
                [
                    np.mean([run["test"][metric][rule] for run in runs if run["dataset"] == one])
                    for one in sorted(sets)
                ]
            )
        )
        for rule in runs[0]["test"][metric]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="*", default=list(plan.MULTILABEL))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    plans = plan.multilabel(asked.datasets, methods=asked.methods, splits=range(asked.splits))
    plans.sort(key=lambda run: run.split_seed)  # so that a part of the runs has every data set
    planned = {name: getattr(asked, name) for name in ("datasets", "methods", "splits")}
    runs: list[dict[str, Any]] = []
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measure, run) for run in plans]):
            runs.append(done.result())
            summary = {metric: means(runs, metric) for metric in (MACRO, MICRO)}
            result = {"made": made("cpu"), "planned": planned, "mean": summary, "runs": runs}
            asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(len(runs), "of", len(plans), flush=True)
    for metric, each in summary.items():
        print(metric, {name: round(value, 2) for name, value in each.items()})


if __name__ == "__main__":
    main()
