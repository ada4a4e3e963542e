"""The table of decisions: its runs, and its results in words and numbers."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from evalign_study.decided import plan, standings
from evalign_study.decided.standings import OURS, RIVALS, Cells
from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Points, Rest, Text
from evalign_study.pipeline.table import QUICK, Findings, Sheet, StudyTable, check_datasets, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers.deciding import CUTOFFS, MODELS, PREDICT, TUNER

NAMES = {
    "logistic_regression": "logistic regression",
    "random_forest": "random forest",
    "extra_trees": "extra trees",
    "hist_gradient_boosting": "histogram gradient boosting",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
    "network": "our network, cross-entropy",
}
HOW = (
    "Every model is trained with its library's defaults, on at most 50,000 rows. All decisions use "
    "the same probabilities: out-of-fold ones of the training rows (five folds), on which rules "
    "are fitted, and those of the model trained on all training rows for the test rows, on which "
    f"labels are scored. {TUNER}'s tuner is binary only, with its default of 100 thresholds. Of "
    f"these metrics {CUTOFFS} supports F1 alone; its version 0.6 is the last for Python 3.11. It, "
    "random forests and boosted trees were not run on 257 classes, nor CatBoost on reuters_r8."
)


class SplitTable(StudyTable):
    """A table over the suite's data sets, with splits of its own.

    Args:
        datasets: some names of the suite's tables; None for all, or for those of a quick look.
        quick: whether to take a small slice, to see that it runs.
    """

    def __init__(self, datasets: Sequence[str] | None = None, *, quick: bool = False) -> None:
        check_datasets(self.name, datasets or (), plan.SETS)
        self.quick, self.asked = quick, list(datasets or (plan.QUICK_SETS if quick else plan.SETS))

    @property
    def datasets(self) -> list[str]:
        return self.asked

    def part(
        self,
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> Self:
        require(trials is None, self.name, "trials", "be left out: it has its own splits", trials)
        return type(self)(datasets, quick=quick)

    @abstractmethod
    def runs(self) -> list[Run]:
        """List all runs."""

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        yield self.runs()


class DecisionsTable(SplitTable):
    """The table of decisions."""

    name, title = "decisions", "The right decision for any classifier"

    def runs(self) -> list[Run]:
        """List all runs. A quick look has the models of scikit-learn alone."""
        if self.quick:
            models = ["logistic_regression", "extra_trees"]
            return plan.runs(self.asked, splits=[0, 1], models=models, rows=plan.QUICK_ROWS)
        return plan.runs(self.asked)

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        runs = self.runs()
        there = plan.complete(records[run.key] for run in runs if run.key in records)
        bars = standings.bars(there) if there else []
        scores = standings.collected(there)
        rows = [
            [*cell, rival, *gain]
            for rival in (PREDICT, *RIVALS)
            for cell, gain in standings.compared(scores, rival).gains.items()
        ]
        head = ["data set", "model", "metric", "over", "gain", "low", "high", "splits"]
        return Findings(
            title=self.title,
            parts=list(parts(runs, there, quick=self.quick)),
            figures={},
            sheets={"": Sheet(head, rows)},
            lines=[f"{sum(bar.met for bar in bars)} of {len(bars)} bars met." if bars else NOT_RUN],
            data=[bar._asdict() for bar in bars],
        )


NOT_RUN = "Not run."
BESIDE = {
    "The same over binary data sets, beside both rivals:": (TUNER, CUTOFFS),
    f"The same over all data sets that {CUTOFFS} was run on:": (CUTOFFS,),
}


def _shown(scores: standings.Scores) -> list[str]:
    there = {model for _, model, _ in scores}
    return [model for model in MODELS if model in there]


def headline(scores: standings.Scores) -> Grid:
    """Compare in F1 what `predict` and our rules reach with each model, over all data sets."""
    caption = (
        "Mean F1 (macro for more than two classes) in points over the data sets each was run on, "
        "and the gain of our tuned rule:"
    )
    return _levels(caption, scores, [PREDICT, OURS, "expected"])


def _levels(caption: str, scores: standings.Scores, decisions: Sequence[str]) -> Grid:
    rows = []
    for model in _shown(scores):
        found = standings.levels(scores, model, decisions)
        shown = [NOTHING] * (len(decisions) + 1)
        if found is not None:
            gain = found[decisions.index(OURS)] - found[0]
            shown = [*(f"{x:.1f}" for x in found), f"{gain:+.1f}".replace("-", "−")]
        rows.append([NAMES[model], *shown])
    ours = [f"ours, {name}" if name in (OURS, "expected") else name for name in decisions]
    return Grid(caption, ["", *ours, "gain"], rows)


def parts(runs: Sequence[Run], records: Sequence[Record], *, quick: bool) -> Iterator[Part]:
    """Write the text of the table."""
    yield Heading(DecisionsTable.title)
    if not records:
        yield Text(NOT_RUN)
        return
    if quick:
        yield Text(QUICK)
    if len(records) < len(runs):
        yield Text(f"Not run: {len(runs) - len(records):,} of {len(runs):,} runs.")
    yield Text(HOW)
    scores = standings.collected(records)
    yield headline(scores)
    compared = {name: standings.compared(scores, name) for name in (PREDICT, *RIVALS)}
    yield Points([_verdict(name, cells) for name, cells in compared.items()])
    rows = [
        [bar.name, _value(bar.value), bar.bar, "met" if bar.met else "not met"]
        for bar in standings.bars(records)
    ]
    yield Grid("The bars set for the rule:", ["", "found", "bar", ""], rows)
    metrics = list(dict.fromkeys(metric for _, _, metric in scores))
    for i, (name, cells) in enumerate(compared.items()):
        if i == 1:  # the gain over predict is for a page
            yield Rest()
        yield Grid(
            f"Mean gain in points of our tuned rule over {name}:",
            ["", *metrics],
            [
                [NAMES[model], *(_mean(cells, model, metric) for metric in metrics)]
                for model in _shown(scores)
            ],
        )
    for caption, rivals in BESIDE.items():
        yield _levels(caption, scores, [PREDICT, *rivals, OURS, "expected"])
    beyond = [
        [name, cell[0], NAMES[cell[1]], cell[2], _gain(cells.gains[cell])]
        for name, cells in compared.items()
        for cell in cells.lost
    ]
    if beyond:
        caption = "Cells lost beyond chance, with unadjusted 95% intervals:"
        yield Grid(caption, ["to", "data set", "model", "metric", "gain"], beyond)
    all_of = partial(origins, records)
    yield Text(
        f"{len(records):,} runs. {all_of('{device}')}; scikit-learn {all_of('{sklearn}')}, "
        f"torch {all_of('{torch}')}, commits {all_of('{commit}')}."
    )


def _verdict(name: str, cells: Cells) -> str:
    """Say in words how our rule stands against another."""
    if not cells.gains:
        return f"Against {name}: no cell has both."
    above = sum(gain.mean >= 0 for gain in cells.gains.values())
    return (
        f"Against {name}, in {len(cells.gains)} cells (data set, model and metric): at least as "
        f"good on average in {above}; by Nadeau and Bengio's intervals with Holm's adjustment, "
        f"better in {len(cells.won)} and worse in {len(cells.lost)}."
    )


def _mean(cells: Cells, model: str, metric: str) -> str:
    gains = standings.chosen(cells.gains, [model], metric)
    return f"{standings.mean(gains):+.2f}".replace("-", "−") if gains else NOTHING


def _gain(gain: standings.Interval) -> str:
    mean, low, high = (f"{x:+.2f}".replace("-", "−") for x in gain[:3])
    return f"{mean} ({low} to {high})"


def _value(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}".replace("-", "−")
