"""The rows of `AlignedClassifier`: held out or given for validation, and as tensors."""

from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_consistent_length
from torch import Tensor

from evalign.core.checks import require
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn
from evalign.estimators.out_of_fold import Split
from evalign.estimators.rows import LabelledRows
from evalign.estimators.targets import Targets, row_groups, row_weights
from evalign.tables.features import Features, read
from evalign.tables.split import holdout_split, strata
from evalign.training.scaling import QuantileNormal

OWNER = "AlignedClassifier"


def hold_out(rows: LabelledRows, fraction: float, seed: int) -> Split:
    """The positions of (training, validation) rows; both are all if there are too few."""
    settings = {"fraction": fraction, "groups": rows.groups, "seed": seed}
    try:
        return holdout_split(strata(rows.y), **settings)
    except ValueError:
        if rows.groups is not None:
            raise
    if rows.y.ndim == 2:  # there may be more strata than held-out rows
        return holdout_split(rows.y, **settings)
    warn(
        f"{len(rows.y)} rows are too few to hold out {fraction:g} of every class: the best epoch "
        "and the decision rule are chosen on the training rows. Give more rows, or rows for "
        "validation.",
        TrainingWarning,
    )
    everything = np.arange(len(rows.y))
    return everything, everything


def read_validation(
    estimator: Any, data: Any, features: Features, targets: Targets
) -> LabelledRows:
    """The rows of `validation_data`."""
    parts = len(data) if isinstance(data, tuple | list) else 0
    require(
        parts in (2, 3, 4),
        OWNER,
        "validation_data",
        "be (X, y), (X, y, sample_weight) or (X, y, sample_weight, constraint_groups)",
        f"{parts} parts" if parts else type(data).__name__,
    )
    X, y, *optional = data
    sample_weight = optional[0] if optional else None
    constraint_groups = optional[1] if parts == 4 else None
    owner = f"{OWNER}'s validation_data"
    fitted = type(estimator)()
    fitted._set_columns(features)
    table = read(fitted, X, reset=False)
    (codes,), unknown = targets.encode(owner, y)
    require(
        not len(unknown),
        OWNER,
        "validation_data",
        "hold classes of y only",
        unknown[:3].tolist(),
    )
    check_consistent_length(table, codes)
    weight = row_weights(owner, sample_weight, len(codes))
    if weight is None:
        weight = np.ones(len(codes))
    groups = row_groups(owner, constraint_groups, len(codes), "constraint_groups")
    matrix = features.matrix(OWNER, table)
    rows = LabelledRows(matrix, codes, weight, constraint_groups=groups)
    return rows.take(weight > 0)


def tensors(
    rows: LabelledRows, scaler: QuantileNormal, device: torch.device, unit: float | None
) -> tuple[Tensor, ...]:
    """(X, y) on the device, and the weights in units of `unit` unless it is None."""
    y = torch.from_numpy(rows.y)
    parts = [scaler(dense(rows.X)).float(), y if y.ndim == 1 else y.float()]
    if unit is not None:
        parts.append(torch.from_numpy(rows.weight / unit).float())
    return tuple(part.to(device) for part in parts)


def dense(X: Any) -> Tensor:
    """The rows as a tensor."""
    # An array that cannot be written to is copied, because torch would warn of it.
    array = X.toarray() if sparse.issparse(X) else np.require(X, requirements="W")
    return torch.from_numpy(np.ascontiguousarray(array))
