"""Check the state of a rule, which may come from a file."""

import math
from collections.abc import Collection
from typing import Any, Literal, get_args

import numpy as np

from evalign.core.checks import numbers, require
from evalign.core.rows import Task
from evalign.decisions.inputs import class_vector

Decision = Literal["argmax", "tuned", "expected"]
OWNER, RULE = "DecisionRule", "rule"  # the kind of its file
NEEDED = ("offsets", "factor", "gain", "decision", "source")
# Numbers of a saved rule are below this: a larger one would leave no digits to the others.
LARGEST_NUMBER = 1e8


def checked_state(state: Any, known: Collection[str]) -> dict[str, Any]:
    """Check a rule's `state_dict` and return the rule's arguments; `known` names are allowed."""
    require(isinstance(state, dict), OWNER, "state", "be a dict", type(state).__name__)
    missing, others = set(NEEDED) - set(state), set(state) - set(known)
    allowed = f"hold {', '.join(NEEDED)}, and no fields but those of a rule"
    got = f"a state without {sorted(missing)}, with {sorted(others)} besides"
    cure = "Fit again, or use the version of evalign that wrote it."
    require(not missing and not others, OWNER, "state", allowed, got, cure)
    for name, values in (("decision", get_args(Decision)), ("task", (*get_args(Task), None))):
        require(state.get(name) in values, OWNER, name, f"be one of {values}", state.get(name))
    for name in ("named", "beyond"):
        require(state.get(name, False) in (True, False), OWNER, name, "be a bool", state.get(name))
    factor, gain = numbers(state["factor"]), numbers(state["gain"])
    positive = factor.ndim == 0 and 0 < factor < LARGEST_NUMBER
    require(bool(positive), OWNER, "factor", "be a positive number", repr(state["factor"]))
    size = len(gain) if gain.ndim else 0
    shape = (size, 2, 2) if state.get("task") == "multilabel" else (size, size)
    ok = size > 0 and gain.shape == shape and bool((gain.abs() < LARGEST_NUMBER).all())
    allowed = f"be numbers (C, C), or (L, 2, 2) if multilabel, below {LARGEST_NUMBER:g}"
    require(ok, OWNER, "gain", allowed, tuple(gain.shape))
    found: dict[str, Any] = {"gain": gain, "factor": factor.item()}
    for name in ("offsets", "class_prior"):
        if state.get(name) is not None:
            found[name] = class_vector(OWNER, name, state[name], size)
            small = bool((found[name].abs() < LARGEST_NUMBER).all())
            require(small, OWNER, name, f"be below {LARGEST_NUMBER:g}", state[name])
    names = state.get("classes")
    found["classes"] = None if names is None else class_names(OWNER, names, size)
    unnamed = state.get("named", False) and names is None
    require(not unnamed, OWNER, "classes", "be given to a rule that returns names", None)
    return state | found


def class_names(owner: str, names: Any, number: int) -> list[str | float]:
    """Unique class names as Python strings and numbers, which JSON can hold."""
    given = np.asarray(names, dtype=object).ravel().tolist()
    found = [name.item() if isinstance(name, np.generic) else name for name in given]
    ok = all(
        isinstance(name, str | int) or (isinstance(name, float) and math.isfinite(name))
        for name in found
    )
    ok = ok and len(set(found)) == len(found) == number
    allowed = f"hold a name for each of the {number} classes, each once: strings or finite numbers"
    cure = "Name others by str(name)."
    if len(found) != number:
        cure = "Pass classes=, in the order of the columns of the scores."
    require(ok, owner, "classes", allowed, names, cure)
    return found
