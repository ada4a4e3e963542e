"""What the records say of a table: every line beside the printed figure, and every claim judged.

± is a standard deviation over trials everywhere; an interval is called so, and is of a mean
difference, paired by the trials' seeds.
"""

import math
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from evalign_study.pipeline.intervals import Interval, interval
from evalign_study.planning import Cell, Known
from evalign_study.records.journal import Record, Triples, matrix_of, scores_of

MARGIN = 0.01  # lines are similar if they differ by less
RELATIONS = {
    "higher": (0.0, math.inf),
    "not lower": (-MARGIN, math.inf),
    "unchanged": (-MARGIN, MARGIN),
}

CURVES = ("last:", "correlation:")  # columns that are read from a record's curve


class Runs(NamedTuple):
    """The runs of a cell: how many there are to be, which are there, and how they ended."""

    wanted: int
    done: int
    capped: int
    trials: list[Record]

    @property
    def obstacle(self) -> str:
        """Why the trials cannot be held against the paper's; "" if they can."""
        if not self.done:
            return "not run"
        if self.done < self.wanted:
            return f"{self.done} of {self.wanted} runs are there"
        if self.capped:
            return f"{self.capped} of {self.done} runs reached their cap"
        return ""


class Score(NamedTuple):
    """A number of a line: as printed, and the values of our trials by seed."""

    panel: str
    line: str
    variant: str
    column: str
    printed: str
    values: dict[int, float]
    runs: Runs

    @property
    def ours(self) -> str:
        """Mean ± standard deviation."""
        return spread(list(self.values.values()))


class Judgement(NamedTuple):
    """The verdict on a claim, on one panel, in one variant."""

    text: str
    panel: str
    variant: str
    word: str
    reason: str
    difference: Interval | None


def printed_of(name: str) -> dict[str, Any]:
    """What the paper prints of a table; nothing for a table of our own."""
    path = files("evalign_study") / "tables" / "printed" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def runs_of(cell: Cell, known: Known) -> Runs:
    """Look up the runs of a cell."""
    grid = [known.find(run) for run in cell.grid()]
    wanted = {run.key: run for run in cell.trials(known)}
    trials = [record for run in wanted.values() if (record := known.find(run)) is not None]
    there = {record["key"]: record for record in [*grid, *trials] if record is not None}
    number = len({run.key for run in cell.grid()} | wanted.keys())
    if not wanted:
        number += len(cell.trial_seeds)
    return Runs(number, len(there), sum(r["capped"] for r in there.values()), trials)


def scores(cells: Sequence[Cell], known: Known, printed: Mapping[str, Any]) -> Iterator[Score]:
    """Go through all numbers of a table."""
    for cell in cells:
        runs = runs_of(cell, known)
        panel = printed.get("panels", {}).get(cell.panel, {})
        figures = [part.strip() for part in panel.get(cell.line, "").split("|")]
        columns = panel.get("columns", printed.get("columns")) or usual_columns(cell)
        for place, (title, metric, *_) in enumerate(columns):
            values = {
                record["run"]["seed"]: value_of(record, cell, metric)
                for record in runs.trials
                if record["picks"].get(cell.criterion)
            }
            figure = figures[place] if place < len(figures) else ""
            if cell.variant != "paper":
                figure = ""
            values = {seed: x for seed, x in values.items() if not math.isnan(x)}
            yield Score(cell.panel, cell.line, cell.variant, title, figure, values, runs)


def usual_columns(cell: Cell) -> list[list[str]]:
    """The columns of a table that nobody has printed."""
    return [["F1", "f1"], ["Acc", "accuracy"], ["MCC", "matthews_corrcoef"]]


def value_of(record: Record, cell: Cell, metric: str) -> float:
    """A test score of a trial; "precision:5" is of class 5, "f1" is macro for several classes.

    Where the paper averages over decisions, so does this.
    """
    if metric.startswith(CURVES):
        return cell.protocol.of_curve(record, metric)
    decisions = record["picks"][cell.criterion]["decisions"]
    names = cell.protocol.DECISIONS[cell.variant]
    scored = [decisions.get(name, decisions.get("argmax"))["matrix"] for name in names]
    return statistics.fmean(_of_matrix(cells, cell, metric) for cells in scored)


def _of_matrix(cells: Triples, cell: Cell, metric: str) -> float:
    classes = 1 + max(max(true, predicted) for true, predicted, _ in cells)
    name, _, number = metric.partition(":")
    if number:
        side = {"recall": 0, "precision": 1}[name]
        right = sum(n for true, predicted, n in cells if true == predicted == int(number))
        total = sum(one[2] for one in cells if one[side] == int(number))
        return right / total if total else 0.0
    if name == "f1":
        name = cell.protocol.metrics_of(cell.base)[0]
    matrix = matrix_of(cells, max(classes, 2))
    return scores_of(matrix, [name])[name]


def judgements(found: Sequence[Score], printed: Mapping[str, Any]) -> Iterator[Judgement]:
    """Judge every claim on every panel and in every variant."""
    by_name = {(s.panel, s.variant, s.line, s.column): s for s in found}
    places = dict.fromkeys((score.panel, score.variant) for score in found)
    for claim in printed.get("claims", ()):
        for panel, variant in places:
            if panel not in claim.get("on", [panel]):
                continue
            lines = [claim["better"], *([claim["than"]] if "than" in claim else [])]
            sides = [by_name.get((panel, variant, line, claim["column"])) for line in lines]
            if None in sides:
                continue
            yield _judged(claim, panel, variant, sides, printed)


def _judged(
    claim: Mapping[str, Any],
    panel: str,
    variant: str,
    sides: Sequence[Any],
    printed: Mapping[str, Any],
) -> Judgement:
    first, second = sides[0].values, sides[-1].values
    if len(sides) == 1:
        second = dict.fromkeys(first, claim["above"])
    pairs = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    difference = interval(pairs) if len(pairs) > 1 else None
    about = (claim["text"], panel, variant)
    obstacles = [printed["panels"].get(panel, {}).get("incomparable", "")]
    obstacles += [f"{side.line}: {side.runs.obstacle}" for side in sides if side.runs.obstacle]
    obstacle = "; ".join(filter(None, obstacles))
    if difference is None:
        return Judgement(*about, "not run", obstacle, None)
    if obstacle:
        return Judgement(*about, "not comparable", obstacle, difference)
    least, most = RELATIONS[claim.get("relation", "higher")]
    if least < difference.low and difference.high < most:
        return Judgement(*about, "confirmed", "", difference)
    outside = difference.high < least or most < difference.low
    return Judgement(*about, "the reverse holds" if outside else "not confirmed", "", difference)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over trials, as the papers write it."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"
