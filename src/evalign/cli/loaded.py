"""A run folder in Python: frames in, labels out."""

from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from evalign.cli.cells import as_text
from evalign.cli.columns import frame
from evalign.cli.errors import listed
from evalign.cli.run import FinishedRun, Model
from evalign.cli.truths import respelled
from evalign.core.checks import complaint, refuse_masked, require
from evalign.estimator.columns import CategoryColumn


class LoadedRun:
    """The model of a run of the command line, for frames with the run's columns.

    `evalign.load` opens it. Frames are of pandas or polars, and may have other columns too.

    Args:
        folder: what `evalign fit` wrote.

    Attributes:
        model_: the `AlignedClassifier` or `AlignedEnsemble` behind it, which it asks.
        classes_: the labels, in the order of the columns of `predict_proba`.
        columns_: the names of the columns that it reads.
    """

    def __init__(self, folder: Path) -> None:
        self._run = FinishedRun(folder)
        self.model_: Model = self._run.classifier("model")
        self.classes_ = self.model_.classes_
        self.columns_ = list(self._run.columns.features)

    def __repr__(self) -> str:
        columns, classes = listed(self.columns_, 5), listed([str(c) for c in self.classes_], 5)
        return f"{type(self).__name__}({self.model_!r}, columns: {columns}; classes: {classes})"

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row, as it was in the training table."""
        return self.model_.predict(self._frame(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes)."""
        return self.model_.predict_proba(self._frame(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, or minus the metric if it is a cost: greater is better.

        Args:
            X: a frame with the columns of the run.
            y: the label of each row, as it was in the training table.
            sample_weight: a weight per row.
        """
        refuse_masked("LoadedRun", "y", y)
        codes = pd.Index(self.classes_).get_indexer(pd.Index(np.asarray(y).ravel()))
        new = np.asarray(y).ravel()[codes < 0]
        allowed = f"hold labels of the run, {self.classes_[:5].tolist()}"
        require(not len(new), "LoadedRun", "y", allowed, new[:3].tolist())
        return self.model_.score(self._frame(X), y, sample_weight)

    def _frame(self, X: Any) -> pd.DataFrame:
        """The columns of the run, read as `evalign predict` reads those of a file."""
        try:
            given = nw.from_native(X, eager_only=True)
        except TypeError as error:
            allowed = f"be a pandas or polars frame with the columns {self.columns_[:3]} ..."
            got = type(X).__name__
            raise TypeError(complaint("LoadedRun", "X", allowed, got)) from error
        require(len(given) > 0, "LoadedRun", "X", "hold rows", "none")
        missing = [name for name in self.columns_ if name not in given.columns]
        allowed, got = "have the columns of the run", f"none named {missing[:3]}"
        require(not missing, "LoadedRun", "X", allowed, got)
        return frame(self._spelled(given.select(self.columns_)), self._run.columns, "X")

    def _spelled(self, given: nw.DataFrame[Any]) -> pa.Table:
        """Truth values as the run's table spelt them: a file holds text, such as "true"."""
        try:
            table = given.to_arrow()
        except pa.ArrowException as error:  # objects of several types
            got = " ".join(map(str, error.args))
            allowed, cure = "hold values of one type in a column", "Convert it, or save it as .csv."
            raise TypeError(complaint("LoadedRun", "X", allowed, got, cure)) from error
        for column in self.model_.features_.columns:
            values = table[column.name]
            some = pa.types.is_boolean(values.type) and values.null_count < len(values)
            if isinstance(column, CategoryColumn) and some:
                allowed = "have the columns of the run"
                got = f"column {column.name!r} held categories in fit and holds truth values"
                require(column.truths is not None, "LoadedRun", "X", allowed, got)
                assert column.truths is not None
                texts = respelled(as_text(values), [*column.truths])
                table = table.set_column(table.column_names.index(column.name), column.name, texts)
        return table
