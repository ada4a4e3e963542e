"""Fixtures that replace data sets by made rows, and the papers' tables by a small one."""

import gc
from pathlib import Path

import numpy as np
import pytest
from evalign_study import data
from evalign_study.data import Dataset
from evalign_study.papers import tables
from evalign_study.pipeline import running
from evalign_study.records.results import recorded
from evalign_study.trainers import classical
from evalign_study.trainers.prepared import prepare

from study.tests.pipeline.made_table import SMALL

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="session")
def committed():
    """Return by key the records that are kept in the repository."""
    gc.disable()  # it would go through all records that are there, again and again
    try:
        return recorded(RESULTS)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def made_rows(monkeypatch):
    """Replace every data set by 200 made rows."""
    cached = (prepare, classical._prepare, classical._fitted)
    for function in cached:
        function.cache_clear()
    X = np.random.default_rng(0).normal(3, 2, (200, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] > 8).astype(np.int64)
    dataset = Dataset(X, y, ("no", "yes"), np.arange(200), None, data.card("mammography"))
    monkeypatch.setattr(data, "load", lambda name, preparation: dataset)
    monkeypatch.setattr(running, "fetch", lambda card: None)
    yield
    for function in cached:
        function.cache_clear()


@pytest.fixture
def small(made_rows, monkeypatch):
    """Replace the papers' tables by the small one."""
    monkeypatch.setattr(tables, "_tables", lambda: tables.read(SMALL))
