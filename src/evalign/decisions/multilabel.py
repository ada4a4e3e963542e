"""Multilabel problems: a threshold for each label.

A metric that averages scores of the labels (macro, weighted) is best where each label's score is:
the best of all thresholds of each label, exactly. Any other function of the labels' sums is climbed
label by label, over all thresholds of one while those of the others stand still. For a quotient of
sums over labels, such as F1 or Jaccard with micro averages, where no single threshold can be better
no others can either: the end of the climb is the best of all. (Markedness and Fowlkes–Mallows are
not such quotients.)
"""

from collections.abc import Callable

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, FBeta
from evalign.decisions import calibration
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.threshold import SATURATED, best_cut, cut_places
from evalign.decisions.tuned import FOLDS, enough, folds

# Rounds over all labels. A climb ends as soon as a round changes nothing, mostly after four.
MOST_ROUNDS = 20
# Thresholds of a label that a climb looks at, for functions that read every label's sums: each
# costs a call of the function. They are spread evenly over rows and over positive ones.
MOST_CUTS = 2**10
# Odds of the constraint against the metric in the Lagrangian.
ODDS = [0.0, *(2.0**k for k in range(-5, 11))]


def label_score(objective: Objective) -> tuple[Callable[[Confusion], Tensor] | None, bool]:
    """The score of one label's sums, and whether the labels' sums are added up first.

    They are for a micro average; otherwise the best of each label is the best of all. The score is
    None where the objective reads the sums of all labels.
    """
    metric = objective.metric
    if not isinstance(metric, ClassMetric) or metric.labels is not None or objective.constraints:
        return None, False
    if isinstance(metric, FBeta) and not isinstance(metric.beta, int | float):
        return None, False
    if metric.average == "micro":
        return metric.score, True
    means = metric.average in ("macro", "weighted") and not metric.nan_if_undefined
    return metric.score if means else None, False


def thresholds(margin: Tensor, positive: Tensor, weight: Tensor, objective: Objective) -> Tensor:
    """The best thresholds on the log-odds (L,), for labels or their probabilities (N, L)."""
    score, pooled = label_score(objective)
    most = None if score is not None else MOST_CUTS
    columns = zip(margin.T, positive.T, weight.T, strict=True)
    lines = [_line(*column, most) for column in columns]
    totals = torch.stack([(weight * positive).sum(0), weight.sum(0)])
    if score is None or pooled:
        return _climb(lines, totals, objective, score)
    found = []
    for (middle, above), total in zip(lines, totals.T, strict=True):
        scores = score(_as_labels(*above.T, *total))
        found.append(middle[best_cut(middle, scores)])
    return torch.stack(found)


def _as_labels(tp: Tensor, predicted: Tensor, actual: Tensor, total: Tensor) -> Confusion:
    """Many confusions of one label as the labels of one confusion, to score all of them at once."""
    return Confusion(tp, predicted, actual.expand_as(tp), total.expand_as(tp), multilabel=True)


def sums(margin: Tensor, positive: Tensor, weight: Tensor, at: Tensor) -> Tensor:
    """True positives, predicted, actual and total mass (4, L) of the labels at thresholds."""
    margin = margin.clamp(-SATURATED, SATURATED)  # a threshold beyond has all rows on one side
    predicted, actual = weight * (margin > at), weight * positive
    return torch.stack(
        [(predicted * positive).sum(0), predicted.sum(0), actual.sum(0), weight.sum(0)]
    )


def tuned_thresholds(
    margin: Tensor, y: Tensor, weight: Tensor, objective: Objective, own: Tensor
) -> tuple[Tensor, float]:
    """Thresholds found with labels y (N, L) of weights (N, L), and their score.

    A threshold lies halfway between the best one for the labels and the best one for the label's
    calibrated probabilities. On eight networks of four sets, one split of each
    (`study/benchmarks/multilabel_rules.py`), this rule was first by macro-F1, with 57.9 points:
    calibrated probabilities alone reached 57.7, labels and probabilities in one search, as for two
    classes, 57.3, a choice among five rules by folds 57.1, labels alone 55.6. So few networks do
    not tell the first three apart, and by micro-F1 calibrated probabilities alone were ahead.

    A label that all rows have, or none, keeps the network's own threshold, in `own` (L,): nothing
    tells whether its probabilities are right.
    """
    positive, given = y.double(), weight

    def learned(weight: Tensor) -> Tensor:
        columns = zip(margin.T, positive.T, weight.T, strict=True)
        numbers = [calibration.factor_and_offset(*column) for column in columns]
        a, b = (torch.stack(each) for each in zip(*numbers, strict=True))
        z = a * margin + b
        by_probabilities = (thresholds(z, z.sigmoid(), given, objective) - b) / a
        by_labels = thresholds(margin, positive, weight, objective)
        actual, total = (weight * positive).sum(0), weight.sum(0)
        return torch.where((actual > 0) & (actual < total), (by_labels + by_probabilities) / 2, own)

    counts = torch.stack([(weight * (y == value) > 0).sum(0) for value in (0, 1)])
    # A constraint is about these labels.
    if objective.constraints or enough(counts):
        found = thresholds(margin, positive, weight, objective)
        reached = sums(margin, positive, weight, found)
    else:
        found, reached = learned(weight), torch.zeros(4, y.shape[1]).to(margin)
        fold = torch.stack([folds(column) for column in y.T], 1)
        for held_out in (weight * (fold == number) for number in range(FOLDS)):
            reached += sums(margin, positive, held_out, learned(weight - held_out))
    return found, objective.scores(reached.unsqueeze(0)).item()


def _climb(
    lines: list[tuple[Tensor, Tensor]],
    totals: Tensor,
    objective: Objective,
    of_sums: Callable[[Confusion], Tensor] | None,
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
        for _ in range(MOST_ROUNDS):
            before = list(at)
            for label, (middle, above) in enumerate(lines):
                if of_sums is not None:
                    tp, predicted = (above + (here.sum(1) - here[:, label])[:2]).T
                    scores = of_sums(_as_labels(tp, predicted, *totals.sum(1)))
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

    at = [int(middle.abs().argmin()) for middle, _ in lines]
    if objective.constraints:
        best, kept = -torch.inf, None
        for odds in ODDS:
            share = totals.new_tensor(odds / (1 + odds))
            at = climbed(at, lambda sums, share=share: objective.mixed(sums, share))
            score = objective.scores(reached(at).unsqueeze(0)).item()
            if score > best + ROUNDING:
                best, kept = score, at
        if kept is None:
            raise objective.infeasible(reached(at).unsqueeze(0))
        at = kept
    at = climbed(at, objective.scores)
    return torch.stack([middle[k] for (middle, _), k in zip(lines, at, strict=True)])


def _line(
    margin: Tensor, positive: Tensor, weight: Tensor, most: int | None
) -> tuple[Tensor, Tensor]:
    """The thresholds of one label (K,), and true positives and predicted mass above each (K, 2).

    Only rows with weight have a part in them.
    """
    counted = weight > 0
    if counted.any():
        margin, positive, weight = margin[counted], positive[counted], weight[counted]
    order, middle, kept = cut_places(margin)
    below = torch.stack([weight * positive, weight], 1)[order].cumsum(0)
    above = torch.cat([below[-1:], below[-1] - below])[kept]
    if most is not None and len(middle) > most:
        share = (1 - above / above[0].clamp(min=1e-300)).mean(1)
        even = torch.linspace(0, 1, most, dtype=share.dtype, device=share.device)
        kept = torch.searchsorted(share, even).clamp(max=len(share) - 1).unique()
        middle, above = middle[kept], above[kept]
    return middle, above
