"""The rows of a table: read, weighted and split."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples
from torch import Tensor

from evalign.core.checks import require
from evalign.core.numerics import with_mean_one
from evalign.core.values import weights_of_rows
from evalign.decisions.inputs import group_values
from evalign.tables.features import Features, Given, read
from evalign.tables.labels import (
    SHOWN,
    alike,
    check_names,
    indicators,
    label_array,
    label_names,
    present,
)
from evalign.tables.values import TypedTable
from evalign.tables.warnings import warn_of_few
from evalign.training import TrainingWarning, holdout_split
from evalign.training.split import strata, stratified_folds

OWNER = "AlignedClassifier"
Fit = TypeVar("Fit", bound=Callable[..., Any])
Scaler = Callable[[Tensor], Tensor]
HELD_OUT = 0.2
# A fifth of a class with fewer rows is too little to validate on: the rows are split into folds.
SMALL_CLASS, FOLDS = 100, 5
OUTLIER = 1e6  # standard deviations; larger values would overflow float32


class LabelledRows(NamedTuple):
    """The matrix of rows, dense or sparse, with class indices and weights.

    If multilabel, `y` holds 0 and 1 of shape (N, L). `groups` are those of a constraint on the gap
    between groups.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    groups: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "LabelledRows":
        """Some of the rows, by a mask or by their positions."""
        everything = rows.dtype == bool and rows.all()
        if everything:
            return self
        groups = None if self.groups is None else self.groups[rows]
        return LabelledRows(self.X[rows], self.y[rows], self.weight[rows], groups)

    def tensors(
        self, scaler: Scaler, device: torch.device, unit: float | None
    ) -> tuple[Tensor, ...]:
        """(X, y) on the device, and the weights in units of `unit` unless it is None."""
        y = torch.from_numpy(self.y)
        parts = [network_input(dense(self.X), scaler), y if y.ndim == 1 else y.float()]
        if unit is not None:
            parts.append(torch.from_numpy(self.weight / unit).float())
        return tuple(part.to(device) for part in parts)

    def counted(self, groups: Any) -> tuple["LabelledRows", Any]:
        """The rows of weight above 0, and their groups."""
        count = self.weight > 0
        groups = row_groups(OWNER, groups, len(count))
        return self.take(count), None if groups is None else groups[count]

    @property
    def rarest(self) -> int:
        """The number of rows of the rarest class; if multilabel, of the rarest label or absence.

        A label that all rows have, or none, does not count.
        """
        if self.y.ndim == 1:
            return int(np.unique(self.y, return_counts=True)[1].min())
        some = np.minimum(self.y.sum(0), (1 - self.y).sum(0))
        return int(some[some > 0].min(initial=len(self.y)))

    def parts(
        self, fraction: float | None, folds: int, groups: Any, seed: int, classes: np.ndarray
    ) -> tuple["LabelledRows", "LabelledRows", np.ndarray | None]:
        """Training rows, validation rows, and the fold of each row if both are all rows."""
        fold = self._folds(folds, groups, seed) if folds else None
        if fold is not None:
            return self, self, fold
        return *self._hold_out(fraction or HELD_OUT, groups, seed, classes), None

    def _folds(self, number: int, groups: Any, seed: int) -> np.ndarray | None:
        """The fold of each row, or None if there are too few rows for two folds."""
        parts = stratified_folds(strata(self.y), number, groups=groups, seed=seed)
        fold = np.zeros(len(self.y), dtype=np.int64)
        for i, (_, held_out) in enumerate(parts):
            fold[held_out] = i
        return fold if parts else None

    def _hold_out(
        self, fraction: float, groups: Any, seed: int, classes: np.ndarray
    ) -> tuple["LabelledRows", "LabelledRows"]:
        """(training, validation); both are all rows if there are too few to split."""
        number = 2 if groups is None else len(np.unique(groups))
        require(number > 1, OWNER, "groups", "name at least two groups", number)
        try:
            kept, held_out = self._split(fraction, groups, seed)
        except ValueError:
            if groups is not None:
                raise
            text = (
                f"{len(self.y)} rows are too few to hold out {fraction:g} of every class: the "
                "best epoch and the decision rule are chosen on the training rows. "
                "Give more rows, or rows for validation."
            )
            warnings.warn(text, TrainingWarning, stacklevel=3)
            return self, self
        # Held-out groups may hold all rows of a class.
        learnt, chosen = present(self.y[kept]), present(self.y[held_out])
        lost, missing = np.setdiff1d(chosen, learnt), np.setdiff1d(learnt, chosen)
        allowed, got = "leave rows of every class to train on", f"none of {classes[lost].tolist()}"
        cure = "Give rows of it in more groups, or rows for validation."
        require(self.y.ndim == 2 or not len(lost), OWNER, "groups", allowed, got, cure)
        if len(missing):
            text = (
                f"No held-out row has the label {classes[missing][:SHOWN].tolist()}: the best epoch"
                " and the decision rule are chosen without it. Give more rows of it, or rows for "
                "validation."
            )
            warnings.warn(text, TrainingWarning, stacklevel=3)
        return self.take(kept), self.take(held_out)

    def _split(self, fraction: float, groups: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The positions of the training rows and of the held-out rows."""
        how = {"fraction": fraction, "groups": groups, "seed": seed}
        try:
            return holdout_split(strata(self.y), **how)
        except ValueError:  # if multilabel, there may be more strata than held-out rows
            if self.y.ndim == 1:
                raise
            return holdout_split(self.y, **how)


def restored(fit: Fit) -> Fit:
    """Decorate `fit`: after an error or Ctrl-C the estimator is as it was before."""

    @wraps(fit)
    def fitting(self: Any, *given: Any, **named: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *given, **named)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, fitting)


def read_labelled(
    estimator: BaseEstimator, X: Any, y: Any, *, reset: bool
) -> tuple[Given, np.ndarray]:
    """Checked rows and labels (N,), or 0 and 1 of shape (N, L); `reset` sets the columns."""
    owner = type(estimator).__name__
    cure = "fit requires y to be passed, but the target y is None."
    require(y is not None, owner, "y", "hold labels", "None", cure)
    labels = label_array(owner, y)
    many = labels.ndim == 2 and labels.shape[1] > 1
    y = indicators(owner, y) if many else alike(owner, labels)
    X = read(estimator, X, reset=reset)
    rows = _num_samples(X)
    _, y = check_X_y(np.zeros((rows, 1)), y, multi_output=True, estimator=estimator)
    if many:
        return X, y
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    return X, y


def learn_features(owner: str, X: Given, y: np.ndarray, weight: np.ndarray) -> Features:
    """Learn the columns from the rows of weight above 0. Warn if classes of a table have few."""
    counted = weight > 0
    allowed, got = "give some row a weight, times class_weight", f"0 for all {len(weight)}"
    require(bool(counted.any()), owner, "sample_weight", allowed, got)
    if not counted.all():
        X = X.take(counted) if isinstance(X, TypedTable) else X[counted]
    if isinstance(X, TypedTable) and y.ndim == 1:
        warn_of_few("training", *np.unique(y[counted], return_inverse=True))
    return Features.learn(owner, X)


def read_validation(
    estimator: BaseEstimator,
    data: Any,
    features: Features,
    classes: np.ndarray,
    factors: np.ndarray | None,
    names: list[str] | None,
) -> LabelledRows:
    """The rows of `validation_data`, whose weights are multiplied by the class weights.

    If multilabel, there are no class weights, and labels may have names.
    """
    ok = isinstance(data, tuple | list) and len(data) in (2, 3, 4)
    allowed = "be (X, y), (X, y, sample_weight) or (X, y, sample_weight, constraint_groups)"
    got = f"{len(data)} parts" if isinstance(data, tuple | list) else type(data).__name__
    require(ok, OWNER, "validation_data", allowed, got)
    check_names(f"{OWNER}'s validation_data", label_names(data[1]), names)
    X, y = read_labelled(estimator, data[0], data[1], reset=False)
    many = factors is None
    ok = y.shape[1:] == (classes.shape if many else ())
    allowed = f"hold {len(classes)} labels per row, as y does" if many else "hold one label per row"
    require(ok, OWNER, "validation_data", allowed, f"y of shape {y.shape}")
    codes = y
    if not many:
        new = np.setdiff1d(y, classes)
        allowed = "hold classes of y only"
        require(not len(new), OWNER, "validation_data", allowed, new[:3].tolist())
        codes = np.searchsorted(classes, y)
    owner = f"{OWNER}'s validation_data"
    weight = row_weights(owner, data[2] if len(data) > 2 else None, codes, factors)
    groups = data[3] if len(data) > 3 else None
    groups = row_groups(owner, groups, len(codes), "constraint_groups")
    return LabelledRows(features.matrix(OWNER, X), codes, weight, groups)


def row_groups(owner: str, groups: Any, rows: int, argument: str = "groups") -> np.ndarray | None:
    """A group per row, integers or strings; None if there are none."""
    return None if groups is None else group_values(owner, groups, (rows,), argument)


def network_input(X: Tensor, scaler: Scaler) -> Tensor:
    """Scaled rows in float32, within OUTLIER standard deviations of the mean."""
    return scaler(X).clamp(-OUTLIER, OUTLIER).float()


def dense(X: Any) -> Tensor:
    """The rows as a tensor."""
    # An array that cannot be written to is copied, because torch would warn of it.
    array = X.toarray() if sparse.issparse(X) else np.require(X, requirements="W")
    return torch.from_numpy(np.ascontiguousarray(array))


def weights(owner: str, sample_weight: Any, rows: int) -> np.ndarray:
    """A weight for each row, not negative; 1 where none is given."""
    if sample_weight is None:
        return np.ones(rows)
    weight = weights_of_rows(owner, sample_weight, rows).numpy()
    require(
        bool(weight.any()), owner, "sample_weight", "be above zero in at least one row", "zeros"
    )
    return weight


def row_weights(
    owner: str, sample_weight: Any, codes: np.ndarray, factors: np.ndarray | None = None
) -> np.ndarray:
    """The weights of the rows times the weights of their classes, with a mean of 1."""
    weight = with_mean_one(weights(owner, sample_weight, len(codes)))
    return weight if factors is None else with_mean_one(weight * with_mean_one(factors)[codes])
