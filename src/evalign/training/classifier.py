"""`AlignedClassifier`: a scikit-learn estimator that trains a network for a metric."""

import copy
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import nn

from evalign.core import stairs
from evalign.core.checks import require
from evalign.core.class_order import without_order
from evalign.core.metrics import MetricFunction, resolve
from evalign.estimators.candidates import RECIPES
from evalign.estimators.out_of_fold import OutOfFoldScores
from evalign.estimators.rows import read_rows
from evalign.estimators.spine import Aligned
from evalign.estimators.targets import Targets, warn_of_lost
from evalign.tables.features import Features, read
from evalign.training.classifier_module import RowsToLabels
from evalign.training.classifier_rows import OWNER, dense, hold_out, read_validation
from evalign.training.fitting import train
from evalign.training.network import BLOCK, blockwise, find_device, saved_network
from evalign.training.run import History
from evalign.training.scaling import QuantileNormal

COUNT = Interval(Integral, 1, None, closed="left")


class AlignedClassifier(Aligned):
    """A neural network for tables, trained on the metric it is judged by.

    The best epoch is chosen and the decision rule fitted on held-out rows. Columns are scaled
    inside, by the training rows. Problems may be multilabel, see `fit`.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are for two classes.
        pos_label: the positive class of two, class 1 of the metric; None for `classes_[1]`, the
            last in order.
        classes: all labels in the order of the metric, see `AlignedDecisionCV`.
        recipe: "aligned" (the metric and cross-entropy together, see `AlignedLoss`),
            "cross_entropy" or "east". None is "aligned", or "cross_entropy" with a constraint.
            "east" is the paper's method to the letter: `MetricLoss`, a macro average over all
            classes, AdamW at a constant rate, no average of weights, and the epoch of the lowest
            validation loss.
        network: "auto" for many networks in one (TabM), or a function (n_features, n_classes) ->
            Module whose logits have shape (n, n_classes). Either sees normal quantiles of the
            columns.
        decision: from probabilities to labels, see `fit_decision`: "argmax", "tuned" or "expected".
        constraint: such as "recall >= 0.9", see `fit_decision`. The decision rule of the best epoch
            meets it; it is an error if no rule does.
        confidence: probability that the constraint holds on new data, such as 0.95, see
            `fit_decision`.
        validation_fraction: the share of held-out rows, stratified by class.
        epochs: passes over the data, at most. None, here and in the next two, is the default
            for the number of rows; of the recipe "east" 2,000, 256 and 0.001.
        batch_size: rows per step, at most.
        learning_rate: AdamW's peak, which falls to 0 along a cosine; "east" keeps it.
        patience: epochs without a new best before training stops; None never stops early. "auto"
            is 15. Of "east" it is that of `TemperatureAnnealing`, at each temperature; "auto" is
            then 50, and None cools without end.
        device: "auto" (a GPU if there is one), or a name that torch knows.
        random_state: seed of the split and of training.
        verbose: 1 shows the progress: a line per minute if standard error is not a terminal.
        on_epoch: called with each record of the history.

    Attributes:
        classes_: the labels, sorted; if multilabel, the numbers of their columns.
        history_: a record per epoch, see `evalign.training.fit`.
        network_: the trained network. Its logits are in the order in which the metric counts the
            classes: of two classes, the last one is the positive one's.
        rule_: the `DecisionRule` that `predict` uses. It takes the network's logits in the order of
            `classes_`, so its `threshold` is not on the scale of `predict_proba`.
        features_: the `Features`: what was learned about the columns, and which were dropped.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(600, weights=[0.9], class_sep=2, random_state=0)
        >>> clf = AlignedClassifier("f1", epochs=5, batch_size=64, random_state=0)
        >>> clf.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.7
        True
    """

    network_: nn.Module
    history_: History
    features_: Features
    _scaler: QuantileNormal
    _places: tuple[int, ...]  # the place in `classes_` of each logit of the network
    _seed: int
    trains_a_network = True  # so that an ensemble leaves it all threads
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "recipe": [StrOptions(set(RECIPES)), None],
        "network": [StrOptions({"auto"}), callable],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        **{name: [COUNT, None] for name in ("epochs", "batch_size")},
        "patience": [COUNT, StrOptions({"auto"}), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "on_epoch": [callable, None],
    }

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        pos_label: Any = None,
        classes: Any = None,
        recipe: str | None = None,
        network: str | Callable[[int, int], nn.Module] = "auto",
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        validation_fraction: float = 0.2,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        patience: int | Literal["auto"] | None = "auto",
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        on_epoch: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.metric = metric
        self.pos_label = pos_label
        self.classes = classes
        self.recipe = recipe
        self.network = network
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.validation_fraction = validation_fraction
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.on_epoch = on_epoch

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

        A fifth of a class of few rows is too little to choose a rule on. An `AlignedEnsemble` with
        `candidates=["network"], cv=5` trains a network for each fold, and its rule is of all rows.

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
        arguments = self.get_params(deep=False)
        self._validate_params()
        fixed = checkpoint is None or isinstance(self.random_state, Integral)
        allowed = "be an integer with a checkpoint, which only the same seed can resume"
        require(fixed, OWNER, "random_state", allowed, repr(self.random_state))
        metric = resolve(self.metric, owner=OWNER)
        given = (X, y, sample_weight, groups, constraint_groups)
        rows, targets, features = read_rows(OWNER, self, metric, *given)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if validation_data is not None:
            training, validation = rows, read_validation(self, validation_data, features, targets)
        else:
            parts = hold_out(rows, self.validation_fraction, seed)
            warn_of_lost(targets, rows.y, [parts])
            training, validation = (rows.take(part) for part in parts)
        settings = self._settings(targets)
        # Before training
        settings.check(OWNER, validation.constraint_groups, multilabel=targets.multilabel)
        places = targets.places(OWNER, metric)
        back = np.argsort(places)
        network, scaler, history, logits, offsets = train(
            arguments,
            training._replace(y=_renumbered(training.y, back, targets)),
            validation._replace(y=_renumbered(validation.y, back, targets)),
            metric=without_order(metric),  # its classes are in this order
            classes=len(targets.classes),
            features=features,
            seed=seed,
            checkpoint=checkpoint,
        )
        equal, number = np.ptp(validation.weight) == 0, np.arange(len(validation.y))
        oof = OutOfFoldScores(
            logits.numpy()[:, back],
            "decision_function",
            validation.y,
            None if equal else validation.weight,
            number,
            number,
            validation.constraint_groups,
            None if offsets is None else stairs.as_numpy(offsets)[back],
        )
        self.rule_, self._targets = settings.rule(oof), targets
        self.network_, self.history_, self.features_ = network, history, features
        self._places = places
        self._scaler, self._seed = scaler, seed
        self._set_columns(features)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes) in float64, with the loss's offsets added back.

        If multilabel, the probability of each label, (n, n_labels).
        """
        check_is_fitted(self)
        return self.rule_.probabilities(self._scores(X)["logits"])

    def as_module(self) -> nn.Module:
        """From rows of an array of numbers to labels and probabilities, as a module.

        It compiles, and `torch.onnx.export` takes it; preprocessing, network and rule are inside.
        Labels (n,) are indices into `classes_`, probabilities (n, n_classes) are in their
        order; if multilabel, labels are 0 or 1, (n, n_labels). Gaps are NaN. A row with an
        infinity, which `predict` refuses, gets the label −1 and NaN for probabilities.
        """
        check_is_fitted(self)
        return RowsToLabels(self).eval()

    def __getstate__(self) -> dict[str, Any]:
        # A copy of a model that was trained on a GPU must be readable where there is none.
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "network_" in state:
            state["network_"] = copy.deepcopy(self.network_).cpu()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_label = True
        return tags

    def _scores(self, X: Any) -> dict[str, np.ndarray]:
        rows = self.features_.matrix(OWNER, read(self, X, reset=False), warn=True)
        device = next(self.network_.parameters()).device
        blocks = (dense(rows[i : i + BLOCK]) for i in range(0, rows.shape[0], BLOCK))
        inputs = (self._scaler(block).float() for block in blocks)
        logits = torch.cat([blockwise(self.network_, block, device) for block in inputs])
        finite, cure = bool(logits.isfinite().all()), "Lower learning_rate, and fit again."
        require(finite, OWNER, "network", "give finite logits", "others", cure)
        return {"logits": logits.numpy()[:, np.argsort(self._places)]}

    def _state(self) -> dict[str, Any]:
        parts = {"features": self.features_, "scaler": self._scaler, "history": self.history_}
        network = self.network_.state_dict()
        return super()._state() | parts | {"seed": self._seed, "network": network}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._places = self._targets.places(OWNER, resolve(self.metric, owner=OWNER))
        features, scaler, seed = (state[name] for name in ("features", "scaler", "seed"))
        ok = type(features) is Features
        require(ok, "state", "features", "be learnt columns", type(features).__name__)
        ok = type(seed) is int and 0 <= seed < 2**32
        require(ok, "state", "seed", "be a whole number below 2³²", repr(seed))
        network = saved_network(
            state["network"],
            self.network,
            scaler,
            features.width,
            len(self.classes_),
            seed=seed,
            multilabel=self._targets.multilabel,
        )
        self.network_ = network.eval().to(find_device(self.device))
        self.features_, self.history_ = features, list(state["history"])
        self._scaler, self._seed = scaler, seed
        self._set_columns(features)


def _renumbered(y: np.ndarray, back: np.ndarray, targets: Targets) -> np.ndarray:
    """The logit of the network that each class code goes with."""
    return y if targets.multilabel else back[y]
