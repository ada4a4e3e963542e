"""Our network and our ensembles, on the rows of the table of decisions."""

import numpy as np
import pytest
import torch
from evalign_study.records.run import Run
from evalign_study.trainers import modelling
from evalign_study.trainers.deciding import SplitRows
from sklearn.metrics import f1_score

from evalign import AlignedEnsemble


@pytest.mark.slow
def test_scores_are_those_of_the_test_rows(monkeypatch):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(240, 3)).astype(np.float32), np.arange(240) % 4 // 3
    X[:, 0] += y
    rows = SplitRows(X[:160], y[:160], np.arange(160), X[160:], y[160:], 2)
    monkeypatch.setattr(modelling, "split_rows", lambda *run: rows)
    monkeypatch.setattr(modelling, "DEFAULT", ("linear", "boosting"))
    run = Run(dataset="mammography", variant="sound", method="default_f1", network="")
    told = {}
    monkeypatch.setattr(modelling, "record", lambda run, **more: told.update(more) or told)
    found = modelling.train_models(run)["picks"]["f1"]
    assert told["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    names = {"auto", "blend", "linear of folds", "boosting of folds"}
    assert found.keys() == names
    ensemble = AlignedEnsemble("f1", candidates=["linear", "boosting"], n_jobs=1, random_state=0)
    labels = ensemble.fit(rows.X, rows.y, groups=rows.groups).predict(rows.X_test)
    assert found["blend"]["test"] == pytest.approx(f1_score(rows.y_test, labels), abs=1e-6)
    assert found["blend"]["weights"] == pytest.approx(ensemble.weights_, abs=1e-6)
    assert found["auto"]["test"] == found[f"{found['auto']['chosen']} of folds"]["test"]
