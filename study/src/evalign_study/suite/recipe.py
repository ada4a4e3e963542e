"""The suite of the recipe as a table: its runs and its results."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import plotly.graph_objects as go

from evalign.core.checks import require
from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Rest, Text
from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.pipeline.style import ALIGNED, MUTED, STYLE
from evalign_study.pipeline.table import QUICK, Findings, Sheet, StudyTable, check_datasets, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.suite import plan, standings
from evalign_study.suite.standings import Bar, Cell, Choice
from evalign_study.trainers.methods import OPPONENTS, OURS, UNAVERAGED
from evalign_study.trainers.recipe import UNLABELLED

SETS = tuple(dict.fromkeys([*plan.SETS, *(dataset for dataset, _ in plan.IMAGE_SETS)]))
CHOICE = Choice((OURS,), ("tuned",))  # what the estimator does
BY_ARGMAX = Choice((OURS,), ("argmax",))  # what a training loop without a decision rule does
RIVALS = {"best opponent": standings.OPPONENT, "cross-entropy of today": standings.TODAY}
BESIDE = [  # pairs of ours and what it is compared with
    (BY_ARGMAX, Choice(("cross_entropy",), ("argmax",))),
    (BY_ARGMAX, Choice(OPPONENTS, ("argmax",))),
    (BY_ARGMAX, standings.OPPONENT),
    (CHOICE, Choice(("cross_entropy",), ("expected",))),
    (CHOICE, standings.TODAY),
    (CHOICE, standings.OPPONENT),
    (CHOICE, BY_ARGMAX),
    (CHOICE, Choice((OURS,), ("expected",))),
]
TIME = "recipe_time.json"  # in the folder of the records: {"ratio": our time over cross-entropy's}
LONGEST = 1.3  # the largest ratio that the recipe may have
CHANGED = {
    "aligned_by_batch": "without running statistics",
    "anchored": "with half of the log prior, whatever the metric",
    "unadjusted": "without offsets",
    "unanchored": "without cross-entropy",
    "unaligned": "without the metric",
    UNAVERAGED: "without the average of weights",
}


@dataclass(frozen=True)
class Outcome:
    """The planned runs, those of their records that exist, and the ratio of times."""

    runs: Sequence[Run]
    records: Sequence[Record]
    quick: bool = False
    time: float | None = None

    @property
    def part(self) -> str:
        """A remark that only some of the data sets are covered; empty if all are."""
        there = dict.fromkeys(run.dataset for run in self.runs)
        whole = self.quick or there.keys() == {*SETS}
        return "" if whole else f"Of {', '.join(there)} alone, while the bars are for all."

    @cached_property
    def scores(self) -> standings.Scores:
        return standings.scores(self.records)

    @cached_property
    def headline(self) -> list[Bar]:
        bars = standings.headline(self.scores, CHOICE)
        if bars and self.time is not None:
            bar = f"{LONGEST} or less"
            name = "time of training, cross-entropy's is 1"
            bars.append(Bar(name, self.time, bar, self.time <= LONGEST))
        return bars


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
            return plan.runs(rows, splits=[0], seeds=[1], epochs=plan.QUICK_EPOCHS)
        images = [entry for entry in plan.IMAGE_SETS if entry[0] in self.asked]
        return plan.runs(rows) + plan.image_runs(images)

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        yield self.runs()

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        runs = self.runs()
        there = [records[run.key] for run in runs if run.key in records]
        return findings(Outcome(runs, there, self.quick, time_in(folder)))


def time_in(folder: Path) -> float | None:
    """Read the ratio of our time to cross-entropy's, if it was measured (study/benchmarks)."""
    file = folder / TIME
    return json.loads(file.read_text(encoding="utf-8"))["ratio"] if file.exists() else None


def findings(outcome: Outcome) -> Findings:
    """Collect all results of the suite: text, figures, and the gains of every cell."""
    bars = outcome.headline
    met = f"{sum(bar.met for bar in bars)} of {len(bars)} bars met. {outcome.part}".strip()
    rows = [
        [*cell, rival, *gain]
        for rival, cells in _gains(outcome).items()
        for cell, gain in cells.items()
    ]
    return Findings(
        title=RecipeTable.title,
        parts=list(parts(outcome)),
        figures=figures(outcome),
        sheets={"": Sheet(["data set", "metric", "over", "gain", "low", "high", "splits"], rows)},
        lines=[met if bars else "Not run."],
        data=[bar._asdict() for bar in bars],
    )


