"""The work of `evalign compare`, and of `evalign demo`, a comparison on built-in data."""

import warnings
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from evalign.cli.dataset import load
from evalign.cli.errors import refused
from evalign.cli.outcome import tried_models
from evalign.cli.terminal import Terminal, grid
from evalign.core.metrics import resolve
from evalign.core.text import counted
from evalign.estimators import AlignedClassifier, AlignedEnsemble, compare
from evalign.estimators.candidates import DEFAULT
from evalign.estimators.network import mlp
from evalign.estimators.recipes import RECIPES
from evalign.report import TriedModels
from evalign.report.words import number, span, verdict_of_tried
from evalign.tables.warnings import FEW_ROWS, DataWarning
from evalign.training import TrainingWarning

# The demo has few rows and should be quick: a small network and some of the models are enough.
DEMO_MODELS, DEMO_FOLDS, DEMO_SEEDS = ["linear", "forest"], 3, 2
NEXT = "Now with a table of your own: evalign fit data.csv --target label --out run"


def compare_methods(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign compare`."""
    dataset = load(given)
    labels, rows = dataset.labels, dataset.rows
    dataset.introduce(spoken)
    ensemble = _ensemble(given.metric, labels.positive, DEFAULT, given.folds, epochs=given.epochs)
    y = labels.array[rows.y]
    with refused():
        _compare(spoken, ensemble, rows.X, y, rows.weight, rows.groups, given.seeds)


def show_demo(spoken: Terminal, _: Namespace) -> None:
    """Do the work of `evalign demo`."""
    X, y = long_tailed_digits()
    most, least = np.bincount(y)[[0, 9]]
    spoken.note(f"Handwritten digits, long-tailed: from {most} rows of 0 to {least} of 9.")
    torch.set_num_threads(1)  # the network is too small to gain from more
    small = partial(mlp, hidden=(64,))
    how = {"epochs": 30, "batch_size": 64, "learning_rate": 0.01, "device": "cpu"}
    ensemble = _ensemble("f1_macro", None, DEMO_MODELS, DEMO_FOLDS, network=small, **how)
    _compare(spoken, ensemble, X, y, None, None, DEMO_SEEDS)
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


def _ensemble(
    metric: str, positive: Any, models: Sequence[str], folds: int, **network: Any
) -> AlignedEnsemble:
    """The models and a network of each recipe, which holds out rows of its own for its epoch."""
    usual = {"random_state": 0, **network}
    recipes = [(name, AlignedClassifier(metric, recipe=name, **usual)) for name in RECIPES]
    return AlignedEnsemble(metric, candidates=[*models, *recipes], cv=folds, pos_label=positive)


def _compare(
    spoken: Terminal, ensemble: AlignedEnsemble, X: Any, y: Any, weight: Any, groups: Any, runs: int
) -> None:
    """Try all candidates, and show their scores and a verdict."""
    ensemble.set_params(verbose=0 if spoken.quiet else 1)
    with warnings.catch_warnings():
        # EAST sees one batch at a time, and no option makes batches larger.
        warnings.filterwarnings("ignore", "A batch of", TrainingWarning)
        warnings.filterwarnings("ignore", FEW_ROWS, DataWarning)  # in a fold
        table, gain = compare(ensemble, X, y, weight, groups=groups, seeds=range(runs))
    name = str(ensemble.metric)
    tried = tried_models(table, gain, {}, name)
    sentence = verdict_of_tried(TriedModels(**tried), constrained=False)
    greater = resolve(name).greater_is_better
    data = {"metric": name, "greater_is_better": greater, "rows": len(y), "folds": ensemble.cv}
    data |= {"seeds": runs, "candidates": tried["rows"], "gain": gain, "verdict": sentence}
    explained = (
        f"{name}{'' if greater else ' (less is better)'} of rows held out, {ensemble.cv} folds, "
        f"{counted(runs, 'time')}: with a rule and by argmax, with 95% intervals."
    )
    headings = ["candidate", "with a rule", "95% interval", "argmax", "95% interval", "seconds"]
    spoken.result(data, grid(headings, map(_cells, tried["rows"])), explained, "", sentence)


def _cells(row: dict[str, Any]) -> list[str]:
    """A candidate for a person."""
    stems = ("rule_score", "argmax_score")
    scores = [{end: row[f"{stem}_{end}"] for end in ("low", "high")} for stem in stems]
    pairs = zip(stems, scores, strict=True)
    shown = [text for stem, ends in pairs for text in (number(row[stem]), span(ends))]
    return [row["candidate"], *shown, "" if row["seconds"] is None else f"{row['seconds']:.1f}"]
