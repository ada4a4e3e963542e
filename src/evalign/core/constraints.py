"""Constraints on metrics in words: "recall[fraud] >= 0.9, predicted_rate <= 0.05"."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from evalign.core.arrays import constant, library, where
from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, Metric, resolve
from evalign.core.metrics.averages import Quotient
from evalign.core.metrics.base import NamedMetric
from evalign.core.metrics.names import with_averages
from evalign.core.metrics.slopes import Slopes
from evalign.core.text import listed, nearest

FORM = "be a metric's name, >= or <=, and a number"
EXAMPLE = 'As in "recall >= 0.9", or several: "recall >= 0.9, specificity >= 0.8".'
SIGNS = "<>=!≤≥"


class FalsePositiveRate(ClassMetric):
    """fp / (fp + tn), which is 1 − specificity."""

    stem = "fpr"

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"fp": 1}, {"negatives": 1}),)


class FalseNegativeRate(ClassMetric):
    """fn / (fn + tp), which is 1 − recall."""

    stem = "fnr"

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"fn": 1}, {"actual": 1}),)


class PredictedRate(ClassMetric):
    """The share of the rows that get the label."""

    stem = "predicted_rate"

    def quotients(self, c: Confusion) -> tuple[Quotient, ...]:
        return (Quotient({"predicted": 1}, {"total_of_each": 1}),)


# They bound a rule but are not goals: each is smallest for a rule that predicts no row, or all.
_RATES = FalsePositiveRate, FalseNegativeRate, PredictedRate
RATES = {name: each for rate in _RATES for name, each in with_averages(rate).items()}


@dataclass(frozen=True)
class OfClass(Metric):
    """The score of one class against the rest: of class 1 of two if the index is None.

    The metric gives the scores of all classes (`average=None`). Errors name the `owner`.
    """

    metric: ClassMetric
    index: int | None
    owner: str = field(default="OfClass", repr=False, compare=False)

    def __post_init__(self) -> None:
        self._settle(bounds=self.metric.bounds)

    @property
    def name(self) -> str:
        return self.metric.stem if self.index is None else f"{self.metric.stem}[{self.index}]"

    def __call__(self, c: Confusion) -> Any:
        return self.metric.score(c)[..., self._place(c)]

    def slopes(self, c: Confusion) -> Slopes:
        place = self._place(c)
        chosen = tuple(float(k == place) for k in range(c.num_classes))
        of_classes = self.metric.slopes_of_classes(c)
        return of_classes.times(constant(chosen, c.tp)).gathered(c.multilabel)

    def _place(self, c: Confusion) -> int:
        """The position of the class."""
        last = c.num_classes - 1
        if self.index is None:
            stem = self.metric.stem
            allowed = f"say which of the {c.size} it is about"
            cure = f'Use "{stem}_macro" for their mean, or "{stem}[{last}]" for one of them.'
            require(c.two, self.owner, "constraint", allowed, f'"{stem}"', cure)
            return 1
        allowed = f"be about one of the {c.size} from 0 to {last}"
        require(self.index <= last, self.owner, "constraint", allowed, f'"{self.name}"')
        return self.index


class Infeasible(ValueError):
    """No rule meets a constraint."""


@dataclass(frozen=True)
class Constraint:
    """A metric, or its gap between groups of rows, and its bound, which is allowed.

    The text is as it was given. The metric of a gap is NaN where it is 0/0.
    """

    text: str
    metric: Metric
    at_least: bool
    bound: float
    gap: bool = False

    @property
    def name(self) -> str:
        """The name of what is bounded."""
        return f"gap({self.metric.name})" if self.gap else self.metric.name

    @property
    def given(self) -> str:
        """What is bounded, as it was given, which may be by the name of a class."""
        return self.text.rpartition("=")[0][:-1].strip()

    def value(self, c: Confusion, groups: Sequence[Confusion] | None = None) -> Any:
        """What is bounded; a gap is the largest value of the groups minus the smallest.

        A group whose metric is 0/0, such as recall without a row of the class, is left out. Without
        any group the gap is 0.
        """
        if not self.gap:
            return self.metric(c)
        xp = library(c.tp)
        values = xp.stack([self.metric(group) for group in groups or ()])
        counted = ~xp.isnan(values)
        most = xp.amax(where(counted, values, -math.inf), 0)
        least = xp.amin(where(counted, values, math.inf), 0)
        some = counted.any(0)
        gap = where(some, where(some, most, 0.0) - where(some, least, 0.0), 0.0)
        return where(xp.isnan(c.tp).any(-1), math.nan, gap)  # NaN logits stay visible

    def slack(self, c: Confusion, groups: Sequence[Confusion] | None = None) -> Any:
        """How far it is on the allowed side of its bound; negative on the other side."""
        value = self.value(c, groups)
        return value - self.bound if self.at_least else self.bound - value


def parse(
    text: str, classes: Iterable[object] | None = None, *, owner: str = "parse"
) -> tuple[Constraint, ...]:
    """The constraints that a text names, separated by commas.

    A constraint is a name of `metrics.names()`, "fpr", "fnr" or "predicted_rate" (the share of rows
    with a label), then ">=" or "<=", and a number. A class stands in brackets behind the name: its
    name, which may hold any characters, also commas and brackets, or its index from 0 unless names
    themselves are numbers. Without brackets a score of one class is that of class 1 of two. In a
    multilabel problem the class is the label.

    "gap(recall) <= 0.05" bounds the difference between the largest and the smallest recall of
    groups of rows (equal opportunity); with "gap(fpr) <= 0.05", these are equal odds. A class
    stands inside: "gap(recall[cat])". `classes` are the names in the order of the indices; errors
    name the `owner`.

    Examples:
        >>> for c in parse("recall[cat, wild] >= 0.9, fpr <= 0.1", ["dog", "cat, wild"]):
        ...     print(c.metric.name, c.at_least, c.bound)
        recall[1] True 0.9
        fpr False 0.1
    """
    if not isinstance(text, str):
        kind = type(text).__name__
        raise TypeError(complaint(owner, "constraint", "be a text", kind, EXAMPLE))
    names = None if classes is None else [str(name) for name in classes]
    return tuple(_constraint(term, names, owner) for term in _terms(text, names or []))


def _terms(text: str, names: Sequence[str]) -> Iterator[re.Match[str]]:
    """The parts between commas, except commas within a class's name or a matrix of costs."""
    known = "".join(rf"\s*{re.escape(name)}\s*|" for name in sorted(names, key=len, reverse=True))
    matrix = r"[\s\d\[\],.eE+-]*"
    term = re.compile(
        rf"\s*(?P<gap>gap\s*\()?\s*(?P<name>[^\[\](),{SIGNS}]*)"
        rf"(?:\[(?P<inner>{known}[^\[\]]*|{matrix})\])?\s*(?P<closed>\))?\s*"
        rf"(?P<sign>[{SIGNS}]*)(?P<bound>[^,]*)"
    )
    start = 0
    while found := term.match(text, start):
        yield found
        if found.end() == len(text):
            return
        start = found.end() + 1