def parts(outcome: Outcome) -> Iterator[Part]:
    """Write the text of the suite."""
    yield Heading(RecipeTable.title)
    known = {record["key"] for record in outcome.records}
    absent = [run for run in outcome.runs if run.key not in known]
    bars, cells = outcome.headline, _gains(outcome)
    if not bars:
        yield Text("Not run.")
        return
    if outcome.quick:
        yield Text(QUICK)
    if outcome.part:
        yield Text(outcome.part)
    if absent:
        left = ", ".join(dict.fromkeys(standings.named(vars(run)) for run in absent))
        yield Text(f"Not run: {len(absent):,} of {len(outcome.runs):,} runs, of {left}.")
    rows = [[bar.name, _value(bar), bar.bar, "met" if bar.met else "not met"] for bar in bars]
    yield Grid("What the recipe is judged by:", ["", "found", "bar", ""], rows)
    yield Grid(
        "Mean gains in points beside other rivals, with 95% intervals over data sets:",
        ["ours", "rival", "gain", "cells with 0 or more"],
        [_beside(outcome, ours, rival) for ours, rival in BESIDE],
    )
    yield Rest()
    first, second = cells.values()
    yield Grid(
        "Gains in points, with 95% intervals over splits:",
        ["data set", "metric", "splits", *(f"over {rival}" for rival in cells)],
        [
            [
                *cell,
                str(gain.trials),
                _gain(gain),
                _gain(second[cell]) if cell in second else NOTHING,
            ]
            for cell, gain in first.items()
        ],
    )
    yield Heading("Ranks", below=True)
    ranks, difference = _ranks(outcome)
    caption = f"Average rank over cells; a difference of {difference:.2f} is beyond chance:"
    yield Grid(caption, ["", "rank"], [[name, f"{rank:.2f}"] for name, rank in ranks.items()])
    yield Heading("Ablation", below=True)
    found = standings.ablation(outcome.scores, OURS)
    rows = [
        [text, *map(_gain, found[name].values()), str(found[name][UNLABELLED[0]].trials)]
        if name in found
        else [text, *("not run" for _ in UNLABELLED), NOTHING]
        for name, text in CHANGED.items()
    ]
    caption = (
        "Our gain in points over ours with a part changed or left out, both with decisions that "
        f"need no labels, on {len(plan.ABLATED)} splits, 95% intervals over data sets:"
    )
    yield Grid(caption, ["", *(f"gain, {decision}" for decision in UNLABELLED), "data sets"], rows)
    yield Text(_origin(outcome.records))


def figures(outcome: Outcome) -> dict[str, go.Figure]:
    """Draw the gains of the cells, and the ranks with their critical difference."""
    if not outcome.headline:
        return {}
    cells = sorted(_gains(outcome)["best opponent"].items(), key=lambda item: item[1].mean)
    gains = {f"{dataset}, {metric}": gain for (dataset, metric), gain in cells}
    ranks, difference = _ranks(outcome)
    half = difference / 2
    bars = {name: Interval(r, r - half, r + half, 1) for name, r in reversed(ranks.items())}
    return {
        "Gain over the best opponent, points": _dots(gains),
        "Average ranks; bars that do not overlap differ beyond chance": _dots(bars),
    }


def _dots(values: Mapping[str, Interval]) -> go.Figure:
    """Draw means and their intervals, with the last on top."""
    means = [value.mean for value in values.values()]
    reach = [0.0 if math.isnan(x.high) else x.high - x.mean for x in values.values()]
    dots = go.Scatter(
        x=means,
        y=list(values),
        mode="markers",
        marker={"color": ALIGNED, "size": 8},
        error_x={"type": "data", "array": reach, "color": MUTED},
    )
    return go.Figure([dots], {"template": STYLE, "height": 80 + 22 * len(values)})


def _gains(outcome: Outcome) -> dict[str, dict[Cell, Interval]]:
    return {
        name: standings.intervals(standings.gains(outcome.scores, CHOICE, rival))
        for name, rival in RIVALS.items()
    }


def _beside(outcome: Outcome, ours: Choice, rival: Choice) -> list[str]:
    gained = standings.gains(outcome.scores, ours, rival)
    means = [cell.mean for cell in standings.intervals(gained).values()]
    share = sum(mean >= 0 for mean in means) / len(means)
    over = interval(standings.by_dataset(gained))
    return [standings.label(ours), standings.label(rival), _gain(over), f"{share:.0%}"]


def _ranks(outcome: Outcome) -> tuple[dict[str, float], float]:
    """Compute average ranks, and their critical difference."""
    ranked = standings.ranks(outcome.scores, standings.single(CHOICE))
    datasets = {dataset for dataset, _ in next(iter(ranked.values()))}
    difference = standings.critical_difference(len(ranked), len(datasets))
    return standings.average_ranks(ranked), difference


def _value(bar: Bar) -> str:
    if isinstance(bar.value, int):
        return str(bar.value)
    return f"{bar.value:.0%}" if "%" in bar.bar else f"{bar.value:.3g}".replace("-", "−")


def _gain(gain: Interval) -> str:
    """Write a gain, with its interval where there is one."""
    values = gain[:1] if math.isnan(gain.low) else gain[:3]
    mean, *ends = (f"{x:+.2f}".replace("-", "−") for x in values)
    return f"{mean} ({' to '.join(ends)})" if ends else mean


def _origin(records: Sequence[Record]) -> str:
    """Say what the runs were made with."""
    all_of = partial(origins, records)
    diverged = sum(record["diverged"] for record in records)
    return (
        f"{len(records):,} runs, of which {diverged:,} diverged. "
        f"{all_of('{device} ({precision})')}; torch {all_of('{torch}')}, "
        f"commits {all_of('{commit}')}."
    )
