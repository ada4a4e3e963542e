"""Wall time of EAST's Table 1, for its tables of features and its printed losses.

    python study/benchmarks/table_time.py --jobs 13 \\
        --out study/benchmarks/results/table_time_cuda.json

The whole protocol of `evalign-study run east-table1` is timed with the papers' split: the grid,
then ten trials of every setting that a selection chose. It starts without any record.
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from evalign_study.data import card
from evalign_study.data.sources import fetch
from evalign_study.papers.paper import PaperTable
from evalign_study.papers.plan import Plan, on
from evalign_study.papers.tables import PrintedTable, table
from evalign_study.pipeline.running import run
from evalign_study.records.made import made
from evalign_study.records.results import recorded

DATASETS = ("adult", "cocktailparty", "creditcard", "mammography")


def printed() -> PrintedTable:
    """Keep what the paper prints. The largest data set comes first, as it takes the longest."""
    part = on(table("east-table1"), DATASETS)
    panels = [
        dataclasses.replace(
            panel,
            variants=("paper",),
            lines=tuple(line for line in panel.lines if not line.added),
        )
        for panel in sorted(part.panels, key=lambda panel: -card(panel.dataset).rows)
    ]
    return dataclasses.replace(part, panels=tuple(panels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    paper = printed()
    plan = Plan(paper, paper.trials)
    for name in DATASETS:
        fetch(card(name))  # a download is not timed
    with tempfile.TemporaryDirectory() as folder:
        start, ended = time.perf_counter(), dict[str, float]()

        def note(phase: str, *_: float) -> None:
            stage = phase.split(", ")[1]
            ended[stage] = time.perf_counter() - start

        run(PaperTable(plan), Path(folder), jobs=arguments.jobs, progress=note)
        records = list(recorded(Path(folder)).values())
    result = {
        "minutes": round(ended["stage 2"] / 60, 1),
        "minutes_of_grid": round(ended["stage 1"] / 60, 1),
        "networks": len(records),
        "capped": sum(record["capped"] for record in records),
        "trials": plan.trials,
        "epochs": {panel.dataset: panel.epochs for panel in plan.table.panels},
        "jobs": arguments.jobs,
        "cpus": os.cpu_count(),
        **made("cuda" if torch.cuda.is_available() else "cpu", records[0]["made"]["precision"]),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
