"""Check the state of a rule, which may come from a file."""

import math
from collections.abc import Collection
from typing import Any, Literal, get_args

import numpy as np

from evalign.core.checks import numbers, require
from evalign.membership.rows import Task
from evalign.decisions.inputs import class_vector

Decision = Literal["argmax", "tuned", "expected"]
OWNER, RULE = "DecisionRule", "rule"  # the kind of its file


def checked_state(state: Any, known: Collection[str]) -> dict[str, Any]:
    """Check a rule's `state_dict`, of the `known` fields, and return the rule's arguments."""
    require(isinstance(state, dict), OWNER, "state", "be a dict", type(state).__name__)
    missing, others = set(known) - set(state), set(state) - set(known)
    got = f"a state without {sorted(missing)}, with {sorted(others)} besides"
    cure = "Fit again, or use the version of evalign that wrote it."
    require(not missing and not others, OWNER, "state", "hold the fields of a rule", got, cure)
    for name, values in (("decision", get_args(Decision)), ("task", (*get_args(Task), None))):
        require(state[name] in values, OWNER, name, f"be one of {values}", state[name])
    factor, gain = numbers(state["factor"]), numbers(state["gain"])
    positive = factor.ndim == 0 and 0 < factor < math.inf
    require(bool(positive), OWNER, "factor", "be a positive number", repr(state["factor"]))
    size = len(gain) if gain.ndim else 0
    shape = (size, 2, 2) if state["task"] == "multilabel" else (size, size)
    ok = size > 0 and gain.shape == shape and bool(gain.isfinite().all())
    allowed = "be finite numbers (C, C), or (L, 2, 2) if multilabel"
    require(ok, OWNER, "gain", allowed, tuple(gain.shape))
    found: dict[str, Any] = {"gain": gain, "factor": factor.item()}
    for name in ("offsets", "class_prior"):
        if state[name] is not None:
            found[name] = class_vector(OWNER, name, state[name], size)
    if state["named"] or state["classes"] is not None:
        found["classes"] = class_names(OWNER, state["classes"], size)
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