def _constraint(term: re.Match[str], names: Sequence[str] | None, owner: str) -> Constraint:
    shown = repr(term[0].strip())
    name, sign, gap = term["name"].strip(), term["sign"], term["gap"] is not None
    bound = math.nan
    with suppress(ValueError):
        bound = float(term["bound"])
    closed = (term["closed"] is not None) == gap
    ok = sign in (">=", "<=") and not math.isnan(bound) and name != "" and closed
    require(ok, owner, "constraint", FORM, shown, EXAMPLE)
    metric = _metric(name, term["inner"], names, owner)
    low, high = metric.bounds
    if gap:
        allowed, cure = "bound a gap from above, by <=", "Every rule has one of at least 0."
        require(sign == "<=", owner, "constraint", allowed, shown, cure)
        metric, low, high = undefined(metric), 0.0, high - low
    constraint = Constraint(term[0].strip(), metric, sign == ">=", bound, gap)
    allowed = f"have a bound from {low:g} to {high:g}, where {constraint.name} lies"
    never = bound > high if sign == ">=" else bound < low
    cure = "No rule can meet it." if never else "Every rule meets it: leave it out."
    require(low <= bound <= high, owner, "constraint", allowed, shown, cure)
    return constraint


def _metric(name: str, inner: str | None, names: Sequence[str] | None, owner: str) -> Metric:
    """The metric of this name, or its score of the class in the brackets."""
    if name == "expected_cost" and inner is not None:
        return resolve(f"{name}[{inner}]", owner=owner)
    metric = RATES.get(name) or resolve(name, owner=f"{owner}'s constraint")
    if isinstance(metric, ClassMetric) and metric.average == "binary":
        index = None if inner is None else _index(inner, names, owner)
        return OfClass(replace(metric, average=None), index, owner)
    allowed = "have a class behind a score of one class only"
    got, cure = f'"{name}[{inner}]"', f'Use "{name}" alone.'
    require(inner is None, owner, "constraint", allowed, got, cure)
    return metric


def _index(inner: str, names: Sequence[str] | None, owner: str) -> int:
    """The class that stands in the brackets."""
    if names is not None and inner.strip() in names:
        return names.index(inner.strip())
    allowed, cure = "name a class by its index from 0", "Or pass classes=, the names in order."
    by_index, most = re.fullmatch(r"\s*[0-9]{1,9}\s*", inner) is not None, math.inf
    if names is not None:
        allowed, cure = f"name one of the classes {listed(names)}", nearest(inner, names)
        most = 0 if any(re.fullmatch(r"-?\d+\.?\d*", name) for name in names) else len(names)
    ok = by_index and int(inner) < most
    require(ok, owner, "constraint", allowed, repr(inner), cure)
    return int(inner)


def undefined(metric: Metric) -> Metric:
    """The metric with NaN for 0/0: a group without a recall does not have a recall of 0%."""
    if isinstance(metric, OfClass):
        return replace(metric, metric=replace(metric.metric, zero_division=math.nan))
    return replace(metric, zero_division=math.nan) if isinstance(metric, NamedMetric) else metric
