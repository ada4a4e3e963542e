"""The rows of a table: read, weighed, held out."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from evalign.core.checks import require
from evalign.training import Standardizer, TrainingWarning, holdout_split

OWNER = "AlignedClassifier"


class Table(NamedTuple):
    """Rows as they came, dense or sparse, with class indices and weights."""

    X: Any
    y: np.ndarray
    weight: np.ndarray

    def take(self, rows: np.ndarray) -> "Table":
        return self if rows.all() and rows.dtype == bool else Table(*(p[rows] for p in self))

    def tensors(
        self, scaler: Standardizer, device: torch.device, unit: float | None
    ) -> tuple[Tensor, ...]:
        """(X, y) on the device, and the weights in terms of `unit` unless that is None."""
        parts = [scaler(dense(self.X)).float(), torch.from_numpy(self.y)]
        if unit is not None:
            parts.append(torch.from_numpy(self.weight / unit).float())
        return tuple(part.to(device) for part in parts)

    def prior(self, n_classes: int) -> Tensor:
        """The mass of each class; one without rows counts as one row."""
        mass = np.bincount(self.y, self.weight, n_classes)
        return torch.from_numpy(np.where(mass > 0, mass, self.weight.mean()))

    def hold_out(
        self, fraction: float, groups: Any, seed: int, classes: np.ndarray
    ) -> tuple["Table", "Table"]:
        """(kept, held out); rows of weight 0 are in neither. A table too small is both."""
        count = self.weight > 0
        if groups is not None:
            groups = np.asarray(groups)
            allowed = f"hold a value for each of the {len(count)} rows"
            require(groups.shape == count.shape, OWNER, "groups", allowed, groups.shape)
            groups = groups[count]
        table = self.take(count)
        try:
            kept, held_out = holdout_split(table.y, fraction=fraction, groups=groups, seed=seed)
        except ValueError:
            if groups is not None:
                raise
            text = (
                f"{len(table.y)} rows are too few to hold out {fraction:g} of every class: the "
                "best epoch and the decision are chosen on the training rows. Give more rows, or "
                "validation_data."
            )
            warnings.warn(text, TrainingWarning, stacklevel=3)
            return table, table
        # Whole groups may take a whole class with them.
        lost = np.setdiff1d(table.y[held_out], table.y[kept])
        allowed = "leave rows of every class to train on"
        got = f"none of class {classes[lost].tolist()}"
        cure = "Give validation_data, or another random_state."
        require(not len(lost), OWNER, "groups", allowed, got, cure)
        if len(missing := np.setdiff1d(table.y[kept], table.y[held_out])):
            text = (
                f"No row that is held out is of class {classes[missing].tolist()}: the best epoch "
                "and the decision are chosen without. Give validation_data, or more rows of it."
            )
            warnings.warn(text, TrainingWarning, stacklevel=3)
        return table.take(kept), table.take(held_out)


def dense(X: Any) -> Tensor:
    # A copy where the array cannot be written to, which torch would warn of.
    array = X.toarray() if sparse.issparse(X) else np.require(X, requirements="W")
    return torch.from_numpy(np.ascontiguousarray(array))


def weights(sample_weight: Any, rows: int) -> np.ndarray:
    like = np.empty((rows, 1))
    return _check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)


def refuse_multilabel(y: Any) -> None:
    kind = type_of_target(y, input_name="y")
    several = kind.startswith("multilabel") or kind.endswith("multioutput")
    cure = "Fit one classifier per column with sklearn.multioutput.MultiOutputClassifier."
    require(not several, OWNER, "y", "hold one label per row", f"{kind} data", cure)
