"""The file of a rule, and checks of what it holds: it may come from anyone.

`docs/reference/rule-file.md` describes the file, which is to be applied without evalign too.
"""

import math
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from evalign.core.checks import numbers, require
from evalign.core.positive import check_positive
from evalign.core.task import Task
from evalign.decisions.classes import class_names
from evalign.decisions.inputs import FLOOR, class_vector
from evalign.store.files import read_json, write_json

Decision = Literal["argmax", "tuned", "expected"]
OWNER = "DecisionRule"
KIND = "rule"  # of its file
APPLIED = ("factor", "offsets", "gain")  # with the floor, all that a label depends on
DERIVED = ("threshold", "thresholds", "floor")  # for people and for other programs


def write_rule(path: str | os.PathLike[str], rule: Any) -> None:
    """Write a `DecisionRule` as a file: first what its labels depend on, then where it is from."""
    state = rule.state_dict()
    tree = {name: state[name] for name in ("metric", "task", "classes")}
    if rule.multilabel:
        tree["thresholds"] = rule.threshold.tolist()
    elif len(state["gain"]) == 2:
        tree["threshold"] = rule.threshold_of(1)
    tree["floor"] = FLOOR
    write_json(Path(path), KIND, tree | {name: state[name] for name in APPLIED} | state)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The `state_dict` of the rule in a file, still to be checked."""
    tree = read_json(Path(path), KIND)
    return {name: value for name, value in tree.items() if name not in DERIVED}


def checked_state(state: Any, known: Collection[str]) -> dict[str, Any]:
    """Check a rule's `state_dict`, of the `known` fields, and return the rule's arguments."""
    require(isinstance(state, dict), OWNER, "state", "be a dict", type(state).__name__)
    missing = sorted(set(known) - set(state))
    others = sorted(set(state) - set(known))
    got = f"a state without {missing}, with {others} besides"
    cure = "Fit again, or use the version of evalign that wrote it."
    require(not missing and not others, OWNER, "state", "hold the fields of a rule", got, cure)
    for name, values in (("decision", get_args(Decision)), ("task", (*get_args(Task), None))):
        require(state[name] in values, OWNER, name, f"be one of {values}", state[name])
    gain = _checked_gain(state["gain"], multilabel=state["task"] == "multilabel")
    size = len(gain)
    arguments = {"gain": gain, "factor": _checked_factor(state["factor"])}
    for name in ("offsets", "class_prior"):
        if state[name] is not None:
            arguments[name] = class_vector(OWNER, name, state[name], size)
    names = None
    if state["classes"] is not None:
        names = arguments["classes"] = class_names(OWNER, state["classes"], size)
    if state["task"] != "multilabel":
        check_positive(OWNER, names or range(size), state["pos_label"])
    return state | arguments


def _checked_gain(values: Any, *, multilabel: bool) -> np.ndarray:
    gain = numbers(values)
    size = len(gain) if gain.ndim else 0
    shape = (size, 2, 2) if multilabel else (size, size)
    is_gain = size > 0 and gain.shape == shape and bool(np.isfinite(gain).all())
    allowed = "be finite numbers (C, C), or (L, 2, 2) if multilabel"
    require(is_gain, OWNER, "gain", allowed, gain.shape)
    return gain


def _checked_factor(value: Any) -> float:
    factor = numbers(value)
    positive = factor.ndim == 0 and 0 < factor < math.inf
    require(bool(positive), OWNER, "factor", "be a positive number", repr(value))
    return factor.item()
