"""Many labels a row: a threshold for each label.

A metric that averages scores of the labels (macro, weighted) is best where each label's score is:
the best of all thresholds of each label, exactly. Any other function of the labels' sums is climbed
label by label, over all thresholds of one while those of the others stand still. For a quotient of
sums over labels, such as F1 or Jaccard with micro averages, where no single threshold can be better
no others can either: the end of the climb is the best of all. (Markedness and Fowlkes–Mallows are
not such quotients.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, FBeta, Metric
from evalign.decisions import calibrate
from evalign.decisions.cuts import SATURATED, best_cut
from evalign.decisions.goal import ROUNDING, Goal, first_best
from evalign.decisions.inputs import without_floor
from evalign.decisions.tuned import ENOUGH, FOLDS, folds

# Rounds over all labels. A climb ends as soon as a round changes nothing, mostly after four.
ROUNDS = 20
# Thresholds of a label that a climb looks at, for functions that read every label's sums: each
# costs a call of the function. They are spread evenly over rows and over positive ones.
CUTS = 2**10
# Odds of the constraint against the metric in the Lagrangian.
ODDS = [0.0, *(2.0**k for k in range(-5, 11))]


@dataclass(frozen=True)
class LabelGoal:
    """The goal of many labels a row.

    Args:
        joint: scores the sums (4, L) of all labels.
        score: scores the sums of one label, or of all labels together.
        form: "each" if the best of each label is the best of all, "pooled" if the labels' sums are
            added up first (a micro average), and "joint" for all else, which has no `score`.
    """

    joint: Goal
    score: Callable[[Confusion], Tensor] | None = None
    form: Literal["each", "pooled", "joint"] = "joint"

    @classmethod
    def of(cls, metric: Metric, goal: Goal) -> "LabelGoal":
        """Tell the form of a metric that the goal is made of."""
        goal = replace(goal, multilabel=True)
        if not isinstance(metric, ClassMetric) or metric.labels is not None or goal.slack:
            return cls(goal)
        if isinstance(metric, FBeta) and not isinstance(metric.beta, int | float):
            return cls(goal)
        if metric.average == "micro":
            return cls(goal, metric.score, "pooled")
        means = metric.average in ("macro", "weighted") and not metric.nan_if_undefined
        return cls(goal, metric.score, "each") if means else cls(goal)


def thresholds(
    owner: str, margin: Tensor, positive: Tensor, mass: Tensor, goal: LabelGoal
) -> Tensor:
    """The best thresholds on the log-odds (L,), for labels or their probabilities (N, L)."""
    most = CUTS if goal.form == "joint" else None
    columns = zip(margin.T, positive.T, mass.T, strict=True)
    lines = [_line(*column, most) for column in columns]
    totals = torch.stack([(mass * positive).sum(0), mass.sum(0)])
    if goal.form != "each":
        return _climb(owner, lines, totals, goal)
    assert goal.score is not None
    found = []
    for (middle, above), total in zip(lines, totals.T, strict=True):
        scores = goal.score(_vectors(*above.T, *total))
        found.append(middle[best_cut(middle, scores)])
    return torch.stack(found)


def _vectors(tp: Tensor, predicted: Tensor, actual: Tensor, total: Tensor) -> Confusion:
    """Many confusions of one label as one of many labels: a score of each is all that is asked."""
    return Confusion(tp, predicted, actual.expand_as(tp), total.expand_as(tp), multilabel=True)


def sums(margin: Tensor, positive: Tensor, mass: Tensor, at: Tensor) -> Tensor:
    """True positives, predicted, actual and total mass (4, L) of the labels at thresholds."""
    margin = margin.clamp(-SATURATED, SATURATED)  # a threshold beyond has all rows on one side
    predicted, actual = mass * (margin > at), mass * positive
    return torch.stack(
        [(predicted * positive).sum(0), predicted.sum(0), actual.sum(0), mass.sum(0)]
    )


def tuned(
    owner: str, margin: Tensor, y: Tensor, mass: Tensor, goal: LabelGoal, argmax: Tensor
) -> tuple[Tensor, str, float]:
    """Thresholds found with labels y (N, L), what they come from, and their score.

    A search over labels alone overfits where they are few. "labels", the
    search, is compared with "argmax", "expected", "calibrated" and "shrunk", which lies halfway
    between the search and "calibrated", on rows they have not seen. One of them is taken for all
    labels: with a single rare label the comparison would be as noisy as the search itself.

    Args:
        mass: the weights (N, L), 0 where a label is ignored.
        argmax: the thresholds of the labels that the network itself would give.
    """
    positive = y.double()

    def labels(learned: Tensor) -> Tensor:
        return thresholds(owner, margin, positive, learned, goal)

    def calibrated(learned: Tensor) -> Tensor:
        columns = zip(margin.T, positive.T, learned.T, strict=True)
        numbers = [calibrate.factor_and_offset(z, p, w) for z, p, w in columns]
        a, b = (torch.stack(each) for each in zip(*numbers, strict=True))
        corrected = a * margin + b
        return (
            thresholds(owner, corrected, without_floor(corrected.sigmoid()), mass, goal) - b
        ) / a

    def learned_rules(learned: Tensor) -> dict[str, Tensor]:
        by_labels, by_few_numbers = labels(learned), calibrated(learned)
        between = (by_labels + by_few_numbers) / 2
        return {"calibrated": by_few_numbers, "shrunk": between, "labels": by_labels}

    counts = torch.stack([(mass * (y == value) > 0).sum(0) for value in (0, 1)])
    # A constraint is about these rows, and only the search is sure to meet it.
    if counts[counts > 0].min() >= ENOUGH or goal.joint.slack is not None:
        found = labels(mass)
        score = goal.joint.scores(sums(margin, positive, mass, found).unsqueeze(0))
        return found, "labels", score.item()

    expected = thresholds(owner, margin, without_floor(margin.sigmoid()), mass, goal)
    known = {"argmax": argmax, "expected": expected}
    totals = {name: sums(margin, positive, mass, at) for name, at in known.items()}
    fold = torch.stack([folds(column) for column in y.T], 1)
    for held_out in (mass * (fold == k) for k in range(FOLDS)):
        for name, at in learned_rules(mass - held_out).items():
            totals[name] = totals.get(name, 0) + sums(margin, positive, held_out, at)
    scores = goal.joint.scores(torch.stack([*totals.values()]))
    # Of rules with equal scores the first is taken, which learns less.
    chosen = [*totals][int(first_best(scores))]
    found = known[chosen] if chosen in known else learned_rules(mass)[chosen]
    return found, chosen, scores.max().item()


def _climb(
    owner: str, lines: list[tuple[Tensor, Tensor]], totals: Tensor, goal: LabelGoal
) -> Tensor:
    """The thresholds where no single one can be better, from the model's own.

    A constraint is met through its Lagrangian, with ever more weight. From the best place on the
    way that meets the constraint, the climb goes on among those that meet it.
    """

    def reached(at: list[int]) -> Tensor:
        """The sums (4, L) at the chosen place on every line."""
        here = [above[k] for (_, above), k in zip(lines, at, strict=True)]
        return torch.cat([torch.stack(here, 1), totals])

    def climbed(at: list[int], score: Callable[[Tensor], Tensor]) -> list[int]:
        at, here = list(at), reached(at)
        for _ in range(ROUNDS):
            before = list(at)
            for label, (middle, above) in enumerate(lines):
                if goal.score is not None:
                    tp, predicted = (above + (here.sum(1) - here[:, label])[:2]).T
                    scores = goal.score(_vectors(tp, predicted, *totals.sum(1)))
                else:
                    along = here.repeat(len(middle), 1, 1)
                    along[:, :2, label] = above
                    scores = score(along)
                if scores.max() > scores[at[label]] + ROUNDING:
                    at[label] = int(best_cut(middle, scores))
                    here[:2, label] = above[at[label]]
            if at == before:
                break
        return at

    at, joint = [int(middle.abs().argmin()) for middle, _ in lines], goal.joint
    if joint.slack is not None:
        best, kept = -torch.inf, None
        for odds in ODDS:
            share = totals.new_tensor(odds / (1 + odds))
            at = climbed(at, lambda sums, share=share: joint.mixed(sums, share))
            score = joint.scores(reached(at).unsqueeze(0)).item()
            if score > best + ROUNDING:
                best, kept = score, at
        if kept is None:
            raise joint.infeasible(owner, reached(at).unsqueeze(0))
        at = kept
    at = climbed(at, joint.scores)
    return torch.stack([middle[k] for (middle, _), k in zip(lines, at, strict=True)])


def _line(
    margin: Tensor, positive: Tensor, mass: Tensor, most: int | None
) -> tuple[Tensor, Tensor]:
    """The thresholds of one label (K,), and true positives and predicted mass above each (K, 2).

    They are those of `best_threshold`, and only rows that count have a part in them.
    """
    counted = mass > 0
    if counted.any():
        margin, positive, mass = margin[counted], positive[counted], mass[counted]
    margin, order = margin.clamp(-SATURATED, SATURATED).sort()
    below = torch.stack([mass * positive, mass], 1)[order].cumsum(0)
    above = torch.cat([below[-1:], below[-1] - below])
    low, high = margin[:-1], margin[1:]
    middle = torch.cat(
        [(margin[:1] - 1).clamp(max=0), (low + high) / 2, (margin[-1:] + 1).clamp(min=0)]
    )
    edge = torch.ones(1, dtype=torch.bool, device=margin.device)
    apart = torch.cat([edge, high - low > ROUNDING * (1 + low.abs()), edge])
    middle, above = middle[apart], above[apart]
    if most is not None and len(middle) > most:
        share = (1 - above / above[0].clamp(min=1e-300)).mean(1)
        even = torch.linspace(0, 1, most, dtype=share.dtype, device=share.device)
        kept = torch.searchsorted(share, even).clamp(max=len(share) - 1).unique()
        middle, above = middle[kept], above[kept]
    return middle, above
