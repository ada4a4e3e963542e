"""From the file of a table to the runs that it needs."""

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evalign_study.data.own import checksum, load_csv
from evalign_study.own_loss import own_loss
from evalign_study.protocols import btg, east, surf
from evalign_study.records.journal import Record, holds
from evalign_study.refusals import nearest, require

PROTOCOLS: dict[str, Any] = {"east": east, "btg": btg, "surf": surf}
# A quick look: of each part so many rows, and two trials.
QUICK = {"epochs": 2, "rows": 300, "decisions": ("argmax",)}
QUICK_IMAGES = {"epochs": 1, "rows": 20, "decisions": ("argmax",)}

Values = Mapping[str, Sequence[Any]]


class Cell(NamedTuple):
    """A line of a table on one data set, in one variant.

    Args:
        panel: the name of the data set's panel.
        line: as printed.
        variant: "paper", or "strict".
        base: the run of which a grid point is a copy with changes.
        axes: what the grid searches.
        searched_with: settings of the grid that trials do not have.
        grid_seed: the seed of the grid.
        trial_seeds: the seeds of the trials.
        split_by_seed: whether each trial has a split of its own.
        criterion: "loss", or the metric by which the setting is chosen.
    """

    protocol: Any
    panel: str
    line: str
    variant: str
    base: Any
    axes: dict[str, list[Any]]
    searched_with: dict[str, Any]
    grid_seed: int
    trial_seeds: tuple[int, ...]
    split_by_seed: bool
    criterion: str

    def grid(self) -> list[Any]:
        """The runs of which the setting is chosen; none where there is nothing to choose."""
        if not self.axes:
            return []
        return self.protocol.grid(
            self.base.but(seed=self.grid_seed, **self.searched_with), self.axes
        )

    def trials(self, records: "Known") -> list[Any]:
        """The trials of the chosen setting; none until the whole grid is recorded."""
        grid = self.grid()
        points = {run.key: records.find(run) for run in grid}
        if None in points.values():
            return []
        setting = self.base
        if grid:
            best = self.protocol.chosen(points.values(), self.criterion)
            setting = next(run for run in grid if run.key == best["key"])
        own = {name: getattr(self.base, name) for name in self.searched_with}
        setting = setting.but(**own, epochs=self.base.epochs)
        if self.split_by_seed:
            return [setting.but(seed=seed, split_seed=seed) for seed in self.trial_seeds]
        return list(self.protocol.trials(setting, self.trial_seeds))


