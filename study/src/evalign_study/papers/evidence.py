"""The values of a table's cells, trial by trial, taken from the records."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from evalign_study.papers.plan import Cell, Plan
from evalign_study.papers.tables import MARGIN, Column, Panel
from evalign_study.records.made import Record
from evalign_study.records.run import LOSS, Triples, scores_of_each
from evalign_study.trainers.decisions import THRESHOLDS

Selection = Literal["papers", "strict"]
REACHED = 0.95  # share of the highest value of any line at which a curve counts as converged


class View(NamedTuple):
    """One way to look at a trained model.

    Args:
        variant: as in `Run`.
        selection: how the epoch and the setting of the grid are chosen: by the lowest validation
            loss ("papers") or by the best metric on the validation rows ("strict").
        decision: the rule from scores to labels.
    """

    variant: str
    selection: Selection
    decision: str


class Evidence:
    """The records of a plan.

    Args:
        plan: the plan whose records these are.
        records: the records by key, of this table and others.
    """

    def __init__(self, plan: Plan, records: Mapping[str, Record]) -> None:
        self.plan, self.table, self.records = plan, plan.table, records
        self._trials: dict[tuple[str, ...], list[Record]] = {}
        self._values: dict[tuple[str, str, Column, View], dict[int, float | None]] = {}

    def trials(self, cell: Cell, criterion: str) -> list[Record]:
        """List the recorded trials of the setting that the criterion chooses."""
        name = (cell.panel.label, cell.variant, cell.line.label, criterion)
        if name not in self._trials:
            runs = self.plan.runs(cell, criterion, self.records)
            found = (self.records.get(run.key) for run in runs)
            self._trials[name] = [record for record in found if record is not None]
        return self._trials[name]

    def values(
        self, panel: Panel, line: str, column: Column, view: View
    ) -> dict[int, float | None]:
        """Return the values of the trials by seed; None for a trial without a value."""
        name = (panel.label, line, column, view)
        if name not in self._values:
            self._values[name] = self._computed(panel, line, column, view)
        return self._values[name]

    def _computed(
        self, panel: Panel, line: str, column: Column, view: View
    ) -> dict[int, float | None]:
        method = panel.line(line)
        if method is None:
            return {}
        criterion = LOSS if view.selection == "papers" else column.criterion
        goal = self._goal(panel, column, view.variant)
        trials = self.trials(Cell(panel, view.variant, method), criterion)
        found = (
            [_of_curve(record["curve"], column, goal) for record in trials]
            if column.curve
            else _of_picks(trials, column, panel.classes, criterion, view.decision)
        )
        return {record["run"]["seed"]: x for record, x in zip(trials, found, strict=True)}

    def _goal(self, panel: Panel, column: Column, variant: str) -> float:
        """Compute the value from which a line counts as converged.

        It is a share of the highest median over trials that any line reaches. All lines have the
        same goal, as a training that never learns would soon be near its own highest value.
        """
        kind, _, key = column.metric.partition(":")
        if kind != "epochs":
            return 0.0
        lines = (self.trials(Cell(panel, variant, line), LOSS) for line in panel.lines)
        highest = [
            np.median([max(epoch[key] for epoch in record["curve"]) for record in trials])
            for trials in lines
            if trials
        ]
        return REACHED * float(max(highest, default=0.0))

    def used(self) -> list[Record]:
        """List all records of the table: grid and trials, each once."""
        runs = [*self.plan.grids(), *self.plan.all_runs(self.records)]
        keys = dict.fromkeys(run.key for run in runs)
        return [self.records[key] for key in keys if key in self.records]


def _of_picks(
    records: list[Record], column: Column, classes: int, criterion: str, decision: str
) -> list[float | None]:
    """Look up a column in the kept epoch of each; None where a record does not have it."""
    picks = [record["picks"].get(criterion) for record in records]
    if column.metric == "auroc":
        return [pick and pick["auroc"] for pick in picks]
    names = THRESHOLDS if decision == "thresholds" else [decision]
    there = [pick is not None and all(x in pick["decisions"] for x in names) for pick in picks]
    kept = [pick["decisions"] for pick, is_there in zip(picks, there, strict=True) if is_there]
    found = _metric([decisions[x] for decisions in kept for x in names], column.metric, classes)
    means = iter(np.reshape(found, (len(kept), len(names))).mean(1).tolist())
    return [next(means) if is_there else None for is_there in there]


def _metric(decided: list[dict[str, Any]], metric: str, classes: int) -> list[float]:
    """Return the recorded test scores, or compute them from the confusion matrices."""
    if all(metric in x["test"] for x in decided):
        return [x["test"][metric] for x in decided]
    matrices: list[Triples] = [x["matrix"] for x in decided]
    name, _, one_class = metric.partition(":")
    if not one_class:
        return scores_of_each(matrices, classes, metric)
    return [_of_class(matrix, name, int(one_class)) for matrix in matrices]


def _of_class(matrix: Triples, name: str, k: int) -> float:
    """Compute the precision or the recall of a class."""
    right = sum(count for true, predicted, count in matrix if true == predicted == k)
    side = 1 if name == "precision" else 0
    total = sum(cell[2] for cell in matrix if cell[side] == k)
    return right / total if total else 0.0


def _of_curve(curve: Sequence[dict[str, Any]], column: Column, goal: float) -> float | None:
    """Look up a column in the curve over the epochs."""
    kind, _, key = column.metric.partition(":")
    if kind == "last":
        return curve[-1][key]
    if kind == "epochs":
        return next((epoch["epoch"] for epoch in curve if epoch[key] >= goal), None)
    return _correlation(curve, key)


def _correlation(curve: Sequence[dict[str, Any]], beta: str) -> float | None:
    """Correlate −loss and Fβ over the epochs with a finite loss.

    The result is None where the loss never changes, or Fβ changes too little to count: such a
    training learns nothing, and its correlation would be noise.
    """
    pairs = [(epoch["train_loss"], epoch[f"train_f{beta}"]) for epoch in curve]
    loss, score = np.array([x for x in pairs if None not in x], dtype=float).reshape(-1, 2).T
    if len(loss) == 0 or np.ptp(loss) == 0 or np.ptp(score) < MARGIN:
        return None
    return float(np.corrcoef(-loss, score)[0, 1])
