"""What is attacked, made once: a saved classifier, a run, a checkpoint, a study's records."""

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import torch
from evalign_study.records.results import Results
from sklearn.datasets import make_classification

from evalign import AlignedClassifier
from evalign.store import archive
from study.tests.records.made_runs import made as made_record
from study.tests.records.made_runs import run as study_run
from tests.ground.cli.commands import done, fit, table, written


class Made:
    """Where it is made."""

    folder: Path


X, Y = make_classification(60, n_features=4, n_informative=3, n_redundant=0, random_state=0)


@cache
def saved() -> Path:
    path = Made.folder / "saved"
    model = AlignedClassifier(epochs=1, device="cpu", decision="argmax", random_state=0)
    model.fit(X, Y).save(path)
    return path


@cache
def state() -> Path:
    path = Made.folder / "checkpoint"
    archive.save(
        path,
        {"epoch": 3, "weights": torch.arange(6.0), "counts": np.arange(4), "names": ["a", "b"]},
    )
    return path


@cache
def data() -> Path:
    return written(Made.folder / "data.csv", table(120))


@cache
def run() -> Path:
    path = Made.folder / "run"
    done(*fit(data(), path, epochs=1, model="network"))
    return path


@cache
def records() -> Path:
    path = Made.folder / "records" / "table.jsonl.gz"
    results = Results(path)
    for seed in range(3):
        results.append([made_record(study_run(seed))])
    return path


def copy_of(source: Path) -> Path:
    """A copy to damage, in the place of the one before."""
    path = Made.folder / "copy"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    target = path / source.name
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return target
