"""Time to fit a decision rule, compared with the argmax of the same rows.

    python benchmarks/decisions.py --out benchmarks/results/decisions.json

Processor time is that of all threads. Where it is less than the wall time, the machine was busy
with other programs, and a quiet one is faster. `busy` is the load, jobs per core, before the run.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decision_speed import problem

from evalign.decisions import fit_decision

MILLION = 1_000_000
# name: classes, rows, metric, repeats
LINES = {
    "two classes": (2, MILLION, "f1", 5),
    "ten classes, f1_macro": (10, MILLION, "f1_macro", 5),
    "ten classes, matthews_corrcoef": (10, MILLION, "matthews_corrcoef", 5),
    "a thousand classes": (1000, 20_000, "f1_macro", 1),
}


def seconds(action: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return the shortest wall and processor times, as other runs waited for other programs."""
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        action()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return {"wall": min(walls), "processor": min(processors)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cpus = os.cpu_count() or 1
    result: dict[str, Any] = {
        "threads": arguments.threads,
        "cpus": cpus,
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "busy": round(os.getloadavg()[0] / cpus, 2),
        "lines": {},
    }
    start = time.perf_counter()
    fit_decision(*problem(3, 100), metric="f1_macro")
    result["first call, 100 rows"] = time.perf_counter() - start

    for name, (classes, rows, metric, repeats) in LINES.items():
        logits, y = problem(classes, rows)
        array = logits.numpy()
        line: dict[str, Any] = {"classes": classes, "rows": rows, "metric": metric}
        line["argmax"] = seconds(lambda array=array: array.argmax(1), 3)
        for decision in ("tuned", "expected"):
            took = seconds(
                lambda d=decision, x=logits, y=y, m=metric: fit_decision(
                    x, y, metric=m, decision=d
                ),
                repeats,
            )
            ratio = took["processor"] / line["argmax"]["processor"]
            line[decision] = took | {"processor, in argmaxes": round(ratio, 1)}
        result["lines"][name] = line
        print(name, json.dumps(line), flush=True)
        if arguments.out:  # after each line, as the last one takes long
            arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
