"""The power of the test of `evalign compare`, simulated with real trainings.

    python benchmarks/compare_power.py --out benchmarks/results/compare_power.json

A data set has 300 rows, 30% positive, and two blocks of five features. Method A is trained on the
first block and method B on the second, both by naive Bayes with normal features. If the blocks are
alike, so are the methods, and every difference is chance. A shift of B's positives makes B better.
Each simulated data set is compared as `evalign compare` does, on repeated stratified folds, by
macro-F1. Recorded for each number of folds and repetitions, and each shift:

    difference   the mean difference of the methods
    spread       the standard deviation of the differences of the folds of one data set
    shown        the share of data sets with p < 0.05
    shown_of_7   the same if it is the first of seven differences, so p < 0.05 / 7 (Holm)
    plain        the share by Student's test, as if folds were independent
"""

import argparse
import json
import math
import platform
from pathlib import Path

import numpy as np
from scipy import stats

from evalign.core.estimates import estimate

ROWS, POSITIVES, FEATURES, SIMULATIONS = 300, 90, 5, 1000
FOLDS = [(2, 5), (3, 2), (5, 1), (5, 3), (10, 1), (10, 3), (5, 10)]  # folds, repetitions
SHIFTS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6]
Y = np.arange(ROWS) < POSITIVES


def fold_scores(x: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Macro-F1 on each fold of naive Bayes trained on the others."""
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
    right = log_odds > 0
    f1 = []
    for label, true in ((right, Y), (~right, ~Y)):
        hits = (inside * (label & true)).sum(1)
        f1.append(2 * hits / ((inside * label).sum(1) + (inside * true).sum(1)))
    return (f1[0] + f1[1]) / 2


def stratified(folds: int, rng: np.random.Generator) -> np.ndarray:
    parts = np.empty(ROWS, int)
    for of_class in (Y, ~Y):
        number = of_class.sum()
        parts[of_class] = rng.permutation(np.arange(number) % folds)
    return parts


def differences(folds: int, seeds: int, shift: float, rng: np.random.Generator) -> np.ndarray:
    blocks = rng.normal(size=(2, ROWS, FEATURES))
    blocks[:, Y] += 0.5
    blocks[1, Y] += shift
    every = []
    for _ in range(seeds):
        parts = stratified(folds, rng)
        every.append(fold_scores(blocks[1], parts) - fold_scores(blocks[0], parts))
    return np.concatenate(every)


def study(folds: int, seeds: int, shift: float) -> dict:
    rng = np.random.default_rng([folds, seeds, round(100 * shift)])
    found = [differences(folds, seeds, shift, rng) for _ in range(SIMULATIONS)]
    p = np.array([estimate(list(values), folds).p for values in found])
    better = np.mean(found, axis=1) > 0 if shift else np.ones(len(found), bool)
    plain = stats.ttest_1samp(np.array(found), 0, axis=1).pvalue
    return {
        "folds": folds,
        "seeds": seeds,
        "shift": shift,
        "difference": float(np.mean(found)),
        "spread": float(np.std(found, axis=1, ddof=1).mean()),
        "shown": float(((p < 0.05) & better).mean()),
        "shown_of_7": float(((p < 0.05 / 7) & better).mean()),
        "plain": float(((plain < 0.05) & better).mean()),
        "error": math.sqrt(0.05 * 0.95 / SIMULATIONS),
    }


def detectable(records: list[dict], share: float = 0.8, key: str = "shown") -> float | None:
    """The difference that is shown so often, interpolated between those simulated."""
    shown, size = ([record[name] for record in records] for name in (key, "difference"))
    return float(np.interp(share, shown, size)) if shown[-1] >= share else None


def table(result: dict) -> str:
    """The table of the documentation."""
    lines = ["| folds × seeds | false alarms, uncorrected | false alarms | shown | one of seven |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: |")
    for folds, seeds in FOLDS:
        records = [r for r in result["records"] if (r["folds"], r["seeds"]) == (folds, seeds)]
        ends = [detectable(records, key=key) for key in ("shown", "shown_of_7")]
        least = " | ".join("more" if end is None else f"{end:.2f}" for end in ends)
        plain = f"{records[0]['plain']:.0%}"
        lines.append(f"| {folds} × {seeds} | {plain} | {records[0]['shown']:.0%} | {least} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    records = [study(*folds, shift) for folds in FOLDS for shift in SHIFTS]
    result = {
        "rows": ROWS,
        "simulations": SIMULATIONS,
        "machine": platform.machine(),
        "records": records,
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
