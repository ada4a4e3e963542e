"""What each loss reaches for each goal, and whether promised bounds hold on the test rows.

A *cell* is a data set and a goal, a contender a loss with its rule. Gains are in points, hundredths
of a metric, and paired split by split.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from evalign_study.decided.standings import LEVEL, Cell, Scores, compared, mean
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


def gain(scores: Scores, goals: Sequence[str], rival: str = PLAIN) -> float:
    """The mean gain of ours over a rival, each data set with the same weight."""
    return mean(compared(of_goals(scores, goals), rival, TRAINED).gains)


def bars(records: Sequence[Record]) -> list[Bar]:
    """List the numbers that goals are judged by."""
    scores, kept = collected(records), promises(records)
    found = []
    if kept.judged:
        text = f"promised bounds that test rows break beyond chance, of {kept.judged:,}, share"
        bar = f"no more than {MISSED:.0%}, by a binomial test"
        found.append(Bar(text, kept.broken / kept.judged, bar, kept.chance >= LEVEL))
    asked: dict[str, tuple[Sequence[str], str, float]] = {
        "training for the goal over cross-entropy, same rule": (GOALS, PLAIN, LEAST)
    }
    for goal, name in {AP: "average precision", PAUC: "partial area"}.items():
        best = best_of_libauc(scores, goal)
        if best is not None:
            asked[f"ours in {name} over the best loss of LibAUC"] = ([goal], best, 0.0)
    for text, (goals, rival, least) in asked.items():
        over = gain(scores, goals, rival)
        if not math.isnan(over):  # a single split has no interval, and no gain
            text = f"mean gain of {text}, points"
            found.append(Bar(text, over, f"{least:g} or more", over >= least))
    return found


def verdict(scores: Scores) -> str:
    """Say in a sentence whether the rule alone is enough."""
    cells = compared(of_goals(scores, tuple(BOUNDED)), PLAIN, TRAINED)
    areas = compared(of_goals(scores, CURVES), PLAIN, TRAINED)
    over, in_areas = (mean(each.gains) for each in (cells, areas))
    told = (
        "training for it pays beside the rule: it"
        if over >= LEAST
        else "the rule alone is enough: training for it as well"
    )
    return (
        f"Under a bound, {told} brings {points(over)} points on average over cross-entropy with "
        f"the same rule, in {len(cells.gains)} cells (data set and goal); "
        f"{_count(cells.won, cells.lost)} For areas under curves our losses bring "
        f"{points(in_areas)} points over cross-entropy, in {len(areas.gains)} cells; "
        f"{_count(areas.won, areas.lost)}"
    )


def points(value: float) -> str:
    """Write a difference.

    Examples:
        >>> points(-0.25)
        '−0.2'
    """
    return f"{value:+.1f}".replace("-", "−")


def _count(won: Sequence[Cell], lost: Sequence[Cell]) -> str:
    return f"beyond chance, {len(won)} are better and {len(lost)} are worse."


def by_dataset(scores: Scores, goal: str, rival: str) -> Mapping[str, Any]:
    """The gain of ours over a rival with its interval, by data set."""
    gains = compared(of_goals(scores, [goal]), rival, TRAINED).gains
    return {cell[0]: found for cell, found in gains.items()}