class Known:
    """The records that are there, by run."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.by_key: dict[str, list[Record]] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        self.by_key.setdefault(record["key"], []).append(record)

    def find(self, run: Any) -> Record | None:
        """The record of a run, if there is one."""
        return next((r for r in self.by_key.get(run.key, ()) if holds(r, run)), None)


def names() -> list[str]:
    """The tables of the protocols."""
    return sorted(each.name[:-5] for each in _folder().iterdir() if each.name.endswith(".toml"))


def table(name: str | Path) -> dict[str, Any]:
    """Read the file of a table: one of `names()`, or a path that ends in .toml."""
    if str(name).endswith(".toml"):
        return tomllib.loads(Path(name).read_text(encoding="utf-8"))
    known = names()
    allowed = f"be one of {', '.join(known)}, or a file .toml"
    require(name in known, "evalign-study", "table", allowed, repr(name), nearest(name, known))
    return _read(str(name))


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_folder() / f"{name}.toml").read_text(encoding="utf-8"))


def _folder() -> Any:
    return files("evalign_study") / "tables"


def cells(
    plan: Mapping[str, Any],
    *,
    panels: Sequence[str] | None = None,
    lines: Sequence[str] | None = None,
    variants: Sequence[str] = ("paper",),
    changes: Mapping[str, Any] | None = None,
    quick: bool = False,
) -> Iterator[Cell]:
    """Go through the cells of a table.

    Args:
        plan: the content of its file.
        panels: some of its panels; None for all.
        lines: some of its lines; None for all.
        variants: of its variants.
        changes: settings in the place of the table's; one that the grid searches is then fixed.
        quick: a small slice, to see that it runs: few rows and epochs of the panels that the file
            names, no grid, two trials.
    """
    _check("panel", panels, plan["panels"])
    _check("line", lines, plan["lines"])
    _check("variant", variants, plan["variants"])
    for panel_name, panel in plan["panels"].items():
        if panel_name not in (panels or (quick and plan.get("quick")) or plan["panels"]):
            continue
        for variant in variants:
            if variant not in panel.get("variants", plan["variants"]):
                continue
            for line in panel.get("lines", plan["lines"]):
                if lines is None or line in lines:
                    yield _cell(plan, panel_name, line, variant, dict(changes or {}), quick)


def _cell(
    plan: Mapping[str, Any],
    panel_name: str,
    line: str,
    variant: str,
    changes: dict[str, Any],
    quick: bool,
) -> Cell:
    protocol = PROTOCOLS[plan["protocol"]]
    panel, own = plan["panels"][panel_name], plan["variants"][variant]
    fixed = {**plan["lines"][line], **changes}
    settings = {
        **plan.get("settings", {}),
        **panel.get("settings", {}),
        **own.get("settings", {}),
        **fixed,
    }
    axes = {
        **plan.get("grid", {}),
        **panel.get("grid", {}),
        **panel.get("grid_of", {}).get(line, {}),
    }
    axes = {name: values for name, values in axes.items() if name not in fixed}
    seeds = {**plan["seeds"], **panel.get("seeds", {})}
    if quick:
        tables = settings.get("network", "mlp") == "mlp" and plan["protocol"] != "surf"
        small = QUICK if tables else QUICK_IMAGES
        known = {field.name for field in dataclasses.fields(protocol.run_from(settings))}
        settings |= {name: x for name, x in small.items() if name in known - changes.keys()}
        axes = {name: values[:1] for name, values in axes.items()}
        seeds["trials"] = seeds["trials"][:2]
    base = protocol.run_from(settings)
    by_metric = own.get("choose") == "metric"
    return Cell(
        protocol,
        panel_name,
        line,
        variant,
        base,
        axes,
        protocol.settings({**plan.get("searched_with", {}), **panel.get("searched_with", {})}),
        seeds["grid"],
        tuple(seeds["trials"]),
        own.get("trial") == "split_seed",
        protocol.goal_of(base) if by_metric else "loss",
    )


def with_own(
    plan: Mapping[str, Any], *, path: Path | None, target: str | None, loss: str | None
) -> dict[str, Any]:
    """A plan for a table of the user's own, and with a line for a loss of their own.

    A table takes the place of all panels, with the settings and the grid of [own]. A loss is one
    more line, which is not cooled.
    """
    changed = dict(plan)
    if path is not None:
        require(target is not None, "run", "--target", "name the column of labels", "none")
        assert target is not None
        own = plan.get("own")
        require(own is not None, "run", "--data", "be given to a table with [own]", plan["title"])
        assert own is not None
        content = checksum(path)
        two = len(load_csv(path, target).classes) == 2
        settings = {
            "dataset": str(path),
            "target": target,
            "content": content,
            "average": "positive class" if two else "all classes",
        }
        panel = {"label": path.name, "grid": own["grid"], "settings": settings}
        changed["panels"] = {path.stem: panel}
        changed["quick"] = [path.stem]
    if loss is not None:
        require(":" in loss, "run", "--loss", "be package.module:factory", repr(loss))
        own_loss(loss, east.Task(torch.tensor([3, 2]), ""))  # an error now, not after hours
        changed["lines"] = {**plan["lines"], loss: {"loss": loss, "rate": 1.0}}
    return changed


def pair(text: str) -> tuple[str, Any]:
    """A setting written as name=value; the value as JSON where it is JSON, else as it is."""
    name, equals, value = text.partition("=")
    require(bool(equals), "run", "--set", "be name=value", repr(text))
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _check(what: str, asked: Sequence[str] | None, known: Iterable[str]) -> None:
    for name in asked or ():
        allowed = f"be one of {', '.join(known)}"
        require(name in known, "evalign-study", what, allowed, repr(name), nearest(name, known))
