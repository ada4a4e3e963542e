"""The table of goals: its runs, and its results in words and numbers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evalign_study.decided.standings import Scores
from evalign_study.goals import plan, standings
from evalign_study.goals.standings import PLAIN, TRAINED, collected, points
from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Rest, Text
from evalign_study.pipeline.intervals import Interval
from evalign_study.pipeline.table import QUICK, Findings, Sheet, StudyTable, check_datasets, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.suite.standings import named
from evalign_study.trainers.goal_methods import AP, BOUNDED, GOALS, METHODS, PAUC
from evalign_study.trainers.goals import PREFIX

SHOWN = {
    "precision_at_recall_80": "precision, recall ≥ 0.8",
    "precision_at_recall_90": "precision, recall ≥ 0.9",
    "precision_at_recall_95": "precision, recall ≥ 0.95",
    "recall_at_precision_90": "recall, precision ≥ 0.9",
    "recall_at_fpr_1": "recall, FPR ≤ 1%",
    AP: "average precision",
    PAUC: "partial AUC",
}
NAMES = {
    PLAIN: "cross-entropy",
    "weighted": "class-weighted cross-entropy",
    TRAINED: "ours, for the goal",
    AP: "`AveragePrecisionLoss`",
    PAUC: "`PartialAUCLoss`",
    "recall_at_precision": "`RecallAtPrecisionLoss`",
    "libauc_ap": "LibAUC, average precision",
    "libauc_pauc": "LibAUC, partial AUC",
    "libauc_tpauc": "LibAUC, two-way partial AUC",
}
HOW = (
    "Binary classification. A small MLP on normal quantiles of distinct rows; for images, of "
    "which one in 21 is positive, a small convolutional network. 64% of the rows for training, "
    "16% for validation, 20% for testing; five splits. All losses get the same number of steps, "
    "schedule and weight averaging; the learning rate of each is chosen from three on two other "
    "splits, by the validation score in the goal it is for (average precision for cross-entropy). "
    "The epoch is selected by the average precision of the validation rows, and the rule is "
    "fitted on them. Ours for the goal is `CountedLoss` trained under the bound, and for areas "
    "the loss of that name, the partial one up to a false positive rate of 10%. LibAUC's losses "
    "have their own optimisers and samplers."
)
PROMISES = (
    "Bounds on new rows. A rule with confidence 0.95 is judged if it made its promise, a rule "
    "without confidence always. Wrong side: the test rows miss the bound at all. Broken: they "
    "miss it by more than sampling error, by a one-sided binomial test at 5%. The last column is "
    "the probability of at least as many if each is broken independently with probability 5%; "
    "rules of one split share their rows, so it is a rough guide."
)
NOT_RUN = "Not run."


class GoalsTable(StudyTable):
    """The table of goals.

    Args:
        datasets: some of `plan.SETS`; None for all, or for one in a quick look.
        trials: how many splits; None for all.
        quick: whether to take a small slice, to see that it runs.
    """

    name, title = "goals", "Goals beyond one number"

    def __init__(
        self,
        datasets: Sequence[str] | None = None,
        *,
        trials: int | None = None,
        quick: bool = False,
    ) -> None:
        check_datasets(self.name, datasets or (), plan.SETS)
        self.quick, self.trials = quick, trials
        self.asked = list(datasets or (plan.QUICK_SETS if quick else plan.SETS))

    @property
    def datasets(self) -> list[str]:
        return self.asked

    def part(
        self,
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> "GoalsTable":
        return GoalsTable(datasets, trials=trials, quick=quick)

    def runs(self, records: Mapping[str, Record]) -> list[Run]:
        """List the runs that count, of the methods whose learning rate is known."""
        if self.quick:
            return plan.quick(self.asked)
        return plan.runs(records, self.asked, splits=plan.SPLITS[: self.trials])

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        """Yield the search for learning rates, then the runs that count."""
        if not self.quick:
            yield plan.search(self.asked)
        yield self.runs(records)

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        there = [records[run.key] for run in self.runs(records) if run.key in records]
        found = standings.bars(there) if there else []
        head, rows = _sheet(there)
        return Findings(
            title=self.title,
            parts=list(self._parts(there, records)),
            figures={},
            sheets={"": Sheet(head, rows)},
            lines=[
                f"{sum(bar.met for bar in found)} of {len(found)} bars met." if found else NOT_RUN
            ],
            data=[bar._asdict() for bar in found],
        )

    def _parts(self, there: Sequence[Record], records: Mapping[str, Record]) -> Iterator[Part]:
        """Write the text."""
        yield Heading(self.title)
        if not there:
            yield Text(NOT_RUN)
            return
        if self.quick:
            yield Text(QUICK)
        else:
            planned = len(plan.SPLITS[: self.trials]) * len(plan.search(self.asked))
            planned //= len(plan.RATES) * len(plan.DEVELOPMENT)
            if len(there) < planned:
                yield Text(f"Not run: {planned - len(there):,} of {planned:,} runs.")
        yield Text(HOW)
        scores = collected(there)
        rows = [
            [bar.name, _number(bar.value), bar.bar, "met" if bar.met else "not met"]
            for bar in standings.bars(there)
        ]
        yield Grid("The bars set for goals:", ["", "found", "bar", ""], rows)
        if any(standings.by_dataset(scores, goal, PLAIN) for goal in GOALS):
            yield Text(standings.verdict(scores))
        yield _levels(
            scores,
            "Mean test score over data sets, in points, by rules with a promise where possible:",
        )
        yield _kept(there)
        yield Rest()
        yield _levels(
            collected(there, None),
            "The same by the best threshold for the test rows themselves, which nobody knows: what "
            "the scores are worth without a rule.",
        )
        yield _gains(scores, PLAIN, GOALS, "Our gain over cross-entropy")
        for goal in (AP, PAUC):
            best = standings.best_of_libauc(scores, goal)
            if best is not None:
                caption = f"Our gain in {SHOWN[goal]} over {NAMES[best]}, the best of LibAUC"
                yield _gains(scores, best, [goal], caption)
        yield _rates(records, self.asked, quick=self.quick)
        all_of = partial(origins, there)
        seconds = np.median([record["seconds"] for record in there])
        yield Text(
            f"{len(there):,} runs, median {seconds:.0f} s. {all_of('{device}')}; torch "
            f"{all_of('{torch}')}, {all_of('{precision}')}, commits {all_of('{commit}')}."
        )


def _levels(scores: Scores, caption: str) -> Grid:
    rows = []
    for name, shown in NAMES.items():
        levels = [standings.level(scores, goal, name) for goal in GOALS]
        if any(level is not None for level in levels):
            rows.append([shown, *(NOTHING if x is None else f"{x:.1f}" for x in levels)])
    return Grid(caption, ["", *SHOWN.values()], rows)


def _gains(scores: Scores, rival: str, goals: Sequence[str], caption: str) -> Grid:
    found = {goal: standings.by_dataset(scores, goal, rival) for goal in goals}
    names = list(dict.fromkeys(cell[0] for cell in scores))
    rows = [[SHOWN[goal], *(_interval(found[goal].get(name)) for name in names)] for goal in goals]
    return Grid(f"{caption}, points, 95% intervals:", ["", *names], rows)


def _kept(records: Sequence[Record]) -> Grid:
    rows = []
    for goals, shown in [*(([goal], SHOWN[goal]) for goal in BOUNDED), (list(BOUNDED), "all")]:
        for rule, said in {"promised": "with confidence", "met": "without"}.items():
            kept = standings.promises(records, goals, rule)
            share = f"{kept.broken / kept.judged:.1%}" if kept.judged else NOTHING
            chance = f"{kept.chance:.2g}" if kept.judged and rule == "promised" else NOTHING
            promised = f"{kept.promised:,}" if rule == "promised" else NOTHING
            low, high = kept.positives
            cells = [f"{kept.rules:,}", promised, f"{low:,} to {high:,}", f"{kept.missed:,}"]
            rows.append([f"{shown}, {said}", *cells, f"{kept.broken:,}", share, chance])
    head = ["", "rules", "promised", "positives to fit on", "wrong side", "broken", "share", "p"]
    return Grid(PROMISES, head, rows)


def _rates(records: Mapping[str, Record], datasets: Sequence[str], *, quick: bool) -> Grid:
    rows = []
    for method in METHODS:
        rates = [None if quick else plan.chosen(records, name, method) for name in datasets]
        rows.append([method, *(NOTHING if rate is None else f"{rate:g}" for rate in rates)])
    return Grid("The chosen learning rates:", ["", *datasets], rows)


def _sheet(records: Sequence[Record]) -> tuple[list[str], list[list[Any]]]:
    head = ["data set", "goal", "method", "split", "epoch", "validation", "best on test"]
    head += ["rule", "test", "promised", "tn", "fp", "fn", "tp"]
    rows = []
    for record in records:
        run = record["run"]
        for goal, pick in record["picks"].items():
            about = [named(run), goal, run["method"].removeprefix(PREFIX), run["split_seed"]]
            about += [pick["epoch"], pick["validation"], pick["test"]]
            rules = pick.get("rules", {"": {"test": pick["test"], "promised": ""}})
            for name, told in rules.items():
                counts = [n for row in told.get("matrix", [[""] * 4]) for n in row]
                rows.append([*about, name, told["test"], told["promised"], *counts])
    return head, rows


def _interval(found: Interval | None) -> str:
    if found is None:
        return NOTHING
    mean, low, high = map(points, found[:3])
    return f"{mean} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
