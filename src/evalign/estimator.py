"""`AlignedClassifier`: the best classifier for a metric, as scikit-learn wants it."""

import copy
import json
import math
import os
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple, Self, cast, get_args

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule, fit_decision
from evalign.recipes import RECIPES
from evalign.training import (
    CheckpointError,
    Settings,
    Standardizer,
    TrainingWarning,
    checkpoint,
    fit,
    holdout_split,
)

OWNER = "AlignedClassifier"
# Rows go through the network in blocks of one size, the last one filled up: matrix products of
# other shapes round otherwise, and the answer for a row would depend on the rows beside it.
BLOCK = 512
# A row is read in the precision it comes in; once standardised, all is float32.
READ: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


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
        parts = [scaler(_dense(self.X)).float(), torch.from_numpy(self.y)]
        if unit is not None:
            parts.append(torch.from_numpy(self.weight / unit).float())
        return tuple(part.to(device) for part in parts)


class AlignedClassifier(ClassifierMixin, BaseEstimator):
    """A neural network for tables, trained on the metric it is judged by.

    A part of the rows is held out; on it the best epoch is chosen and the decision rule fitted.
    Columns are standardised inside, with the training rows' mean and deviation.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are of two classes, of which
            `classes_[1]` is the positive one.
        recipe: "anchored" (cross-entropy with the prior half taken out, plus the metric loss on
            running statistics), "cross_entropy", or "east" (the paper's method).
        network: None for an MLP 512-256-128 with dropout, or a function (n_features, n_classes) ->
            Module whose logits have shape (n, n_classes).
        decision: from probabilities to labels, see `fit_decision`: "argmax", "tuned" or "expected".
        validation_fraction: the share of the rows that is held out, stratified by class.
        epochs: the most passes over the data.
        batch_size: rows per step, at most.
        learning_rate: AdamW's, at its highest; falls to 0 along a cosine.
        weight_decay: AdamW's.
        dropout: of the default network.
        patience: epochs without a new best before training ends; None never ends early.
        class_weight: None, "balanced" or {class: weight}; multiplies the rows' weights in `fit`,
            in the loss, the choice of the epoch and the decision, so that the metric too is that
            of the reweighted rows. An aligned metric seldom needs it.
        device: "auto" (a GPU if there is one), or a name that torch knows.
        random_state: of the split, the initial weights, the shuffling and dropout.
        warm_start: `fit` goes on from the weights (and the standardisation) of the last one.
        verbose: 1 prints a line per epoch.
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
        recipe: str = "anchored",
        network: Callable[[int, int], nn.Module] | None = None,
        decision: str = "tuned",
        validation_fraction: float = 0.2,
        epochs: int = 100,
        batch_size: int = 1024,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        dropout: float = 0.2,
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
    ) -> Self:
        """Train, choose the best epoch and fit the decision rule.

        Args:
            X: an array, a pandas table of numbers, or a sparse matrix (made dense as a whole).
            y: a label per row: numbers or strings.
            sample_weight: a weight per row; rows of weight 0 are left out.
            validation_data: (X, y) or (X, y, sample_weight) to use instead of held-out rows.
            groups: a value per row; the rows of a group are held out together.
        """
        self._check_arguments()
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
        weight = _weights(sample_weight, len(codes)) * factors[codes]
        table = Table(X, codes, weight)
        if validation_data is None:
            training, validation = self._hold_out(table, groups, seed)
        else:
            training, validation = table, self._given(validation_data, classes, factors)
        training, validation = (part.take(part.weight > 0) for part in (training, validation))
        # Weights that are all alike are left out: the loop is quicker without.
        equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1

        device = self._device()
        scaler = self._scaler if goes_on else Standardizer(_dense(training.X))
        rows, held_out = (
            part.tensors(scaler, device, None if equal else training.weight.mean())
            for part in (training, validation)
        )
        network = self.network_ if goes_on else self._build(len(classes), seed)
        network.to(device)
        past, history = self.history_ if goes_on else [], []
        if len(classes) == 1:  # nothing to learn
            offsets, rule = torch.zeros(1), DecisionRule(torch.eye(1).double(), "argmax", "argmax")
        else:
            recipe = RECIPES[self.recipe](metric, _prior(training, len(classes)), self.patience)
            offsets = recipe.offsets
            _check_logits(network, held_out[0], len(classes))
            settings = Settings(
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                patience=None if recipe.annealing else self.patience,
                seed=(seed + len(past)) % 2**31,
            )
            history = fit(
                network,
                recipe.loss.to(device),
                *rows[:2],
                sample_weight=None if equal else rows[2],
                validation=held_out,
                metric=metric,
                settings=settings,
                annealing=recipe.annealing,
                on_epoch=lambda record: self._report(_later(record, past)),
            )
            rule = fit_decision(
                _blockwise(network, held_out[0], device) + offsets,
                torch.from_numpy(validation.y),
                metric=self.metric,
                decision=cast(Decision, self.decision),
                sample_weight=None if equal else torch.from_numpy(validation.weight),
            )
        self.classes_, self.network_, self.rule_ = classes, network, rule
        self.history_ = [*past, *(_later(record, past) for record in history)]
        self._scaler, self._offsets, self._seed = scaler, offsets, seed
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the rule frozen at `fit`."""
        labels = self._scores(X).argmax(1).numpy()
        return self.classes_[labels]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes), float64, with the prior that training took out put back."""
        return self._logits(X).softmax(1).numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """What `predict` goes by: of two classes (n,), the second where positive; else (n, C)."""
        scores = self._scores(X)
        return (scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions; of a cost, its negative: greater is better."""
        predicted = self.predict(X)
        _refuse_multilabel(y)
        y = np.asarray(y).ravel()
        new = np.setdiff1d(y, self.classes_)  # a class that training never saw is never right
        classes = np.concatenate([self.classes_, new])
        order = np.argsort(classes)
        codes = [order[np.searchsorted(classes, labels, sorter=order)] for labels in (predicted, y)]
        weight = torch.from_numpy(_weights(sample_weight, len(y)))
        metric = self._metric()
        value = metric(
            Confusion.from_predictions(
                *(torch.from_numpy(code) for code in codes),
                num_classes=max(2, len(classes)),
                sample_weight=weight,
                matrix=getattr(metric, "needs_matrix", True),
            )
        ).item()
        return value if getattr(metric, "greater_is_better", True) else -value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder without pickle (safetensors and JSON), whole or not at all.

        Functions are not written: `load` takes `network`, `on_epoch` and a `metric` that is no
        name again.
        """
        check_is_fitted(self)
        arguments = {name: _plain(value) for name, value in self.get_params().items()}
        functions = [name for name, value in arguments.items() if callable(value)]
        names = getattr(self, "feature_names_in_", None)
        tree = {
            "estimator": OWNER,
            "arguments": {k: v for k, v in arguments.items() if k not in functions},
            "functions": functions,
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else names.tolist(),
            "network": self.network_.state_dict(),
            "standardizer": self._scaler.state_dict(),
            "offsets": self._offsets,
            "rule": self.rule_.state_dict(),
            "history": self.history_,
            "seed": self._seed,
        }
        checkpoint.save(path, tree)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """The classifier that `save` wrote; `arguments` of the constructor replace the saved ones.

        Examples:
            A network and a device of one's own: `load("model", network=my_network, device="cpu")`.
        """
        tree = checkpoint.load(path)
        if tree.get("estimator") != OWNER:
            raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
        for name in tree["functions"]:
            allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
            given = name in arguments or name == "on_epoch"
            require(given, f"{OWNER}.load", name, allowed, "none", cure)
        saved = tree["arguments"]
        if isinstance(saved["class_weight"], list):
            saved["class_weight"] = dict(saved["class_weight"])
        self = cls(**(saved | arguments))
        self.classes_ = np.array(tree["classes"], dtype=tree["classes_dtype"])
        self.n_features_in_ = tree["n_features_in"]
        if tree["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(tree["feature_names_in"], dtype=object)
        self._seed = tree["seed"]
        self.network_ = self._build(len(self.classes_), self._seed).eval()
        try:
            self.network_.load_state_dict(tree["network"])
        except RuntimeError as error:
            raise CheckpointError(f"The saved weights belong to another network: {error}") from None
        self.network_.to(self._device())
        self._scaler = Standardizer.from_state_dict(tree["standardizer"])
        self._offsets = tree["offsets"]
        given = None if isinstance(self.metric, str) else self.metric
        self.rule_ = DecisionRule.from_state_dict(tree["rule"], metric=given)
        self.history_ = tree["history"]
        return self

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file, from raw rows to labels, with the decision rule inside.

        Its input is "X" (n, n_features), float32. Its outputs are "label" (n,), an index into the
        classes, which are in the file's metadata as JSON, and "probability" and "score"
        (n, n_classes). Needs `onnx` and `onnxscript`.
        """
        check_is_fitted(self)
        whole = _Whole(self._scaler, self.network_, self._offsets, self.rule_.gain)
        program = torch.onnx.export(
            whole.cpu().eval(),
            (torch.zeros(2, self.n_features_in_),),
            input_names=["X"],
            output_names=["label", "probability", "score"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.model.metadata_props["classes"] = json.dumps(self.classes_.tolist())
        program.save(path)

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

    def _check_arguments(self) -> None:
        def check(name: str, ok: bool, allowed: str, cure: str = "") -> None:
            require(ok, OWNER, name, allowed, repr(getattr(self, name)), cure)

        def number(name: str, kind: type, lowest: float, allowed: str, below: float = math.inf):
            value = getattr(self, name)
            is_number = isinstance(value, kind) and not isinstance(value, bool)
            check(name, is_number and lowest <= value < below, allowed)

        recipes = ", ".join(f'"{name}"' for name in RECIPES)
        check("recipe", self.recipe in RECIPES, f"be one of {recipes}")
        decisions = ", ".join(f'"{name}"' for name in get_args(Decision))
        check("decision", self.decision in get_args(Decision), f"be one of {decisions}")
        cure = "Give a function that builds the module: every fit starts with a new one."
        factory = callable(self.network) and not isinstance(self.network, nn.Module)
        allowed = "be None or a function (n_features, n_classes) -> Module"
        check("network", self.network is None or factory, allowed, cure)
        called = self.on_epoch is None or callable(self.on_epoch)
        check("on_epoch", called, "be None or a function of a record")
        tiny = np.nextafter(0, 1)
        number("validation_fraction", Real, tiny, "lie between 0 and 1", 1)
        number("epochs", Integral, 1, "be a whole number, at least 1")
        number("batch_size", Integral, 1, "be a whole number, at least 1")
        number("learning_rate", Real, tiny, "be positive")
        number("weight_decay", Real, 0, "be at least 0")
        number("dropout", Real, 0, "lie in [0, 1)", 1)
        if self.patience is not None:
            number("patience", Integral, 1, "be a whole number, at least 1, or None")

    def _metric(self) -> MetricFunction:
        if isinstance(self.metric, str):
            return resolve(self.metric, owner=OWNER)
        allowed = "be a name, a metric or a function of a Confusion"
        ok = callable(self.metric) and not isinstance(self.metric, type)
        require(ok, OWNER, "metric", allowed, repr(self.metric))
        return self.metric

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.empty(0, device=self.device).device
        except (RuntimeError, AssertionError, TypeError) as error:
            allowed = 'be "auto" or a device that torch finds here, such as "cpu"'
            raise ValueError(complaint(OWNER, "device", allowed, repr(self.device))) from error

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, np.ndarray]:
        X, y = validate_data(self, X, y, reset=reset, multi_output=True, **READ)
        _refuse_multilabel(y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return X, y

    def _hold_out(self, table: Table, groups: Any, seed: int) -> tuple[Table, Table]:
        fraction, count = self.validation_fraction, table.weight > 0
        if groups is not None:
            groups = np.asarray(groups)
            allowed = f"hold a value for each of the {len(count)} rows"
            require(groups.shape == count.shape, OWNER, "groups", allowed, groups.shape)
            groups = groups[count]
        table = table.take(count)
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
        return table.take(kept), table.take(held_out)

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
        weight = _weights(data[2] if len(data) == 3 else None, len(codes))
        return Table(X, codes, weight * factors[codes])

    def _build(self, n_classes: int, seed: int) -> nn.Module:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            if self.network is None:
                return mlp(self.n_features_in_, n_classes, dropout=self.dropout)
            network = self.network(self.n_features_in_, n_classes)
        if not isinstance(network, nn.Module):
            allowed, got = "return a Module", type(network).__name__
            raise TypeError(complaint(OWNER, "network", allowed, got))
        return network

    def _report(self, record: dict[str, Any]) -> None:
        if self.verbose:
            done = len(getattr(self, "history_", ())) if self.warm_start else 0
            left = done + self.epochs - record["epoch"]
            name = self.metric if isinstance(self.metric, str) else "metric"
            heat = record["temperature"]
            parts = [
                f"epoch {record['epoch']}/{done + self.epochs}",
                *([] if heat is None else [f"temperature {heat:.3g}"]),
                f"loss {record['validation_loss']:.4f}",
                f"{name} {record['validation_metric']:.4f}{'*' if record['best'] else ' '}",
                f"at most {left * record['seconds']:.0f} s left",
            ]
            print("  ".join(parts), flush=True)
        if self.on_epoch is not None:
            self.on_epoch(record)

    def _logits(self, X: Any) -> Tensor:
        """Logits (n, n_classes) whose softmax are the probabilities."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **READ)
        device = next(self.network_.parameters()).device
        blocks = (_dense(X[i : i + BLOCK]) for i in range(0, X.shape[0], BLOCK))
        logits = [_blockwise(self.network_, self._scaler(x).float(), device) for x in blocks]
        return torch.cat(logits) + self._offsets

    def _scores(self, X: Any) -> Tensor:
        """The rule's scores (n, n_classes), whose argmax is the label."""
        logits = self._logits(X)
        return self.rule_.scores(logits) if len(self.classes_) > 1 else torch.ones_like(logits)


class _Whole(nn.Module):
    """All that `predict` does, as one module: what is exported."""

    mean: Tensor
    scale: Tensor
    offsets: Tensor
    gain: Tensor

    def __init__(
        self, scaler: Standardizer, network: nn.Module, offsets: Tensor, gain: Tensor
    ) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        for name, value in (scaler.state_dict() | {"offsets": offsets, "gain": gain}).items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.network(((x.double() - self.mean) / self.scale).float()).double()
        probability = (logits + self.offsets).softmax(1)
        score = probability @ self.gain
        return score.argmax(1), probability, score


def mlp(
    n_features: int,
    n_classes: int,
    *,
    hidden: tuple[int, ...] = (512, 256, 128),
    dropout: float = 0.2,
) -> nn.Sequential:
    """Linear, ReLU and dropout for each hidden width, then the logits."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_features, width), nn.ReLU(), nn.Dropout(dropout)]
        n_features = width
    return nn.Sequential(*layers, nn.Linear(n_features, n_classes))


@torch.inference_mode()
def _blockwise(network: nn.Module, X: Tensor, device: torch.device) -> Tensor:
    """Logits in float64 on the CPU, block by block (see `BLOCK`)."""
    outputs = []
    for block in X.split(BLOCK):
        full = nn.functional.pad(block.to(device), (0, 0, 0, BLOCK - len(block)))
        outputs.append(network(full)[: len(block)].double().cpu())
    return torch.cat(outputs)


@torch.no_grad()
def _check_logits(network: nn.Module, X: Tensor, n_classes: int) -> None:
    network.eval()
    logits = network(X[:2])
    got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    shape = (len(X[:2]), n_classes)
    ok = isinstance(logits, Tensor) and logits.shape == shape
    allowed = f"give logits of shape {shape} for {len(X[:2])} rows and {n_classes} classes"
    require(ok, OWNER, "network", allowed, got)


def _refuse_multilabel(y: Any) -> None:
    kind = type_of_target(y, input_name="y")
    several = kind.startswith("multilabel") or kind.endswith("multioutput")
    cure = "Fit one classifier per column with sklearn.multioutput.MultiOutputClassifier."
    require(not several, OWNER, "y", "hold one label per row", f"{kind} data", cure)


def _dense(X: Any) -> Tensor:
    # A copy where the array cannot be written to, which torch would warn of.
    array = X.toarray() if sparse.issparse(X) else np.require(X, requirements="W")
    return torch.from_numpy(np.ascontiguousarray(array))


def _weights(sample_weight: Any, rows: int) -> np.ndarray:
    like = np.empty((rows, 1))
    return _check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)


def _prior(table: Table, n_classes: int) -> Tensor:
    """The mass of each class; one without rows counts as one row."""
    mass = np.bincount(table.y, table.weight, n_classes)
    return torch.from_numpy(np.where(mass > 0, mass, table.weight.mean()))


def _later(record: dict[str, Any], past: list[dict[str, Any]]) -> dict[str, Any]:
    return record | {"epoch": record["epoch"] + len(past)}


def _plain(value: Any) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, dict):  # whose keys may be numbers
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value.item() if isinstance(value, np.generic) else value
