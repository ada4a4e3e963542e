"""Seconds from the start of a process to what it asked for, and megabytes on disk, without torch.

    python benchmarks/import_time.py --python .venv-ground/bin/python \
        --out benchmarks/results/import_time.json

Each line runs in fresh processes of `--python`, whose environment has no torch; the lines take
turns, and their medians are compared within one run. The files lie in memory by then, so the times
are those of a second start. Processor seconds hold also where other work runs beside. Sizes are of
what pip installs into an empty folder, pinned by constraints.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from evalign_study.records.made import made

ROOT = Path(__file__).parents[1]
KINDS = ("wall", "processor")
STARTS = {
    "python": "pass",
    "numpy": "import numpy",
    "scikit-learn": "from sklearn.linear_model import LogisticRegression",
    "evalign": "import evalign",
    "AlignedDecisionCV": "from evalign import AlignedDecisionCV",
    "a saved rule": "import evalign; evalign.load({rule!r})(probabilities=[0.2, 0.7])",
}
# Seconds beyond those of another start, and the size over that of the packages beside it.
GOALS = {
    "evalign": ("python", 0.15),
    "AlignedDecisionCV": ("scikit-learn", 0.4),
    "a saved rule": ("numpy", 0.3),
}
SIZES = {
    "evalign[cli]": [f"{ROOT}[cli]"],
    "scikit-learn, pandas, pyarrow": ["scikit-learn", "pandas", "pyarrow"],
}
LARGEST_RATIO = 1.15
SAVE = """
import evalign
evalign.fit_decision(y=[0, 1] * 50, probabilities=[0.2, 0.7] * 50, metric="f1").save({rule!r})
"""
# The process ends without tidying up, which is no part of the start.
TIMED = """
import time
start, busy = time.perf_counter(), time.process_time()
{code}
print(time.perf_counter() - start, time.process_time() - busy, flush=True)
import os
os._exit(0)
"""


def output(python: str, code: str) -> str:
    command = [python, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def starts(python: str, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of each line, by the wall and of the processor."""
    timed: dict[str, list[list[float]]] = {name: [] for name in STARTS}
    with tempfile.TemporaryDirectory() as folder:
        rule = f"{folder}/rule.json"
        output(python, SAVE.format(rule=rule))
        for turn in range(rounds + 1):
            for name, code in STARTS.items():
                said = output(python, TIMED.format(code=code.format(rule=rule)))
                if turn > 0:  # the first warms the disk
                    timed[name].append([float(x) for x in said.split()])
    return {
        name: dict(zip(KINDS, np.median(rows, axis=0).round(3).tolist(), strict=True))
        for name, rows in timed.items()
    }


def megabytes(requirements: list[str]) -> float:
    """What pip installs for these packages, with all that they need."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *requirements], check=True)
        return sum(x.stat().st_size for x in Path(folder).rglob("*") if x.is_file()) / 1e6


def versions(python: str) -> dict[str, str]:
    command = [python, "-m", "pip", "list", "--format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = ("numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "narwhals", "torch")
    return {x["name"]: x["version"] for x in json.loads(listed) if x["name"] in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of an environment without torch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()

    installed = versions(asked.python)
    assert "torch" not in installed, "this environment has torch"
    seconds = starts(asked.python, asked.rounds)
    sizes = {name: round(megabytes(packages), 1) for name, packages in SIZES.items()}
    ours, theirs = sizes.values()
    result: dict[str, Any] = {
        **{name: made()[name] for name in ("commit", "device", "python", "evalign")},
        "versions": installed,
        "rounds": asked.rounds,
        "load": round(os.getloadavg()[0], 1),
        "seconds": seconds,
        "beyond": {
            name: {
                "than": other,
                **{kind: round(seconds[name][kind] - seconds[other][kind], 3) for kind in KINDS},
                "goal": goal,
            }
            for name, (other, goal) in GOALS.items()
        },
        "megabytes": sizes,
        "size": {"ratio": round(ours / theirs, 3), "goal": LARGEST_RATIO},
    }
    print(json.dumps(result, indent=1))
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
