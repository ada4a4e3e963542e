"""Time and memory to fit a decision rule, as a ratio to another commit of this repository.

    python benchmarks/decision_ratio.py f0d2d368 --out benchmarks/results/decision_ratio.json

Both commits fit the same scores in processes of their own, in turn, so that what else the machine
does falls on both. The other commit is a folder with a checkout, or a name that git knows.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
CASES = [
    *((rows, classes) for rows in (10**3, 10**5, 10**6) for classes in (2, 10, 100)),
    (10**7, 2),
    (10**7, 10),
]
DECISIONS = ("tuned", "expected")
MOST_REPEATS = 5
ENOUGH_SECONDS = 2.0  # of one commit and case; longer runs are not repeated
PACKAGES = ("numpy", "scipy", "torch")


def problem(classes: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Make calibrated logits of classes whose frequencies fall to a thirtieth."""
    generator = np.random.default_rng(0)
    prior = 30.0 ** -np.linspace(0, 1, classes)
    prior = prior / prior.sum()
    y = generator.choice(classes, rows, p=prior)
    logits = generator.standard_normal((rows, classes), dtype=np.float32)
    logits[np.arange(rows), y] += 1.6
    logits *= 1.6
    logits += np.log(prior).astype(np.float32)
    return logits, y


def measure(folder: Path, decision: str) -> dict[str, float]:
    """The seconds and memory of a fit to the scores in a folder, by the imported evalign."""
    from evalign.decisions import fit_decision

    logits, y = (np.load(folder / f"{name}.npy") for name in ("logits", "y"))
    torch = sys.modules.get("torch")
    if torch is not None:  # a commit that computes in tensors gets them without a conversion
        torch.set_num_threads(os.cpu_count())
        logits, y = torch.from_numpy(logits), torch.from_numpy(y)
    metric = "f1" if logits.shape[1] == 2 else "f1_macro"
    fit_decision(logits[:200], y[:200], metric=metric, decision=decision)  # loads what it needs
    loaded = kilobytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    start = time.perf_counter()
    start_of_processors = time.process_time()
    fit_decision(logits, y, metric=metric, decision=decision)
    return {
        "seconds": time.perf_counter() - start,
        "seconds of all processors": time.process_time() - start_of_processors,
        "megabytes of the fit": (kilobytes("VmHWM") - loaded) / 1024,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def kilobytes(name: str) -> int:
    """A number of kilobytes in what Linux says of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def in_process(checkout: Path, folder: Path, decision: str) -> dict[str, float]:
    """Measure the evalign of a checkout."""
    command = [sys.executable, __file__, "--measure", str(folder), decision]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{checkout}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


@contextmanager
def checkout_of(other: str) -> Iterator[Path]:
    """A folder with the other commit, which git makes unless it is one already."""
    if Path(other).is_dir():
        yield Path(other)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "--detach", path, other], cwd=ROOT, check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", path], cwd=ROOT, check=True)


def commit_of(checkout: Path) -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(
        command, cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()


def best_of_each(here: Path, other: Path, folder: Path, decision: str) -> list[dict[str, float]]:
    """The shortest time and the smallest peak of both, which take turns."""
    runs: list[list[dict[str, float]]] = [[], []]
    for _ in range(MOST_REPEATS):
        for found, checkout in zip(runs, (here, other), strict=True):
            found.append(in_process(checkout, folder, decision))
        if sum(run["seconds"] for run in runs[1]) > ENOUGH_SECONDS:
            break
    return [{name: min(run[name] for run in found) for name in found[0]} for found in runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", default="f0d2d368")
    parser.add_argument("--least-numbers", type=int, default=1, help="rows times classes")
    parser.add_argument("--most-numbers", type=int, default=10**8)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        folder, decision = arguments.measure
        print(json.dumps(measure(Path(folder), decision)))
        return
    with checkout_of(arguments.other) as other, tempfile.TemporaryDirectory() as folder:
        result: dict[str, Any] = {
            "commit": commit_of(ROOT),
            "other": commit_of(other),
            "cpus": os.cpu_count(),
            "machine": f"{platform.machine()} {platform.processor()}".strip(),
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
            "cases": [],
        }
        for rows, classes in CASES:
            if not arguments.least_numbers <= rows * classes <= arguments.most_numbers:
                continue
            for name, values in zip(("logits", "y"), problem(classes, rows), strict=True):
                np.save(Path(folder) / f"{name}.npy", values)
            del values
            for decision in DECISIONS:
                mine, theirs = best_of_each(ROOT, other, Path(folder), decision)
                case = {
                    "rows": rows,
                    "classes": classes,
                    "decision": decision,
                    "ratio": {name: mine[name] / max(theirs[name], 1e-3) for name in mine},
                    "here": mine,
                    "other": theirs,
                }
                print(json.dumps(case), flush=True)
                result["cases"].append(case)
                if arguments.out:
                    text = json.dumps(result, indent=2)
                    arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
