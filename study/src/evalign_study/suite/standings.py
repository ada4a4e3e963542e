"""Statistics of the suite's records: gains and their intervals.

A *cell* is a data set and a metric, a *trial* a split and a seed. A `Choice` is a set of
contenders, of which the validation score of the trial (`decisions`) chooses one; its score is that
of the chosen one on the test rows. All gains are in points, hundredths of a metric, and paired
trial by trial.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from evalign.core.estimates import estimate
from evalign_study.pipeline.intervals import Interval
from evalign_study.records.made import Record
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import EAST, GOALS, OPPONENTS, OURS

# A fifth of the rows of a table is the test part, so splits overlap as much as five folds do. All
# splits of images share one test part; no better correction is known, so they have the same.
FOLDS = 5
PREFIXES = {f"{prefix}_{goal}": prefix for prefix in (OURS, EAST) for goal in GOALS}

Cell = tuple[str, str]  # (data set, metric)
Trial = tuple[int, int]  # (split, seed)
Gains = dict[Cell, dict[Trial, float]]


class Contender(NamedTuple):
    """One way to make labels: a loss, or the beginning of the names of one, and a decision."""

    method: str
    decision: str


class ScorePair(NamedTuple):
    """The score of the validation rows (`decisions`) and the score of the test rows."""

    validation: float
    test: float


Scores = dict[Cell, dict[Trial, dict[Contender, ScorePair]]]


class Choice(NamedTuple):
    """A set of contenders, of which the first with the best validation score counts.

    Args:
        methods: the methods, each of which must have been run.
        decisions: the decisions. With very many classes none is tuned, and argmax stands in for it.
    """

    methods: Sequence[str]
    decisions: Sequence[str] = DECISIONS

    def score(self, found: Mapping[Contender, ScorePair]) -> float | None:
        """Return the test score of the choice in a trial; None if a method was not run."""
        if not set(self.methods) <= {contender.method for contender in found}:
            return None
        ruled = {contender.decision for contender in found}
        contenders = (
            Contender(method, decision if decision in ruled else "argmax")
            for method in self.methods
            for decision in self.decisions
        )
        known = [found[contender] for contender in contenders if contender in found]
        return max(known, key=lambda scored: scored.validation).test if known else None


BY_ARGMAX = Choice((OURS,), ("argmax",))  # what a training loop without a decision rule has
OPPONENT = Choice(OPPONENTS)


def scores(records: Iterable[Record]) -> Scores:
    """Collect all scores by cell, trial and contender."""
    found: Scores = {}
    for record in records:
        run = record["run"]
        method: str = PREFIXES.get(run["method"]) or run["method"]
        for metric, picked in record["picks"].items():
            trials = found.setdefault((named(run), metric), {})
            trial = trials.setdefault((run["split_seed"], run["seed"]), {})
            for decision, scored in picked["decisions"].items():
                found_here = ScorePair(scored["validation"], scored["test"][metric])
                trial[Contender(method, decision)] = found_here
    return found


def named(run: Mapping[str, Any]) -> str:
    """Name the data set of a record's run, and its imbalance where rows were left out for one.

    Examples:
        >>> named({"dataset": "cifar10", "imbalance": 100})
        'cifar10 1:100'
    """
    imbalance = run["imbalance"]
    return run["dataset"] if imbalance is None else f"{run['dataset']} 1:{imbalance:g}"


def gains(found: Scores, ours: Choice, rival: Choice) -> Gains:
    """Subtract the rival's score from ours, in the cells and trials that have both."""
    gained: Gains = {}
    for cell, trials in found.items():
        for trial, contenders in trials.items():
            mine, other = ours.score(contenders), rival.score(contenders)
            if mine is not None and other is not None:
                gained.setdefault(cell, {})[trial] = 100 * (mine - other)
    return gained


def over_splits(gained: Mapping[Trial, float]) -> Interval:
    """Average over the seeds of each split, then compute the mean and 95% interval over splits.

    Student's t has the correction of Nadeau and Bengio, as training rows of the splits overlap.
    """
    splits = list(_means((split, gain) for (split, _), gain in gained.items()).values())
    if len(splits) == 1:
        return Interval(splits[0], math.nan, math.nan, 1)
    mean, low, high, _ = estimate(splits, FOLDS)
    return Interval(mean, low, high, len(splits))


def intervals(gained: Gains) -> dict[Cell, Interval]:
    """Compute the interval over splits of every cell."""
    return {cell: over_splits(trials) for cell, trials in gained.items()}


def means(cells: Mapping[Cell, Interval], *, by: int) -> dict[str, float]:
    """Average the gains over the cells of each data set (`by` 0) or metric (`by` 1).

    Macro-averaged metrics go by the name of their binary form.
    """
    return _means((cell[by].removesuffix("_macro"), found.mean) for cell, found in cells.items())


def _means(values: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """Average the values that share a name."""
    groups: dict[Any, list[float]] = {}
    for name, value in values:
        groups.setdefault(name, []).append(value)
    return {name: float(np.mean(group)) for name, group in groups.items()}


class Bar(NamedTuple):
    """A number of a headline, its target, and whether it reaches the target."""

    name: str
    value: float
    bar: str
    met: bool


def label(choice: Choice) -> str:
    """Name a choice.

    Examples:
        >>> label(Choice(("focal",), ("tuned",))), label(OPPONENT)
        ('focal, tuned', 'best opponent, any decision')
    """
    name = choice.methods[0] if len(choice.methods) == 1 else "best opponent"
    name = (
        "ours"
        if name == OURS
        else "EAST"
        if name == EAST
        else name.replace("cross_", "cross-").replace("_", " ")
    )
    one = len(choice.decisions) == 1
    return f"{name}, {choice.decisions[0] if one else 'any decision'}"
