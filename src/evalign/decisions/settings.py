"""What a fit is asked for: its arguments, and the rows it is given, read and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from evalign.core.checks import require
from evalign.core.class_order import ClassOrder
from evalign.core.metrics import MetricFunction
from evalign.core.task import Task, check_task
from evalign.core.text import listed
from evalign.core.values import array_of
from evalign.decisions.inputs import as_labels, as_scores, as_weights
from evalign.decisions.objective import Objective
from evalign.decisions.p_values import RATES, rate_of
from evalign.decisions.saved_rule import Decision

if TYPE_CHECKING:
    from evalign.decisions.inputs import Values


@dataclass(frozen=True)
class FitSettings:
    """Arguments of `fit_decision` and `DecisionFitter`, as far as they can be checked alone.

    `classes` are in the order of the columns, and `order` is that of a metric which orders them.
    """

    owner: str
    metric: str | MetricFunction
    decision: Decision = "tuned"
    task: Task | None = None
    constraint: str | None = None
    confidence: float | None = None
    classes: Sequence[str | float] | np.ndarray | None = None
    ignore_index: int = -100
    class_dim: int | None = None
    pos_label: Any = None
    order: Sequence[Any] | np.ndarray | None = None

    def __post_init__(self) -> None:
        owner = self.owner
        decisions = get_args(Decision)
        require(
            self.decision in decisions,
            owner,
            "decision",
            f"be one of {', '.join(decisions)}",
            repr(self.decision),
        )
        require(
            self.decision != "argmax" or self.constraint is None,
            owner,
            "constraint",
            "be None for argmax",
            repr(self.constraint),
            'Use "tuned".',
        )
        check_task(owner, self.task)
        require(
            self.pos_label is None or self.task != "multilabel",
            owner,
            "pos_label",
            "be None if multilabel",
            repr(self.pos_label),
        )
        objective = Objective.of(owner, self.metric, self.constraint, self.classes, None)
        if self.confidence is None:
            return
        require(
            isinstance(self.confidence, Real) and 0.5 <= float(self.confidence) < 1,
            owner,
            "confidence",
            "lie from 0.5 to below 1",
            repr(self.confidence),
        )
        require(
            self.constraint is not None and self.decision == "tuned",
            owner,
            "confidence",
            'come with a constraint, such as "recall >= 0.9", and decision tuned',
            f"constraint {self.constraint!r} and decision {self.decision}",
            "A promise is of labels.",
        )
        others = [each.text for each in objective.constraints if rate_of(each) is None]
        require(
            not others,
            owner,
            "confidence",
            f"come with bounds on {', '.join(RATES)}, each of one class, or on their gaps",
            listed(others),
        )

    def class_order(self, number: int) -> ClassOrder:
        """How a metric counts the classes of so many columns."""
        names = None if self.classes is None else list(self.classes)
        order = None if self.order is None else list(self.order)
        return ClassOrder(number, names, order, self.pos_label)


class Rows(NamedTuple):
    """Logits (R, C), labels (R,) and weights (R,), or all of them (R, L) if multilabel."""

    logits: np.ndarray
    y: np.ndarray | None
    weight: np.ndarray

    @property
    def multilabel(self) -> bool:
        return self.weight.ndim == 2

    @property
    def counted(self) -> np.ndarray:
        """Whether each row has weight, (R,)."""
        return self.weight.sum(1) > 0 if self.multilabel else self.weight > 0

    def chosen(self, places: np.ndarray) -> "Rows":
        """The rows at some places, in their order."""
        y = None if self.y is None else self.y[places]
        return Rows(np.asfortranarray(self.logits[places]), y, self.weight[places])


def read_rows(
    settings: FitSettings,
    logits: "Values | None",
    y: "Values | None",
    probabilities: "Values | None",
    sample_weight: "Values | None",
) -> tuple[Rows, tuple[int, ...]]:
    """Read rows of weight 0 where a label is ignored, and their shape before it was flattened."""
    owner = settings.owner
    cure = "As class indices: np.unique(y, return_inverse=True)[1]."
    labels = None if y is None else array_of(owner, "y", y, cure)
    require(
        settings.decision != "tuned" or labels is not None,
        owner,
        "y",
        "hold labels for decision tuned",
        None,
        'Without labels use decision="expected".',
    )
    scores = as_scores(
        owner,
        logits,
        probabilities,
        labels,
        settings.task,
        settings.class_dim,
        settings.ignore_index,
        settings.classes,
        settings.class_order(2).positive,
    )
    weight = as_weights(owner, sample_weight, scores)
    if labels is not None:
        labels, counts = as_labels(owner, labels, scores, settings.ignore_index)
        weight = weight * counts
    return Rows(scores.rows, labels, weight), scores.shape
