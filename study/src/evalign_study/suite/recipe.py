"""The suite of the recipe as a table: its runs and its results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import plotly.graph_objects as go

from evalign_study.pipeline.formats import Grid, Heading, Part, Text
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.pipeline.style import ALIGNED, MUTED, STYLE
from evalign_study.pipeline.table import QUICK, Findings, Sheet, StudyTable, check_datasets, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.suite import plan, standings
from evalign_study.suite.standings import BY_ARGMAX, OPPONENT, Cell, Choice
from evalign_study.trainers.methods import EAST, OPPONENTS, OURS

SETS = tuple(dict.fromkeys([*plan.SETS, *(dataset for dataset, _ in plan.IMAGE_SETS)]))
CRITERION = (
    "Written down before the runs: training on the metric wins if, by argmax, ours is ahead of the "
    "best opponent, whose loss and decision are chosen on the validation rows of every split, with "
    "a 95% interval over data sets above 0."
)
PLAIN = Choice(("cross_entropy",), ("argmax",))
RULED = Choice((OURS,), ("tuned",))  # what the estimator does
BESIDE = [  # pairs of ours and what it is compared with
    (BY_ARGMAX, PLAIN),
    *((BY_ARGMAX, Choice((name,), ("argmax",))) for name in OPPONENTS[1:]),
    (BY_ARGMAX, Choice((EAST,), ("argmax",))),
    (BY_ARGMAX, Choice(("cross_entropy",), ("tuned",))),
    (BY_ARGMAX, OPPONENT),
    (RULED, Choice(("cross_entropy",), ("tuned",))),
    (RULED, OPPONENT),
    (RULED, BY_ARGMAX),
    (Choice((EAST,), ("tuned",)), Choice(("cross_entropy",), ("tuned",))),
]
RIVALS = {standings.label(rival): rival for rival in (PLAIN, OPPONENT)}  # of single cells


@dataclass(frozen=True)
class Outcome:
    """The planned runs, and those of their records that exist."""

    runs: Sequence[Run]
    records: Sequence[Record]
    quick: bool = False

    @cached_property
    def scores(self) -> standings.Scores:
        return standings.scores(self.records)

    def over(self, ours: Choice, rival: Choice) -> dict[Cell, Interval]:
        """The gains of all cells, with their intervals over splits."""
        return standings.intervals(standings.gains(self.scores, ours, rival))

    @cached_property
    def verdict(self) -> Interval | None:
        """The gain that the criterion is about, over data sets; None without records."""
        cells = self.over(BY_ARGMAX, OPPONENT)
        return over_datasets(cells) if cells else None


class RecipeTable(StudyTable):
    """The suite of the recipe.

    Args:
        datasets: some names in `SETS`; None for all, or for those of a quick look.
        quick: whether to take a small slice, to see that it runs.
    """

    name, title = "recipe", "The recipe against the losses of today"

    def __init__(self, datasets: Sequence[str] | None = None, *, quick: bool = False) -> None:
        check_datasets(self.name, datasets or (), SETS)
        self.quick, self.asked = quick, list(datasets or (plan.QUICK_SETS if quick else SETS))
        images = any(dataset not in plan.SETS for dataset in self.asked)
        allowed, got = "be one with a quick look, which images have not", ", ".join(self.asked)
        require(not (quick and images), self.name, "dataset", allowed, got)

    @property
    def datasets(self) -> list[str]:
        return self.asked

    def part(
        self,
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> "RecipeTable":
        require(trials is None, self.name, "trials", "be left out: it has its own seeds", trials)
        return RecipeTable(datasets, quick=quick)

    def runs(self) -> list[Run]:
        """List all runs."""
        rows = [name for name in self.asked if name in plan.SETS]
        if self.quick:
            return plan.runs(rows, splits=[0], epochs=plan.QUICK_EPOCHS)
        images = [entry for entry in plan.IMAGE_SETS if entry[0] in self.asked]
        return plan.runs(rows) + plan.image_runs(images)

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        yield self.runs()

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        runs = self.runs()
        there = [records[run.key] for run in runs if run.key in records]
        return findings(Outcome(runs, there, self.quick))


def findings(outcome: Outcome) -> Findings:
    """Collect all results of the suite: text, a figure, and the gains of every cell."""
    rows = [
        [*cell, rival, *gain]
        for rival, choice in RIVALS.items()
        for cell, gain in outcome.over(BY_ARGMAX, choice).items()
    ]
    verdict = outcome.verdict
    return Findings(
        title=RecipeTable.title,
        parts=list(parts(outcome)),
        figures=figures(outcome),
        sheets={"": Sheet(["data set", "metric", "over", "gain", "low", "high", "splits"], rows)},
        lines=[_said(verdict) if verdict else "Not run."],
        data=[verdict._asdict()] if verdict else [],
    )


def parts(outcome: Outcome) -> Iterator[Part]:
    """Write the text of the suite."""
    yield Heading(RecipeTable.title)
    verdict = outcome.verdict
    if verdict is None:
        yield Text("Not run.")
        return
    if outcome.quick:
        yield Text(QUICK)
    known = {record["key"] for record in outcome.records}
    if absent := [run for run in outcome.runs if run.key not in known]:
        left = ", ".join(dict.fromkeys(standings.named(vars(run)) for run in absent))
        yield Text(f"Not run: {len(absent):,} of {len(outcome.runs):,} runs, of {left}.")
    yield Text(f"{CRITERION} {_said(verdict)}")
    yield Grid(
        "Mean gains in points, with 95% intervals over data sets:",
        ["ours", "rival", "gain", "cells won", "cells lost"],
        [_beside(outcome, *pair) for pair in BESIDE],
    )
    cells = [outcome.over(BY_ARGMAX, rival) for rival in RIVALS.values()]
    for by, name in enumerate(["data set", "metric"]):
        first, *others = (standings.means(found, by=by) for found in cells)
        yield Grid(
            f"Mean gains of ours by argmax, by {name}:",
            [name, *(f"over {rival}" for rival in RIVALS)],
            [[one, *(_signed(found[one]) for found in (first, *others))] for one in first],
        )
    for rival, found in zip(RIVALS, cells, strict=True):
        known, new = (
            {cell: x for cell, x in found.items() if (cell[0] in plan.DEVELOPED) is developed}
            for developed in (True, False)
        )
        if len(means := [_gain(over_datasets(part)) for part in (known, new) if part]) == 2:
            yield Text(
                f"Over {rival}: {means[0]} on the tables by which the loss was developed, "
                f"{means[1]} on the other data sets."
            )
        lost = [f"{' '.join(cell)} {_gain(x)}" for cell, x in found.items() if x.high < 0]
        told = "; ".join(lost) or "none"
        yield Text(f"Of {len(found)} cells, lost beyond chance to {rival}: {told}.")
    yield Text(_origin(outcome.records))


def figures(outcome: Outcome) -> dict[str, go.Figure]:
    """Draw the gains of the cells."""
    if outcome.verdict is None:
        return {}
    cells = sorted(outcome.over(*BESIDE[0]).items(), key=lambda item: item[1].mean)
    gains = {f"{dataset}, {metric}": gain for (dataset, metric), gain in cells}
    return {"Gain over cross-entropy, both by argmax, points": _dots(gains)}


def _dots(values: Mapping[str, Interval]) -> go.Figure:
    """Draw means and their intervals, with the last on top."""
    means = [value.mean for value in values.values()]
    reach = [x.high - x.mean for x in values.values()]
    dots = go.Scatter(
        x=means,
        y=list(values),
        mode="markers",
        marker={"color": ALIGNED, "size": 8},
        error_x={"type": "data", "array": reach, "color": MUTED},
    )
    return go.Figure([dots], {"template": STYLE, "height": 80 + 22 * len(values)})


def over_datasets(cells: Mapping[Cell, Interval]) -> Interval:
    """The mean gain over data sets, with its 95% interval."""
    return interval(standings.means(cells, by=0).values())


def _beside(outcome: Outcome, ours: Choice, rival: Choice) -> list[str]:
    cells = outcome.over(ours, rival)
    won, lost = (sum(x.low > 0 for x in cells.values()), sum(x.high < 0 for x in cells.values()))
    names = standings.label(ours), standings.label(rival)
    return [*names, _gain(over_datasets(cells)), str(won), str(lost)]


def _said(verdict: Interval) -> str:
    met = "It wins" if verdict.low > 0 else "It does not win by this criterion"
    return f"{met}: {_gain(verdict)} points over {verdict.trials} data sets."


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _gain(gain: Interval) -> str:
    return f"{_signed(gain.mean)} ({_signed(gain.low)} to {_signed(gain.high)})"


def _origin(records: Sequence[Record]) -> str:
    """Say what the runs were made with."""
    all_of = partial(origins, records)
    diverged = sum(record["diverged"] for record in records)
    return (
        f"{len(records):,} runs, of which {diverged:,} diverged. "
        f"{all_of('{device} ({precision})')}; torch {all_of('{torch}')}, "
        f"commits {all_of('{commit}')}."
    )
