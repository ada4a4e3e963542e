"""What the records of the suite say: gains, their intervals, ranks and the ablation.

A *cell* is a data set and a metric, a *trial* a split and a seed. A `Choice` is all that somebody
may choose from, by the validation score of the trial (`rulings`); its score is then that of
the test rows. All gains are in points, a hundredth of a metric, and paired trial by trial.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evalign.comparison import estimate
from evalign_study.papers.verdicts import Interval, interval
from evalign_study.records.results import Record
from evalign_study.suite.rulings import DECISIONS
from evalign_study.suite.tables import OPPONENTS, UNLABELLED
from evalign_study.trainers.methods import GOALS, VARIANTS

# A fifth of the rows of a table is the test part: splits overlap as so many folds do. All splits of
# images have one test part; taken alike, for want of better.
FOLDS = 5
MARGIN = 0.5  # points; a cell that lies wholly below minus this is a loss
PREFIXES = {f"{prefix}_{goal}": prefix for prefix in VARIANTS for goal in GOALS}

Cell = tuple[str, str]  # (data set, metric)
Trial = tuple[int, int]  # (split, seed)
Gains = dict[Cell, dict[Trial, float]]


class Contender(NamedTuple):
    """One way to labels: a loss or a prefix of `methods.VARIANTS`, and a decision."""

    method: str
    decision: str


class Found(NamedTuple):
    """The score of the validation rows (`rulings`), and that of the test rows."""

    validation: float
    test: float


Scores = dict[Cell, dict[Trial, dict[Contender, Found]]]


class Choice(NamedTuple):
    """Contenders of which the one with the best validation score is taken.

    Args:
        methods: of which every one must have been run.
        decisions: some. Where none is tuned, with very many classes, argmax stands for it.
    """

    methods: Sequence[str]
    decisions: Sequence[str] = DECISIONS

    def score(self, found: Mapping[Contender, Found]) -> float | None:
        """The test score in a trial; None where a method was not run. The first of equals."""
        if not set(self.methods) <= {contender.method for contender in found}:
            return None
        ruled = {contender.decision for contender in found}
        contenders = (
            Contender(method, decision if decision in ruled else "argmax")
            for method in self.methods
            for decision in self.decisions
        )
        known = [found[contender] for contender in contenders if contender in found]
        return max(known, key=lambda of: of.validation).test if known else None


OPPONENT = Choice(OPPONENTS)
TODAY = Choice(("cross_entropy",), ("argmax", "tuned"))


def scores(records: Iterable[Record]) -> Scores:
    """All scores by cell, trial and contender."""
    found: Scores = {}
    for record in records:
        run = record["run"]
        method: str = PREFIXES.get(run["method"]) or run["method"]
        for metric, picked in record["picks"].items():
            trials = found.setdefault((named(run), metric), {})
            trial = trials.setdefault((run["split_seed"], run["seed"]), {})
            for decision, ruled in picked["decisions"].items():
                trial[Contender(method, decision)] = Found(ruled["validation"], ruled["test"])
    return found


def named(run: Mapping[str, Any]) -> str:
    """The data set of a record's run, and its imbalance where rows were left out for one.

    Examples:
        >>> named({"dataset": "cifar10", "imbalance": 100})
        'cifar10 1:100'
    """
    imbalance = run["imbalance"]
    return run["dataset"] if imbalance is None else f"{run['dataset']} 1:{imbalance:g}"


def gains(found: Scores, ours: Choice, rival: Choice) -> Gains:
    """Ours minus the rival's, of the cells and trials that have both."""
    gained: Gains = {}
    for cell, trials in found.items():
        for trial, of in trials.items():
            mine, other = ours.score(of), rival.score(of)
            if mine is not None and other is not None:
                gained.setdefault(cell, {})[trial] = 100 * (mine - other)
    return gained


def of_cell(gained: Mapping[Trial, float]) -> Interval:
    """Mean and 95% interval over splits, seeds of a split averaged first.

    Training rows of the splits overlap: Student's t with the correction of Nadeau and Bengio.
    """
    splits = _means(gained)
    if len(splits) == 1:
        return Interval(splits[0], math.nan, math.nan, 1)
    mean, low, high, _ = estimate(splits, FOLDS)
    return Interval(mean, low, high, len(splits))


