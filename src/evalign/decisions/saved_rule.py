"""Check the state of a rule, which may come from a file."""

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any, Literal, get_args

from evalign.core.checks import numbers, require
from evalign.core.rows import Task
from evalign.decisions.inputs import class_vector

Decision = Literal["argmax", "tuned", "expected"]
OWNER = "DecisionRule"
NEEDED = ("offsets", "factor", "gain", "decision", "source")
# Numbers of a saved rule are below this: a larger one would leave no digits to the others.
LARGEST_NUMBER = 1e8


def is_name(value: object) -> bool:
    """Whether a value can name a class and comes back from JSON unchanged."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _are_slacks(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


# What each plain field holds, if it is not None.
PLAIN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "decision": (lambda value: value in get_args(Decision), f"one of {get_args(Decision)}"),
    "source": (lambda value: isinstance(value, str), "a string"),
    "metric": (lambda value: isinstance(value, str), "a string"),
    "constraint": (lambda value: isinstance(value, str), "a string"),
    "score": (_is_number, "a number"),
    "factor": (lambda value: _is_number(value) and 0 < value < LARGEST_NUMBER, "positive"),
    "task": (lambda value: value in get_args(Task), f"one of {get_args(Task)}"),
    "class_dim": (_is_integer, "an integer"),
    "calibration_gap": (_is_number, "a number"),
    "rows": (lambda value: _is_integer(value) and value >= 0, "a number of rows"),
    "slacks": (_are_slacks, "a number for each constraint"),
    "confidence": (_is_number, "a number"),
    "promised": (lambda value: isinstance(value, bool), "True or False"),
}


def checked_state(state: Any, known: Collection[str]) -> dict[str, Any]:
    """The arguments of a rule from its `state_dict`, of which `known` are allowed."""
    require(isinstance(state, dict), OWNER, "state", "be a dict", type(state).__name__)
    missing = [name for name in NEEDED if name not in state]
    cure = f"It lacks {', '.join(missing)}: fit again, or use the version that wrote it."
    require(not missing, OWNER, "state", f"hold {', '.join(NEEDED)}", list(state), cure)
    others = [name for name in state if name not in known]
    cure = "Use the version of evalign that wrote it."
    require(not others, OWNER, "state", "hold the fields of a rule only", others, cure)
    for name, (sound, words) in PLAIN.items():
        value = state.get(name)
        optional = name not in NEEDED
        ok = (optional and value is None) or sound(value)
        allowed = f"be {words} or None" if optional else f"be {words}"
        require(ok, OWNER, name, allowed, repr(value))

    gain, multilabel = numbers(state["gain"]), state.get("task") == "multilabel"
    size = len(gain) if gain.ndim else 0
    shape = (size, 2, 2) if multilabel else (size, size)
    ok = size > 0 and gain.shape == shape and bool((gain.abs() < LARGEST_NUMBER).all())
    allowed = f"be numbers {'(L, 2, 2)' if multilabel else '(C, C)'} below {LARGEST_NUMBER:g}"
    require(ok, OWNER, "gain", allowed, tuple(gain.shape))
    found = {"gain": gain}
    for name in ("offsets", "class_prior"):
        if state.get(name) is not None:
            found[name] = class_vector(OWNER, name, state[name], len(gain))
            small = bool((found[name].abs() < LARGEST_NUMBER).all())
            require(small, OWNER, name, f"be below {LARGEST_NUMBER:g}", state[name])
    names = state.get("classes")
    ok = isinstance(names, list) and all(map(is_name, names))
    ok = names is None or (ok and len(set(names)) == len(names) == len(gain))
    allowed = f"be None or {len(gain)} different strings or finite numbers"
    require(ok, OWNER, "classes", allowed, names)
    return state | found
