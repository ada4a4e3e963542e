"""What each loss reaches for each goal, and whether promised bounds hold on the test rows.

A *cell* is a data set and a goal, a contender a loss with its rule. Gains are in points, hundredths
of a metric, and paired split by split.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evalign_study.decided.standings import LEVEL, Scores, compared
from evalign_study.pipeline.intervals import NO_INTERVAL, Interval, interval
from evalign_study.records.made import Record
from evalign_study.suite.standings import Bar, named
from evalign_study.trainers.goal_methods import (
    AP,
    BOUNDED,
    CONSTRAINED,
    CURVES,
    GOALS,
    LIBAUC,
    OURS,
    PAUC,
    Matrix,
    share,
)
from evalign_study.trainers.goals import CONFIDENCES, PREFIX

PLAIN, TRAINED = "cross_entropy", "ours"
LEAST = 1.0  # points, the mean gain that training on the goal is to bring
MISSED = 1 - (CONFIDENCES["promised"] or 0)  # the share of promises that may be broken


def collected(records: Iterable[Record], rule: str | None = "promised") -> Scores:
    """Collect the scores of the test rows by cell, contender and split.

    What stands for ours in a goal is `TRAINED` there; losses under another bound are left out.

    Args:
        records: of the runs that count.
        rule: of bounded goals; None for the best threshold of the test rows themselves.
    """
    found: Scores = {}
    for record in records:
        run = record["run"]
        method = run["method"].removeprefix(PREFIX)
        for goal, pick in record["picks"].items():
            cell = found.setdefault((named(run), "", goal), {})
            scored = pick["rules"][rule] if rule and goal in BOUNDED else pick
            names = [] if method.startswith(CONSTRAINED) else [method]
            for name in [TRAINED, *names] if method == OURS[goal] else names:
                cell.setdefault(name, {})[run["split_seed"]] = scored["test"]
    return found


def of_goals(scores: Scores, goals: Sequence[str]) -> Scores:
    """Pick the cells of some goals."""
    return {cell: told for cell, told in scores.items() if cell[2] in goals}


def level(scores: Scores, goal: str, contender: str) -> float | None:
    """The mean score in points over splits, then over data sets; None where one lacks it."""
    cells = of_goals(scores, [goal]).values()
    if not cells or any(contender not in told for told in cells):
        return None
    return 100 * float(np.mean([np.mean([*told[contender].values()]) for told in cells]))


def best_of_libauc(scores: Scores, goal: str) -> str | None:
    """The one of its losses with the highest mean score, which nobody could know before."""
    levels = {name: level(scores, goal, name) for name in LIBAUC}
    known = {name: score for name, score in levels.items() if score is not None}
    return max(known, key=known.__getitem__, default=None)


def broken(goal: str, matrix: Matrix) -> bool:
    """Tell whether test rows break a bound by more than their own error.

    It is a one-sided exact binomial test, at 5%, of the rate that is bounded.

    Examples:
        >>> [broken("precision_at_recall_90", [[900, 0], [fn, 100 - fn]]) for fn in (15, 16)]
        [False, True]
    """
    sought = BOUNDED[goal]
    part, whole = share(sought.bounded, matrix)
    if sought.at_least:
        chance = stats.binom.cdf(part, whole, sought.bound)
    else:
        chance = stats.binom.sf(part - 1, whole, sought.bound)
    return float(chance) < LEVEL


class Promises(NamedTuple):
    """How rules kept to their bounds.

    Args:
        rules: how many there are.
        promised: those that promised their bound.
        broken: those that are judged, the promised ones, and broke it by more than chance.
        missed: those that are judged and whose test rows are on the wrong side of the bound.
        judged: how many are judged.
        positives: of the validation rows, the smallest and the largest number.
    """

    rules: int
    promised: int
    broken: int
    missed: int
    judged: int
    positives: tuple[int, int]

    @property
    def chance(self) -> float:
        """The probability of so many broken ones or more, if it were 5% for each by itself."""
        return float(stats.binom.sf(self.broken - 1, self.judged, MISSED))


def promises(
    records: Iterable[Record], goals: Iterable[str] = tuple(BOUNDED), rule: str = "promised"
) -> Promises:
    """Check rules on the test rows; of those with a confidence, the ones that promised."""
    goals = list(goals)
    told: list[tuple[str, dict[str, Any]]] = [
        (goal, record["picks"][goal]["rules"][rule])
        for record in records
        for goal in goals
        if goal in record["picks"]
    ]
    judged = [(goal, one) for goal, one in told if rule == "met" or one["promised"]]
    positives = [sum(one["validation_matrix"][1]) for _, one in told]
    return Promises(
        rules=len(told),
        promised=sum(bool(one["promised"]) for _, one in told),
        broken=sum(broken(goal, one["matrix"]) for goal, one in judged),
        missed=sum(_missed(goal, one["matrix"]) for goal, one in judged),
        judged=len(judged),
        positives=(min(positives, default=0), max(positives, default=0)),
    )


def _missed(goal: str, matrix: Matrix) -> bool:
    sought = BOUNDED[goal]
    part, whole = share(sought.bounded, matrix)
    if whole == 0:
        return False
    return part < sought.bound * whole if sought.at_least else part > sought.bound * whole


def gain(scores: Scores, goals: Sequence[str], rival: str = PLAIN) -> Interval:
    """The mean gain of ours over a rival, and its interval over data sets, each of which is the
    mean of its goals.
    """
    sets: dict[str, list[float]] = {}
    for (dataset, *_), found in compared(of_goals(scores, goals), rival, TRAINED).gains.items():
        sets.setdefault(dataset, []).append(found.mean)
    return interval(map(np.mean, sets.values())) if sets else NO_INTERVAL


def pays(found: Interval) -> bool:
    """Tell whether a gain is as large as asked for, and more than chance over data sets."""
    return found.mean >= LEAST and found.low > 0


def bars(records: Sequence[Record]) -> list[Bar]:
    """List the numbers that goals are judged by."""
    scores, kept = collected(records), promises(records)
    found = []
    if kept.judged:
        text = f"promised bounds that test rows break beyond chance, of {kept.judged:,}, share"
        bar = f"no more than {MISSED:.0%}, by a binomial test"
        found.append(Bar(text, kept.broken / kept.judged, bar, kept.chance >= LEVEL))
    trained = gain(scores, GOALS)
    if trained.trials:  # a single split has no gain
        text = "mean gain of training for the goal over cross-entropy, same rule, points"
        bar = f"{LEAST:g} or more, beyond chance over data sets"
        found.append(Bar(text, trained.mean, bar, pays(trained)))
    for goal, name in {AP: "average precision", PAUC: "partial area"}.items():
        best = best_of_libauc(scores, goal)
        over = NO_INTERVAL if best is None else gain(scores, [goal], best)
        if over.trials:
            text = f"mean gain of ours in {name} over the best loss of LibAUC, points"
            found.append(Bar(text, over.mean, "0 or more", over.mean >= 0))
    return found


def verdict(scores: Scores) -> str:
    """Say whether the rule alone is enough, or that these data sets do not tell."""
    under, areas = gain(scores, tuple(BOUNDED)), gain(scores, CURVES)
    if pays(under):
        told = "training for it pays beside the rule"
    elif under.mean >= LEAST:
        told = "these data sets do not tell whether training for it pays beside the rule"
    else:
        told = "the rule alone is enough"
    return (
        f"Under a bound, {told}: over cross-entropy with the same rule, training for it gains "
        f"{_told(under)} points{_cells(scores, tuple(BOUNDED))} For areas under curves our losses "
        f"gain {_told(areas)} points over cross-entropy{_cells(scores, CURVES)} Intervals are "
        "over data sets."
    )


def _told(found: Interval) -> str:
    mean, low, high = map(points, found[:3])
    return mean if found.trials == 1 else f"{mean} ({low} to {high})"


def _cells(scores: Scores, goals: Sequence[str]) -> str:
    cells = compared(of_goals(scores, goals), PLAIN, TRAINED)
    return (
        f"; of {len(cells.gains)} cells (data set and goal), {len(cells.won)} are better and "
        f"{len(cells.lost)} are worse beyond chance."
    )


def points(value: float) -> str:
    """Write a difference.

    Examples:
        >>> points(-0.25)
        '−0.2'
    """
    return f"{value:+.1f}".replace("-", "−")


def by_dataset(scores: Scores, goal: str, rival: str) -> Mapping[str, Any]:
    """The gain of ours over a rival with its interval, by data set."""
    gains = compared(of_goals(scores, [goal]), rival, TRAINED).gains
    return {cell[0]: found for cell, found in gains.items()}
