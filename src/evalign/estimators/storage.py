"""Save and load the estimators: what is written of them, and a network from a saved state."""

import os
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from evalign.core.checks import complaint, require
from evalign.decisions import DecisionRule
from evalign.estimators.arguments import check_arguments
from evalign.estimators.fitted import FittedClassifier
from evalign.estimators.network import NAMES, Size, build, chosen, find_device, plain
from evalign.estimators.positive import oriented
from evalign.estimators.rows import OWNER
from evalign.estimators.scaling import QuantileNormal, Standardizer
from evalign.store import archive
from evalign.store.files import StoreError
from evalign.store.models import register_estimator
from evalign.tables.features import Features, FrameEncoder

for each in (DecisionRule, Features, QuantileNormal, Standardizer):
    archive.register(each)
register_estimator(FrameEncoder)
FOLD = "networks."  # before the name of a weight of a fold's network


class Savable:
    """An estimator that is saved and loaded; its class is to be registered with the store."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file without pickle (JSON and safetensors), whole or not at all.

        Functions and splitters are not written: pass a `metric` or a `network` that is not a name
        to `load` again. A model of another library is refused, as are those of scikit-learn that
        cannot be checked when they are opened.
        """
        check_is_fitted(self)
        archive.save(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **arguments: Any) -> Self:
        """Open what `save` wrote; `arguments` of the constructor replace the saved ones.

        The file need not be trusted: what does not fit together is refused.

        Examples:
            With your own network and device: `load("model", network=my_network, device="cpu")`.
        """
        return archive.load(path, cls.__name__, **arguments)


def saved_arguments(estimator: Any) -> dict[str, Any]:
    """The constructor's arguments without functions and splitters, and the names of functions.

    `load` asks for functions again, except for `on_epoch`.
    """
    arguments = estimator.get_params(deep=False)
    arguments.pop("on_epoch", None)
    if not isinstance(arguments.get("cv"), Integral | str | None):
        del arguments["cv"]
    functions = [name for name, value in arguments.items() if callable(value)]
    plain = {name: value for name, value in arguments.items() if name not in functions}
    return {"arguments": plain, "functions": functions}


def all_arguments(owner: str, state: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The saved arguments, of which `given` replace some."""
    for name in state["functions"]:
        if name not in given:
            allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
            raise StoreError(complaint(f"{owner}.load", name, allowed, "none", cure))
    return dict(state["arguments"]) | given


def set_columns(estimator: Any, features: Features) -> None:
    """Set the attributes of scikit-learn about the columns."""
    estimator.n_features_in_ = len(features.given)
    if features.named:
        estimator.feature_names_in_ = np.array(features.given, dtype=object)


def check_saved(arguments: dict[str, Any], fitted: FittedClassifier) -> None:
    """Refuse arguments that were changed since `fit`, such that `load` would fail."""
    check_arguments(arguments)
    oriented(arguments["metric"], arguments["pos_label"], fitted.classes)
    got, kind, cure = arguments["network"], fitted.kind, "Set it back, or fit again."
    require(got == kind, f"{OWNER}.save", "network", f"be that of fit, {kind!r}", repr(got), cure)


def rebuilt(state: dict[str, Any], arguments: dict[str, Any]) -> FittedClassifier:
    """The result of `fit` from an untrusted `FittedClassifier.state_dict`."""
    kind: Any = arguments["network"]
    scaling = QuantileNormal if kind == "auto" else Standardizer
    types = {"features": Features, "scaler": scaling, "rule": DecisionRule, "classes": np.ndarray}
    for name, wanted in types.items():
        got = type(state[name])
        require(got is wanted, "state", name, f"be {wanted.__name__}", got.__name__)
    scaler, rule, classes, seed = (state[name] for name in ("scaler", "rule", "classes", "seed"))
    ok = classes.ndim == 1 and 1 < len(classes) == len(rule.gain)
    ok = ok and np.array_equal(np.unique(classes), classes)
    require(ok, "state", "classes", f"be sorted and {len(rule.gain)}", classes[:3].tolist())
    ok = type(seed) is int and 0 <= seed < 2**32
    require(ok, "state", "seed", "be a whole number below 2³²", repr(seed))
    about = {"dropout": chosen(arguments).dropout, "seed": seed}
    about["multilabel"] = rule.task == "multilabel"
    network = build(kind, scaler, len(classes), **about, **_sizes(state, kind, about["dropout"]))
    try:
        network.load_state_dict(state["network"])
    except RuntimeError as error:
        raise StoreError(f"The saved weights belong to another network: {error}") from None
    metric = oriented(arguments["metric"], arguments["pos_label"], classes)
    return FittedClassifier(
        network.eval().to(find_device(arguments["device"])),
        scaler,
        rule if isinstance(metric, str) else replace(rule, metric=metric),
        classes,
        state["features"],
        list(state["history"]),
        seed,
        kind,
    )


def _sizes(state: dict[str, Any], kind: Any, dropout: float) -> dict[str, Any]:
    """The size and the number of the networks, read off the tensors in the file.

    A number alone could ask for a network larger than any memory.
    """
    features, width = state["scaler"].n_features, state["features"].width
    weights, classes = state["network"], len(state["classes"])
    allowed = f"be those of the tensors, {features}"
    require(features == width, "state", "features", allowed, width)
    known = callable(kind) or kind in NAMES
    require(known, "state", "network", f"be one of {', '.join(NAMES)} or a function", repr(kind))
    size = Size(0, 0)
    if not isinstance(kind, str):
        return {"size": size, "folds": 0}
    within = FOLD if any(name.startswith(FOLD) for name in weights) else ""
    shapes = {name: tuple(w.shape) for name, w in weights.items() if name.startswith(within)}
    folds = len({name.split(".")[1] for name in shapes}) if within else 0
    each = [f"{FOLD}{fold}." for fold in range(folds)] or [""]
    first = (name for name in shapes if name.startswith(each[0]))
    got = {name.removeprefix(each[0]): shapes[name] for name in first}
    if kind == "auto":
        size, inputs = Size(*got["head.weight"][:2]), got["backbone.blocks.0.0.weight"][1]
        needed = got | {
            "head.weight": (*size, classes),
            "backbone.blocks.0.0.r": (size.members, inputs),
            "backbone.blocks.1.0.weight": (size.width, size.width),
        }
        require(width <= inputs, "state", "network", f"have inputs for {width} features", inputs)
    else:
        with torch.device("meta"):  # sizes without memory
            network = plain(kind, width, classes, dropout)
        needed = {name: tuple(w.shape) for name, w in network.state_dict().items()}
    allowed = f"be those of {width} features and {classes} classes, for each fold"
    ok = shapes == {start + name: shape for start in each for name, shape in needed.items()}
    require(ok, "state", "network", allowed, "weights of other sizes")
    return {"size": size, "folds": folds}
