"""Fit AutoGluon to the rows in a folder; run by an interpreter that has it, and nothing of ours.

    python -I autogluon_fit.py FOLDER PRESET METRIC SECONDS

The folder has X, y and X_test as `rows.npz`, and gets `labels.npy`, and `told.json` with the
seconds of `fit` and the version.
"""

import json
import sys
import time
from pathlib import Path


def main(folder: Path, preset: str, metric: str, seconds: float) -> None:
    import autogluon.tabular as autogluon  # pyright: ignore[reportMissingImports]
    import numpy as np
    import pandas as pd

    with np.load(folder / "rows.npz") as rows:
        X, y, X_test = (rows[name] for name in ("X", "y", "X_test"))
    names = [f"x{number}" for number in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names).assign(label=y)
    start = time.perf_counter()
    predictor = autogluon.TabularPredictor(
        "label",
        problem_type="binary" if len(np.unique(y)) == 2 else "multiclass",
        eval_metric=metric,
        path=str(folder / "models"),
        verbosity=0,
    )
    predictor.fit(table, presets=preset, time_limit=seconds)
    took = time.perf_counter() - start
    np.save(folder / "labels.npy", predictor.predict(pd.DataFrame(X_test, columns=names)))
    told = {"seconds": took, "autogluon": autogluon.__version__, "model": predictor.model_best}
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
