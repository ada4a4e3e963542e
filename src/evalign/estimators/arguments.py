"""Checks of `AlignedClassifier`'s arguments, made in `fit` as scikit-learn requires."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import nn

from evalign.core.checks import require
from evalign.estimators.rows import OWNER
from evalign.training.recipes import RECIPES

TINY = np.nextafter(0, 1)
# Of each number: its type, what is allowed from and below, and this in words.
NUMBERS = {
    "validation_fraction": (Real, TINY, 1, "lie between 0 and 1"),
    "epochs": (Integral, 1, math.inf, "be a whole number, at least 1, or None"),
    "batch_size": (Integral, 1, math.inf, "be a whole number, at least 1, or None"),
    "learning_rate": (Real, TINY, math.inf, "be positive, or None"),
    "patience": (Integral, 1, math.inf, "be a whole number, at least 1, or None"),
}


def check_arguments(arguments: dict[str, Any]) -> None:
    """Refuse arguments of the constructor that `fit` cannot use."""

    def check(name: str, ok: bool, allowed: str, cure: str = "") -> None:
        require(ok, OWNER, name, allowed, repr(arguments[name]), cure)

    for name, (kind, least, end, allowed) in NUMBERS.items():
        value = arguments[name]
        number = isinstance(value, kind) and not isinstance(value, bool)
        none = value is None and name != "validation_fraction"
        check(name, none or (number and least <= value < end), allowed)
    recipe, network = arguments["recipe"], arguments["network"]
    known = ", ".join(f'"{each}"' for each in RECIPES)
    check("recipe", recipe is None or recipe in RECIPES, f"be one of {known}")
    factory = callable(network) and not isinstance(network, nn.Module)
    allowed = 'be "auto" or a function (n_features, n_classes) -> Module'
    cure = "" if isinstance(network, str) else "Every fit starts with a new one."
    check("network", factory or network == "auto", allowed, cure)
    called = arguments["on_epoch"] is None or callable(arguments["on_epoch"])
    check("on_epoch", called, "be None or a function of a record")
