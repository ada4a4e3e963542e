"""A fitted classifier as a folder without pickle."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from evalign.core.checks import require
from evalign.estimator.network import build, find_device
from evalign.estimator.rows import OWNER
from evalign.estimator.state import Fitted
from evalign.training import CheckpointError, checkpoint


def save(path: str | os.PathLike[str], arguments: dict[str, Any], fitted: Fitted) -> None:
    """Write the constructor's arguments, except functions, and what `fit` made with them."""
    functions = [name for name, value in arguments.items() if callable(value)]
    plain = {name: _plain(arguments[name]) for name in arguments if name not in functions}
    about = {"estimator": OWNER, "arguments": plain, "functions": functions}
    checkpoint.save(path, about | fitted.state_dict())


def load(path: str | os.PathLike[str], given: dict[str, Any]) -> tuple[dict[str, Any], Fitted]:
    """The constructor's arguments, where `given` replaces saved ones, and the fitted state."""
    if (Path(path) / "run.json").exists():
        inside = Path(path) / "model"
        raise CheckpointError(f"{path} is a run of the command line. Its model is {inside}.")
    tree = checkpoint.load(path)
    if tree.get("estimator") != OWNER:
        raise CheckpointError(f"{os.fspath(path)} holds no {OWNER}: was it written by save?")
    for name in tree["functions"]:
        allowed, cure = "be given: functions are not saved", f"load(path, {name}=...)"
        found = name in given or name == "on_epoch"
        require(found, f"{OWNER}.load", name, allowed, "none", cure)
    arguments = tree["arguments"]
    if isinstance(arguments["class_weight"], list):
        arguments["class_weight"] = dict(arguments["class_weight"])
    arguments |= given
    network = build(
        arguments.get("network"),
        tree["n_features_in"],
        len(tree["classes"]),
        dropout=arguments["dropout"],
        seed=tree["seed"],
    )
    metric = arguments["metric"]
    fitted = Fitted.from_state_dict(tree, network, None if isinstance(metric, str) else metric)
    fitted.network.to(find_device(arguments["device"]))
    return arguments, fitted


def _plain(value: Any) -> Any:
    """An argument as JSON holds it."""
    if isinstance(value, dict):  # pairs, because the keys may be numbers
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None
    return value.item() if isinstance(value, np.generic) else value
