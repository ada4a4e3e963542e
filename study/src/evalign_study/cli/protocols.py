"""Run and render the tables of the protocols, which are files of settings."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalign.cli.errors import UsageError
from evalign.cli.terminal import Terminal
from evalign_study import paging, planning, running
from evalign_study.data import card
from evalign_study.data.sources import fetch
from evalign_study.planning import Cell, Known
from evalign_study.records.journal import Record
from evalign_study.standing import runs_of

FOLDER = "protocols"  # of the printed records, inside the folder of all records


class Asked(NamedTuple):
    """What a command was asked to run.

    Args:
        name: a table, or a file .toml.
        panels: some of its data sets; None for all.
        lines: some of its lines; None for all.
        variants: "paper", "strict".
        changes: settings as name=value.
        trials: how many; None for the table's own number.
        quick: a small slice, to see that it runs.
        data: a CSV file in the place of its data sets.
        target: the column of labels in that file.
        loss: package.module:factory, as one more line.
    """

    name: str
    panels: Sequence[str] | None = None
    lines: Sequence[str] | None = None
    variants: Sequence[str] = ("paper",)
    changes: Sequence[str] = ()
    trials: int | None = None
    quick: bool = False
    data: Path | None = None
    target: str | None = None
    loss: str | None = None

    @property
    def stem(self) -> str:
        """The name of the files that are written."""
        return Path(self.name).stem if self.name.endswith(".toml") else self.name

    def plan(self) -> dict[str, Any]:
        """The content of the table's file, with what is the user's own."""
        if self.name.endswith(".toml") and not Path(self.name).is_file():
            raise UsageError(f"A table must be one of `evalign-study list`. Got {self.name!r}.")
        if self.loss is not None and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # where the user's module is
        plan = planning.table(self.name)
        return planning.with_own(plan, path=self.data, target=self.target, loss=self.loss)

    def cells(self, plan: dict[str, Any]) -> list[Cell]:
        """The cells that are asked for."""
        changes = dict(planning.pair(text) for text in self.changes)
        chosen = {"panels": self.panels, "lines": self.lines, "variants": self.variants}
        cells = list(planning.cells(plan, **chosen, changes=changes, quick=self.quick))
        if self.trials is None:
            return cells
        return [cell._replace(trial_seeds=cell.trial_seeds[: self.trials]) for cell in cells]


def is_protocol(name: str) -> bool:
    """Whether a table is a file of settings."""
    return name.endswith(".toml") or name in planning.names()


def run_protocol(
    spoken: Terminal, asked: Asked, out: Path, results: Path, *, jobs: int, seconds: float | None
) -> None:
    """Train what no record holds, and write the page."""
    plan = asked.plan()
    cells = asked.cells(plan)
    if not cells:
        raise UsageError(f"{asked.name} has no such part.")
    for name in {cell.base.dataset for cell in cells if not cell.base.target}:
        fetch(card(name))  # first, so that a missing data set is an error now
    if asked.quick:
        out = out / "quick"
    own = out / "records"
    known = running.known_records(own, results / FOLDER, before=results)
    start = time.monotonic()

    def told(text: str, record: Record | None) -> None:
        if record is not None:
            text = f"{record['run']['dataset']}, {record['run']['loss']}: {record['epochs']} epochs"
        spoken.note(f"{time.monotonic() - start:.0f} s  {text}")

    path = own / f"{asked.stem}.jsonl"
    counts = running.run(cells, known, path, processes=jobs, seconds=seconds, told=told)
    shown = paging.write(asked.stem, plan, cells, known, out, quick=asked.quick)
    data = {"trained": counts.trained, "reused": counts.reused, "failed": len(counts.errors)}
    spoken.result(data | {"out": str(out)}, *shown, str(counts), f"Written to {out}.")
    if counts.errors:
        last = counts.errors[-1].strip().splitlines()[-1]
        raise UsageError(f"{len(counts.errors)} units failed. The last error: {last}")


def render_protocol(asked: Asked, known: Known, out: Path) -> list[str]:
    """Write the page of a table from its printed records."""
    plan = asked.plan()
    cells = asked._replace(variants=list(plan["variants"])).cells(plan)
    return paging.write(asked.stem, plan, cells, known, out / FOLDER)


def state(name: str, known: Known) -> dict[str, int | str]:
    """How many runs a table needs, how many are there and capped, and what is in the way."""
    plan = planning.table(name)
    runs = [runs_of(cell, known) for cell in planning.cells(plan)]
    counts = {"needed": "wanted", "done": "done", "capped": "capped"}
    told: dict[str, int | str] = {
        key: sum(getattr(one, field) for one in runs) for key, field in counts.items()
    }
    obstacles = dict.fromkeys(one.obstacle for one in runs if one.obstacle)
    return told | {"comparable": not obstacles, "why not": "; ".join(obstacles)}