def intervals(gained: Gains) -> dict[Cell, Interval]:
    """That of every cell."""
    return {cell: of_cell(trials) for cell, trials in gained.items()}


def of_datasets(gained: Gains) -> list[float]:
    """For each data set the mean gain over its cells."""
    return _means({cell: of.mean for cell, of in intervals(gained).items()})


def _means(values: Mapping[Any, float]) -> list[float]:
    """For each first part of the keys."""
    groups: dict[Any, list[float]] = {}
    for (first, _), value in values.items():
        groups.setdefault(first, []).append(value)
    return [float(np.mean(of)) for of in groups.values()]


def wilcoxon(values: Sequence[float]) -> float:
    """The two-sided p-value of the signed-rank test; 1 where nothing differs."""
    p: Any = stats.wilcoxon(values)[1] if np.any(values) else 1.0
    return float(p)


def single(ours: Choice) -> dict[str, Choice]:
    """By label all that is ranked: every single contender of the opponents, and ours."""
    singles = {
        f"{method}, {decision}": Choice((method,), (decision,))
        for method in OPPONENTS
        for decision in DECISIONS
    }
    return {label(ours): ours, **singles}


def label(choice: Choice) -> str:
    """What a choice is called.

    Examples:
        >>> label(Choice(("aligned",))), label(Choice(("focal",), ("tuned",)))
        ('aligned, chosen', 'focal, tuned')
    """
    parts = (choice.methods, choice.decisions)
    return ", ".join(of[0] if len(of) == 1 else "chosen" for of in parts)


def ranks(found: Scores, entries: Mapping[str, Choice]) -> dict[str, dict[Cell, float]]:
    """By label the rank in each cell, 1 for the highest mean test score; equals share theirs.

    Of the trials that all have.
    """
    ranked: dict[str, dict[Cell, float]] = {name: {} for name in entries}
    for cell, trials in found.items():
        rows = [[choice.score(of) for choice in entries.values()] for of in trials.values()]
        whole = [row for row in rows if None not in row]
        if whole:
            places = stats.rankdata(-np.mean(np.array(whole, float), axis=0))
            for name, place in zip(entries, places.tolist(), strict=True):
                ranked[name][cell] = place
    return ranked


def average_ranks(ranked: Mapping[str, Mapping[Cell, float]]) -> dict[str, float]:
    """Over the cells, the best first."""
    means = {name: float(np.mean(list(of.values()))) for name, of in ranked.items() if of}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def critical_difference(contenders: int, datasets: int) -> float:
    """Of Nemenyi: average ranks that lie further apart differ, at the 5% level.

    q·√(k(k + 1) / 6N) for k contenders and N data sets (Demšar, "Statistical Comparisons of
    Classifiers over Multiple Data Sets", JMLR 7, 2006), whose cells are averaged first: metrics of
    one data set are no independent evidence.
    """
    q = float(stats.studentized_range.ppf(0.95, contenders, math.inf)) / math.sqrt(2)
    return q * math.sqrt(contenders * (contenders + 1) / (6 * datasets))


class Bar(NamedTuple):
    """A number of the headline, what it is to reach, and whether it does."""

    name: str
    value: float
    bar: str
    met: bool


def headline(found: Scores, ours: Choice) -> list[Bar]:
    """Every number that the recipe is judged by; none without trials that have all opponents."""
    over_opponent, over_today = (gains(found, ours, rival) for rival in (OPPONENT, TODAY))
    if not over_opponent:
        return []
    cells = intervals(over_opponent)
    means = np.array([of.mean for of in cells.values()])
    today = float(np.mean([of.mean for of in intervals(over_today).values()]))
    lost = sum(of.high < -MARGIN for of in cells.values())
    places = list(average_ranks(ranks(found, single(ours))))
    place, p = places.index(label(ours)) + 1, wilcoxon(of_datasets(over_opponent))
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
    """By variant and decision the mean gain of a method over it, with a 95% interval over sets."""
    over: dict[str, dict[str, Interval]] = {}
    for variant in (name for name in VARIANTS if name != method):
        for decision in UNLABELLED:
            ours, rival = (Choice((name,), (decision,)) for name in (method, variant))
            if values := of_datasets(gains(found, ours, rival)):
                over.setdefault(variant, {})[decision] = interval(values)
    return over
