"""The state of a rule, which may come from a file: what its fields must hold."""

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any, Literal, get_args

from evalign.core.checks import numbers, require
from evalign.core.rows import Task
from evalign.decisions.inputs import class_vector

Decision = Literal["argmax", "tuned", "expected"]
# Numbers of a saved rule are below this: next to larger ones those of the scores have no digits.
LARGEST = 1e8
OWNER = "DecisionRule"
NEEDED = ("offsets", "factor", "gain", "decision", "source")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_name(value: object) -> bool:
    """Whether it can name a class: what JSON gives back as it was."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


# Plain fields, which may be left out: what they hold but None, and in words.
PLAIN: dict[str, tuple[Callable[[Any], bool], str]] = {
    "metric": (lambda value: isinstance(value, str), "a name"),
    "constraint": (lambda value: isinstance(value, str), "a text"),
    "score": (_is_number, "a number"),
    "task": (lambda value: value in get_args(Task), f"one of {', '.join(get_args(Task))}"),
    "calibration_gap": (_is_number, "a number"),
    "rows": (lambda value: _is_integer(value) and value >= 0, "a number of rows"),
    "slacks": (
        lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
        "a number for each constraint",
    ),
    "confidence": (_is_number, "a number"),
    "promised": (lambda value: value in (True, False), "True, False"),
}


def fields_of(state: Any, known: Collection[str]) -> dict[str, Any]:
    """The arguments of a rule whose `state_dict` this is, checked.

    Args:
        state: what was saved.
        known: the names of all arguments.
    """
    require(isinstance(state, dict), OWNER, "state", "be a dict", type(state).__name__)
    missing = [name for name in NEEDED if name not in state]
    cure = f"It lacks {', '.join(missing)}: fit again, or use the version that wrote it."
    require(not missing, OWNER, "state", f"hold {', '.join(NEEDED)}", list(state), cure)
    others = [name for name in state if name not in known]
    cure = "Use the version of evalign that wrote it."
    require(not others, OWNER, "state", "hold the fields of a rule only", others, cure)

    gain, many = numbers(state["gain"]), state.get("task") == "multilabel"
    square = gain.ndim == 2 + many and len(gain) > 0
    square = square and gain.shape[-2:] == ((2, 2) if many else (len(gain), len(gain)))
    ok = square and bool((gain.abs() < LARGEST).all())
    allowed = f"be numbers {'(L, 2, 2)' if many else '(C, C)'} below {LARGEST:g}"
    require(ok, OWNER, "gain", allowed, tuple(gain.shape))
    got, decisions = state["decision"], get_args(Decision)
    allowed = f"be one of {', '.join(decisions)}"
    require(got in decisions, OWNER, "decision", allowed, repr(got))
    source = state["source"]
    require(isinstance(source, str), OWNER, "source", "be a name", repr(source))
    vectors = {
        name: class_vector(OWNER, name, state[name], len(gain))
        for name in ("offsets", "class_prior")
        if state.get(name) is not None
    }
    for name, vector in vectors.items():
        small = bool((vector.abs() < LARGEST).all())
        require(small, OWNER, name, f"be below {LARGEST:g}", state[name])
    factor = state["factor"]
    ok = _is_number(factor) and 0 < factor < LARGEST
    require(ok, OWNER, "factor", f"lie from 0 to {LARGEST:g}", repr(factor))
    along = state.get("class_dim", 1)
    require(_is_integer(along), OWNER, "class_dim", "be an integer", repr(along))
    names = state.get("classes")
    ok = names is None or (
        isinstance(names, list)
        and all(map(is_name, names))
        and len(set(names)) == len(names) == len(gain)
    )
    allowed = f"be None or {len(gain)} different strings or finite numbers"
    require(ok, OWNER, "classes", allowed, names)
    for name, (sound, words) in PLAIN.items():
        value = state.get(name)
        ok = value is None or sound(value)
        require(ok, OWNER, name, f"be {words} or None", repr(value))
    return state | vectors | {"gain": gain}
