"""A run folder in Python: frames in, labels out."""

from collections import Counter
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from evalign.cli import columns
from evalign.cli.predict import Features
from evalign.cli.run import FinishedRun, Model


class LoadedRun:
    """The model of a run of the command line, for frames with the run's columns.

    `evalign.load` opens it. Frames are of pandas or polars, and may have other columns too.

    Args:
        folder: what `evalign fit` wrote.

    Attributes:
        model_: the `AlignedClassifier` or `AlignedEnsemble` behind it, which takes features and
            gives codes.
        classes_: the labels, in the order of the columns of `predict_proba`.
        columns_: the names of the columns that it reads.
        unseen_: how many values of a category the last call had that training never saw.
    """

    def __init__(self, folder: Path) -> None:
        self._run = FinishedRun(folder)
        self.model_: Model = self._run.classifier("model")
        self.classes_ = np.array(self._run.labels.values)
        self.columns_ = list(self._run.columns.features)
        self.unseen_: Counter[str] = Counter()

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row, as it was in the training table."""
        return self.classes_[self.model_.predict(self._features(X))]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes)."""
        return self.model_.predict_proba(self._features(X))

    def _features(self, X: Any) -> np.ndarray:
        table = nw.from_native(X, eager_only=True).to_arrow()
        missing = [name for name in self.columns_ if name not in table.column_names]
        if missing:
            raise ValueError(
                f"X of LoadedRun must have the columns of the run. Got none named {missing[:3]}."
            )
        features = Features(self._run)
        found = features(columns.frame(table, self._run.columns, "X"))
        self.unseen_ = features.unseen
        return found
