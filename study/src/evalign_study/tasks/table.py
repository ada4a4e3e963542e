"""The tables of segmentation and multilabel classification: runs, and results in words."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from evalign_study.pipeline.formats import NOTHING, Grid, Heading, Part, Rest, Text
from evalign_study.pipeline.intervals import Interval
from evalign_study.pipeline.table import QUICK, Findings, Sheet, StudyTable, check_datasets, origins
from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.suite.standings import Choice, Scores, scores
from evalign_study.tasks import plan, standings
from evalign_study.tasks.standings import Task
from evalign_study.trainers import multilabel
from evalign_study.trainers.dense import DICE, MIOU, PER_IMAGE
from evalign_study.trainers.pixel_methods import METHODS

DENSE = Task(
    name="dense",
    title="Semantic segmentation",
    how=(
        "A small U-Net, trained with AdamW, a cosine schedule and averaged weights; images are "
        "flipped, zoomed and varied in brightness and colour, tissue sections also rotated. mIoU "
        "is over all test pixels pooled, mean Dice the mean over images (of the second class, if "
        "there are two). The epoch is selected by the mIoU of the validation images. Rules are "
        "fitted on 60,000 of their pixels, and the decision of each loss is chosen on the "
        "validation images. RankSEG decides image by image, without labels. CamVid has its "
        "publisher's split, so its intervals are over seeds alone; tissue sections have eight "
        "splits into contiguous stretches."
    ),
    metrics={MIOU: "mIoU", DICE: "mean Dice"},
    methods={
        "cross_entropy": "cross-entropy",
        "weighted": "class-weighted",
        "dice": "cross-entropy + Dice",
        "lovasz": "cross-entropy + Lovász",
        "weighted_dice": "class-weighted + Dice",
        "weighted_lovasz": "class-weighted + Lovász",
        "focal_tversky": "focal Tversky",
        plan.OURS: "ours",
    },
    ours={MIOU: plan.OURS, DICE: plan.OURS},
    decisions={
        "argmax": "argmax",
        "tuned": "tuned",
        "expected": "expected",
        PER_IMAGE: "RankSEG",
    },
    over_plain=3.0,
    over_rival=0.5,
    together=False,
)
MULTILABEL = Task(
    name="multilabel",
    title="Multilabel tables",
    how=(
        "An MLP trained like `AlignedClassifier`, the same for every loss; 64% of the rows for "
        "training, 16% for validation, 20% for testing, five splits. The epoch is selected by the "
        "macro-F1 of the validation rows. Thresholds are fitted on the same rows, and the "
        "decision of each loss is chosen on them; for samples-F1 the thresholds are those for "
        "micro-F1. A label that is neither present nor predicted in the test rows counts as 0, as "
        "in scikit-learn."
    ),
    metrics={
        multilabel.MACRO: "macro-F1",
        multilabel.MICRO: "micro-F1",
        multilabel.SAMPLES: "samples-F1",
    },
    methods={
        "binary_cross_entropy": "binary cross-entropy",
        "asymmetric": "asymmetric loss",
        "sigmoid_f1": "sigmoidF1",
        "following_macro": "ours, macro",
        "following_micro": "ours, micro",
    },
    ours=multilabel.OURS,
    decisions={"argmax": "0.5", "tuned": "tuned", "expected": "expected"},
    over_plain=4.0,
    over_rival=0.0,
    together=True,
)
NOT_RUN = "Not run."
DEVELOPMENT = (
    "Variants of our loss beside rivals: mean mIoU over four splits of CamVid's training and "
    "validation images into contiguous stretches, without the publisher's test images. The number "
    "is the weight of the metric."
)


class TaskTable(StudyTable):
    """One of the two tables.

    Args:
        task: what it compares.
        known: the names of all its data sets.
        planned: lists its runs, by data sets and by the number of trials; None for all.
        small: turns the runs into those of a quick look.
        datasets: some of the names; None for all.
        trials: how many seeds or splits; None for all.
        quick: whether to take a small slice, to see that it runs.
    """

    def __init__(
        self,
        task: Task,
        known: Sequence[str],
        planned: Callable[[Sequence[str], int | None], list[Run]],
        small: Callable[[list[Run]], list[Run]],
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> None:
        check_datasets(task.name, datasets or (), known)
        self.name, self.title, self.task, self.quick = task.name, task.title, task, quick
        self.asked = list(datasets or known)
        self.trials = trials
        self._again = partial(TaskTable, task, known, planned, small)
        self._planned, self._small = planned, small

    @property
    def datasets(self) -> list[str]:
        return self.asked

    def part(
        self,
        *,
        datasets: Sequence[str] | None = None,
        trials: int | None = None,
        quick: bool = False,
    ) -> "TaskTable":
        return self._again(datasets=datasets, trials=trials, quick=quick)

    def runs(self) -> list[Run]:
        """List all runs."""
        runs = self._planned(self.asked, self.trials)
        return self._small(runs) if self.quick else runs

    def stages(self, records: Mapping[str, Record]) -> Iterator[list[Run]]:
        yield self.runs()

    def findings(self, records: Mapping[str, Record], folder: Path) -> Findings:
        runs = self.runs()
        there = [records[run.key] for run in runs if run.key in records]
        found = scores(there)
        bars = standings.bars(found, self.task, self.asked)
        rows = [
            [dataset, metric, method, decision, *trial, score.validation, score.test]
            for (dataset, metric), trials in found.items()
            for trial, contenders in trials.items()
            for (method, decision), score in contenders.items()
        ]
        head = ["data set", "metric", "method", "decision", "split", "seed", "validation", "test"]
        parts = list(self._parts(runs, there, found))
        if self.task is DENSE and not self.quick:
            parts += list(development(records))
        return Findings(
            title=self.title,
            parts=parts,
            figures={},
            sheets={"": Sheet(head, rows)},
            lines=[f"{sum(bar.met for bar in bars)} of {len(bars)} bars met." if bars else NOT_RUN],
            data=[bar._asdict() for bar in bars],
        )

    def _parts(
        self, runs: Sequence[Run], records: Sequence[Record], found: Scores
    ) -> Iterator[Part]:
        """Write the text."""
        task = self.task
        yield Heading(self.title)
        if not records:
            yield Text(NOT_RUN)
            return
        if self.quick:
            yield Text(QUICK)
        if len(records) < len(runs):
            yield Text(f"Not run: {len(runs) - len(records):,} of {len(runs):,} runs.")
        yield Text(task.how)
        rows = [
            [bar.name, _points(bar.value), bar.bar, "met" if bar.met else "not met"]
            for bar in standings.bars(found, task, self.asked)
        ]
        yield Grid("The bars set for our loss:", ["", "found", "bar", ""], rows)
        for i, (metric, shown) in enumerate(task.metrics.items()):
            for name, cells in standings.groups(task, metric, self.asked).items():
                yield _levels(found, task, cells, f"Test {shown} in points, {name}:")
            if i == 0:  # the metric that is judged is for a page
                yield _gains(found, task, metric, shown, self.asked, plain=True)
                yield Rest()
        for metric, shown in task.metrics.items():
            yield _gains(found, task, metric, shown, self.asked)
        all_of = partial(origins, records)
        yield Text(
            f"{len(records):,} runs. {all_of('{device}')}; torch {all_of('{torch}')}, "
            f"{all_of('{precision}')}, commits {all_of('{commit}')}."
        )


def _levels(found: Scores, task: Task, cells: Sequence[standings.Cell], caption: str) -> Grid:
    """Show the mean score of every loss under every decision and under the chosen one."""
    rows = []
    for method, shown in task.methods.items():
        choices = [Choice([method], [decision]) for decision in task.decisions]
        values = [standings.mean(found, cells, each) for each in [*choices, task.chosen(method)]]
        rows.append([shown, *(NOTHING if x is None else f"{x:.1f}" for x in values)])
    return Grid(caption, ["", *task.decisions.values(), "chosen"], rows)


def _gains(
    found: Scores,
    task: Task,
    metric: str,
    shown: str,
    datasets: Sequence[str],
    *,
    plain: bool = False,
) -> Grid:
    """Show our gain over every rival by data set, all with chosen or all with plain decisions."""
    decided = task.plain if plain else task.chosen
    ours = decided(task.ours[metric])
    rows = []
    for rival in task.rivals:
        each = [
            standings.gain(found, [(dataset, metric)], ours, decided(rival)) for dataset in datasets
        ]
        rows.append([task.methods[rival], *map(_interval, each)])
    by = f"at {next(iter(task.decisions.values()))}" if plain else "with chosen decisions"
    caption = f"Our gain in {shown} over each rival, all {by}, 95% intervals:"
    return Grid(caption, ["", *datasets], rows)


def development(records: Mapping[str, Record]) -> Iterator[Part]:
    """Show the methods that were run on all splits of the development, if some were."""
    there = [records[run.key] for run in plan.candidates(METHODS) if run.key in records]
    counts = Counter(record["run"]["method"] for record in there)
    whole = [name for name in METHODS if counts[name] == len(plan.DEVELOPMENT)]
    if whole:
        names = {name: name.replace("_", " ") for name in whole}
        shown = DENSE._replace(methods=names)
        yield _levels(scores(there), shown, [("camvid", MIOU)], DEVELOPMENT)


def _interval(found: Interval | None) -> str:
    if found is None:
        return NOTHING
    mean, low, high = map(_points, found[:3])
    return mean if found.trials == 1 else f"{mean} ({low} to {high})"


def _points(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _few(runs: list[Run], **changes: int) -> list[Run]:
    """Make runs small: the first trial alone."""
    first = min(run.seed for run in runs)
    return [run.but(**changes) for run in runs if run.seed == first]


def dense() -> TaskTable:
    """Make the table of dense prediction."""
    return TaskTable(
        DENSE,
        list(plan.DENSE),
        lambda datasets, trials: plan.dense(datasets, seeds=plan.SEEDS[:trials]),
        partial(_few, rows=2, epochs=2, batch_size=2),
    )


def many_labels() -> TaskTable:
    """Make the table of multilabel classification."""
    return TaskTable(
        MULTILABEL,
        plan.MULTILABEL,
        lambda datasets, trials: plan.multilabel(datasets, splits=plan.SPLITS[:trials]),
        partial(_few, rows=200, epochs=2),
    )
