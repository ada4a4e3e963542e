"""Probabilities of well-known classifiers, and the labels that rivals and our rules make of them.

A model is trained once for each fifth of the training rows, which it then predicts, and once on all
of them for the test rows. All decisions are made of these probabilities, so that they differ in
the rule alone, and the time of a rule is that of its own search. Rules that want an estimator are
given `Replay`, which looks probabilities up: the rivals' own code runs.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import nn

from evalign import AlignedClassifier, Confusion, fit_decision
from evalign.metrics import resolve
from evalign.training import holdout_split
from evalign_study import data
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers.methods import GOALS, Problem
from evalign_study.trainers.prepared import of_texts, thin

PREFIX = "decided_"
FOLDS = 5
MOST_ASCENDED = 100  # classes whose thresholds a rival looks for
WIDTH, EPOCHS = 128, 20  # of the network; the estimator's own is larger and takes a hundred
KEPT = "EVALIGN_PROBABILITIES"  # names a folder in which probabilities are kept


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier  # pyright: ignore[reportMissingImports]

    return LGBMClassifier(n_jobs=1, random_state=0, verbose=-1)


def _xgboost() -> Any:
    from xgboost import XGBClassifier  # pyright: ignore[reportMissingImports]

    return XGBClassifier(n_jobs=1, random_state=0)


def _catboost() -> Any:
    from catboost import CatBoostClassifier  # pyright: ignore[reportMissingImports]

    return CatBoostClassifier(
        thread_count=1, random_seed=0, verbose=False, allow_writing_files=False
    )


def _network() -> Any:
    """Make our estimator with cross-entropy, which serves all metrics, and a small network."""
    return AlignedClassifier(
        recipe="cross_entropy",
        network=lambda features, classes: nn.Sequential(
            nn.Linear(features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes)
        ),
        decision="argmax",
        epochs=EPOCHS,
        device="cpu",
        random_state=0,
    )


# With the defaults of each library.
MODELS: dict[str, Callable[[], Any]] = {
    "logistic_regression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "random_forest": lambda: RandomForestClassifier(random_state=0),
    "extra_trees": lambda: ExtraTreesClassifier(random_state=0),
    "hist_gradient_boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "catboost": _catboost,
    "network": _network,
}
METHODS = tuple(PREFIX + name for name in MODELS)


class Probabilities(NamedTuple):
    """Probabilities of a model, of the training rows by models that have not seen them.

    Args:
        known: (N, C), of the training rows.
        y: their labels.
        fold: the fold in which each was held out.
        test: (M, C), of the test rows, by the model of all training rows.
        y_test: their labels.
        seconds: what all trainings took.
    """

    known: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    test: np.ndarray
    y_test: np.ndarray
    seconds: float


class SplitRows(NamedTuple):
    """Training rows, with groups that stay in one fold, and test rows."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    classes: int


def train_decided(run: Run) -> Record:
    """Train a model, make labels by all decisions, and score them.

    A pick is a metric here. It has for every decision the score of the test rows, and the seconds
    of the processor that the rule took.
    """
    allowed = f"be one of {', '.join(METHODS)}"
    require(run.method in METHODS, "train_decided", "method", allowed, repr(run.method))
    # One core for a unit, so that units side by side do not wait for each other.
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with few rows, and of columns without names
        found = probabilities(run)
        goals = Problem(torch.ones(found.known.shape[1]), run.dataset)
        metrics = dict.fromkeys(goals.metric(name) for name in GOALS.values())
        picks = {metric: dict(_decided(found, metric)) for metric in metrics}
    return record(run, epochs=0, capped=False, seconds=found.seconds, picks=picks)


def probabilities(run: Run) -> Probabilities:
    """Train the models of a run, or read what an earlier run has kept of them."""
    folder = os.environ.get(KEPT)
    file = Path(folder) / f"{run.key}.npz" if folder else None
    if file is not None and file.exists():
        with np.load(file) as kept:
            found = Probabilities(**{name: kept[name] for name in Probabilities._fields})
            return found._replace(seconds=float(found.seconds))
    rows = split_rows(run.dataset, run.split_seed, run.rows)
    fold, start = _folds(rows), time.process_time()
    known = np.empty((len(rows.y), rows.classes))
    for number in range(FOLDS):
        out = fold == number
        known[out] = _predicted(run, rows.X[~out], rows.y[~out], rows.X[out], rows.classes)
    test = _predicted(run, rows.X, rows.y, rows.X_test, rows.classes)
    found = Probabilities(known, rows.y, fold, test, rows.y_test, time.process_time() - start)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".part.npz")
        np.savez_compressed(aside, **found._asdict())
        aside.replace(file)
    return found


