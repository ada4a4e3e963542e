"""Our quick models and AutoGluon, whose interpreter is replaced by a script: all labels are 1."""

import sys

import pytest
from evalign_study.modelled import plan
from evalign_study.trainers import rivals
from evalign_study.trainers.deciding import split_rows
from sklearn.metrics import f1_score

STUB = f"""#!{sys.executable}
import json, sys
import numpy as np
from pathlib import Path
alone, script, folder, preset, metric, seconds = sys.argv[1:]
assert (alone, metric, seconds) == ("-I", "f1", "60") and Path(script).is_file()
if preset == "best_quality":
    sys.exit("no models")
rows = np.load(Path(folder) / "rows.npz")
assert len(rows["X"]) == len(rows["y"])
np.save(Path(folder) / "labels.npy", np.ones(len(rows["X_test"]), int))
(Path(folder) / "told.json").write_text(json.dumps({{"seconds": 7.0}}))
"""


@pytest.fixture
def autogluon(tmp_path, monkeypatch):
    path = tmp_path / "python"
    path.write_text(STUB)
    path.chmod(0o700)
    monkeypatch.setenv(rivals.PYTHON, str(path))


@pytest.fixture
def runs(made_rows):
    split_rows.cache_clear()
    yield plan.of_rivals(["mammography"])
    split_rows.cache_clear()


def test_each_labels_the_same_rows(runs, autogluon):
    ours, medium, best = runs
    told = rivals.train_rival(ours)["picks"]["f1"]["quick"]
    assert told["test"] > 0.8
    assert told["seconds"] > 0
    told = rivals.train_rival(medium)["picks"]["f1"]["medium_quality"]
    y = split_rows("mammography", 0, plan.ROWS).y_test
    assert told["test"] == pytest.approx(f1_score(y, y >= 0), abs=1e-6)
    assert told["seconds"] == 7
    with pytest.raises(ValueError, match=r"a fit of AutoGluon must end well.*no models"):
        rivals.train_rival(best)
