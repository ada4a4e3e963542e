"""Time to fit a decision rule on a million rows, compared with scikit-learn.

    python benchmarks/decision_speed.py --out decision_speed.json

scikit-learn's TunedThresholdClassifierCV gets the same binary scores through a classifier that
only passes them on, one split, and its default of 100 thresholds; fit_decision tries all cuts.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import f1_score
from sklearn.model_selection import TunedThresholdClassifierCV

from evalign.decisions import fit_decision

FEWER = 20  # times fewer rows with 1,000 classes, which fill the memory


class PassOn(ClassifierMixin, BaseEstimator):
    """A classifier whose only feature is the probability of class 1, which it passes on."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "PassOn":
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (X[:, 0] > 0.5).astype(int)


def problem(classes: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make calibrated logits of classes whose frequencies fall to a thirtieth."""
    generator = torch.Generator().manual_seed(0)
    prior = 30.0 ** -torch.linspace(0, 1, classes)
    prior = prior / prior.sum()
    y = torch.multinomial(prior, rows, replacement=True, generator=generator)
    x = torch.randn(rows, classes, generator=generator)
    x[torch.arange(rows), y] += 1.6
    return 1.6 * x + prior.log(), y


def seconds(action: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the shortest time of some runs, as the others waited for other programs."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = action()
        times.append(time.perf_counter() - start)
    return min(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = arguments.rows
    result: dict[str, Any] = {
        "rows": rows,
        "threads": arguments.threads,
        "cpus": os.cpu_count(),
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "seconds": {},
        "f1": {},
    }
    took = result["seconds"]

    logits, y = problem(2, rows)
    for decision in ("tuned", "expected"):
        took[f"binary {decision}"], rule = seconds(
            lambda d=decision: fit_decision(logits, y, metric="f1", decision=d), 3
        )
        result["f1"][decision] = f1_score(y, rule(logits))
    X = logits.softmax(1)[:, 1:].double().numpy()
    tuner = TunedThresholdClassifierCV(PassOn().fit(X, y), scoring="f1", cv="prefit", refit=False)
    took["binary scikit-learn"], tuner = seconds(lambda: tuner.fit(X, y.numpy()), 1)
    result["f1"]["scikit-learn"] = f1_score(y, tuner.predict(X))
    result["ratio"] = took["binary scikit-learn"] / took["binary tuned"]

    for classes, some in ((10, rows), (1000, rows // FEWER)):
        logits, y = problem(classes, some)
        for decision in ("tuned", "expected"):
            took[f"{classes} classes {decision}, {some} rows"], _ = seconds(
                partial(fit_decision, logits, y, metric="f1_macro", decision=decision), 1
            )

    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
