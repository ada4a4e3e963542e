"""Save and load a fitted classifier as a folder without pickle."""

import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from evalign.core.checks import require
from evalign.estimator.arguments import check_arguments
from evalign.estimator.fitted import FittedClassifier
from evalign.estimator.network import NAMES, Size, build, chosen, find_device, plain
from evalign.estimator.positive import oriented
from evalign.estimator.rows import OWNER
from evalign.estimator.scaling import QuantileNormal, Standardizer
from evalign.tables.features import Features
from evalign.training import CheckpointError, checkpoint
from evalign.training.checkpoint import WRONG_TREE

VERSION = 3  # of the format: without warm_start


def save(path: str | os.PathLike[str], arguments: dict[str, Any], fitted: FittedClassifier) -> None:
    """Write the constructor's arguments, except functions, and the result of `fit`.

    Arguments that were changed since, such that `load` would fail, are refused.
    """
    check_arguments(arguments)
    oriented(arguments["metric"], arguments["pos_label"], fitted.classes)
    got, kind, cure = arguments["network"], fitted.kind, "Set it back, or fit again."
    require(got == kind, f"{OWNER}.save", "network", f"be that of fit, {kind!r}", repr(got), cure)
    functions = [name for name, value in arguments.items() if callable(value)]
    saved = {name: as_json(arguments[name]) for name in arguments if name not in functions}
    about = {"estimator": OWNER, "version": VERSION, "arguments": saved, "functions": functions}
    checkpoint.save(path, about | fitted.state_dict())


def load(
    path: str | os.PathLike[str], given: dict[str, Any], known: Iterable[str]
) -> tuple[dict[str, Any], FittedClassifier]:
    """The constructor's arguments, of which `given` replace the saved ones, and the state.

    Args:
        path: what `save` wrote. It need not be trusted: no size in it is believed.
        given: arguments of the constructor.
        known: the names of all its arguments.
    """
    tree = checkpoint.load(path)
    if tree.get("estimator") != OWNER:
        raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
    if tree.get("version", 1) != VERSION:
        got, cure = tree.get("version", 1), "Load it with the version of evalign that wrote it."
        text = f"{os.fspath(path)} holds an {OWNER} of format {got}, this is {VERSION}. {cure}"
        raise CheckpointError(text)
    with reading(path):
        functions, arguments = list(tree["functions"]), dict(tree["arguments"])
        if isinstance(arguments["class_weight"], list):
            arguments["class_weight"] = dict(arguments["class_weight"])
        unknown = sorted({*functions, *arguments} - {*known})
        require(not unknown, "state", "arguments", f"be those of {OWNER}", unknown)
    for name in functions:
        allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
        found = name in given or name == "on_epoch"
        require(found, f"{OWNER}.load", name, allowed, "none", cure)
    arguments |= given
    kind: Any = arguments.get("network")
    with reading(path):
        dropout, classes = chosen(arguments).dropout, np.array(tree["classes"])
        metric = oriented(arguments["metric"], arguments.get("pos_label"), classes)
        scaler = (QuantileNormal if kind == "auto" else Standardizer).from_state_dict(
            tree["scaler"]
        )
        sizes = _sizes(tree, scaler.n_features, kind, dropout)
        many = dict(tree["rule"]).get("task") == "multilabel"
    about = {**sizes, "dropout": dropout, "seed": tree["seed"], "multilabel": many}
    network = build(kind, scaler, len(classes), **about)
    with reading(path):
        own = None if isinstance(metric, str) else metric
        fitted = FittedClassifier.from_state_dict(tree, scaler, network, kind, own)
    fitted.network.to(find_device(arguments["device"]))
    return arguments, fitted


def _sizes(tree: dict[str, Any], features: int, kind: Any, dropout: float) -> dict[str, Any]:
    """The size and the number of the networks, read off the tensors in the file.

    A number alone could ask for a network larger than any memory.
    """
    width, classes = Features.from_state_dict(tree["features"]).width, len(tree["classes"])
    weights = tree["network"]
    require(classes > 1, "state", "classes", "be two or more", classes)
    allowed = f"be those of the tensors, {features}"
    require(features == width, "state", "features", allowed, width)
    seed = tree["seed"]
    ok = type(seed) is int and 0 <= seed < 2**32
    require(ok, "state", "seed", "be a whole number below 2³²", repr(seed))
    known = callable(kind) or kind in NAMES
    require(known, "state", "network", f"be one of {', '.join(NAMES)} or a function", repr(kind))
    size = Size(0, 0)
    if not isinstance(kind, str):
        return {"size": size, "folds": 0}
    folds = len({name.split(".")[1] for name in weights if name.startswith(FOLD)})
    if folds:
        first = f"{FOLD}0."
        weights = {k.removeprefix(first): w for k, w in weights.items() if k.startswith(first)}
    got = {name: tuple(w.shape) for name, w in weights.items()}
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
    allowed = f"be those of {width} features and {classes} classes"
    require(got == needed, "state", "network", allowed, "weights of other sizes")
    return {"size": size, "folds": folds}


FOLD = "networks."  # before the name of a weight of a fold's network


@contextmanager
def reading(path: str | os.PathLike[str], owner: str = OWNER) -> Iterator[None]:
    """Turn errors into those of a folder that the owner's `save` did not write."""
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, EOFError, zipfile.BadZipFile, *WRONG_TREE) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"{os.fspath(path)} is not as {owner}.save writes it: {why[:300]}"
        raise CheckpointError(text) from error


def as_json(value: Any) -> Any:
    """An argument as JSON can hold it."""
    if isinstance(value, dict):  # pairs, because the keys may be numbers
        return [[as_json(key), as_json(item)] for key, item in value.items()]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value.item() if isinstance(value, np.generic) else value
