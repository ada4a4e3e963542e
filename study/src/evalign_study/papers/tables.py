"""What the papers printed and claimed, and what it is compared with, read from `tables.toml`."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from evalign_study.data import card
from evalign_study.refusals import nearest, require
from evalign_study.trainers.classical import CLASSICAL
from evalign_study.trainers.methods import METHODS, NETWORKS

EPOCHS, PATIENCE, TRIALS = 500, 50, 10
DECISIONS = ("argmax", "tuned")
OF_CURVES = ("last", "epochs", "correlation")
KINDS = ("table", "convergence", "scatter")
MARGIN = 0.01  # lines are "similar" if they differ by less
# A claim says that the difference of its lines lies between these bounds.
RELATIONS = {
    "higher": (0.0, math.inf),
    "not lower": (-MARGIN, math.inf),
    "unchanged": (-MARGIN, MARGIN),
}


class Printed(NamedTuple):
    """A cell of a paper."""

    mean: float
    std: float
    text: str


class Column(NamedTuple):
    """What is measured, and the metric of the validation rows for the strict selection."""

    label: str
    metric: str
    criterion: str

    @property
    def curve(self) -> bool:
        """Whether it is computed from the curve over the epochs rather than from a kept epoch."""
        return self.metric.partition(":")[0] in OF_CURVES

    @property
    def decided(self) -> bool:
        """Whether its value depends on the decision."""
        return not self.curve and self.metric != "auroc"


class Line(NamedTuple):
    """A method with some `fixed` fields of its runs; `added` if no paper prints it."""

    label: str
    method: str
    fixed: Mapping[str, Any]
    added: bool


class Claim(NamedTuple):
    """A claim of a paper: a line scores higher in a column than another line, or than a number.

    It may also claim another one of the `RELATIONS`. `on` lists the labels of its panels.
    """

    text: str
    better: str
    column: str
    on: Sequence[str]
    than: str = ""
    above: float = 0.0
    relation: str = "higher"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The part of a table that is about one data set.

    Args:
        label: the label as printed.
        dataset: its name in `evalign_study.data`.
        classes: the number of its classes.
        network: a name in `methods.NETWORKS`, for the methods that have a network.
        variants: the variants of `Run`, with the papers' first.
        recipe: the fields of runs that are trained without the whole grid. A list holds the values
            to search. None for the grid.
        epochs: the cap for runs of a grid.
        imbalance: majority rows per minority row, where rows are left out to reach it.
        incomparable: why the printed figures cannot be compared with ours; empty if they can.
        notes: the remarks to read beside the numbers.
        columns: what is measured.
        lines: the methods, with the printed ones first.
        printed: the printed cells by (line, column).
    """

    label: str
    dataset: str
    classes: int
    network: str
    variants: tuple[str, ...]
    recipe: Mapping[str, Any] | None
    epochs: int
    imbalance: float | None
    incomparable: str
    notes: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    printed: Mapping[tuple[str, str], Printed]

    @property
    def searched(self) -> dict[str, list[Any]]:
        """The fields of which the recipe lists several values."""
        recipe = self.recipe or {}
        return {name: values for name, values in recipe.items() if isinstance(values, list)}

    @property
    def first(self) -> dict[str, Any]:
        """The recipe, with the first value of every list."""
        firsts = {name: values[0] for name, values in self.searched.items()}
        return {**(self.recipe or {}), **firsts}

    def line(self, label: str) -> Line | None:
        return next((line for line in self.lines if line.label == label), None)

    def column(self, label: str) -> Column | None:
        return next((column for column in self.columns if column.label == label), None)


@dataclass(frozen=True, kw_only=True)
class PrintedTable:
    """A table or figure of a paper.

    Args:
        name: the name in commands.
        title: what it shows.
        kind: "table", or the kind of figure: "convergence" or "scatter".
        decisions: the rules from scores to labels, with the paper's first.
        strict: the decision of the strict view of a claim.
        patience: the patience of the runs of a grid.
        trials: the number of seeds of each setting.
        notes: the remarks to read beside the numbers.
        panels: its parts.
        claims: the paper's claims about it.
    """

    name: str
    title: str
    kind: str
    decisions: tuple[str, ...]
    strict: str
    patience: int
    trials: int
    notes: tuple[str, ...]
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]

    @property
    def drawn(self) -> bool:
        """Whether it is a figure, which shows the median of repetitions for all epochs."""
        return self.kind != "table"


def names() -> list[str]:
    """List the tables and figures.

    Examples:
        >>> names()[:2]
        ['east-table1', 'east-table2']
    """
    return list(_tables())


