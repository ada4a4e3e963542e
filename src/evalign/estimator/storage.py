"""A fitted classifier as a folder without pickle."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evalign.core.checks import require
from evalign.estimator.frames import Features
from evalign.estimator.network import build, find_device, mlp
from evalign.estimator.positive import oriented
from evalign.estimator.rows import OWNER
from evalign.estimator.state import Fitted
from evalign.training import CheckpointError, checkpoint
from evalign.training.checkpoint import WRONG_TREE

VERSION = 2  # since the columns of a table are saved as well


def save(path: str | os.PathLike[str], arguments: dict[str, Any], fitted: Fitted) -> None:
    """Write the constructor's arguments, except functions, and what `fit` made with them."""
    functions = [name for name, value in arguments.items() if callable(value)]
    plain = {name: _plain(arguments[name]) for name in arguments if name not in functions}
    about = {"estimator": OWNER, "version": VERSION, "arguments": plain, "functions": functions}
    checkpoint.save(path, about | fitted.state_dict())


def load(
    path: str | os.PathLike[str], given: dict[str, Any], known: Iterable[str]
) -> tuple[dict[str, Any], Fitted]:
    """The constructor's arguments, of which `given` replace the saved ones, and the state.

    Args:
        path: what `save` wrote. It may come from anyone: no size in it is trusted.
        given: arguments of the constructor.
        known: the names of all that it has.
    """
    if (Path(path) / "run.json").exists():
        inside = Path(path) / "model"
        raise CheckpointError(f"{path} is a run of the command line. Its model is {inside}.")
    tree = checkpoint.load(path)
    if tree.get("estimator") != OWNER:
        raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
    if tree.get("version", 1) != VERSION:
        got, cure = tree.get("version", 1), "Load it with the version of evalign that wrote it."
        text = f"{os.fspath(path)} holds an {OWNER} of format {got}, this is {VERSION}. {cure}"
        raise CheckpointError(text)
    with _reading(path):
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
    factory = arguments.get("network")
    with _reading(path):
        dropout, classes = arguments["dropout"], np.array(tree["classes"])
        metric = oriented(arguments["metric"], arguments.get("pos_label"), classes)
        sizes = _sizes(tree, None if factory is not None else dropout)
    network = build(factory, *sizes, dropout=dropout, seed=tree["seed"])
    with _reading(path):
        fitted = Fitted.from_state_dict(tree, network, None if isinstance(metric, str) else metric)
    fitted.network.to(find_device(arguments["device"]))
    return arguments, fitted


def _sizes(tree: dict[str, Any], dropout: float | None) -> tuple[int, int]:
    """The width of the matrix and the number of classes, which the tensors must have as well.

    A number alone could ask for a network larger than any memory. With a dropout, the network is
    the default one, whose weights have known sizes.
    """
    width, classes = Features.from_state_dict(tree["features"]).width, len(tree["classes"])
    require(classes > 0, "state", "classes", "be one or more", classes)
    found = tuple(tree["standardizer"]["mean"].shape)
    require(found == (width,), "state", "features", f"be those of the tensors, {found}", width)
    seed = tree["seed"]
    ok = type(seed) is int and 0 <= seed < 2**32
    require(ok, "state", "seed", "be a whole number below 2³²", repr(seed))
    if dropout is not None:
        with torch.device("meta"):  # sizes without memory
            network = mlp(width, classes, dropout=dropout)
        wanted = {name: w.shape for name, w in network.state_dict().items()}
        got = {name: w.shape for name, w in tree["network"].items()}
        allowed = f"be those of {width} features and {classes} classes"
        require(got == wanted, "state", "network", allowed, "weights of other sizes")
    return width, classes


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within it, an error is that of a tree that `save` did not write."""
    try:
        yield
    except CheckpointError:
        raise
    except WRONG_TREE as error:
        why = f"{type(error).__name__}: {error}"
        text = f"{os.fspath(path)} is not as {OWNER}.save writes it: {why}"
        raise CheckpointError(text) from error


def _plain(value: Any) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, dict):  # pairs, because the keys may be numbers
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value.item() if isinstance(value, np.generic) else value
