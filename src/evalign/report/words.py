"""The sentences of a report: whether it helped, what to do next, and the decision rule in words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from evalign.core.resampling import LEVEL, MIN_FOR_INTERVAL
from evalign.core.text import counted
from evalign.report.contents import Contents, TriedModels

# The power of the test for which the needed number of rows is estimated.
POWER = 0.8
# Nobody gets more rows than this many times those at hand.
MOST_TIMES = 1000
UNKNOWN = "Cannot tell whether it helped"

Difference = Mapping[str, Any]  # "value", "low", "high"; "without_scarce" or "few_groups"
Method = Mapping[str, Any]  # of `evalign.report.scores`


def number(value: float | None) -> str:
    """Write three decimals, or four digits of a large number, with a minus sign, not a hyphen.

    Examples:
        >>> number(0.12345), number(-1234.5), number(None)
        ('0.123', '−1234', 'unknown')
    """
    if value is None:
        return "unknown"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"
    return text.replace("-0.000", "0.000").replace("-", "−")


def span(entry: Mapping[str, Any]) -> str:
    """Write the ends of an interval."""
    if entry["low"] is None:
        return ""
    return f"{number(entry['low'])} to {number(entry['high'])}"


def is_clear(difference: Difference) -> bool:
    """Whether the interval excludes 0, also without the classes of few rows.

    The interval of a few groups is never trusted: with two, chance alone excludes 0 half the time.
    """
    if "few_groups" in difference:
        return False
    others = difference.get("without_scarce", difference)
    same_side = _excludes_zero(others) and (others["low"] > 0) == (difference["low"] > 0)
    return _excludes_zero(difference) and same_side


def _is_better(contents: Contents, difference: Difference) -> bool:
    """Whether the aligned model is clearly better."""
    sign = 1 if contents.resolved.greater_is_better else -1
    return is_clear(difference) and sign * difference["value"] > 0


def _excludes_zero(difference: Difference) -> bool:
    low, high = difference["low"], difference["high"]
    return low is not None and (low > 0 or high < 0)


def no_test(contents: Contents) -> tuple[str, str] | None:
    """Why the rows can compare no methods at all, and the cure; None if they can."""
    groups = MIN_FOR_INTERVAL if contents.groups is None else len(np.unique(contents.groups))
    if contents.seen:
        return "the models have seen these rows", "Evaluate on rows not used in training."
    if contents.one_class:
        name = contents.classes[contents.y[0]]
        return f"every row is of class {name}", "Evaluate on rows of other classes, too."
    if len(contents.y) < MIN_FOR_INTERVAL:
        return f"there is too little data ({counted(len(contents.y))})", "Evaluate on more rows."
    if groups < MIN_FOR_INTERVAL:
        why = f"the rows come from too few groups ({groups}, fewer than {MIN_FOR_INTERVAL})"
        return why, "Evaluate on more groups."
    return None


def verdict_of_tried(tried: TriedModels, constrained: bool) -> str:
    """Say what blending the candidates gains over the best of them.

    That is the best by argmax, as its own library labels; under a constraint, with its rule.
    """
    gain, own, rival = tried.gain, tried.rows[-1], tried.gain["against"]
    name, other = own["candidate"], rival if constrained else f"{rival} with argmax"
    if gain["low"] is None:
        return f"There are too few held-out rows to compare {name} with {other}."
    score = f"{number(own['rule_score'])} with its rule, {number(own['argmax_score'])} with argmax"
    if name == other:  # under a constraint, the only candidate
        return f"In cross-validation, {name} has {score}, which ignores the constraint."
    few = ", few groups" if "few_groups" in gain else ""
    value = f"{number(gain['value'])}, 95% interval {span(gain)}{few}"
    text = f"there is no clear difference between {name} and {other} ({value})"
    if is_clear(gain):
        better, worse = (name, other) if gain["low"] > 0 else (other, name)
        text = f"{better} is better than {worse} by {_size(gain)}"
    return f"In cross-validation, {text}; {name} itself has {score}."


def answer(
    contents: Contents,
    methods: Sequence[Method],
    differences: Mapping[str, Difference],
    constant: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Whether it helped: a "verdict", a "sentence", and sentences on what to do "next".

    A model that is not better than one label for all rows has not helped.

    The model is compared with the argmax of the baseline, or with its own if there is none. Under a
    constraint, which argmax ignores, it is compared with the baseline's decision rule; if there is
    no baseline, whichever of the model's rule and its argmax alone keeps to the constraint wins.

    Args:
        contents: the contents of the report.
        methods: those of `evalign.report.scores`.
        differences: those of `evalign.report.scores`, by the method they are against.
        constant: that of `evalign.report.scores`.
    """

    def said(verdict: str, sentence: str, *then: str) -> dict[str, Any]:
        return {"verdict": verdict, "sentence": f"{sentence}.", "next": list(then)}

    if found := no_test(contents):
        return said("cannot tell", f"{UNKNOWN}: {found[0]}", found[1])
    if constant is not None and not _is_better(contents, constant["difference"]):
        first = f"{contents.metric_name} is {number(methods[0]['value'])} for {methods[0]['name']}"
        text = f"{first} and {number(constant['value'])} if every label is {constant['class']}"
        what = f"the difference is {span(constant['difference'])} (95% interval)"
        then = "Look for columns that tell more of the label, or for more rows."
        return said("did not help", f"It is not shown to help: {text}; {what}", then)
    alone = contents.baseline is None
    own, other = methods[0], methods[2 if contents.constrained and not alone else -1]
    if contents.constrained and alone:
        model = contents.aligned
        kept = [contents.keeps(p) for p in (model.predicted, model.probabilities.argmax(1))]
        if not all(kept):
            first, second = (
                f"{number(method['value'])} for {method['name']}, which "
                f"{'keeps' if keeps else 'does not keep'} to {contents.constraint} on these rows"
                for method, keeps in zip((own, other), kept, strict=True)
            )
            did = "helped" if kept[0] else "did not help"
            text = f"It {did}: {contents.metric_name} is {first}, and {second}"
            return said(did, text, *([_use(own)] if kept[0] else []))
    if other["same_as"] == own["key"]:
        same = f"{own['name']} and {other['name']} give all rows the same labels"
        return said("did not help", f"It did not help: {same}", _use(other))

    difference = differences[other["key"]]
    first, second = (f"{number(m['value'])} for {m['name']}" for m in (own, other))
    if not alone:
        first += f" ({number(methods[1]['value'])} with argmax)"
    values = f"{contents.metric_name} is {first} and {second}"
    better = _clearly_better(contents, methods, differences)
    if not is_clear(difference):
        then = better or _until_clear(contents, own, difference)
        what = f"the difference is {span(difference)} (95% interval)"
        if _excludes_zero(difference):
            what = f"the difference depends on classes with fewer than {MIN_FOR_INTERVAL} test rows"
        return said("cannot tell", f"{UNKNOWN}: {values}; {what}", *then)
    if _is_better(contents, difference):
        then = better or [_use(own), *_simpler(contents, methods, differences)]
        return said("helped", f"It helped: {values}, better by {_size(difference)}", *then)
    return said("did not help", f"It did not help: {values}, worse by {_size(difference)}", *better)


