"""Train a slice of a table's plan, within a time, and add raw records to a file.

    python -m evalign_study.fast east-table1 --panel cifar10 --line CE --only batch_size=256 \
        --stage grid --processes 12 --seconds 500 --records cifar.jsonl

The same command resumes: what a file of --records or --known holds is not trained again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalign_study import planning
from evalign_study.records.journal import read
from evalign_study.running import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    given = _parser().parse_args(arguments)
    try:
        return _main(given)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def _main(given: argparse.Namespace) -> int:
    start = time.monotonic()
    plan = planning.table(given.table)
    chosen = {"panels": given.panel, "lines": given.line, "variants": given.variant or ["paper"]}
    changes = dict(map(planning.pair, given.set or ()))
    cells = list(planning.cells(plan, **chosen, changes=changes, quick=given.quick))
    paths = [path for path in [*given.known, given.records] if path.exists()]
    stages = ("grid", "trials") if given.stage == "all" else (given.stage,)

    def told(text: str, record: dict[str, Any] | None) -> None:
        line = text if record is None else _line(record, time.monotonic() - start)
        print(line, flush=True)

    counts = run(
        cells,
        planning.Known(read(paths)),
        given.records,
        processes=given.processes,
        seconds=given.seconds,
        stages=stages,
        only=_only(given.only or ()),
        told=told,
        train=not given.list,
        compiled=given.compile,
    )
    for error in counts.errors:
        print(error, file=sys.stderr, flush=True)
    print(counts)
    return 1 if counts.errors else 0


def _line(record: dict[str, Any], seconds: float) -> str:
    """A record in a line."""
    run, pick = record["run"], record["picks"].get("loss")
    told = {name: run[name] for name in ("dataset", "loss", "batch_size", "learning_rate")}
    told |= {name: run[name] for name in ("dropout", "rate", "seed")}
    told |= {name: record[name] for name in ("epochs", "capped", "last_temperature", "seconds")}
    if pick:
        told |= {"best": pick["epoch"], **pick["validation"]}
    return f"{seconds:6.0f} s {json.dumps(told)}"


def _only(texts: Sequence[str]) -> dict[str, set[str]]:
    """Values that runs are to have: name=value,value."""
    found = {}
    for text in texts:
        name, _, values = text.partition("=")
        found[name] = {str(planning.pair(f"{name}={value}")[1]) for value in values.split(",")}
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evalign_study.fast", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("table", help="a table, or a file .toml")
    add("--panel", action="append", help="a data set of the table; may be repeated")
    add("--line", action="append", help="a line as printed; may be repeated")
    add("--variant", action="append", help="paper (default) or strict")
    add("--stage", choices=["grid", "trials", "all"], default="all")
    add("--only", action="append", help="name=value,...: leave out runs with other values")
    add("--set", action="append", help="name=value: another setting than the table's")
    add("--records", type=Path, required=True, help="the file that records are added to")
    add("--known", type=Path, action="append", default=[], help="further records that are there")
    add("--processes", type=int, default=1, help="units at a time")
    add("--seconds", type=float, help="stop after them")
    add("--compile", action="store_true", help="fuse the steps of networks for images")
    add("--quick", action="store_true", help="a small slice, to see that it runs")
    add("--list", action="store_true", help="tell the units, train nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
