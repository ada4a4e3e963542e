"""The runs that a table of a paper needs."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from evalign_study.data import card
from evalign_study.papers.search import chosen, grid
from evalign_study.papers.tables import Line, Panel, PrintedTable
from evalign_study.records.made import Record
from evalign_study.records.run import LOSS, Run
from evalign_study.refusals import nearest, require
from evalign_study.trainers.choice import trainer_of
from evalign_study.trainers.classical import CLASSICAL
from evalign_study.trainers.images import SURF
from evalign_study.trainers.methods import make
from evalign_study.trainers.tabular import GRID_SEED

# A quick look has small batches of images, few epochs, and at most these rows by trainer.
QUICK_BATCH, QUICK_EPOCHS, QUICK_TRIALS = 10, 2, 2
QUICK_ROWS = {"networks of images": 20, "classical methods": 300}
FEW_CLASSES = 50
FIRST_SEED = GRID_SEED + 1  # the seed of the first trial


class Cell(NamedTuple):
    """A line of a table on one data set, prepared and split in one way."""

    panel: Panel
    variant: str
    line: Line

    @property
    def classical(self) -> bool:
        return self.line.method in CLASSICAL

    @property
    def gridded(self) -> bool:
        """Whether the setting is found on a grid."""
        return not self.classical and (self.panel.recipe is None or bool(self.panel.searched))


class Plan(NamedTuple):
    """All runs of a table.

    Args:
        table: the printed table.
        trials: the number of seeds of each setting.
        quick: whether to take few epochs, few rows and no grid, to see that it runs.
    """

    table: PrintedTable
    trials: int
    quick: bool = False

    def cells(self) -> Iterator[Cell]:
        """Go through the lines of all panels and variants."""
        for panel in self.table.panels:
            for variant in panel.variants:
                for line in panel.lines:
                    yield Cell(panel, variant, line)

    def grid(self, cell: Cell) -> dict[str, Run]:
        """List by key the runs from which the setting of a cell is chosen; none if it is given."""
        panel, line = cell.panel, cell.line
        if not cell.gridded:
            return {}
        # Images take long, so the first trial is also part of the search.
        if panel.recipe is not None:
            given = self._given(cell).but(seed=FIRST_SEED)
            searched = panel.searched.items()
            axes = {name: values for name, values in searched if name not in line.fixed}
            settings = itertools.product(*axes.values())
            runs = [given.but(**dict(zip(axes, setting, strict=True))) for setting in settings]
            return {run.key: run for run in runs}
        fixed = {"imbalance": panel.imbalance, **line.fixed}
        about = (panel.dataset, cell.variant, line.method, panel.network)
        return _grid(*about, panel.epochs, self.table.patience, self.quick, tuple(fixed.items()))

    def grids(self) -> list[Run]:
        """List the runs of all grids, each once."""
        grids = (self.grid(cell) for cell in self.cells())
        return list({key: run for grid in grids for key, run in grid.items()}.values())

    def runs(self, cell: Cell, criterion: str, records: Mapping[str, Record]) -> list[Run]:
        """List the trials of a cell, with the setting that a criterion chooses.

        The list is empty until the grid is complete, as the best of an incomplete grid is a guess.
        """
        grid = self.grid(cell)
        if not grid.keys() <= records.keys():
            return []
        points = [records[key] for key in grid]
        setting = chosen(points, criterion) if points else self._given(cell)
        seeds = range(FIRST_SEED, FIRST_SEED + self.trials)
        if setting.network in SURF:  # SurF holds out other rows in each repetition (5.1)
            return [setting.but(seed=seed, split_seed=seed) for seed in seeds]
        return [setting.but(seed=seed) for seed in seeds]

    def all_runs(self, records: Mapping[str, Record]) -> list[Run]:
        """List the trials of all cells and criteria, except those that need an absent package."""
        found = {
            run.key: run
            for cell in self.cells()
            for criterion in (criteria(cell.panel) if cell.gridded else (LOSS,))
            for run in self.runs(cell, criterion, records)
            if not missing(cell.line)
        }
        return list(found.values())

    def _given(self, cell: Cell) -> Run:
        panel, line = cell.panel, cell.line
        if cell.classical:
            fields: dict[str, Any] = {"network": ""}
        else:
            fields = {"network": panel.network, **panel.first}
            if not make(line.method, torch.ones(panel.classes), panel.dataset).annealed:
                fields["rate"] = None
        run = Run(
            dataset=panel.dataset,
            variant=cell.variant,  # pyright: ignore[reportArgumentType]
            method=line.method,
            imbalance=panel.imbalance,
            **{**fields, **line.fixed},
        )
        return run.but(rows=QUICK_ROWS.get(trainer_of(run).name)) if self.quick else run


@cache
def _grid(
    dataset: str,
    variant: str,
    method: str,
    network: str,
    epochs: int,
    patience: int,
    quick: bool,
    fixed: tuple[tuple[str, Any], ...],
) -> dict[str, Run]:
    """Make a grid, and keep it, as every criterion asks for it again."""
    how = {"network": network, "epochs": epochs, "patience": patience, "quick": quick}
    return {run.key: run for run in grid(dataset, variant, method, **how, **dict(fixed))}


def criteria(panel: Panel) -> tuple[str, ...]:
    """List the criteria by which a setting of the panel is chosen."""
    return tuple(dict.fromkeys([LOSS, *(column.criterion for column in panel.columns)]))


def missing(line: Line) -> str:
    """Name the package that a line needs and that is not installed."""
    return "ap_perf" if line.method == "ap_perf" and find_spec("ap_perf") is None else ""


def on(table: PrintedTable, datasets: Sequence[str] | None) -> PrintedTable:
    """Reduce a table to some of its data sets."""
    if not datasets:
        return table
    known = list(dict.fromkeys(panel.dataset for panel in table.panels))
    for dataset in datasets:
        allowed, cure = f"be one of {', '.join(known)}", nearest(dataset, known)
        require(dataset in known, table.name, "dataset", allowed, repr(dataset), cure)
    return _with(table, [panel for panel in table.panels if panel.dataset in datasets])


def quick_slice(table: PrintedTable, *, smallest: bool) -> PrintedTable:
    """Reduce a table to the lines of claims, on one data set of rows and one of images."""
    panels = [_quick_panel(table, panel) for panel in table.panels]
    if smallest:  # tuning decisions takes most of the time, which grows with the classes
        panels = [panel for panel in panels if panel.classes <= FEW_CLASSES]
        panels.sort(key=lambda panel: (panel.classes, card(panel.dataset).rows))
        rows = [panel for panel in panels if panel.recipe is None]
        images = [panel for panel in panels if panel.recipe is not None]
        panels = rows[:1] + images[:1]
    return _with(table, panels)


def _quick_panel(table: PrintedTable, panel: Panel) -> Panel:
    """Keep the lines of all claims; for images, which take long, those of one claim."""
    claims = [claim for claim in table.claims if panel.label in claim.on]
    recipe = panel.recipe
    if recipe is not None:
        claims = claims[:1]
        recipe = {**panel.first, "batch_size": QUICK_BATCH, "epochs": QUICK_EPOCHS}
    labels = {label for claim in claims for label in (claim.better, claim.than)}
    lines = tuple(line for line in panel.lines if line.label in labels)
    return dataclasses.replace(panel, lines=lines, recipe=recipe)


def _with(table: PrintedTable, panels: Sequence[Panel]) -> PrintedTable:
    """Keep some panels, and the claims that can still be judged on them."""
    claims = []
    for claim in table.claims:
        labels = [panel.label for panel in panels if panel.label in claim.on]
        fits = [label for label in labels if _has(panels, label, claim.better, claim.than)]
        if fits:
            claims.append(claim._replace(on=tuple(fits)))
    return dataclasses.replace(table, panels=tuple(panels), claims=tuple(claims))


def _has(panels: Sequence[Panel], label: str, *lines: str) -> bool:
    panel = next(panel for panel in panels if panel.label == label)
    return all(panel.line(line) for line in lines if line)
