"""How often a promise of `fit_decision` is made and broken, where the truth is known.

    nice python benchmarks/promise_levels.py --out benchmarks/results/promise_levels.json

Rows are drawn from normal distributions, one for each class, so that the model's logits can be the
exact ones, badly calibrated ones (too sure, with offsets of other shares of the classes), or exact
ones rounded to integers, with ties. Each draw fits a rule and applies it to a population. The share
of draws that were promised and are broken there is tested against 1 − confidence by an exact
binomial test, corrected for the number of cells by Bonferroni's method.
"""

import argparse
import itertools
import json
import platform
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from evalign import Confusion, DecisionRule, fit_decision
from evalign.core.constraints import parse
from evalign.decisions.promise import NotPromisedWarning
from evalign.metrics import resolve

CONFIDENCE = 0.95
# A test over all cells that is wrong this often if each cell breaks exactly 5% of its draws.
LEVEL_OF_ALL_CELLS = 0.05
ROWS = (100, 500, 2000)
SCORES = ("exact", "badly calibrated", "ties")
# The shares of the classes; bounds are about the last ones.
SHARES = {
    3: (0.6, 0.3, 0.1),
    4: (0.4, 0.3, 0.2, 0.1),
    10: (*(0.8 / 9 for _ in range(9)), 0.2),
}
# The metric and the bounds of each goal, about the last class and the second.
GOALS = {
    "recall": ("accuracy", "recall[{last}] >= 0.7"),
    "precision": ("f1_macro", "precision[{last}] >= 0.5"),
    "recall and precision": ("accuracy", "recall[{last}] >= 0.4, precision[{last}] >= 0.3"),
    "recall of two classes": ("f1_macro", "recall[1] >= 0.5, recall[{last}] >= 0.5"),
    "gap": ("accuracy", "gap(recall[{last}]) <= 0.3"),
}
# How far the classes are apart: so that bounds cost something, and most can be met.
APART = {3: 1.3, 4: 1.0, 10: 0.8}
# The noise of the second group, whose classes are harder to tell, where a gap is bounded.
NOISE_OF_SECOND_GROUP = 1.3
NAMED = {
    *((3, goal, 500, "exact") for goal in GOALS),
    (3, "recall", 100, "exact"),
    (3, "recall", 2000, "exact"),
    (3, "recall", 500, "badly calibrated"),
    (3, "recall", 500, "ties"),
    (4, "precision", 500, "badly calibrated"),
    (4, "recall of two classes", 500, "exact"),
    (10, "recall", 500, "exact"),
}
DRAWS_NAMED, DRAWS = 1000, 200
POPULATION = 200_000
# A rule whose smallest slack is farther from 0 on a tenth of the population is judged by that.
FAR = 0.06
ROWS_OF_BEST = 2_000
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Cell = tuple[int, str, int, str]


def draw(classes: int, goal: str, scores: str, rows: int, seed: list[int]) -> Rows:
    """Draw logits, labels, and groups."""
    shares = np.array(SHARES[classes])
    dimensions = 3 if classes < 10 else 6
    centres = APART[classes] * np.random.default_rng(5).standard_normal((classes, dimensions))
    generator = np.random.default_rng(seed)
    y = generator.choice(classes, rows, p=shares)
    group = generator.integers(2, size=rows)
    noise = generator.standard_normal((rows, centres.shape[1]))
    if goal == "gap":
        noise[group == 1] *= NOISE_OF_SECOND_GROUP
    x = centres[y] + noise
    logits = np.log(shares) + x @ centres.T - (centres**2).sum(1) / 2
    if scores == "badly calibrated":
        logits = 2.5 * logits + np.linspace(1.5, -1.5, classes)
    if scores == "ties":
        logits = np.round(logits)
    return logits, y, group


def fitted(drawn: Rows, goal: str, classes: int, **settings: Any) -> DecisionRule:
    """Fit a rule for a goal."""
    logits, y, group = drawn
    metric, constraint = GOALS[goal]
    groups = group if "gap" in constraint else None
    constraint = constraint.format(last=classes - 1)
    return fit_decision(
        logits, y, metric=metric, constraint=constraint, constraint_groups=groups, **settings
    )


def reached(rule: DecisionRule, goal: str, population: Rows) -> tuple[float, bool]:
    """The metric of a rule in the population, and whether all bounds hold there."""
    logits, y, group = population
    tenth = POPULATION // 10
    metric, slack = measured(rule, goal, (logits[:tenth], y[:tenth], group[:tenth]))
    if np.abs(slack) < FAR:
        metric, slack = measured(rule, goal, population)
    return metric, slack >= 0


