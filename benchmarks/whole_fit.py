"""Time of a whole `fit` with a rule, beside scikit-learn's TunedThresholdClassifierCV.

    python benchmarks/whole_fit.py --out benchmarks/results/whole_fit.json

Both train the classifier on the same five folds and once on all rows; what differs is the search
for the threshold. They take turns, so that others on the machine disturb both, and the median of
their rounds counts.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import sklearn
import torch
from sklearn.base import ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV

from evalign import AlignedDecisionCV

ROUNDS = 5
ROWS = 10_000
CLASSIFIERS: dict[str, ClassifierMixin] = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "random forest": RandomForestClassifier(random_state=0),
}


def seconds(model: ClassifierMixin, X, y) -> float:
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--busy", action="store_true", help="note that others use the machine too")
    arguments = parser.parse_args()
    X, y = make_classification(ROWS, n_features=20, n_informative=6, weights=[0.9], random_state=0)
    found = {}
    for name, classifier in CLASSIFIERS.items():
        rounds: dict[str, list[float]] = {"evalign": [], "scikit-learn": []}
        for _ in range(ROUNDS):
            ours = AlignedDecisionCV(classifier, metric="f1", cv=5, random_state=0)
            theirs = TunedThresholdClassifierCV(classifier, scoring="f1", cv=5, random_state=0)
            rounds["evalign"].append(seconds(ours, X, y))
            rounds["scikit-learn"].append(seconds(theirs, X, y))
        found[name] = {who: statistics.median(times) for who, times in rounds.items()}
    result = {
        "rows": ROWS,
        "rounds": ROUNDS,
        "busy": arguments.busy,
        "machine": platform.machine(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "seconds": found,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
