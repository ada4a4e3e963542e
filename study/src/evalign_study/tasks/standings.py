"""Gains of our loss over its rivals, each with the decision that validation rows chose for it.

Cells, trials and choices are those of `suite.standings`. The best rival is the one whose mean score
on the test rows is highest, which no one could know before: nobody else can be chosen better.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.suite.standings import (
    Bar,
    Cell,
    Choice,
    Contender,
    Scores,
    Trial,
    gains,
    over_splits,
)


class Task(NamedTuple):
    """What a table compares.

    Args:
        name: of the table.
        title: what it shows.
        how: how it was made.
        metrics: what each is called; the first is the one that bars are about.
        methods: what each is called; the first is cross-entropy.
        ours: our method for each metric.
        decisions: what each is called; the first is the plain one.
        over_plain: the least gain over cross-entropy's plain decision, in points.
        over_rival: the least gain over the best rival.
        together: whether data sets are judged together, by their mean.
    """

    name: str
    title: str
    how: str
    metrics: Mapping[str, str]
    methods: Mapping[str, str]
    ours: Mapping[str, str]
    decisions: Mapping[str, str]
    over_plain: float
    over_rival: float
    together: bool

    def plain(self, method: str | None = None) -> Choice:
        """A method, by default cross-entropy, with the plain decision."""
        return Choice([method or next(iter(self.methods))], [next(iter(self.decisions))])

    @property
    def rivals(self) -> list[str]:
        return [method for method in self.methods if method not in self.ours.values()]

    def chosen(self, method: str) -> Choice:
        """A method with the decision that its validation rows choose."""
        return Choice([method], list(self.decisions))


def mean(found: Scores, cells: Iterable[Cell], choice: Choice) -> float | None:
    """Average the scores of a choice over trials, then over cells, in points.

    None where a cell does not have it: `Choice` would take argmax for a decision that is missing.
    """
    wanted, means = {Contender(m, d) for m in choice.methods for d in choice.decisions}, []
    for cell in cells:
        trials = [trial for trial in found.get(cell, {}).values() if wanted & trial.keys()]
        known = [score for trial in trials if (score := choice.score(trial)) is not None]
        if not known:
            return None
        means.append(float(np.mean(known)))
    return 100 * float(np.mean(means)) if means else None


def best_rival(found: Scores, cells: Sequence[Cell], task: Task) -> str | None:
    """The rival with the highest mean score, each with its chosen decision."""
    scores = {name: mean(found, cells, task.chosen(name)) for name in task.rivals}
    known = {name: score for name, score in scores.items() if score is not None}
    return max(known, key=known.__getitem__, default=None)


def gain(found: Scores, cells: Sequence[Cell], ours: Choice, rival: Choice) -> Interval | None:
    """The mean gain with its 95% interval: over the trials of one cell, or over several cells."""
    gained = gains({cell: found.get(cell, {}) for cell in cells}, ours, rival)
    if len(gained) < len(cells):
        return None
    each = [over_trials(trials) for trials in gained.values()]
    return each[0] if len(each) == 1 else interval(one.mean for one in each)


def over_trials(gained: Mapping[Trial, float]) -> Interval:
    """The interval over splits; over seeds, by Student's t, where all have one split."""
    if len({split for split, _ in gained}) == 1:
        return interval(gained.values())
    return over_splits(gained)


def groups(task: Task, metric: str, datasets: Sequence[str]) -> dict[str, list[Cell]]:
    """The cells that are judged together, by the name of what they are."""
    if task.together:
        return {"mean over data sets": [(dataset, metric) for dataset in datasets]}
    return {dataset: [(dataset, metric)] for dataset in datasets}


def bars(found: Scores, task: Task, datasets: Sequence[str]) -> list[Bar]:
    """List the numbers that our loss is judged by. A gain must also be beyond chance, if any is
    asked for.
    """
    metric, shown = next(iter(task.metrics.items()))
    ours, listed = task.chosen(task.ours[metric]), []
    for name, cells in groups(task, metric, datasets).items():
        best = best_rival(found, cells, task)
        (method,), (decision,) = task.plain()
        plain = f"{task.methods[method]}, {task.decisions[decision]}"
        against = {plain: (task.plain(), task.over_plain)}
        if best is not None:
            against[f"the best rival, {task.methods[best]}"] = task.chosen(best), task.over_rival
        for label, (rival, least) in against.items():
            found_gain = gain(found, cells, ours, rival)
            if found_gain is not None:
                met = found_gain.mean >= least and (least == 0 or found_gain.low > 0)
                text = f"{name}: gain in {shown} over {label}, points"
                asked = f"{least:g} or more{', beyond chance' if least else ''}"
                listed.append(Bar(text, found_gain.mean, asked, met))
    return listed
