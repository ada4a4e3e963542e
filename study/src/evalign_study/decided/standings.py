"""Gains of our rule over `predict` and over the rivals, from the records of the table of decisions.

A *cell* is a data set, a model and a metric. Gains are in points, hundredths of a metric, and
paired split by split.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evalign.core.estimates import estimate
from evalign_study.pipeline.intervals import Interval
from evalign_study.records.made import Record
from evalign_study.suite.standings import FOLDS, Bar
from evalign_study.trainers.deciding import CUTOFFS, PREDICT, PREFIX, TUNER

OURS = "tuned"
RIVALS = (TUNER, CUTOFFS)
LEVEL = 0.05
BOOSTED = ("hist_gradient_boosting", "lightgbm", "xgboost", "catboost")
OTHERS = ("logistic_regression", "random_forest", "extra_trees")
# The least mean gain in F1 over `predict`, in points.
LEAST = {"boosted trees": (BOOSTED, 2.0), "forests and linear models": (OTHERS, 5.0)}
FASTER = 5  # scikit-learn's time is to be at least so many times ours

Cell = tuple[str, str, str]  # (data set, model, metric)
Scores = dict[Cell, dict[str, dict[int, float]]]  # by cell, decision and split


class Cells(NamedTuple):
    """The gains of a comparison by cell, and the cells that are lost or won beyond chance."""

    gains: dict[Cell, Interval]
    lost: list[Cell]
    won: list[Cell]


def collected(records: Iterable[Record], what: str = "test") -> Scores:
    """Collect the scores, or the seconds, by cell, decision and split."""
    found: Scores = {}
    for record in records:
        run = record["run"]
        for metric, decided in record["picks"].items():
            cell = (run["dataset"], run["method"].removeprefix(PREFIX), goal(metric))
            for decision, told in decided.items():
                splits = found.setdefault(cell, {}).setdefault(decision, {})
                splits[run["split_seed"]] = told[what]
    return found


def goal(metric: str) -> str:
    """Name a metric of two classes and its average over more classes alike.

    Examples:
        >>> goal("f1_macro"), goal("f2")
        ('f1', 'f2')
    """
    return metric.removesuffix("_macro")


def compared(scores: Scores, rival: str, ours: str = OURS) -> Cells:
    """Compare our rule with a rival, in all cells that have both.

    Intervals are those of Nadeau and Bengio. A cell is lost or won if its p-value, adjusted by Holm
    for the number of cells, is below 5%.
    """
    gains: dict[Cell, Interval] = {}
    chances: dict[Cell, float] = {}
    for cell, decided in scores.items():
        mine, other = decided.get(ours, {}), decided.get(rival, {})
        paired = [100 * (mine[split] - other[split]) for split in mine.keys() & other.keys()]
        if len(paired) > 1:
            mean, low, high, p = estimate(paired, FOLDS)
            gains[cell], chances[cell] = Interval(mean, low, high, len(paired)), p
    adjusted = dict(zip(chances, holm(np.array([*chances.values()])), strict=True))
    beyond = [cell for cell in gains if adjusted[cell] < LEVEL]
    lost = [cell for cell in beyond if gains[cell].mean < 0]
    return Cells(gains, lost, [cell for cell in beyond if cell not in lost])


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust m p-values for their number: the smallest is multiplied by m, the next by m − 1.

    Examples:
        >>> holm(np.array([0.04, 0.01, 0.03])).round(2).tolist()
        [0.06, 0.03, 0.06]
    """
    order = p.argsort()
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]).clip(max=1)
    return adjusted


def mean(gains: Mapping[Cell, Interval]) -> float:
    """Average the gains of cells, each data set with the same weight."""
    sets: dict[str, list[float]] = {}
    for (dataset, *_), gain in gains.items():
        sets.setdefault(dataset, []).append(gain.mean)
    return float(np.mean([np.mean(each) for each in sets.values()])) if sets else float("nan")


def chosen(cells: Mapping[Cell, Any], models: Iterable[str], metric: str) -> dict[Cell, Any]:
    """Pick the cells of some models and a metric."""
    models = set(models)
    return {cell: x for cell, x in cells.items() if cell[1] in models and cell[2] == metric}


def levels(
    scores: Scores, model: str, decisions: Sequence[str], metric: str = "f1"
) -> list[float] | None:
    """Average each decision's scores over the data sets that have them all, in points."""
    cells = chosen(scores, [model], metric).values()
    there = [cell for cell in cells if cell.keys() >= {*decisions}]
    if not there:
        return None
    means = [[np.mean([*cell[name].values()]) for name in decisions] for cell in there]
    return (100 * np.mean(means, 0)).tolist()


def bars(records: Iterable[Record]) -> list[Bar]:
    """List the numbers that the rule is judged by."""
    records = list(records)
    scores, seconds = collected(records), collected(records, "seconds")
    over = compared(scores, PREDICT)
    found = []
    for name, (models, least) in LEAST.items():
        gain = mean(chosen(over.gains, models, "f1"))
        text = f"mean gain in F1 over predict, {name}, points"
        found.append(Bar(text, gain, f"{least:g} or more", gain >= least))
    for rival in RIVALS:
        cells = compared(scores, rival)
        gain = mean(cells.gains)
        found.append(Bar(f"mean gain over {rival}, points", gain, "above 0", gain > 0))
        lost = len(cells.lost)
        found.append(Bar(f"cells lost to {rival} beyond chance", lost, "none", lost == 0))
    both = [cell for cell in seconds.values() if TUNER in cell and OURS in cell]
    if both:
        ours, theirs = (sum(sum(cell[name].values()) for cell in both) for name in (OURS, TUNER))
        bar = f"{1 / FASTER:g} or less"
        text = "time of the rule, that of scikit-learn's search is 1"
        found.append(Bar(text, ours / theirs, bar, ours * FASTER <= theirs))
    return found
