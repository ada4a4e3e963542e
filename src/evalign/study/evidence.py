"""What the records say of a table: the values of a cell, trial by trial."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from evalign.study.plan import Cell, Plan
from evalign.study.records import Record
from evalign.study.run import LOSS, Triples, scores
from evalign.study.tables import Column, Panel
from evalign.study.tabular import THRESHOLDS

Selection = Literal["papers", "strict"]
REACHED = 0.95  # of the highest value: a curve has converged


class View(NamedTuple):
    """One way to look at a trained model.

    Args:
        variant: of `Run`.
        selection: which epoch and which setting of the grid count: those with the lowest validation
            loss ("papers") or those with the best metric on the validation rows ("strict").
        decision: from scores to labels.
    """

    variant: str
    selection: Selection
    decision: str


class Evidence:
    """The records of a plan."""

    def __init__(self, plan: Plan, records: Iterable[Record]) -> None:
        self.plan, self.table = plan, plan.table
        self.records = {record["key"]: record for record in records}
        self._trials: dict[tuple[str, ...], list[Record]] = {}

    def trials(self, cell: Cell, criterion: str) -> list[Record]:
        """Those that are there, of the setting that the criterion chooses."""
        name = (cell.panel.label, cell.variant, cell.line.label, criterion)
        if name not in self._trials:
            runs = self.plan.runs(cell, criterion, self.records)
            found = (self.records.get(run.key) for run in runs)
            self._trials[name] = [record for record in found if record is not None]
        return self._trials[name]

    def values(self, panel: Panel, line: str, column: Column, view: View) -> dict[int, float]:
        """By seed, for the trials that have one."""
        of = panel.line(line)
        if of is None:
            return {}
        criterion = LOSS if view.selection == "papers" else column.criterion
        found = {
            record["run"]["seed"]: value(record, column, panel.classes, criterion, view.decision)
            for record in self.trials(Cell(panel, view.variant, of), criterion)
        }
        return {seed: number for seed, number in found.items() if number is not None}

    def used(self) -> list[Record]:
        """All records of the table: grid and trials, each once."""
        keys = [key for cell in self.plan.cells() for key in self.plan.grid(cell)]
        keys += [run.key for run in self.plan.all_runs(self.records)]
        return [self.records[key] for key in dict.fromkeys(keys) if key in self.records]


def value(
    record: Record, column: Column, classes: int, criterion: str, decision: str
) -> float | None:
    """The value of a column for one trained model; None where the record does not have it."""
    kind, _, of = column.metric.partition(":")
    if column.curve:
        return CURVES[kind](record["curve"], of)
    pick = record["picks"].get(criterion)
    if pick is None:
        return None
    if column.metric == "auroc":
        return pick["auroc"]
    decisions = [f"{t:g}" for t in THRESHOLDS] if decision == "thresholds" else [decision]
    if not all(name in pick["test"] for name in decisions):
        return None
    matrices = [pick["test"][name]["matrix"] for name in decisions]
    return float(np.mean([_metric(matrix, column.metric, classes) for matrix in matrices]))


def _metric(matrix: Triples, metric: str, classes: int) -> float:
    name, _, of_class = metric.partition(":")
    if not of_class:
        return scores(matrix, classes, (metric,))[metric]
    k = int(of_class)
    right = sum(count for true, predicted, count in matrix if true == predicted == k)
    side = 1 if name == "precision" else 0
    total = sum(cell[2] for cell in matrix if cell[side] == k)
    return right / total if total else 0.0


def _last(curve: Sequence[dict[str, Any]], key: str) -> float | None:
    return curve[-1][key]


def _epochs(curve: Sequence[dict[str, Any]], key: str) -> float | None:
    """The first epoch with nearly the highest value."""
    values = [epoch[key] for epoch in curve]
    enough = REACHED * max(values)
    return float(
        next(e["epoch"] for e, found in zip(curve, values, strict=True) if found >= enough)
    )


def _correlation(curve: Sequence[dict[str, Any]], beta: str) -> float | None:
    """Of −loss and Fβ over the epochs; None where one of them never changes."""
    pairs = [(epoch["train_loss"], epoch[f"train_f{beta}"]) for epoch in curve]
    loss, score = np.array([pair for pair in pairs if None not in pair], dtype=float).T
    if np.ptp(loss) == 0 or np.ptp(score) == 0:
        return None
    return float(np.corrcoef(-loss, score)[0, 1])


CURVES = {"last": _last, "epochs": _epochs, "correlation": _correlation}
