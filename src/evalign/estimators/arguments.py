"""Checks of `AlignedClassifier`'s arguments, made in `fit` as scikit-learn requires."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from torch import nn

from evalign.core.checks import require
from evalign.decisions import Decision
from evalign.estimators.network import NAMES
from evalign.estimators.recipes import RECIPES
from evalign.estimators.rows import OWNER


def check_arguments(arguments: dict[str, Any]) -> None:
    """Refuse arguments of the constructor that `fit` cannot use."""

    def check(name: str, ok: bool, allowed: str, cure: str = "") -> None:
        require(ok, OWNER, name, allowed, repr(arguments[name]), cure)

    def number(name: str, kind: type, lowest: float, allowed: str, below: float = math.inf):
        value = arguments[name]
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        check(name, is_number and lowest <= value < below, allowed)

    def optional(name: str, *given: Any) -> None:
        if arguments[name] is not None:
            number(name, *given)

    def one_of(name: str, known: Collection[str]) -> None:
        value, names = arguments[name], ", ".join(f'"{each}"' for each in known)
        check(name, isinstance(value, str) and value in known, f"be one of {names}")

    if arguments["recipe"] is not None:
        one_of("recipe", RECIPES)
    one_of("decision", get_args(Decision))
    cure = "Give a function that builds the module: every fit starts with a new one."
    network, names = arguments["network"], ", ".join(f'"{name}"' for name in NAMES)
    factory = callable(network) and not isinstance(network, nn.Module)
    known = isinstance(network, str) and network in NAMES
    allowed = f"be {names} or a function (n_features, n_classes) -> Module"
    check("network", known or factory, allowed, "" if isinstance(network, str) else cure)
    called = arguments["on_epoch"] is None or callable(arguments["on_epoch"])
    check("on_epoch", called, "be None or a function of a record")
    tiny = np.nextafter(0, 1)
    optional("validation_fraction", Real, tiny, "lie between 0 and 1, or be None", 1)
    optional("epochs", Integral, 1, "be a whole number, at least 1, or None")
    optional("batch_size", Integral, 1, "be a whole number, at least 1, or None")
    optional("learning_rate", Real, tiny, "be positive, or None")
    optional("weight_decay", Real, 0, "be at least 0, or None")
    optional("dropout", Real, 0, "lie in [0, 1), or be None", 1)
    optional("ema_decay", Real, tiny, "lie between 0 and 1, or be None", 1)
    optional("patience", Integral, 1, "be a whole number, at least 1, or None")
