"""The check of `AlignedClassifier`'s arguments, made in `fit` as scikit-learn requires."""

import math
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from torch import nn

from evalign.core.checks import require
from evalign.decisions import Decision
from evalign.estimator.rows import OWNER
from evalign.recipes import RECIPES


def check_arguments(arguments: dict[str, Any]) -> None:
    """Refuse an argument of the constructor that `fit` cannot use."""

    def check(name: str, ok: bool, allowed: str, cure: str = "") -> None:
        require(ok, OWNER, name, allowed, repr(arguments[name]), cure)

    def number(name: str, kind: type, lowest: float, allowed: str, below: float = math.inf):
        value = arguments[name]
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        check(name, is_number and lowest <= value < below, allowed)

    recipes = ", ".join(f'"{name}"' for name in RECIPES)
    check("recipe", arguments["recipe"] in RECIPES, f"be one of {recipes}")
    decisions = ", ".join(f'"{name}"' for name in get_args(Decision))
    check("decision", arguments["decision"] in get_args(Decision), f"be one of {decisions}")
    cure = "Give a function that builds the module: every fit starts with a new one."
    factory = callable(arguments["network"]) and not isinstance(arguments["network"], nn.Module)
    allowed = "be None or a function (n_features, n_classes) -> Module"
    check("network", arguments["network"] is None or factory, allowed, cure)
    called = arguments["on_epoch"] is None or callable(arguments["on_epoch"])
    check("on_epoch", called, "be None or a function of a record")
    tiny = np.nextafter(0, 1)
    number("validation_fraction", Real, tiny, "lie between 0 and 1", 1)
    number("epochs", Integral, 1, "be a whole number, at least 1")
    if arguments["batch_size"] is not None:
        number("batch_size", Integral, 1, "be a whole number, at least 1, or None")
    number("learning_rate", Real, tiny, "be positive")
    number("weight_decay", Real, 0, "be at least 0")
    number("dropout", Real, 0, "lie in [0, 1)", 1)
    if arguments["ema_decay"] is not None:
        number("ema_decay", Real, tiny, "lie between 0 and 1, or be None", 1)
    if arguments["patience"] is not None:
        number("patience", Integral, 1, "be a whole number, at least 1, or None")
