"""The sentences of a report: whether it helped, what to do next, and the rule in words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

from evalign.core.resampling import FEW, LEVEL
from evalign.report.contents import Contents, TriedModels

# How often as many rows as are asked for would show a difference that is there.
POWER = 0.8
# More rows than this many times those at hand are not worth asking for.
TIMES = 1000
NEEDED = "What is needed is more rows, or columns that tell the classes apart."
FREE = "Labels by argmax need not keep to the constraint."
TOO_SMALL = f"The difference is too small to be told by {TIMES:,} times as many rows."


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


def _is_outside(difference: Mapping[str, Any]) -> bool:
    """Whether 0 is outside of the interval."""
    low, high = difference["low"], difference["high"]
    return low is not None and (low > 0 or high < 0)


def is_clear(difference: Mapping[str, Any]) -> bool:
    """Whether 0 is outside of the interval, on the same side without the classes of few rows.

    Of few groups no interval is trusted: of two, chance puts it beside 0 every second time.
    """
    if "few_groups" in difference:
        return False
    others = difference.get("without_scarce", difference)
    same_side = _is_outside(others) and (others["low"] > 0) == (difference["low"] > 0)
    return _is_outside(difference) and same_side


def verdict(
    difference: Mapping[str, float], aligned: str, other: str, greater_is_better: bool
) -> str:
    """Which of two methods is better."""
    if not is_clear(difference):
        few = "groups" if "few_groups" in difference else "rows"
        why = f"it may rest on few {few}" if _is_outside(difference) else "the interval contains 0"
        return (
            f"Against {other}: no clear difference, {why} "
            f"({number(difference['value'])}, 95% interval {span(difference)})."
        )
    better = aligned if (difference["low"] > 0) == greater_is_better else other
    return f"Against {other}: {better} is better {_by(difference)}."


def verdict_of_tried(tried: TriedModels, constrained: bool) -> str:
    """What choosing or blending brings."""
    gain, own = tried.gain, tried.rows[-1]["candidate"]
    free = f" {FREE}" if constrained else ""
    other = f"{gain['against']} with argmax"
    if gain["low"] is None:
        return f"The rows held out in training are too few to tell {own} from {other}."
    where = "On the training rows, each labelled by models that have not seen it,"
    if not is_clear(gain):
        between = f"there is no clear difference between {own} and {other}"
        few = ", and few groups" if "few_groups" in gain else ""
        return f"{where} {between} ({number(gain['value'])}, 95% interval {span(gain)}{few}).{free}"
    better, worse = (own, other) if gain["low"] > 0 else (other, own)
    return f"{where} {better} is better than {worse} {_by(gain)}.{free}"


def rows_to_tell(value: float, low: float, high: float, rows: int) -> int | None:
    """About how many rows would tell a difference from 0, if it stays as it is; None for too many.

    The interval narrows with the square root of the rows, and should end at 0 or short of it four
    times in five: h·√(n/N)·(z₉₇.₅ + z₈₀)/z₉₇.₅ = |value| for its half-width h now, with n rows.

    Examples:
        >>> rows_to_tell(0.05, -0.05, 0.15, 100)
        820
    """
    edge = norm.ppf((1 + LEVEL) / 2)
    wanted = (edge + norm.ppf(POWER)) / edge
    half = (high - low) / 2
    if half * wanted >= TIMES**0.5 * abs(value):
        return None
    times = (half * wanted / value) ** 2
    return max(rows, int(float(f"{rows * times:.2g}")))


def answer(
    contents: Contents, methods: Sequence[Mapping[str, Any]], differences: Mapping[str, Any]
) -> dict[str, Any]:
    """Whether it helped: a "verdict", a "sentence", and the sentences on what to do "next".

    The model is held to the most probable classes of the usual one, or of its own where there is no
    other. A constraint is kept by rules alone, so that one rule is then held to the other.

    Args:
        contents: of the report.
        methods: those of `evalign.report.scores`.
        differences: those of `evalign.report.scores`, by what they are against.
    """

    def said(verdict: str, sentence: str, *then: str) -> dict[str, Any]:
        return {"verdict": verdict, "sentence": sentence, "next": list(then)}

    unknown = "Cannot tell whether it helped"
    if contents.seen:
        why = "the models were trained on these rows, or chosen by them"
        return said("cannot tell", f"{unknown}: {why}.", "Score rows that they have not seen.")
    if contents.one_class:
        why = f"every row is of the class {contents.classes[contents.y[0]]}"
        best = "to label all so would be right"
        return said("cannot tell", f"{unknown}: {why}, and {best}.", "Score rows of others, too.")
    alone = contents.baseline is None
    if alone and contents.constrained:
        why = "its labels keep to a constraint, and there is no other model that does"
        return said("cannot tell", f"{unknown}: {why}.")
    own, other = methods[0], methods[2] if contents.constrained else methods[-1]
    if other["same_as"] == own["key"]:
        if alone:
            why = "its labels are the most probable classes, and there is no usual model beside it"
            return said("cannot tell", f"{unknown}: {why}.")
        if len(contents.y) < FEW:
            same = f"{own['name']} and {other['name']} label all rows alike"
            why = f"{same}, but fewer than {FEW} rows tell little"
            return said("cannot tell", f"{unknown}: {why}.", "Score more rows.")
        given = np.unique(contents.aligned.predicted)
        if len(given) == 1 and len(np.unique(contents.y)) > 1:
            all_rows = f"all {len(contents.y):,} rows {contents.classes[given[0]]}"
            same = f"{own['name']} and {other['name']} label {all_rows}"
            return said("did not help", f"It did not help: {same}.", NEEDED)
        same = f"{own['name']} gives all {len(contents.y):,} rows the labels of {other['name']}"
        return said("did not help", f"It did not help: {same}.", *_enough(contents, other))

    found, metric = differences[other["key"]], contents.metric_name
    first, second = (f"{number(m['value'])} by {m['name']}" for m in (own, other))
    values = f"{metric} is {first} and {second}"
    if not is_clear(found):
        sentence = f"{unknown}: {values}; the difference may be {span(found)} (95% interval)."
        more, then = _more_rows(contents, found), ["Until then either will do."]
        if more == TOO_SMALL:
            then = ["Either will do."]
        if contents.resolved.greater_is_better and max(own["value"], other["value"]) <= 0:
            # A few rows of a class may all be missed by chance.
            then = [NEEDED] if len(contents.scarce) else ["Neither will do.", NEEDED]
        if "few_groups" in found:
            few = found["few_groups"]
            these = "all rows are of one group" if few == 1 else f"the rows are of {few} groups"
            why = f"it takes {FEW} to tell chance from a difference"
            sentence = f"{unknown}: {values}, but {these}, and {why}."
            more = "Test rows of more groups would tell."
        elif _is_outside(found):
            why = f"the difference may rest on classes with fewer than {FEW} test rows"
            few = span(found["without_scarce"])
            without = f"; without them it may be {few} (95% interval)" if few else ""
            sentence = f"{unknown}: {values}, but {why}{without}."
            more = "More test rows of these classes would tell."
        elif contents.tried is not None and is_clear(gain := contents.tried.gain):
            use = [_use(contents, own)] if gain["low"] > 0 else []
            then = [verdict_of_tried(contents.tried, contents.constrained), *use]
        then = _better(contents, methods, differences) or then
        return said("cannot tell", sentence, more, *then)
    by = _by(found)
    if (found["low"] > 0) == contents.resolved.greater_is_better:
        then = _best(contents, methods, differences)
        return said("helped", f"It helped: {values}, better {by}.", *then)
    return said(
        "did not help", f"It did not help: {values}, worse {by}.", *_enough(contents, other)
    )


def _by(difference: Mapping[str, float]) -> str:
    """How large a difference is, and its interval, in which 0 is not."""
    ends = sorted([abs(difference["low"]), abs(difference["high"])])
    # An end close to 0 gets more digits: "0.000" would say that it is 0.
    low, high = (number(end) if end >= 0.0005 else f"{end:.1g}" for end in ends)
    return f"by {number(abs(difference['value']))} (95% interval {low} to {high})"


def _use(contents: Contents, method: Mapping[str, Any]) -> str:
    key, name = method["key"], method["name"]
    rule = "" if key.endswith("_argmax") else " with its rule"
    return f"Use {name}{rule}{_how(contents, method)}."


def _how(contents: Contents, method: Mapping[str, Any]) -> str:
    how = contents.how.get(method["key"])
    return "" if how is None else f" ({how})"


def _enough(contents: Contents, other: Mapping[str, Any]) -> list[str]:
    """What to do if the other method is as good or better."""
    usual = contents.baseline
    return [
        "The rule is not needed." if usual is None else f"{usual.label.capitalize()} is enough.",
        _use(contents, other),
    ]


def _best(
    contents: Contents, methods: Sequence[Mapping[str, Any]], differences: Mapping[str, Any]
) -> list[str]:
    """Which method to use: the model, its most probable classes, or the other one with a rule."""
    if better := _better(contents, methods, differences):
        return better
    own = methods[0]
    if contents.baseline is None or contents.constrained:
        return [_use(contents, own)]
    rival = methods[2]
    found, name = differences[rival["key"]], f"{rival['name']} with a rule of its own"
    if not is_clear(found):
        simple = f"{name} has {number(rival['value'])}, which these rows cannot tell from it"
        then = f"if that is the simpler model for you, it is enough{_how(contents, rival)}."
        return [_use(contents, own), f"{simple[0].upper()}{simple[1:]}: {then}"]
    return [_use(contents, own), f"It is better than {name}, too."]


def _better(
    contents: Contents, methods: Sequence[Mapping[str, Any]], differences: Mapping[str, Any]
) -> list[str]:
    """What to use instead if the most probable classes, or the other model's rule, do better.

    Nothing under a constraint, which argmax need not keep to.
    """
    if contents.baseline is None or contents.constrained:
        return []
    plain, rival = methods[1:3]
    for method, why in ((plain, "Its rule makes it worse"), (rival, "It is better")):
        found = differences[method["key"]]
        if is_clear(found) and (found["low"] > 0) != contents.resolved.greater_is_better:
            return [_use(contents, method), f"{why} {_by(found)}."]
    return []


def _more_rows(contents: Contents, found: Mapping[str, float]) -> str:
    """How many rows would tell."""
    rows = len(contents.y)
    needed = rows_to_tell(found["value"], found["low"], found["high"], rows)
    if needed is None:
        return TOO_SMALL
    fewest = np.unique(contents.y, return_counts=True)[1].min()
    needed = max(needed, math.ceil(rows * FEW / fewest))  # with fewer of a class nothing is clear
    if needed == rows:  # an interval that is not even on both sides
        return "A few more test rows would tell, if it stays as large as it seems."
    what = f"{needed:,} test rows, where there are {rows:,},"
    if contents.groups is not None:
        what = f"{needed / rows:.1f} times as many groups of test rows"
    return (
        f"About {what} would tell, if it stays as large as it seems: the interval narrows with the "
        f"square root of their number. That is a rough figure, for a chance of {POWER:.0%}."
    )


def rule_in_words(contents: Contents, model: int) -> str:
    """From which probability on the rule of a model of two classes gives the second."""
    assert contents.findings is not None
    first, second = contents.classes
    cut = contents.findings.cuts[model][1]
    name = contents.models[model].label
    if cut is None:
        return f"The rule of {name}: never {second}, always {first}."
    if cut == 0:
        return f"The rule of {name}: always {second}."
    return (
        f"The rule of {name}: {second} from a probability of {probability(cut)} on, else {first}."
    )


def probability(cut: float) -> str:
    """Write a probability, with more digits where it is close to 0 or 1.

    Examples:
        >>> probability(0.3149), probability(0.0012345), probability(0.99998765)
        ('0.31', '0.00123', '0.999988')
    """
    if 0.095 <= cut <= 0.905:
        return f"{cut:.2f}"
    return f"{cut:.3g}" if cut < 0.5 else f"{1 - float(f'{1 - cut:.2g}'):.12g}"