def _size(difference: Difference) -> str:
    """The size of a clear difference, and its interval."""
    ends = sorted([abs(difference["low"]), abs(difference["high"])])
    # An end close to 0 gets more digits: "0.000" would say that it is 0.
    low, high = (number(end) if end >= 0.0005 else f"{end:.1g}" for end in ends)
    return f"{number(abs(difference['value']))} (95% interval {low} to {high})"


def _use(method: Method) -> str:
    rule = "" if method["key"].endswith("_argmax") else " with its decision rule"
    return f"Use {method['name']}{rule}."


def _clearly_better(
    contents: Contents, methods: Sequence[Method], differences: Mapping[str, Difference]
) -> list[str]:
    """Advise the best of the methods that are clearly better than the aligned model, if any."""
    sign = 1 if contents.resolved.greater_is_better else -1
    better = []
    for method in methods[1:]:
        found = differences[method["key"]]
        allowed = not (contents.constrained and method["key"].endswith("_argmax"))
        if allowed and is_clear(found) and sign * found["value"] < 0:
            better.append(method)
    if not better:
        return []
    best = max(better, key=lambda method: sign * method["value"])
    lead = f"It is better than {contents.aligned.label} by {_size(differences[best['key']])}."
    return [_use(best), lead]


def _simpler(
    contents: Contents, methods: Sequence[Method], differences: Mapping[str, Difference]
) -> list[str]:
    """Mention the baseline with its own decision rule if it may be as good."""
    if contents.baseline is None or contents.constrained:
        return []
    rival = methods[2]
    if is_clear(differences[rival["key"]]):
        return []
    name = rival["name"][0].upper() + rival["name"][1:]
    return [
        f"{name} with its own decision rule reaches {number(rival['value'])}, no clear difference: "
        f"if it is the simpler model for you, use it."
    ]


def _until_clear(contents: Contents, own: Method, difference: Difference) -> list[str]:
    """Say how many rows would tell, and what to use until then."""
    if _excludes_zero(difference):
        return ["Evaluate on more rows of these classes."]
    tried = contents.tried
    if tried is not None and is_clear(tried.gain) and tried.gain["low"] > 0:
        return [verdict_of_tried(tried, contents.constrained), _use(own)]
    rows = len(contents.y)
    needed = rows_to_tell(difference["value"], difference["low"], difference["high"], rows)
    if needed is None:
        return ["The measured difference is close to 0: use either."]
    fewest = np.unique(contents.y, return_counts=True)[1].min()
    # With fewer rows of a class nothing is clear.
    needed = max(needed, math.ceil(rows * MIN_FOR_INTERVAL / fewest))
    return [
        f"About {needed:,} test rows instead of {rows:,} would probably tell, if the difference "
        "stays as it is.",
        "Until then, use either.",
    ]


def rows_to_tell(value: float, low: float, high: float, rows: int) -> int | None:
    """About how many rows would tell a difference of this size from 0; None for too many.

    The interval shrinks with the square root of the number of rows and should exclude 0 with
    probability 80%: h·√(n/N)·(z₉₇.₅ + z₈₀)/z₉₇.₅ = |value| for its half-width h with n rows. The
    answer is at least 1.1·n, as the interval need not be symmetric.

    Examples:
        >>> rows_to_tell(0.05, -0.05, 0.15, 100)
        820
    """
    edge = norm.ppf((1 + LEVEL) / 2)
    wanted = (high - low) / 2 * (edge + norm.ppf(POWER)) / edge
    if wanted >= MOST_TIMES**0.5 * abs(value):
        return None
    return int(float(f"{rows * max((wanted / value) ** 2, 1.1):.2g}"))
