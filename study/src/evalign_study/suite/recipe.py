"""The suite of the recipe as text, table and page: train what is missing, write what was found."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import plotly.graph_objects as go

from evalign.core.checks import nearest, require
from evalign.report.figures import ALIGNED, MUTED, STYLE
from evalign_study.data import card
from evalign_study.data.sources import fetch
from evalign_study.papers.formats import Grid, Heading, Part, Text, html, markdown
from evalign_study.papers.render import NOTHING
from evalign_study.papers.reproduce import Progress
from evalign_study.papers.verdicts import Interval, interval
from evalign_study.records.execute import execute
from evalign_study.records.results import Record, Results
from evalign_study.records.run import Run
from evalign_study.suite import standings
from evalign_study.suite import tables as suite
from evalign_study.suite.standings import Bar, Cell, Choice
from evalign_study.suite.tables import OURS, QUICK_EPOCHS, QUICK_SETS, SETS, UNLABELLED
from evalign_study.trainers import tailed
from evalign_study.trainers.methods import UNAVERAGED

NAME = "recipe"
TITLE = "The recipe against the losses of today"
CHOICE = Choice((OURS,), ("tuned",))  # the estimator's
BY_ARGMAX = Choice((OURS,), ("argmax",))  # a loop's without a rule
IMAGES = tuple(dict.fromkeys(dataset for dataset, _ in tailed.SETS))
RIVALS = {"best opponent": standings.OPPONENT, "cross-entropy of today": standings.TODAY}
BESIDE = [  # ours, and another one
    (BY_ARGMAX, Choice(("cross_entropy",), ("argmax",))),
    (BY_ARGMAX, Choice(suite.OPPONENTS, ("argmax",))),
    (BY_ARGMAX, standings.OPPONENT),
    (CHOICE, Choice(("cross_entropy",), ("expected",))),
    (CHOICE, standings.TODAY),
    (CHOICE, standings.OPPONENT),
    (CHOICE, BY_ARGMAX),
    (CHOICE, Choice((OURS,), ("expected",))),
]
TIME = "recipe_time.json"  # beside the records: {"ratio": time of ours over cross-entropy's}
LONGEST = 1.3  # that ratio, at most
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
    """The runs that were planned, the records that there are of them, and the ratio of times."""

    runs: Sequence[Run]
    records: Sequence[Record]
    quick: bool = False
    time: float | None = None

    @property
    def part(self) -> str:
        """That it is about some of the data sets, if it is: the bars are set for all."""
        there = dict.fromkeys(run.dataset for run in self.runs)
        whole = self.quick or there.keys() == {*SETS, *IMAGES}
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


def planned(datasets: Sequence[str] | None = None, *, quick: bool = False) -> list[Run]:
    """The runs of the suite, or of some of its data sets, or of a quick look at tables."""
    known = (*SETS, *IMAGES)
    for dataset in datasets or ():
        allowed, cure = f"be one of {', '.join(known)}", nearest(dataset, known)
        require(dataset in known, NAME, "dataset", allowed, repr(dataset), cure)
    sets = datasets or (QUICK_SETS if quick else known)
    tables = [name for name in sets if name in SETS]
    if quick:
        allowed, got = "be one with a quick look, which images have not", ", ".join(sets)
        require(len(tables) == len(sets), NAME, "dataset", allowed, got)
        return suite.runs(tables, splits=[0], seeds=[1], epochs=QUICK_EPOCHS)
    images = [of for of in tailed.SETS if of[0] in sets]
    return suite.runs(tables) + tailed.runs(images)


def reproduce(
    *,
    out: Path,
    results: Path,
    datasets: Sequence[str] | None = None,
    quick: bool = False,
    render_only: bool = False,
    jobs: int = 1,
    backend: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Train what is not recorded, and write down what was found.

    Args:
        out: the folder for Markdown, HTML and CSV.
        results: the folder of the records.
        datasets: some of `suite.SETS` and `IMAGES`; all without.
        quick: a small slice, to see that it runs. Its numbers mean nothing, and all of it goes to
            the folder "quick" of `out`.
        render_only: train nothing.
        jobs: units of work at a time.
        backend: None, or "dask" for the cluster of the current `dask.distributed.Client`.
        progress: told of what is done.

    Raises:
        ExecutionError: at the end, when all else is written down, if units failed.
    """
    runs = planned(datasets, quick=quick)
    if quick:
        out = results = out / "quick"

    def tell(done: int, total: int, left: float) -> None:
        if progress is not None:
            progress(NAME, done, total, left)

    units = [] if render_only else suite.units(runs)
    for unit in units:
        fetch(card(unit[0].dataset))  # what is absent is told now, and downloaded once
    own = Results(results / f"{NAME}.jsonl")
    try:
        execute(units, train, own, jobs=jobs, backend=backend, progress=tell)
    finally:
        known = {record["key"]: record for record in own.records()}
        there = [known[run.key] for run in runs if run.key in known]
        outcome = Outcome(runs, there, quick, time_in(results))
        write(outcome, out)
    return outcome


def time_in(results: Path) -> float | None:
    """The time of ours over cross-entropy's, if it was measured (benchmarks/recipe_time.py)."""
    file = results / TIME
    return json.loads(file.read_text(encoding="utf-8"))["ratio"] if file.exists() else None