@lru_cache(maxsize=1)
def split_rows(dataset: str, split_seed: int, most: int | None) -> SplitRows:
    """Load a table; its test rows are those of the suite."""
    loaded = data.load(dataset, preparation="sound")
    parts = holdout_split(loaded.y, groups=loaded.groups, seed=split_seed)
    training, test = (part[thin(loaded.y[part], most)] for part in parts)
    X = loaded.X if loaded.card.shape else of_texts(loaded.X, training)
    X, y = X.astype(np.float32), loaded.y
    return SplitRows(
        X[training], y[training], loaded.groups[training], X[test], y[test], len(loaded.classes)
    )


def _folds(rows: SplitRows) -> np.ndarray:
    """Number the fold of each row; a group stays in one, stratified by the label of its first."""
    _, first, group = np.unique(rows.groups, return_index=True, return_inverse=True)
    fold = np.empty(len(first), np.int64)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for number, (_, out) in enumerate(splits.split(first, rows.y[first])):
        fold[out] = number
    return fold[group]


def _predicted(
    run: Run, X: np.ndarray, y: np.ndarray, unseen: np.ndarray, classes: int
) -> np.ndarray:
    """Train a model, and predict probabilities of all classes, also of those it has not seen.

    They are doubles: single precision would tie what a model tells apart near 1, and a rival that
    cuts between two rows without looking for ties would label none.
    """
    # XGBoost wants labels without gaps.
    there, codes = np.unique(y, return_inverse=True)
    model = MODELS[run.method.removeprefix(PREFIX)]().fit(X, codes)
    found = np.zeros((len(unseen), classes))
    found[:, there] = model.predict_proba(unseen)
    return found


class Looked(NamedTuple):
    """Probabilities by row number, which clones of an estimator share."""

    table: np.ndarray

    def __deepcopy__(self, memo: Any) -> "Looked":
        return self


class Replay(ClassifierMixin, BaseEstimator):
    """An estimator whose rows are numbers, and whose probabilities are looked up.

    Args:
        looked: the probabilities, first of the training rows, each by the model that has not seen
            it, then of the test rows.
    """

    def __init__(self, looked: Looked) -> None:
        self.looked = looked

    def fit(self, X: np.ndarray, y: np.ndarray, **ignored: Any) -> "Replay":
        self.classes_ = np.arange(self.looked.table.shape[1])
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.looked.table[X[:, 0]]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.predict_proba(X).argmax(1)


def _decided(found: Probabilities, metric: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Score the labels of every decision that there is for the metric."""
    classes, y = found.known.shape[1], torch.from_numpy(found.y_test)
    for name, decide in DECIDED.items():
        start = time.process_time()
        labels = decide(found, metric)
        seconds = time.process_time() - start
        if labels is not None:
            confusion = Confusion.from_predictions(
                torch.as_tensor(labels).long(), y, num_classes=classes, matrix=True
            )
            yield name, {"test": float(resolve(metric)(confusion)), "seconds": seconds}


def _tuner(found: Probabilities, metric: str) -> np.ndarray | None:
    """Find the threshold of scikit-learn's tuner, with its defaults, on the same folds."""
    if found.known.shape[1] > 2:
        return None
    scoring: Any = make_scorer(fbeta_score, beta=2) if metric == "f2" else metric
    numbers = np.arange(len(found.known) + len(found.test))[:, None]
    folds = [
        (np.flatnonzero(found.fold != k), np.flatnonzero(found.fold == k)) for k in range(FOLDS)
    ]
    tuner = TunedThresholdClassifierCV(
        Replay(Looked(np.concatenate([found.known, found.test]))),
        scoring=scoring,
        cv=folds,
    )
    tuner.fit(numbers[: len(found.known)], found.y)
    return tuner.predict(numbers[len(found.known) :])


def _cutoffs(found: Probabilities, metric: str) -> np.ndarray | None:
    """Find the thresholds of optimal-classification-cutoffs by coordinate ascent.

    It knows F1 and none of the other metrics, and takes hours for hundreds of classes.
    """
    from optimal_cutoffs import get_optimal_threshold  # pyright: ignore[reportMissingImports]

    classes = found.known.shape[1]
    if metric not in ("f1", "f1_macro") or classes > MOST_ASCENDED:
        return None
    known, test = (p[:, 1] if classes == 2 else p for p in (found.known, found.test))
    rule = get_optimal_threshold(found.y, known, metric="f1", method="coord_ascent")
    return rule.predict(test)


def _ours(decision: Any) -> Callable[[Probabilities, str], np.ndarray]:
    def decide(found: Probabilities, metric: str) -> np.ndarray:
        rule = fit_decision(y=found.y, probabilities=found.known, metric=metric, decision=decision)
        return rule(probabilities=found.test)

    return decide


PREDICT, TUNER, CUTOFFS = "predict", "scikit-learn", "optimal-classification-cutoffs"
DECIDED: dict[str, Callable[[Probabilities, str], np.ndarray | None]] = {
    PREDICT: lambda found, metric: found.test.argmax(1),
    TUNER: _tuner,
    CUTOFFS: _cutoffs,
    "tuned": _ours("tuned"),
    "expected": _ours("expected"),
}
