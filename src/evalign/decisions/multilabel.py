"""Multilabel problems: a threshold for each label.

An average over labels (macro, weighted) is maximal where each label has the best of all its
thresholds. Any other function of the labels' sums is maximised by coordinate ascent: over all
thresholds of one label, while the others are fixed. For a quotient of sums over labels, such as
micro-averaged F1, the ascent ends at a global optimum.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import ClassMetric, FBeta
from evalign.decisions import calibration
from evalign.decisions.confusions import label_sums
from evalign.decisions.inputs import without_floor
from evalign.decisions.objective import ROUNDING, Objective
from evalign.decisions.threshold import all_cuts, best_cut, threshold_gains
from evalign.decisions.tuned import FOLDS, Fitted, enough, folds

# Rounds over all labels. The ascent ends when a round changes nothing, usually after four.
MOST_ROUNDS = 20
# Thresholds tried for a label where each costs a call of the metric, because it reads the sums of
# all labels. They are spread evenly over all rows and over positive rows.
MOST_CUTS = 2**10
# Weight of the constraint relative to the metric in the Lagrangian.
ODDS = [0.0, *(2.0**k for k in range(-5, 11))]


def label_score(objective: Objective) -> tuple[Callable[[Confusion], Tensor] | None, bool]:
    """The score of one label's sums, and whether they are pooled over labels (micro average).

    None if the objective needs the sums of all labels.
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
    """The best thresholds on the log-odds (L,) for labels or probabilities (N, L)."""
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
    """Many confusions of one label as the labels of one confusion, to score them all at once."""
    return Confusion(tp, predicted, actual.expand_as(tp), total.expand_as(tp), multilabel=True)


def expected_thresholds(margin: Tensor, weight: Tensor, objective: Objective) -> Fitted:
    """Find the thresholds for calibrated probabilities."""
    at = thresholds(margin, without_floor(margin.sigmoid()), weight, objective)
    return Fitted(threshold_gains(at), "expected")


def tuned_thresholds(
    margin: Tensor, y: Tensor, weight: Tensor, objective: Objective, own: Tensor
) -> Fitted:
    """Find the thresholds for labels y (N, L) with weights (N, L).

    A threshold lies halfway between the best for the labels and the best for the label's calibrated
    probabilities: no rule in `study/benchmarks/multilabel_rules.py` did better. A label that all
    rows have, or none, keeps the network's own threshold, in `own` (L,).
    """
    positive, given = y.double(), weight

    def learned(weight: Tensor) -> Tensor:
        a, b = calibration.factor_and_offset(margin, positive, weight)
        z = a * margin + b
        by_probabilities = (thresholds(z, z.sigmoid(), given, objective) - b) / a
        by_labels = thresholds(margin, positive, weight, objective)
        actual, total = (weight * positive).sum(0), weight.sum(0)
        return torch.where((actual > 0) & (actual < total), (by_labels + by_probabilities) / 2, own)

    counts = torch.stack([(weight * (y == value) > 0).sum(0) for value in (0, 1)])
    if objective.constraints or enough(counts):  # constraints are about these labels
        found = thresholds(margin, positive, weight, objective)
        reached = label_sums(margin, positive, weight, found)
    else:
        found, reached = learned(weight), torch.zeros(4, y.shape[1]).to(margin)
        fold = torch.stack([folds(column) for column in y.T], 1)
        for held_out in (weight * (fold == number) for number in range(FOLDS)):
            reached += label_sums(margin, positive, held_out, learned(weight - held_out))
    score = objective.scores(reached.unsqueeze(0)).item()
    return Fitted(threshold_gains(found), "labels", score)


def _climb(
    lines: list[tuple[Tensor, Tensor]],
    totals: Tensor,
    objective: Objective,
    of_sums: Callable[[Confusion], Tensor] | None,
) -> Tensor:
    """Climb from the model's own thresholds, one label at a time, until no change is better.

    Constraints enter through the Lagrangian, with increasing weight; then only points that meet
    the constraints count.
    """

    def reached(at: list[int]) -> Tensor:
        """The sums (4, L) at the chosen threshold of each label."""
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

    own = [int(middle.abs().argmin()) for middle, _ in lines]

    def best(objective: Objective) -> list[int]:
        at, kept, most = own, own, -torch.inf
        for odds in ODDS if objective.constraints else ():
            share = totals.new_tensor(odds / (1 + odds))
            at = climbed(at, lambda sums, share=share: objective.mixed(sums, share))
            score = objective.scores(reached(at).unsqueeze(0)).item()
            if most == -torch.inf or score > most + ROUNDING:
                most, kept = score, at
        return climbed(kept, objective.scores)

    found = best(objective)
    objective.check_met(reached(found), lambda side: reached(best(side)))
    return torch.stack([middle[k] for (middle, _), k in zip(lines, found, strict=True)])


def _line(
    margin: Tensor, positive: Tensor, weight: Tensor, most: int | None
) -> tuple[Tensor, Tensor]:
    """The thresholds of one label (K,), and true positives and predicted mass above each (K, 2).

    Rows without weight are left out.
    """
    counted = weight > 0 if weight.any() else weight == 0
    target = torch.stack([positive, torch.ones_like(positive)], 1)
    middle, _, cells = all_cuts(margin[counted], target[counted], weight[counted])
    above = cells[..., 1]
    if most is not None and len(middle) > most:
        share = (1 - above / above[0].clamp(min=1e-300)).mean(1)
        even = torch.linspace(0, 1, most, dtype=share.dtype, device=share.device)
        kept = torch.searchsorted(share, even).clamp(max=len(share) - 1).unique()
        middle, above = middle[kept], above[kept]
    return middle, above
