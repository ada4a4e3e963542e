"""Goals beyond one number, of two classes, and the losses that a network is trained with for them.

A goal is a metric under a bound, or an area under a curve.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_curve
from torch import Tensor, nn

from evalign import losses
from evalign_study.refuted.constrained import ConstrainedLoss
from evalign_study.refuted.curves import PartialAUCLoss, RecallAtPrecisionLoss

Rate = Literal["precision", "recall", "fpr"]
Matrix = list[list[int]]  # [[true negatives, false positives], [false negatives, true positives]]


class Bounded(NamedTuple):
    """A metric to be large while another one keeps to a bound."""

    metric: Rate
    bounded: Rate
    bound: float

    @property
    def at_least(self) -> bool:
        return self.bounded != "fpr"

    @property
    def constraint(self) -> str:
        """The bound as `fit_decision` reads it.

        Examples:
            >>> BOUNDED["recall_at_fpr_1"].constraint
            'fpr <= 0.01'
        """
        return f"{self.bounded} {'>=' if self.at_least else '<='} {self.bound:g}"


BOUNDED = {
    "precision_at_recall_80": Bounded("precision", "recall", 0.8),
    "precision_at_recall_90": Bounded("precision", "recall", 0.9),
    "precision_at_recall_95": Bounded("precision", "recall", 0.95),
    "recall_at_precision_90": Bounded("recall", "precision", 0.9),
    "recall_at_fpr_1": Bounded("recall", "fpr", 0.01),
}
AP, PAUC = CURVES = ("average_precision", "partial_auc")
MAX_FPR = 0.1  # of the partial area
GOALS = (*BOUNDED, *CURVES)


def share(rate: Rate, matrix: Matrix) -> tuple[int, int]:
    """The rows that a rate counts, and those that it is a share of.

    Examples:
        >>> share("precision", [[90, 2], [1, 7]])
        (7, 9)
    """
    (_, fp), (fn, tp) = matrix
    negatives = sum(matrix[0])
    return {"precision": (tp, tp + fp), "recall": (tp, tp + fn), "fpr": (fp, negatives)}[rate]


def reached(y: np.ndarray, margin: np.ndarray) -> dict[str, float]:
    """What the best threshold for these very rows reaches, for every goal, and the areas.

    A label for no row at all keeps to every bound but that on recall, and has a recall of 0.

    Args:
        y: 0 or 1, of both some.
        margin: rises with the probability of 1.
    """
    false, true, _ = roc_curve(y, margin, drop_intermediate=False)
    positives = y.mean()
    labelled = positives * true + (1 - positives) * false
    precision = np.divide(positives * true, labelled, out=np.ones_like(true), where=labelled > 0)
    rates = {"precision": precision, "recall": true, "fpr": false}
    found = {}
    for name, (metric, bounded, bound) in BOUNDED.items():
        # A rate that equals its bound may be less by rounding.
        slack = rates[bounded] - bound if BOUNDED[name].at_least else bound - rates[bounded]
        found[name] = float(rates[metric][slack >= -1e-12].max(initial=0.0))
    cut = np.interp(MAX_FPR, false, true)
    inside = false <= MAX_FPR
    area = np.trapezoid(np.append(true[inside], cut), np.append(false[inside], MAX_FPR))
    average = float(average_precision_score(y, margin))
    return found | {AP: average, PAUC: float(area / MAX_FPR)}


class GoalMethod(NamedTuple):
    """A loss of logits (N, 2) and labels, made for the counts of the two classes.

    Args:
        loss: None for one that brings its own optimiser and batches, made by `libauc_losses`.
        aim: the goal by whose validation score its learning rate is chosen.
        goals: those that it is judged by.
    """

    loss: Callable[[Tensor], nn.Module] | None
    aim: str
    goals: tuple[str, ...] = GOALS


def _weighted(counts: Tensor) -> nn.Module:
    return nn.CrossEntropyLoss((counts.sum() / counts).float())


def _constrained(goal: str, counts: Tensor) -> nn.Module:
    """Our recipe under the bound."""
    sought = BOUNDED[goal]
    return ConstrainedLoss(sought.metric, counts, constraint=sought.constraint, task="multiclass")


CONSTRAINED = "constrained_"
METHODS: dict[str, GoalMethod] = {
    "cross_entropy": GoalMethod(lambda counts: nn.CrossEntropyLoss(), AP),
    "weighted": GoalMethod(_weighted, AP),
    AP: GoalMethod(lambda counts: losses.AveragePrecisionLoss(ranks="own"), AP),
    PAUC: GoalMethod(lambda counts: PartialAUCLoss(MAX_FPR, ranks="own"), PAUC),
    "recall_at_precision": GoalMethod(
        lambda counts: RecallAtPrecisionLoss(0.9, ranks="own"), "recall_at_precision_90"
    ),
    **{
        CONSTRAINED + goal: GoalMethod(partial(_constrained, goal), goal, (goal,))
        for goal in BOUNDED
    },
    "libauc_ap": GoalMethod(None, AP),
    "libauc_pauc": GoalMethod(None, PAUC),
    "libauc_tpauc": GoalMethod(None, PAUC),
}
LIBAUC = tuple(name for name, method in METHODS.items() if method.loss is None)
# The method that stands for ours in each goal: one argument of the loss, or the area itself.
OURS = {goal: CONSTRAINED + goal for goal in BOUNDED} | {AP: AP, PAUC: PAUC}
