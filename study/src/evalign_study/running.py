"""Run a table of a protocol: what is not recorded, stage by stage."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from evalign_study.fast import rows
from evalign_study.fast.working import work
from evalign_study.former import former
from evalign_study.planning import Cell, Known
from evalign_study.records.journal import Record, append, read

FORMER = ("east-table1", "mcfbeta-table2", "ablation-annealing")  # files with such records


class Counts(NamedTuple):
    """What a command did."""

    trained: int
    reused: int
    errors: list[str]

    def __str__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"{self.trained} trained, {self.reused} reused{failed}."


def known_records(*folders: Path, before: Path | None = None) -> Known:
    """Read the records of protocols in these folders, and of those made before what still holds."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.jsonl*"))]
    known = Known(read(paths))
    old = [] if before is None else [before / f"{name}.jsonl.gz" for name in FORMER]
    for record in former(read(path for path in old if path.is_file())):
        known.add(record)
    return known


def run(
    cells: Sequence[Cell],
    known: Known,
    path: Path,
    *,
    processes: int = 1,
    seconds: float | None = None,
    stages: Sequence[str] = ("grid", "trials"),
    only: Mapping[str, set[str]] | None = None,
    told: Callable[[str, Record | None], None] = lambda text, record: None,
    train: bool = True,
    compiled: bool = False,
) -> Counts:
    """Train what is not known, and add it to a file.

    Args:
        cells: the cells of a table.
        known: the records that are there; those that are made are added.
        path: the file.
        processes: how many units are trained at a time.
        seconds: when to stop; None is never.
        stages: "grid", and "trials" of what a whole grid chose.
        only: values that runs must have, as texts, by the name of a setting.
        told: called with a line about each stage and unit, and with each record.
        train: whether to train; False only tells the units.
        compiled: whether to fuse the training steps of networks for images, on a GPU.
    """
    end = None if seconds is None else time.monotonic() + seconds
    trained = reused = 0
    errors: list[str] = []

    def keep(record: Record) -> None:
        nonlocal trained
        append(path, [record])
        known.add(record)
        trained += 1
        told("", record)

    for stage in stages:
        wanted = {}
        for cell in cells:
            for one in cell.grid() if stage == "grid" else cell.trials(known):
                if all(str(getattr(one, name)) in values for name, values in (only or {}).items()):
                    wanted[one.key] = one
        missing = [one for one in wanted.values() if known.find(one) is None]
        reused += len(wanted) - len(missing)
        missing.sort(key=lambda one: -one.batch_size)  # small batches take long, and come last
        units = rows.units(missing)
        told(f"{stage}: {len(missing)} runs in {len(units)} units", None)
        if not train:
            for unit in units:
                told(f"  {len(unit)} x {unit[0]}", None)
        elif units:
            left = None if end is None else end - time.monotonic()
            one_unit = partial(rows.train, compiled=compiled)
            errors += work(units, one_unit, keep, processes=processes, seconds=left)
    return Counts(trained, reused, errors)
