"""`AlignedClassifier`: a scikit-learn estimator that trains a network for a metric."""

import os
from collections.abc import Callable
from numbers import Integral
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions import DecisionRule
from evalign.estimators import storage
from evalign.estimators.arguments import check_arguments
from evalign.estimators.constrained import oriented_constraint
from evalign.estimators.export import export
from evalign.estimators.fitted import FittedClassifier
from evalign.estimators.fitting import fit_rows
from evalign.estimators.positive import oriented
from evalign.estimators.rows import (
    FOLDS,
    OWNER,
    SMALL_CLASS,
    LabelledRows,
    learn_features,
    read_labelled,
    read_validation,
    restored,
    row_groups,
    row_weights,
)
from evalign.estimators.targets import Targets, read_classes
from evalign.store.archive import register
from evalign.tables.features import Features, read
from evalign.tables.labels import check_names, label_names
from evalign.training import History


class AlignedClassifier(storage.Savable, ClassifierMixin, BaseEstimator):
    """A neural network for tables, trained on the metric it is judged by.

    The best epoch is chosen and the decision rule fitted on held-out rows. Columns are scaled
    inside, by the training rows. Problems may be multilabel, see `fit`.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are for two classes.
        pos_label: the positive class of two, class 1 of the metric; None for `classes_[1]`, the
            last in order.
        recipe: "aligned" (the metric and cross-entropy together, see `AlignedLoss`),
            "cross_entropy" or "east" (the paper's method). None is "aligned", or "cross_entropy"
            with a constraint.
        network: "auto" for many networks in one (TabM) on normal quantiles of the columns, "mlp"
            for 512-256-128 or "linear" on standardised columns, or a function
            (n_features, n_classes) -> Module whose logits have shape (n, n_classes), likewise.
        decision: from probabilities to labels, see `fit_decision`: "argmax", "tuned" or "expected".
        constraint: such as "recall >= 0.9", see `fit_decision`. The decision rule meets it, and the
            best epoch is the one with the best metric under it; it is an error if no rule does.
        confidence: probability that the constraint holds on new data, such as 0.95, see
            `fit_decision`.
        validation_fraction: the share of held-out rows, stratified by class. None for 0.2, or for
            five folds if a named network has a class of fewer than 100 rows, see `fit`.
        epochs: passes over the data, at most. None, here and in the next four, is the network's
            default.
        batch_size: rows per step, at most.
        learning_rate: AdamW's peak, which falls to 0 along a cosine.
        weight_decay: AdamW's.
        dropout: of a named network.
        ema_decay: decay of a moving average of the weights over the steps, which is validated and
            kept; None for the weights themselves.
        patience: epochs without a new best before training stops; None never stops early.
        class_weight: None, "balanced" or {class: weight}; multiplies the rows' weights in `fit`,
            for the loss, the best epoch and the decision, so the metric too is that of the
            reweighted rows. An aligned metric seldom needs it. Not if multilabel.
        device: "auto" (a GPU if there is one), or a name that torch knows.
        random_state: seed of the split and of training.
        verbose: 1 shows a progress bar, or a line per minute if standard error is not a terminal.
        on_epoch: called with each record of the history.

    Attributes:
        classes_: the labels, sorted; if multilabel, the numbers of their columns.
        history_: a record per epoch, see `evalign.training.fit`.
        network_: the trained network.
        rule_: the `DecisionRule` that `predict` uses. It takes the network's logits, so its
            `threshold` is not on the scale of `predict_proba`.
        features_: the `Features`: what was learned about the columns, and which were dropped.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(600, weights=[0.9], class_sep=2, random_state=0)
        >>> clf = AlignedClassifier("f1", epochs=5, batch_size=64, random_state=0)
        >>> clf.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.7
        True
    """

    n_features_in_: int
    feature_names_in_: np.ndarray
    _fitted: FittedClassifier

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        pos_label: Any = None,
        recipe: str | None = None,
        network: str | Callable[[int, int], nn.Module] = "auto",
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        validation_fraction: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        dropout: float | None = None,
        ema_decay: float | None = 0.995,
        patience: int | None = 15,
        class_weight: dict[Any, float] | str | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        on_epoch: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.metric = metric
        self.pos_label = pos_label
        self.recipe = recipe
        self.network = network
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.validation_fraction = validation_fraction
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.ema_decay = ema_decay
        self.patience = patience
        self.class_weight = class_weight
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.on_epoch = on_epoch

    @restored
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation_data: tuple[Any, ...] | None = None,
        groups: Any = None,
        constraint_groups: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train, choose the best epoch and fit the decision rule.

        If the rarest class has few rows, a fifth of them is too few to validate on (see
        `validation_fraction`). Five networks are then trained side by side, each without a fifth of
        the rows. The best epoch and the rule are chosen on all rows, each scored by the network
        that has not seen it, and `predict` takes the mean of the networks.

        Args:
            X: a frame of pandas or polars, an array, or a sparse matrix (made dense as a whole).
                Columns may hold numbers, categories, text labels, truth values and dates, with
                gaps; see `FrameEncoder`.
            y: a label per row, numbers or strings; if multilabel, 0 and 1 of shape (N, L), L at
                least 2, as an array, a frame or a sparse matrix.
            sample_weight: a weight per row; only ratios count. Rows of weight 0 are left out; a
                class that has no others stays in `classes_`, with small probabilities.
            validation_data: (X, y), (X, y, sample_weight) or (X, y, sample_weight,
                constraint_groups) to use instead of held-out rows; the weights may be None.
            groups: a value per row; the rows of a group are held out together.
            constraint_groups: a group per row, for a constraint such as "gap(recall) <= 0.05".
            checkpoint: a file to save training to as it runs, and to resume from if it exists.
                The same call then ends as if it had never been interrupted (on the CPU, to the
                bit). It must be the same call on the same rows, with a fixed `random_state`.
        """
        check_arguments(self.get_params(deep=False))
        fixed = checkpoint is None or isinstance(self.random_state, Integral)
        allowed = "be an integer with a checkpoint, which only the same seed can resume"
        require(fixed, OWNER, "random_state", allowed, repr(self.random_state))
        names = label_names(y)
        X, y = read_labelled(self, X, y, reset=True)
        targets, codes, metric, factors = read_classes(self, y, sample_weight)
        classes = targets.classes
        # Raises before training.
        oriented_constraint(self.get_params(deep=False), classes, targets.multilabel)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))

        weight = row_weights(OWNER, sample_weight, codes, factors)
        features = learn_features(OWNER, X, y, weight)
        constraint_groups = row_groups(OWNER, constraint_groups, len(codes), "constraint_groups")
        rows = LabelledRows(features.matrix(OWNER, X), codes, weight, constraint_groups)
        rows, groups = rows.counted(groups)
        if validation_data is None:
            by_name = isinstance(self.network, str) and self.validation_fraction is None
            number = FOLDS if by_name and rows.rarest < SMALL_CLASS else 0
            parts = rows.parts(self.validation_fraction, number, groups, seed, classes)
        else:
            given = read_validation(self, validation_data, features, classes, factors, names)
            parts = rows, given.counted(None)[0], None
        self._fitted = fit_rows(
            self.get_params(deep=False),
            *parts,
            metric=metric,
            classes=classes,
            names=names,
            features=features,
            seed=seed,
            checkpoint=checkpoint,
        )
        return self

    @property
    def classes_(self) -> np.ndarray:
        return self._state().classes

    @property
    def network_(self) -> nn.Module:
        return self._state().network

    @property
    def rule_(self) -> DecisionRule:
        return self._state().rule

    @property
    def history_(self) -> History:
        return self._state().history

    @property
    def features_(self) -> Features:
        return self._state().features

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the fitted rule; if multilabel, 0 and 1 (n, n_labels)."""
        return self._targets.decode(self.rule_.labels_of(self._probabilities(X)).numpy())

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes) in float64, with the loss's offsets added back.

        If multilabel, the probability of each label, (n, n_labels).
        """
        eta = self._probabilities(X)
        return (eta[..., 1] if self._state().multilabel else eta).numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), with
        the prediction as argmax; if multilabel (n, n_labels), positive where a label is predicted.
        """
        scores = self.rule_.scores_of(self._probabilities(X))
        two = scores.shape[1] == 2 and not self._state().multilabel
        return (scores[:, 1] - scores[:, 0] if two else scores).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, negated if it is a cost: greater is better."""
        labels = self.predict(X)
        if self._state().multilabel:
            check_names(f"{OWNER}.score", label_names(y), self.rule_.classes)
        weight, metric = row_weights(OWNER, sample_weight, labels), self._metric(self.classes_)
        return self._targets.score(OWNER, metric, labels, y, weight)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file, from raw rows to labels, with the decision rule inside.

        After an array, the input is "X" (n, n_features), float32. After a frame, each column is an
        input (n, 1) by its name: numbers as float64 with NaN if missing, bools as 1, 0 or NaN,
        categories as strings with "" if missing, dates as int64, microseconds since 1970 (numpy's
        datetime64[us], NaT if missing). The outputs are "label" (n,), an index into the classes,
        which are in the file's metadata as JSON, and "probability" and "score" (n, n_classes); if
        multilabel, "label" is 0 or 1, (n, n_labels). A row with an infinity, which `predict`
        refuses, gets the label −1 and NaN for the others. Needs `onnx` and `onnxscript`.
        """
        export(path, self._state())

    def __getstate__(self) -> dict[str, Any]:
        # A model trained on a GPU must be readable where there is none.
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "_fitted" in state:
            state["_fitted"] = state["_fitted"].on_cpu()
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_label = True
        return tags

    def _state(self) -> FittedClassifier:
        check_is_fitted(self)
        return self._fitted

    @property
    def _targets(self) -> Targets:
        return Targets(self.classes_, np.arange(len(self.classes_)), self._state().multilabel)

    def _probabilities(self, X: Any) -> Tensor:
        fitted = self._state()
        rows = read(self, X, reset=False)
        return fitted.probabilities(fitted.features.matrix(OWNER, rows, warn=True))

    def _metric(self, classes: np.ndarray) -> Metric:
        return resolve(oriented(self.metric, self.pos_label, classes), owner=OWNER)

    def _saved(self) -> dict[str, Any]:
        fitted = getattr(self, "_fitted", None)  # a candidate of an ensemble is not fitted
        if fitted is not None:
            storage.check_saved(self.get_params(deep=False), fitted)
        return storage.saved_arguments(self) | {"fitted": fitted and fitted.state_dict()}

    @classmethod
    def _opened(cls, state: dict[str, Any], **given: Any) -> Self:
        classifier = cls(**storage.all_arguments(OWNER, state, given))
        if state["fitted"] is not None:
            arguments = classifier.get_params(deep=False)
            classifier._fitted = storage.rebuilt(state["fitted"], arguments)
            storage.set_columns(classifier, classifier.features_)
        return classifier


register(AlignedClassifier, AlignedClassifier._saved, AlignedClassifier._opened)
