"""Our quick models and AutoGluon, each as a user gets it: labels and the time they take.

AutoGluon's versions conflict with ours, so it runs in an interpreter of its own, which
EVALIGN_AUTOGLUON names. It gets the rows, the metric and a time limit, and gives labels.
"""

import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evalign import AlignedEnsemble, score
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers.deciding import SplitRows, split_rows
from evalign_study.trainers.methods import Problem

PYTHON = "EVALIGN_AUTOGLUON"
QUICK = ("linear", "boosting", "forest")  # what a CPU blends
OURS, PRESETS = "quick", ("medium_quality", "best_quality")
PREFIX, TIME, GOAL = "rival_", 60, "f1"
METHODS = tuple(PREFIX + name for name in (OURS, *PRESETS))
FIT = Path(__file__).with_name("autogluon_fit.py")


def train_rival(run: Run) -> Record:
    """Train the quick models or AutoGluon with a preset, on all cores, and score the labels."""
    require(run.method in METHODS, "train_rival", "method", f"be of {METHODS}", repr(run.method))
    rows, name = split_rows(run.dataset, run.split_seed, run.rows), run.method.removeprefix(PREFIX)
    metric = Problem(torch.ones(rows.classes), run.dataset).metric(GOAL)
    labels, told = _ours(rows, metric) if name == OURS else _autogluon(rows, metric, name)
    told |= {"test": score(metric, y_true=rows.y_test, y_pred=labels)}
    seconds = told["seconds"]
    return record(run, epochs=0, capped=False, seconds=seconds, picks={metric: {name: told}})


def _ours(rows: SplitRows, metric: str) -> tuple[np.ndarray, dict[str, Any]]:
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):  # of classes with few rows
        ensemble = AlignedEnsemble(metric, candidates=QUICK, random_state=0)
        ensemble.fit(rows.X, rows.y, groups=rows.groups)
    return ensemble.predict(rows.X_test), {"seconds": time.perf_counter() - start}


def _autogluon(rows: SplitRows, metric: str, preset: str) -> tuple[np.ndarray, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "rows.npz", X=rows.X, y=rows.y, X_test=rows.X_test)
        # It and its workers see nothing of our environment.
        command = [os.environ[PYTHON], "-I", str(FIT), name, preset, metric, str(TIME)]
        how: dict[str, Any] = {"env": os.environ | {"PYTHONPATH": ""}, "cwd": name}
        done = subprocess.run(command, capture_output=True, text=True, **how)
        require(done.returncode == 0, "AutoGluon", "a fit", "end well", done.stderr[-1000:])
        return np.load(folder / "labels.npy"), json.loads((folder / "told.json").read_text())
