"""How often the judge of `evalign compare` and of `gain_` sees a difference, with real trainings.

    python benchmarks/compare_power.py --out benchmarks/results/compare_power.json

A data set has 300 rows, 30% positive, and two blocks of five features. Method A is trained on the
first block and method B on the second, both by naive Bayes with normal features. If the blocks are
alike, so are the methods, and every difference is chance. A shift of B's positives makes B better.
Each simulated data set is judged as `evalign compare` does: the macro-F1 of the labels of all folds
together, and the bootstrap of the rows, widened for other trainings. Recorded for each number of
folds and each shift:

    difference   the mean difference of the methods
    shown        the share of data sets whose interval excludes 0, for the better method
"""

import argparse
import json
import platform
from pathlib import Path

import numpy as np

from evalign.core.metrics import resolve
from evalign.estimators.judge import Judge
from evalign.estimators.out_of_fold import OutOfFoldScores

ROWS, POSITIVES, FEATURES, SIMULATIONS = 300, 90, 5, 400
FOLDS = [5, 10]
SHIFTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6]
Y = np.arange(ROWS) < POSITIVES


def labels(x: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The labels of each fold by naive Bayes trained on the others."""
    folds = parts.max() + 1
    inside = (parts == np.arange(folds)[:, None]).astype(float)
    log_odds = np.zeros((folds, len(x)))
    for of_class, sign in ((Y, 1), (~Y, -1)):
        training = (1 - inside) * of_class
        number = training.sum(1, keepdims=True)
        mean = training @ x / number
        variance = training @ x**2 / number - mean**2
        distance = (x - mean[:, None]) ** 2 / variance[:, None] + np.log(variance)[:, None]
        log_odds += sign * (np.log(number) - distance.sum(2) / 2)
    return (log_odds[parts, np.arange(len(x))] > 0).astype(int)


def stratified(folds: int, rng: np.random.Generator) -> np.ndarray:
    parts = np.empty(ROWS, int)
    for of_class in (Y, ~Y):
        number = of_class.sum()
        parts[of_class] = rng.permutation(np.arange(number) % folds)
    return parts


def lead(folds: int, shift: float, rng: np.random.Generator) -> tuple[float, ...]:
    """How far B is ahead of A on one data set, and the interval."""
    blocks = rng.normal(size=(2, ROWS, FEATURES))
    blocks[:, Y] += 0.5
    blocks[1, Y] += shift
    parts = stratified(folds, rng)
    a, b = (labels(block, parts) for block in blocks)
    y, number = Y.astype(int), np.arange(ROWS)
    rows = OutOfFoldScores(np.zeros((ROWS, 2)), "predict_proba", y, None, number, number)
    *_, found = Judge(resolve("f1_macro"), rows, 2, None, 0, ROWS - ROWS // folds).compare(b, a)
    return found


def study(folds: int, shift: float) -> dict:
    rng = np.random.default_rng([folds, round(100 * shift)])
    value, low, high = np.array([lead(folds, shift, rng) for _ in range(SIMULATIONS)]).T
    shown = (low > 0) | (high < 0) if shift == 0 else low > 0
    about = {"folds": folds, "shift": shift}
    return about | {"difference": float(value.mean()), "shown": float(shown.mean())}


def detectable(records: list[dict], share: float = 0.8) -> float | None:
    """The difference that is shown so often, interpolated between those simulated."""
    shown, size = ([record[name] for record in records] for name in ("shown", "difference"))
    return float(np.interp(share, shown, size)) if shown[-1] >= share else None


def table(result: dict) -> str:
    """The table of the documentation."""
    lines = ["| folds | false alarms | shown |", "| ---: | ---: | ---: |"]
    for folds in FOLDS:
        records = [r for r in result["records"] if r["folds"] == folds]
        least = detectable(records)
        end = "more" if least is None else f"{least:.2f}"
        lines.append(f"| {folds} | {records[0]['shown']:.0%} | {end} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    records = [study(folds, shift) for folds in FOLDS for shift in SHIFTS]
    about = {"rows": ROWS, "simulations": SIMULATIONS, "machine": platform.machine()}
    out.write_text(json.dumps(about | {"records": records}, indent=1) + "\n")
    print(table(json.loads(out.read_text())))


if __name__ == "__main__":
    main()
