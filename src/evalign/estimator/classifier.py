"""`AlignedClassifier`: the best classifier for a metric, as scikit-learn wants it."""

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from numbers import Integral
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule, fit_decision
from evalign.estimator import storage
from evalign.estimator.arguments import check_arguments
from evalign.estimator.network import BLOCK, blockwise, build, check_logits, find_device
from evalign.estimator.progress import progress
from evalign.estimator.rows import OWNER, Table, dense, refuse_multilabel, weights
from evalign.recipes import RECIPES, Recipe
from evalign.training import History, Settings, Standardizer, fit
from evalign.training.settings import usual_batch_size

# A row is read in the precision it comes in; once standardised, all is float32.
READ: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


class AlignedClassifier(ClassifierMixin, BaseEstimator):
    """A neural network for tables, trained on the metric it is judged by.

    A part of the rows is held out; on it the best epoch is chosen and the decision rule fitted.
    Columns are standardised inside, with the training rows' mean and deviation.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are of two classes, of which
            `classes_[1]` is the positive one.
        recipe: "aligned" (the metric and cross-entropy together, see `AlignedLoss`),
            "cross_entropy", "east" (the paper's method), "focal" or "logit_adjusted".
        network: None for an MLP 512-256-128 with dropout, or a function (n_features, n_classes) ->
            Module whose logits have shape (n, n_classes).
        decision: from probabilities to labels, see `fit_decision`: "argmax", "tuned" or "expected".
        validation_fraction: the share of the rows that is held out, stratified by class.
        epochs: the most passes over the data.
        batch_size: rows per step, at most; None for a 32nd of the training rows, but no less than
            32 and no more than 1024: a small table needs its steps too.
        learning_rate: AdamW's, at its highest; falls to 0 along a cosine.
        weight_decay: AdamW's.
        dropout: of the default network.
        ema_decay: decay of a moving average of the weights over the steps, which is what is
            validated and kept; None for the weights themselves.
        patience: epochs without a new best before training ends; None never ends early.
        class_weight: None, "balanced" or {class: weight}; multiplies the rows' weights in `fit`,
            in the loss, the choice of the epoch and the decision, so that the metric too is that
            of the reweighted rows. An aligned metric seldom needs it.
        device: "auto" (a GPU if there is one), or a name that torch knows.
        random_state: of the split, the initial weights, the shuffling and dropout.
        warm_start: `fit` goes on from the weights (and the standardisation) of the last one.
        verbose: 1 shows a progress bar (a line per epoch where standard error is no terminal).
        on_epoch: called with each record of the history.

    Attributes:
        classes_: the labels, sorted.
        history_: a record per epoch, see `evalign.training.fit`.
        network_: the trained network.
        rule_: the `DecisionRule` that `predict` uses.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(600, weights=[0.9], class_sep=2, random_state=0)
        >>> clf = AlignedClassifier("f1", epochs=20, batch_size=64, random_state=0)
        >>> clf.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.7
        True
    """

    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        recipe: str = "aligned",
        network: Callable[[int, int], nn.Module] | None = None,
        decision: str = "tuned",
        validation_fraction: float = 0.2,
        epochs: int = 100,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        dropout: float = 0.2,
        ema_decay: float | None = 0.995,
        patience: int | None = 15,
        class_weight: dict[Any, float] | str | None = None,
        device: str = "auto",
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        on_epoch: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self.metric = metric
        self.recipe = recipe
        self.network = network
        self.decision = decision
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
        self.warm_start = warm_start
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
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train, choose the best epoch and fit the decision rule.

        Args:
            X: an array, a pandas table of numbers, or a sparse matrix (made dense as a whole).
            y: a label per row: numbers or strings.
            sample_weight: a weight per row; rows of weight 0 are left out.
            validation_data: (X, y) or (X, y, sample_weight) to use instead of held-out rows.
            groups: a value per row; the rows of a group are held out together.
            checkpoint: a folder to save the training to as it goes, and to go on from if it
                exists: the same call then ends as if it had never been stopped (on the CPU to the
                bit). It must be the same call on the same rows, with a fixed `random_state`.
        """
        check_arguments(self)
        fixed = checkpoint is None or isinstance(self.random_state, Integral)
        allowed = "be an integer with a checkpoint, which another seed could not go on from"
        require(fixed, OWNER, "random_state", allowed, repr(self.random_state))
        goes_on = self.warm_start and hasattr(self, "network_")
        X, y = self._read(X, y, reset=not goes_on)
        classes, codes = np.unique(y, return_inverse=True)
        if goes_on:
            same = np.array_equal(classes, self.classes_)
            allowed = f"hold the classes of the last fit for warm_start, {self.classes_.tolist()}"
            require(same, OWNER, "y", allowed, classes.tolist())
        metric = self._metric()
        if len(classes) > 1:
            metric(Confusion.from_matrix(torch.eye(len(classes))))  # complains if it is for two
        # The same rows are held out again when training goes on.
        draw = check_random_state(self.random_state).randint
        seed = self._seed if goes_on else int(draw(2**31 - 1))

        factors = compute_class_weight(self.class_weight, classes=classes, y=y)
        allowed = "hold no negative weight"
        require((factors >= 0).all(), OWNER, "class_weight", allowed, repr(self.class_weight))
        weight = weights(sample_weight, len(codes)) * factors[codes]
        table = Table(X, codes, weight)
        if validation_data is None:
            training, validation = table.hold_out(self.validation_fraction, groups, seed, classes)
        else:
            training, validation = table, self._given(validation_data, classes, factors)
        training, validation = (part.take(part.weight > 0) for part in (training, validation))
        # Weights that are all alike are left out: the loop is quicker without.
        equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1

        device = find_device(self.device)
        scaler = self._scaler if goes_on else Standardizer(dense(training.X))
        rows, held_out = (
            part.tensors(scaler, device, None if equal else training.weight.mean())
            for part in (training, validation)
        )
        network = self.network_ if goes_on else self._new_network(len(classes), seed)
        network.to(device)
        past, history = self.history_ if goes_on else [], []
        if len(classes) == 1:  # nothing to learn
            rule = DecisionRule(torch.eye(1).double(), "argmax", "argmax")
        else:
            check_logits(network, held_out[0], len(classes))
            recipe = RECIPES[self.recipe](metric, training.prior(len(classes)), self.patience)
            history = self._train(network, recipe, rows, held_out, seed, past, checkpoint)
            rule = fit_decision(
                blockwise(network, held_out[0], device),
                torch.from_numpy(validation.y),
                metric=self.metric,
                decision=cast(Decision, self.decision),
                sample_weight=None if equal else torch.from_numpy(validation.weight),
                offsets=recipe.offsets,
            )
        self.classes_, self.network_, self.rule_ = classes, network, rule
        self.history_ = [*past, *(_later(record, past) for record in history)]
        self._scaler, self._seed = scaler, seed
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the rule frozen at `fit`."""
        labels = self._scores(X).argmax(1).numpy()
        return self.classes_[labels]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes), float64, with the prior that training took out put back."""
        logits = self._logits(X)
        several = len(self.classes_) > 1
        return (self.rule_.probabilities(logits) if several else torch.ones_like(logits)).numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """What `predict` goes by: of two classes (n,), the second where positive; else (n, C)."""
        scores = self._scores(X)
        return (scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions; of a cost, its negative: greater is better."""
        predicted = self.predict(X)
        refuse_multilabel(y)
        y = np.asarray(y).ravel()
        new = np.setdiff1d(y, self.classes_)  # a class that training never saw is never right
        classes = np.concatenate([self.classes_, new])
        order = np.argsort(classes)
        codes = [order[np.searchsorted(classes, labels, sorter=order)] for labels in (predicted, y)]
        weight = torch.from_numpy(weights(sample_weight, len(y)))
        metric = self._metric()
        if len(new):
            try:
                metric(Confusion.from_matrix(torch.eye(len(classes))))
            except ValueError as error:  # it is for two classes
                allowed = f"hold the classes of fit, {self.classes_.tolist()}, for this metric"
                text = complaint(f"{OWNER}.score", "y", allowed, new[:3].tolist())
                raise ValueError(text) from error
        value = metric(
            Confusion.from_predictions(
                *(torch.from_numpy(code) for code in codes),
                num_classes=max(2, len(classes)),
                sample_weight=weight,
                matrix=metric.needs_matrix,
            )
        ).item()
        return value if metric.greater_is_better else -value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder without pickle (safetensors and JSON), whole or not at all.

        Functions are not written: `load` takes `network`, `on_epoch` and a `metric` that is no
        name again.
        """
        check_is_fitted(self)
        storage.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """The classifier that `save` wrote; `arguments` of the constructor replace the saved ones.

        Examples:
            A network and a device of one's own: `load("model", network=my_network, device="cpu")`.
        """
        return storage.load(cls, path, arguments)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file, from raw rows to labels, with the decision rule inside.

        Its input is "X" (n, n_features), float32. Its outputs are "label" (n,), an index into the
        classes, which are in the file's metadata as JSON, and "probability" and "score"
        (n, n_classes). Needs `onnx` and `onnxscript`.
        """
        check_is_fitted(self)
        storage.export(self, path)

    def __getstate__(self) -> dict[str, Any]:
        # A model trained on a GPU is read where there is none.
        state: dict[str, Any] = dict(cast(Any, super().__getstate__()))
        if "network_" in state:
            state["network_"] = copy.deepcopy(state["network_"]).cpu()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _metric(self) -> Metric:
        return resolve(self.metric, owner=OWNER)

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, np.ndarray]:
        if (labels := np.asarray(y)).dtype == object:
            kinds = sorted({type(label).__name__ for label in labels.flat})
            require(len(kinds) <= 1, OWNER, "y", "hold labels of one type", ", ".join(kinds))
        X, y = validate_data(self, X, y, reset=reset, multi_output=True, **READ)
        refuse_multilabel(y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return X, y

    def _new_network(self, n_classes: int, seed: int) -> nn.Module:
        return build(self.network, self.n_features_in_, n_classes, dropout=self.dropout, seed=seed)

    def _train(
        self,
        network: nn.Module,
        recipe: Recipe,
        rows: tuple[Tensor, ...],
        held_out: tuple[Tensor, ...],
        seed: int,
        past: History,
        checkpoint: str | os.PathLike[str] | None,
    ) -> History:
        metric = self._metric()
        bar = progress(self.recipe, metric.name, len(past) + self.epochs) if self.verbose else None
        with bar or nullcontext() as show:

            def on_epoch(record: dict[str, Any]) -> None:
                for told in (show, self.on_epoch):
                    if told is not None:
                        told(_later(record, past))

            return fit(
                network,
                recipe.loss.to(held_out[0].device),
                *rows[:2],
                sample_weight=rows[2] if len(rows) == 3 else None,
                validation=held_out,
                metric=metric,
                settings=Settings(
                    epochs=self.epochs,
                    batch_size=self.batch_size or usual_batch_size(len(rows[0])),
                    learning_rate=self.learning_rate,
                    weight_decay=self.weight_decay,
                    ema_decay=self.ema_decay,
                    patience=None if recipe.annealing else self.patience,
                    seed=(seed + len(past)) % 2**31,
                ),
                annealing=recipe.annealing,
                on_epoch=on_epoch,
                checkpoint=checkpoint,
                resume=True,
            )

    def _given(self, data: Any, classes: np.ndarray, factors: np.ndarray) -> Table:
        ok = isinstance(data, tuple | list) and len(data) in (2, 3)
        allowed = "be (X, y) or (X, y, sample_weight)"
        got = f"{len(data)} parts" if isinstance(data, tuple | list) else type(data).__name__
        require(ok, OWNER, "validation_data", allowed, got)
        X, y = self._read(data[0], data[1], reset=False)
        new = np.setdiff1d(y, classes)
        allowed = "hold classes of y only"
        require(not len(new), OWNER, "validation_data", allowed, new[:3].tolist())
        codes = np.searchsorted(classes, y)
        weight = weights(data[2] if len(data) == 3 else None, len(codes))
        return Table(X, codes, weight * factors[codes])

    def _logits(self, X: Any) -> Tensor:
        """Logits (n, n_classes), of which the rule makes probabilities and labels."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **READ)
        device = next(self.network_.parameters()).device
        blocks = (dense(X[i : i + BLOCK]) for i in range(0, X.shape[0], BLOCK))
        logits = [blockwise(self.network_, self._scaler(x).float(), device) for x in blocks]
        return torch.cat(logits)

    def _scores(self, X: Any) -> Tensor:
        """The rule's scores (n, n_classes), whose argmax is the label."""
        logits = self._logits(X)
        return self.rule_.scores(logits) if len(self.classes_) > 1 else torch.ones_like(logits)


def _later(record: dict[str, Any], past: History) -> dict[str, Any]:
    return record | {"epoch": record["epoch"] + len(past)}