def train(unit: Sequence[Run]) -> Iterator[Record]:
    """The records of a unit, of tables or of images."""
    return suite.train(unit) if unit[0].dataset in SETS else map(tailed.train, unit)


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """recipe.md, recipe.html and recipe.csv with the gains of every cell."""
    folder.mkdir(parents=True, exist_ok=True)
    said = list(parts(outcome))
    paths = [folder / f"{NAME}.{kind}" for kind in ("md", "html", "csv")]
    paths[0].write_text(markdown(said), encoding="utf-8")
    paths[1].write_text(html(TITLE, said, figures(outcome)), encoding="utf-8")
    with paths[2].open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["data set", "metric", "over", "gain", "low", "high", "splits"])
        for rival, cells in _gains(outcome).items():
            writer.writerows([*cell, rival, *of] for cell, of in cells.items())
    return paths


def parts(outcome: Outcome) -> Iterator[Part]:
    """All that is said of the suite."""
    yield Heading(TITLE)
    known = {record["key"] for record in outcome.records}
    absent = [run for run in outcome.runs if run.key not in known]
    bars, cells = outcome.headline, _gains(outcome)
    if not bars:
        yield Text("Not run.")
        return
    if outcome.quick:
        yield Text("A quick look, to see that it runs: its numbers mean nothing.")
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
    first, second = cells.values()
    yield Grid(
        "Gains in points, with 95% intervals over splits:",
        ["data set", "metric", "splits", *(f"over {rival}" for rival in cells)],
        [
            [*cell, str(of.trials), _gain(of), _gain(second[cell]) if cell in second else NOTHING]
            for cell, of in first.items()
        ],
    )
    yield Heading("Ranks", below=True)
    ranks, difference = _ranks(outcome)
    caption = f"Average rank over cells; a difference of {difference:.2f} is beyond chance:"
    yield Grid(caption, ["", "rank"], [[name, f"{rank:.2f}"] for name, rank in ranks.items()])
    yield Heading("Ablation", below=True)
    found = standings.ablation(outcome.scores, OURS)
    rows = [
        [text, *(_gain(of) for of in found[name].values()), str(found[name][UNLABELLED[0]].trials)]
        if name in found
        else [text, *("not run" for _ in UNLABELLED), NOTHING]
        for name, text in CHANGED.items()
    ]
    caption = (
        "Our gain in points over ours with a part changed or left out, both with decisions that "
        f"need no labels, on {len(suite.ABLATED)} splits, 95% intervals over data sets:"
    )
    yield Grid(caption, ["", *(f"gain, {of}" for of in UNLABELLED), "data sets"], rows)
    yield Text(_origin(outcome.records))


def figures(outcome: Outcome) -> dict[str, go.Figure]:
    """The gains of the cells, and the ranks with their critical difference; none without trials."""
    if not outcome.headline:
        return {}
    cells = sorted(_gains(outcome)["best opponent"].items(), key=lambda item: item[1].mean)
    gains = {f"{dataset}, {metric}": of for (dataset, metric), of in cells}
    ranks, difference = _ranks(outcome)
    half = difference / 2
    bars = {name: Interval(r, r - half, r + half, 1) for name, r in reversed(ranks.items())}
    return {
        "Gain over the best opponent, points": _dots(gains),
        "Average ranks; bars that do not overlap differ beyond chance": _dots(bars),
    }


def _dots(values: Mapping[str, Interval]) -> go.Figure:
    """Means and their intervals, the last on top."""
    means = [of.mean for of in values.values()]
    reach = [0.0 if math.isnan(of.high) else of.high - of.mean for of in values.values()]
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
    means = [of.mean for of in standings.intervals(gained).values()]
    share = sum(mean >= 0 for mean in means) / len(means)
    over = interval(standings.of_datasets(gained))
    return [standings.label(ours), standings.label(rival), _gain(over), f"{share:.0%}"]


def _ranks(outcome: Outcome) -> tuple[dict[str, float], float]:
    """Average ranks, and their critical difference."""
    ranked = standings.ranks(outcome.scores, standings.single(CHOICE))
    datasets = {dataset for dataset, _ in next(iter(ranked.values()))}
    difference = standings.critical_difference(len(ranked), len(datasets))
    return standings.average_ranks(ranked), difference


def _value(bar: Bar) -> str:
    if isinstance(bar.value, int):
        return str(bar.value)
    return f"{bar.value:.0%}" if "%" in bar.bar else f"{bar.value:.3g}".replace("-", "−")


def _gain(of: Interval) -> str:
    """With its interval, where there is one."""
    values = of[:1] if math.isnan(of.low) else of[:3]
    mean, *ends = (f"{x:+.2f}".replace("-", "−") for x in values)
    return f"{mean} ({' to '.join(ends)})" if ends else mean


def _origin(records: Sequence[Record]) -> str:
    """What the runs were made with."""

    def all_of(text: str) -> str:
        return ", ".join(sorted({text.format_map(record["made"]) for record in records}))

    diverged = sum(record["diverged"] for record in records)
    return (
        f"{len(records):,} runs, of which {diverged:,} diverged. "
        f"{all_of('{device} ({precision})')}; torch {all_of('{torch}')}, "
        f"commits {all_of('{commit}')}."
    )
