"""Our network and our ensembles with their defaults, on the rows of the table of decisions."""

import time
import warnings
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from evalign import AlignedEnsemble, Confusion
from evalign.estimators.candidates import DEFAULT
from evalign.metrics import resolve
from evalign.training.network import find_device
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers.deciding import SplitRows, split_rows
from evalign_study.trainers.methods import GOALS, Problem

DEFAULTS, WITH_NETWORK = "default_", "models_"
METHODS = tuple(prefix + goal for prefix in (DEFAULTS, WITH_NETWORK) for goal in GOALS)
# Boosting trains a tree for each class in each round: with more classes it is not a candidate.
MOST_BOOSTED = 100


def train_models(run: Run) -> Record:
    """Train the ensemble for a metric, and score the labels of test rows.

    A pick is the metric. It has the score of the ensemble as a "blend" and as "auto", the best
    candidate by the rows held out; and of each candidate, which is the mean of the models of the
    folds, with its rule.
    """
    allowed = f"be one of {', '.join(METHODS)}"
    require(run.method in METHODS, "train_models", "method", allowed, repr(run.method))
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with few rows
        rows, start = split_rows(run.dataset, run.split_seed, run.rows), time.perf_counter()
        prefix, goal = run.method.split("_", 1)
        metric = Problem(torch.ones(rows.classes), run.dataset).metric(GOALS[goal])
        candidates = DEFAULT if prefix + "_" == DEFAULTS else ("network", *DEFAULT)
        told = _ensembles(rows, metric, candidates)
    seconds = time.perf_counter() - start
    device = find_device("auto").type  # of the networks, which are smaller on a CPU
    return record(run, epochs=0, capped=False, seconds=seconds, picks={metric: told}, device=device)


def _ensembles(
    rows: SplitRows, metric: str, candidates: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    names = [name for name in candidates if name != "boosting" or rows.classes <= MOST_BOOSTED]
    start = time.perf_counter()
    ensemble = AlignedEnsemble(metric, candidates=names, n_jobs=1, random_state=0)
    ensemble.fit(rows.X, rows.y, groups=rows.groups)
    seconds = time.perf_counter() - start
    results = ensemble.cv_results_
    held_out = dict(zip(results["candidate"], results["rule_score"], strict=True))
    best = max(names, key=held_out.__getitem__)
    told: dict[str, dict[str, Any]] = {
        f"{name} of folds": {"test": _score(ensemble.only(name), rows, metric)} for name in names
    }
    blend = {"test": _score(ensemble, rows, metric), "weights": ensemble.weights_}
    auto = {**told[f"{best} of folds"], "chosen": best}
    return told | {
        way: {**one, "seconds": seconds} for way, one in (("blend", blend), ("auto", auto))
    }


def _score(classifier: Any, rows: SplitRows, metric: str) -> float:
    labels = np.asarray(classifier.predict(rows.X_test))
    confusion = Confusion.from_predictions(
        torch.from_numpy(labels).long(),
        torch.from_numpy(rows.y_test).long(),
        num_classes=rows.classes,
        matrix=True,
    )
    return float(resolve(metric)(confusion))