def measured(rule: DecisionRule, goal: str, population: Rows) -> tuple[float, float]:
    """The metric of a rule on some rows, and its smallest slack."""
    logits, y, group = population
    labels = rule(logits)
    classes = logits.shape[1]

    def confusion(chosen: np.ndarray) -> Confusion:
        cells = np.bincount(classes * y[chosen] + labels[chosen], minlength=classes**2)
        return Confusion.from_matrix(cells.reshape(classes, classes).astype(np.float64))

    whole = confusion(np.ones(len(y), dtype=bool))
    groups = [confusion(group == value) for value in (0, 1)]
    assert isinstance(rule.constraint, str)
    slacks = [constraint.slack(whole, groups) for constraint in parse(rule.constraint)]
    return float(resolve(GOALS[goal][0])(whole)), float(min(slacks))


def cell(names: Cell, share_of_draws: float) -> dict[str, Any]:
    """Measure one cell."""
    classes, goal, rows, scores = names
    named = names in NAMED
    draws = max(1, round(share_of_draws * (DRAWS_NAMED if named else DRAWS)))
    warnings.simplefilter("ignore", NotPromisedWarning)
    population = draw(classes, goal, scores, POPULATION, [classes, 0])
    promised = 0
    broken = 0
    metrics = []
    seconds = 0.0
    for seed in range(draws):
        drawn = draw(classes, goal, scores, rows, [classes, rows, seed])
        start = time.process_time()
        try:
            rule = fitted(drawn, goal, classes, confidence=CONFIDENCE)
        except ValueError as error:  # no rule meets the bounds on these rows
            if "be met by some rule" not in str(error):
                raise
            rule = None
        seconds += time.process_time() - start
        if rule is not None and rule.promised:
            metric, kept = reached(rule, goal, population)
            promised += 1
            broken += not kept
            metrics.append(metric)
    return {
        "classes": classes,
        "goal": goal,
        "rows": rows,
        "scores": scores,
        "named": named,
        "draws": draws,
        "promised": promised,
        "broken": broken,
        "p": float(binomtest(broken, draws, 1 - CONFIDENCE, "greater").pvalue),
        "metric": float(np.mean(metrics)) if metrics else None,
        "best": best_known(classes, goal, scores),
        "milliseconds": 1000 * seconds / draws,
    }


def best_known(classes: int, goal: str, scores: str) -> float:
    """The metric of a rule fitted without a promise to many more rows."""
    rule = fitted(draw(classes, goal, scores, ROWS_OF_BEST, [classes, 1]), goal, classes)
    return reached(rule, goal, draw(classes, goal, scores, POPULATION, [classes, 0]))[0]


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers that the documentation quotes."""
    limit = LEVEL_OF_ALL_CELLS / len(cells)
    return {
        "cells": len(cells),
        "draws": sum(x["draws"] for x in cells),
        "promised": sum(x["promised"] for x in cells),
        "broken": sum(x["broken"] for x in cells),
        "above": sum(x["p"] < limit for x in cells),
        "worst": max(x["broken"] / x["draws"] for x in cells),
    }


def table(found: dict[str, Any]) -> str:
    """The named cells, and the others together by goal and rows."""
    lines = [
        "| classes | bound | rows | scores | draws | promised | promised and broken | given up |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def line(names: str, cells: list[dict[str, Any]]) -> str:
        draws = sum(x["draws"] for x in cells)
        promised = sum(x["promised"] for x in cells) / draws
        broken = sum(x["broken"] for x in cells) / draws
        kept = [x for x in cells if x["metric"] is not None]
        lost = [x["best"] - x["metric"] for x in kept]
        weights = [x["promised"] for x in kept]
        points = f"{100 * np.average(lost, weights=weights):.1f}" if kept else "–"
        given_up = points.replace("-", "−")
        return f"| {names} | {draws:,} | {promised:.0%} | {broken:.1%} | {given_up} |"

    order = list(GOALS)
    for x in sorted(found["cells"], key=lambda x: (order.index(x["goal"]), x["classes"])):
        if x["named"]:
            names = f"{x['classes']} | {x['goal']} | {x['rows']:,} | {x['scores']}"
            lines.append(line(names, [x]))
    for goal in GOALS:
        for rows in ROWS:
            others = [
                x
                for x in found["cells"]
                if not x["named"] and (x["goal"], x["rows"]) == (goal, rows)
            ]
            if others:
                lines.append(line(f"3, 4, 10 | {goal} | {rows:,} | the others", others))
    return "\n".join(lines) + "\n"


def processor() -> str:
    """The processor's name, where Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0, help="of the draws, for a trial")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    start = time.perf_counter()
    names = [each for each in itertools.product(SHARES, GOALS, ROWS, SCORES) if each not in NAMED]
    names = sorted(NAMED) + names
    cells = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for found in pool.map(cell, names, itertools.repeat(given.share)):
            cells.append(found)
            print(len(cells), found, flush=True)
            record = {
                "confidence": CONFIDENCE,
                "hardware": processor(),
                "python": platform.python_version(),
                "versions": {name: version(name) for name in ("evalign", "numpy", "scipy")},
                "population": POPULATION,
                "minutes": (time.perf_counter() - start) / 60,
                "cells_planned": len(names),
                "summary": summary(cells),
                "cells": cells,
            }
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