def table(name: str) -> PrintedTable:
    """Look up a table or figure.

    Examples:
        >>> table("mcfbeta-table2").panels[1].printed["F1*", "F1"].text
        '0.251 ± 0.09'
    """
    known = _tables()
    allowed, cure = f"be one of {', '.join(known)}", nearest(name, known)
    require(name in known, "tables", "name", allowed, repr(name), cure)
    return known[name]


@cache
def _tables() -> dict[str, PrintedTable]:
    text = Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
    return read(tomllib.loads(text))


def read(written: Mapping[str, Any]) -> dict[str, PrintedTable]:
    """Read a file such as `tables.toml`; raise a ValueError if its parts contradict each other."""
    sets, labels = written["sets"], written["labels"]
    return {
        name: _table(name, entry, sets, labels)
        for name, entry in written.items()
        if name not in ("sets", "labels")
    }


def _table(name: str, entry: Any, sets: Any, labels: Any) -> PrintedTable:
    shared = {"network": "mlp", "variants": ["paper", "sound"], "columns": [], "added": []}
    shared |= {key: value for key, value in entry.items() if key in shared}
    labels = labels | entry.get("labels", {})
    panels = tuple(
        _panel(name, shared | sets[part["dataset"]] | part, entry["lines"], labels)
        for part in entry["panels"]
    )
    made = PrintedTable(
        name=name,
        title=entry["title"],
        kind=entry.get("kind", "table"),
        decisions=tuple(entry.get("decisions", DECISIONS)),
        strict=entry.get("strict", "tuned"),
        patience=entry.get("patience", PATIENCE),
        trials=entry.get("trials", TRIALS),
        notes=tuple(entry.get("notes", [])),
        panels=panels,
        claims=tuple(_claim(name, claim, panels) for claim in entry["claims"]),
    )
    require(made.kind in KINDS, name, "kind", f"be one of {', '.join(KINDS)}", made.kind)
    return made


def _panel(name: str, entry: Mapping[str, Any], lines: Any, labels: Any) -> Panel:
    classes, printed = len(card(entry["dataset"]).counts), entry.get("printed", {})
    columns = tuple(_column(classes, *column) for column in entry["columns"])
    # Where a panel has printed figures, the paper's lines are those it prints there.
    own = [_line(label, lines[label]) for label in (printed or lines)]
    added = [_line(labels[method], method, added=True) for method in entry["added"]]
    for line in [*own, *added]:
        known = [*METHODS, *CLASSICAL]
        require(line.method in known, name, "method", "be one of a study", repr(line.method))
    network = entry["network"]
    require(network in NETWORKS, name, "network", f"be one of {', '.join(NETWORKS)}", network)
    cells = {}
    for label, row in printed.items():
        values = row.split(" | ")
        allowed = f"have {len(columns)} cells at most"
        require(len(values) <= len(columns), name, f"printed {label!r}", allowed, repr(row))
        for column, text in zip(columns, values, strict=False):
            mean, std = map(float, text.split(" ± "))
            cells[label, column.label] = Printed(mean, std, text.replace("-", "−"))
    return Panel(
        label=entry["label"],
        dataset=entry["dataset"],
        classes=classes,
        network=network,
        variants=tuple(entry["variants"]),
        recipe=entry.get("recipe"),
        epochs=entry.get("epochs", EPOCHS),
        imbalance=entry.get("imbalance"),
        incomparable=entry.get("incomparable", ""),
        notes=tuple(entry.get("notes", [])),
        columns=columns,
        lines=(*own, *added),
        printed=cells,
    )


def _column(classes: int, label: str, metric: str, criterion: str = "") -> Column:
    macro = {"f1": "f1_macro"} if classes > 2 else {}
    criterion = criterion or metric
    return Column(label, macro.get(metric, metric), macro.get(criterion, criterion))


def _line(label: str, entry: Any, *, added: bool = False) -> Line:
    fixed = dict(entry) if isinstance(entry, dict) else {"method": entry}
    return Line(label, fixed.pop("method"), fixed, added)


def _claim(name: str, entry: Any, panels: Sequence[Panel]) -> Claim:
    """Read a claim, with the panels that have its lines and its column."""
    wanted = [entry["better"], *([entry["than"]] if "than" in entry else [])]
    fits = [
        panel.label
        for panel in panels
        if all(panel.line(label) for label in wanted) and panel.column(entry["column"])
    ]
    on = entry.get("on", fits)
    ok = bool(fits) and set(on) <= set(fits)
    require(ok, name, f"claim {entry['text']!r}", "have its lines and column in its panels", on)
    claim = Claim(**{**entry, "on": tuple(on)})
    known = ", ".join(RELATIONS)
    require(claim.relation in RELATIONS, name, "relation", f"be one of {known}", claim.relation)
    return claim
