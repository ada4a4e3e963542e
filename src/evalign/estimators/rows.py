"""The rows of a table that an ensemble or a network learns from: read, weighted and split."""

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_consistent_length
from torch import Tensor

from evalign.core.checks import require
from evalign.core.input_warnings import warn
from evalign.core.metrics import Metric
from evalign.estimators.scaling import QuantileNormal
from evalign.estimators.targets import Targets, read_targets, row_groups, row_weights
from evalign.tables.features import Features, read
from evalign.tables.values import TypedTable
from evalign.tables.warnings import warn_of_few
from evalign.training import TrainingWarning, holdout_split
from evalign.training.split import strata

OWNER = "AlignedClassifier"


class LabelledRows(NamedTuple):
    """The rows that an ensemble or a network learns from: those of a weight above 0.

    Args:
        X: the matrix of `Features`, dense or sparse.
        y: class codes, of two the positive one last, or 0 and 1 (N, L).
        weight: a weight per row.
        groups: a value per row, or None; rows of one value stay together.
        constraint_groups: those of a constraint on the gap between groups, or None.
        number: the row's number in the table.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None = None
    constraint_groups: np.ndarray | None = None
    number: Any = None

    def take(self, rows: np.ndarray) -> "LabelledRows":
        """Some of the rows, by a mask or by their positions."""
        if rows.dtype == bool and rows.all():
            return self
        kept: Any = (None if part is None else part[rows] for part in self)
        return LabelledRows(*kept)

    def tensors(
        self, scaler: QuantileNormal, device: torch.device, unit: float | None
    ) -> tuple[Tensor, ...]:
        """(X, y) on the device, and the weights in units of `unit` unless it is None."""
        y = torch.from_numpy(self.y)
        parts = [scaler(dense(self.X)).float(), y if y.ndim == 1 else y.float()]
        if unit is not None:
            parts.append(torch.from_numpy(self.weight / unit).float())
        return tuple(part.to(device) for part in parts)

    def hold_out(
        self, fraction: float, seed: int, classes: np.ndarray
    ) -> tuple["LabelledRows", "LabelledRows"]:
        """(training, validation); both are all rows if there are too few to split."""
        groups = self.groups
        number = 2 if groups is None else len(np.unique(groups))
        require(number > 1, OWNER, "groups", "name at least two groups", number)
        how = {"fraction": fraction, "groups": groups, "seed": seed}
        try:
            kept, held_out = holdout_split(strata(self.y), **how)
        except ValueError:
            if self.y.ndim == 2:  # there may be more strata than held-out rows
                kept, held_out = holdout_split(self.y, **how)
            elif groups is not None:
                raise
            else:
                text = (
                    f"{len(self.y)} rows are too few to hold out {fraction:g} of every class: the "
                    "best epoch and the decision rule are chosen on the training rows. "
                    "Give more rows, or rows for validation."
                )
                warn(text, TrainingWarning)
                return self, self
        # Held-out groups may hold all rows of a class.
        lost = np.setdiff1d(self.y[held_out], self.y[kept]) if self.y.ndim == 1 else kept[:0]
        got = f"none of {classes[lost].tolist()}"
        allowed = "leave rows of every class to train on"
        cure = "Give rows of it in more groups, or rows for validation."
        require(not len(lost), OWNER, "groups", allowed, got, cure)
        return self.take(kept), self.take(held_out)


def read_rows(
    owner: str,
    estimator: Any,
    metric: Metric,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    constraint_groups: Any,
) -> tuple[LabelledRows, Targets, Features]:
    """The rows of `fit`, what their labels are, and their columns.

    Columns are learnt from the rows of weight above 0. Warn if classes of a table have few.
    """
    y, targets, codes = read_targets(owner, y, metric, estimator.pos_label)
    given, number = read(estimator, X, reset=True), len(y)
    weight = row_weights(owner, sample_weight, number)
    weight = np.ones(number) if weight is None else weight
    groups = row_groups(owner, groups, number)
    constraint_groups = row_groups(owner, constraint_groups, number, "constraint_groups")
    check_consistent_length(given, y)
    counted = weight > 0
    if not counted.all():
        given = given.take(counted) if isinstance(given, TypedTable) else given[counted]
    if isinstance(given, TypedTable) and y.ndim == 1:
        warn_of_few("training", *np.unique(y[counted], return_inverse=True))
    features = Features.learn(owner, given)
    parts = (codes, weight, groups, constraint_groups, np.arange(number))
    parts: Any = (None if part is None else part[counted] for part in parts)
    return LabelledRows(features.matrix(owner, given), *parts), targets, features


def read_validation(
    estimator: Any, data: Any, features: Features, targets: Targets
) -> LabelledRows:
    """The rows of `validation_data`."""
    ok = isinstance(data, tuple | list) and len(data) in (2, 3, 4)
    allowed = "be (X, y), (X, y, sample_weight) or (X, y, sample_weight, constraint_groups)"
    got = f"{len(data)} parts" if isinstance(data, tuple | list) else type(data).__name__
    require(ok, OWNER, "validation_data", allowed, got)
    given, y, weight, groups = (*data, None, None)[:4]
    owner = f"{OWNER}'s validation_data"
    X, ((codes,), new) = read(estimator, given, reset=False), targets.encode(owner, y)
    require(not len(new), OWNER, "validation_data", "hold classes of y only", new[:3].tolist())
    check_consistent_length(X, codes)
    weight = row_weights(owner, weight, len(codes))
    groups = row_groups(owner, groups, len(codes), "constraint_groups")
    weight = np.ones(len(codes)) if weight is None else weight
    rows = LabelledRows(features.matrix(OWNER, X), codes, weight, constraint_groups=groups)
    return rows.take(weight > 0)


def dense(X: Any) -> Tensor:
    """The rows as a tensor."""
    # An array that cannot be written to is copied, because torch would warn of it.
    array = X.toarray() if sparse.issparse(X) else np.require(X, requirements="W")
    return torch.from_numpy(np.ascontiguousarray(array))
