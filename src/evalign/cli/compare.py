"""The work of `evalign compare`, and of `evalign demo`, a comparison on built-in data."""

import warnings
from argparse import Namespace
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from sklearn.datasets import load_digits

from evalign import comparison
from evalign.cli.dataset import load
from evalign.cli.errors import refused
from evalign.cli.terminal import Terminal, grid
from evalign.comparison import METHODS, MIN_VALUES, PLAIN, TUNED, Row
from evalign.core.text import counted
from evalign.estimators import AlignedClassifier
from evalign.estimators.network import mlp
from evalign.metrics import resolve
from evalign.report.words import number, span
from evalign.tables.warnings import FEW_ROWS, DataWarning
from evalign.training import TrainingWarning

# The demo has few rows and should be quick: a small network and some of the methods are enough.
DEMO_METHODS = [PLAIN, TUNED, "EAST (argmax)", "aligned (tuned)", "random forest (argmax)"]
DEMO_SEEDS = 2
NEXT = "Now with a table of your own: evalign fit data.csv --target label --out run"


def compare_methods(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign compare`."""
    dataset = load(given)
    labels, rows = dataset.labels, dataset.rows
    dataset.introduce(spoken)
    classifier = AlignedClassifier(given.metric, epochs=given.epochs, pos_label=labels.positive)
    how = {"methods": list(METHODS), "folds": given.folds, "seeds": range(given.seeds)}
    how |= {"groups": rows.groups, "sample_weight": rows.weight}
    with refused():
        _compare(spoken, classifier, rows.X, labels.array[rows.y], labels.names, **how)


def show_demo(spoken: Terminal, _: Namespace) -> None:
    """Do the work of `evalign demo`."""
    X, y = long_tailed_digits()
    most, least = np.bincount(y)[[0, 9]]
    spoken.note(f"Handwritten digits, long-tailed: from {most} rows of 0 to {least} of 9.")
    torch.set_num_threads(1)  # the network is too small to gain from more
    small = partial(mlp, hidden=(64,))
    classifier = AlignedClassifier(
        "f1_macro", network=small, epochs=30, batch_size=64, learning_rate=0.01, device="cpu"
    )
    how = {"methods": DEMO_METHODS, "folds": 3, "seeds": range(DEMO_SEEDS)}
    _compare(spoken, classifier, X, y, [str(digit) for digit in range(10)], **how)
    spoken.note(NEXT)


def long_tailed_digits() -> tuple[np.ndarray, np.ndarray]:
    """All rows of digit 0, and geometrically fewer of each next one, down to 1 in 20."""
    digits: Any = load_digits()
    X, y, rng = digits.data, digits.target, np.random.default_rng(0)
    kept = []
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(y == digit))
        kept.append(rows[: round(len(rows) * 20 ** (-digit / 9))])
    kept = np.concatenate(kept)
    return X[kept], y[kept]


def _compare(
    spoken: Terminal, classifier: AlignedClassifier, X: Any, y: Any, classes: list[str], **how: Any
) -> None:
    """Train all methods behind a progress bar, and show their scores and a verdict."""
    folds, seeds = how["folds"], len(how["seeds"])
    with warnings.catch_warnings():
        # EAST sees one batch at a time, and no option makes batches larger.
        warnings.filterwarnings("ignore", "A batch of", TrainingWarning)
        warnings.filterwarnings("ignore", FEW_ROWS, DataWarning)  # in a fold
        runs, bar = comparison.compare(classifier, X, y, **how), Console(stderr=True)
        total = len(how["methods"]) * folds * seeds
        records = list(track(runs, "Comparing", total, console=bar, disable=spoken.quiet))
    name = str(classifier.metric)
    metric = resolve(name)
    greater = metric.greater_is_better
    summary = comparison.summarize(records, greater_is_better=greater, bounds=metric.bounds)
    sentences = comparison.verdict(records, metric=name, greater_is_better=greater)
    if folds * seeds >= MIN_VALUES:
        least = number(comparison.least_shown(records))
        sentences.append(f"These folds cannot tell a difference below about {least} from chance.")
    methods = [_plain(row) for row in summary]
    data = {
        "metric": name,
        "greater_is_better": greater,
        "rows": len(y),
        "classes": classes,
        "folds": folds,
        "seeds": seeds,
        "methods": methods,
        "verdict": sentences,
        "records": [record._asdict() for record in records],
    }
    explained = (
        f"Mean {name}{'' if greater else ' (less is better)'} over {folds} folds, "
        f"{counted(seeds, 'time')}, with its 95% interval; difference to {PLAIN}."
    )
    headings = ["method", "mean", "95% interval", "difference", "p", "seconds"]
    spoken.result(data, grid(headings, map(_cells, methods)), explained, "", *sentences)


def _plain(row: Row) -> dict[str, Any]:
    """A method for JSON."""
    difference = row.difference and row.difference._asdict()
    scores = dict(zip(("mean", "low", "high"), row.score, strict=False))
    return {"method": row.method, **scores, "difference": difference, "seconds": row.seconds}


def _cells(row: dict[str, Any]) -> list[str]:
    """A method for a person."""
    change, p = "", ""
    if difference := row["difference"]:
        change = f"{'+' if difference['value'] > 0 else ''}{number(difference['value'])}"
        p = "<0.001" if difference["p"] < 0.001 else f"{difference['p']:.3f}"
    return [row["method"], number(row["mean"]), span(row), change, p, f"{row['seconds']:.1f}"]
