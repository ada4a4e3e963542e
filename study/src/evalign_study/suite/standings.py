"""Statistics of the suite's records: gains, their intervals, ranks and the ablation.

A *cell* is a data set and a metric, a *trial* a split and a seed. A `Choice` is a set of
contenders, of which the validation score of the trial (`decisions`) chooses one; its score is that
of the chosen one on the test rows. All gains are in points, hundredths of a metric, and paired
trial by trial.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evalign.core.estimates import estimate
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.records.made import Record
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.methods import GOALS, OPPONENTS, VARIANTS
from evalign_study.trainers.recipe import UNLABELLED

# A fifth of the rows of a table is the test part, so splits overlap as much as five folds do. All
# splits of images share one test part; no better correction is known, so they have the same.
FOLDS = 5
MARGIN = 0.5  # points; a cell that lies wholly below minus this is a loss
PREFIXES = {f"{prefix}_{goal}": prefix for prefix in VARIANTS for goal in GOALS}

Cell = tuple[str, str]  # (data set, metric)
Trial = tuple[int, int]  # (split, seed)
Gains = dict[Cell, dict[Trial, float]]


class Contender(NamedTuple):
    """One way to make labels: a loss or a prefix in `methods.VARIANTS`, and a decision."""

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


OPPONENT = Choice(OPPONENTS)
TODAY = Choice(("cross_entropy",), ("argmax", "tuned"))


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
    splits = _means(gained)
    if len(splits) == 1:
        return Interval(splits[0], math.nan, math.nan, 1)
    mean, low, high, _ = estimate(splits, FOLDS)
    return Interval(mean, low, high, len(splits))


def intervals(gained: Gains) -> dict[Cell, Interval]:
    """Compute the interval over splits of every cell."""
    return {cell: over_splits(trials) for cell, trials in gained.items()}


def by_dataset(gained: Gains) -> list[float]:
    """Average the gains over the cells of each data set."""
    return _means({cell: found.mean for cell, found in intervals(gained).items()})


def _means(values: Mapping[Any, float]) -> list[float]:
    """Average the values that share the first part of their keys."""
    groups: dict[Any, list[float]] = {}
    for (first, _), value in values.items():
        groups.setdefault(first, []).append(value)
    return [float(np.mean(group)) for group in groups.values()]


def wilcoxon(values: Sequence[float]) -> float:
    """Compute the two-sided p-value of the signed-rank test; 1 where nothing differs."""
    p: Any = stats.wilcoxon(values)[1] if np.any(values) else 1.0
    return float(p)


def single(ours: Choice) -> dict[str, Choice]:
    """List by label the entries to rank: every single contender of the opponents, and ours."""
    singles = {
        f"{method}, {decision}": Choice((method,), (decision,))
        for method in OPPONENTS
        for decision in DECISIONS
    }
    return {label(ours): ours, **singles}


def label(choice: Choice) -> str:
    """Name a choice.

    Examples:
        >>> label(Choice(("aligned",))), label(Choice(("focal",), ("tuned",)))
        ('aligned, chosen', 'focal, tuned')
    """
    parts = (choice.methods, choice.decisions)
    return ", ".join(names[0] if len(names) == 1 else "chosen" for names in parts)


def ranks(found: Scores, entries: Mapping[str, Choice]) -> dict[str, dict[Cell, float]]:
    """Rank the entries in each cell: 1 for the highest mean test score; equals share a rank.

    Trials in which some entry was not run are left out.
    """
    ranked: dict[str, dict[Cell, float]] = {name: {} for name in entries}
    for cell, trials in found.items():
        rows = [[choice.score(trial) for choice in entries.values()] for trial in trials.values()]
        whole = [row for row in rows if None not in row]
        if whole:
            places = stats.rankdata(-np.mean(np.array(whole, float), axis=0))
            for name, place in zip(entries, places.tolist(), strict=True):
                ranked[name][cell] = place
    return ranked


def average_ranks(ranked: Mapping[str, Mapping[Cell, float]]) -> dict[str, float]:
    """Average the ranks over the cells, with the best first."""
    means = {name: float(np.mean(list(cells.values()))) for name, cells in ranked.items() if cells}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def critical_difference(contenders: int, datasets: int) -> float:
    """Compute Nemenyi's difference, beyond which average ranks differ at the 5% level.

    It is q·√(k(k + 1) / 6N) for k contenders and N data sets (Demšar, "Statistical Comparisons of
    Classifiers over Multiple Data Sets", JMLR 7, 2006). The cells of a data set are averaged first,
    as its metrics are not independent evidence.
    """
    q = float(stats.studentized_range.ppf(0.95, contenders, math.inf)) / math.sqrt(2)
    return q * math.sqrt(contenders * (contenders + 1) / (6 * datasets))


class Bar(NamedTuple):
    """A number of the headline, its target, and whether it reaches the target."""

    name: str
    value: float
    bar: str
    met: bool


def headline(found: Scores, ours: Choice) -> list[Bar]:
    """List the numbers that the recipe is judged by; none without trials of all opponents."""
    over_opponent, over_today = (gains(found, ours, rival) for rival in (OPPONENT, TODAY))
    if not over_opponent:
        return []
    cells = intervals(over_opponent)
    means = np.array([cell.mean for cell in cells.values()])
    today = float(np.mean([cell.mean for cell in intervals(over_today).values()]))
    lost = sum(cell.high < -MARGIN for cell in cells.values())
    places = list(average_ranks(ranks(found, single(ours))))
    place, p = places.index(label(ours)) + 1, wilcoxon(by_dataset(over_opponent))
    share, mean = float((means >= 0).mean()), float(means.mean())
    return [
        Bar("mean gain over the best opponent, points", mean, "1.0 or more", mean >= 1),
        Bar("mean gain over cross-entropy of today, points", today, "2.5 or more", today >= 2.5),
        Bar("share of cells with a gain of 0 or more", share, "80% or more", share >= 0.8),
        Bar(f"cells wholly below −{MARGIN} points", lost, "none", lost == 0),
        Bar("place by average rank", place, "first", place == 1),
        Bar("p of Wilcoxon's test over data sets", p, "below 0.01", p < 0.01 and mean > 0),
    ]


def ablation(found: Scores, method: str) -> dict[str, dict[str, Interval]]:
    """Compare a method with its variants, by variant and decision: intervals over data sets."""
    over: dict[str, dict[str, Interval]] = {}
    for variant in (name for name in VARIANTS if name != method):
        for decision in UNLABELLED:
            ours, rival = (Choice((name,), (decision,)) for name in (method, variant))
            if values := by_dataset(gains(found, ours, rival)):
                over.setdefault(variant, {})[decision] = interval(values)
    return over
