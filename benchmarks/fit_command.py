"""Seconds and memory of a whole `evalign fit`, start-up and report included, by rows.

    python benchmarks/fit_command.py --out benchmarks/results/fit_command.json

The table of `fit_speed` is written as CSV and fitted with the defaults of
the command. The first fit only warms the disk. The goals are those for two quiet cores
(`taskset -c 0,1` binds to two). The peak beyond that of 1,000 rows is the memory of the table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
from evalign_study.records.made import made
from fit_speed import COLUMNS, table

GOALS = {1_000: 6, 10_000: 8, 100_000: 180}  # seconds


def write(rows: int, path: Path) -> None:
    X, y, *_ = table(rows)
    pd.DataFrame(X).add_prefix("x").assign(label=y).to_csv(path, index=False)


def fit(rows: int, *more: str) -> dict[str, float]:
    """Run the command in a process of its own, and say what it took."""
    with tempfile.TemporaryDirectory() as name:
        path, code = Path(name) / "table.csv", "from evalign.cli import main; main()"
        write(rows, path)
        asked = "fit", str(path), "--target", "label", "--metric", "f1", "--out", f"{name}/run"
        start = time.perf_counter()
        command = [sys.executable, "-c", code, *asked, *more]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    assert status == 0, f"the command ended with {status}"
    return {
        "rows": rows,
        "seconds": round(seconds, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mib": round(used.ru_maxrss / 1024, 1),
        "table_mib": round(rows * COLUMNS * 8 / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, *GOALS, 1_000_000])
    parser.add_argument("--time", help="passed on to the command")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    result: dict[str, Any] = {
        "goals": GOALS,
        "time": asked.time,
        "cores": len(os.sched_getaffinity(0)),
        "machine": made()["device"],
        "load": round(os.getloadavg()[0], 1),
        **{name: made()[name] for name in ("commit", "python", "torch", "sklearn", "evalign")},
        "found": [],
    }
    for rows in asked.rows:
        result["found"].append(fit(rows, *(("--time", asked.time) if asked.time else ())))
        print(json.dumps(result["found"][-1]), flush=True)
        asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
