"""Fit a rule to rows in float64, by the search for the decision and the task."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evalign.core.arrays import with_mean_one
from evalign.core.checks import require
from evalign.core.positive import check_positive
from evalign.core.task import Task
from evalign.decisions.blocks import blocks, sigmoid, softmax
from evalign.decisions.classes import class_names
from evalign.decisions.confusions import confusion_of, normalised
from evalign.decisions.inputs import class_vector
from evalign.decisions.multilabel import expected_thresholds, tuned_thresholds
from evalign.decisions.objective import Objective
from evalign.decisions.promise import promised
from evalign.decisions.reversed_scores import warn_of_reversed
from evalign.decisions.rule import DecisionRule
from evalign.decisions.settings import FitSettings, Rows
from evalign.decisions.threshold import threshold_gains
from evalign.decisions.tuned import Fitted, LogitRows, expected, expected_targets, tuned

if TYPE_CHECKING:
    from evalign.decisions.inputs import Values

# Scores with larger median log-odds are scaled down: their softmax would saturate.
LARGEST_LOG_ODDS = 20.0


class FitProblem(NamedTuple):
    """Rows ready for the search: their logits, with offsets of the network added, are scaled.

    `own` are the scaled offsets, and `argmax` is the gain matrix of the network's own labels.
    """

    objective: Objective
    logits: np.ndarray
    labels: np.ndarray | None
    weight: np.ndarray
    groups: np.ndarray | None
    scale: float
    own: np.ndarray
    argmax: np.ndarray

    @property
    def target(self) -> np.ndarray | None:
        """The labels as `ScoredRows` has them."""
        if self.labels is None or self.groups is None:
            return self.labels
        return self.groups * self.logits.shape[1] + self.labels


def fit_rows(
    settings: FitSettings,
    rows: Rows,
    offsets: "Values | None",
    groups: np.ndarray | None = None,
) -> DecisionRule:
    """Fit a rule to rows, which may have groups (R,)."""
    owner = settings.owner
    number = rows.logits.shape[1]
    if settings.task == "binary":
        require(
            number == 2,
            owner,
            "task",
            f"be multiclass for {number} classes",
            "binary",
            'Labels that do not exclude each other are task="multilabel".',
        )
    require(
        bool(rows.counted.any()),
        owner,
        "y and sample_weight",
        "leave at least one row that is not ignored and whose weight is not 0",
        "none",
    )
    names = None if settings.classes is None else class_names(owner, settings.classes, number)
    classes = settings.class_order(number)
    if not rows.multilabel:
        check_positive(owner, classes.labels, settings.pos_label)
    problem = _problem(settings, rows, offsets, groups, names)
    if number == 2 and problem.labels is not None and not rows.multilabel:
        place = classes.positive
        name = classes.labels[place]
        warn_of_reversed(owner, problem.logits, problem.labels, place, name)
    found = _search(settings, problem)
    objective = problem.objective
    logits = problem.logits
    weight = problem.weight

    # Labels say what is true unless the rule was made for probabilities alone.
    by_labels = settings.decision != "expected" and problem.labels is not None
    tuned_by_labels = settings.decision == "tuned" and by_labels
    eta: Any = None  # takes time, and is not always read
    if objective.constraints or not tuned_by_labels:
        eta = sigmoid(logits) if rows.multilabel else softmax(logits, found.factor, found.offsets)
    true: Any = problem.target
    if not by_labels:
        # The targets of the search: a group where no row may have the class has no recall.
        labels = None if rows.multilabel else problem.labels
        targets = expected_targets(logits, labels, weight, eta)
        true = objective.by_group(targets, problem.groups)
    argmax_score = None
    if found.score is not None:
        own_eta = logits if rows.multilabel else softmax(logits)
        sums = confusion_of(objective, logits, own_eta, true, weight, problem.argmax)
        argmax_score = float(objective.unconstrained().scores(sums[None])[0])
    slacks = None
    if objective.constraints:
        sums = confusion_of(objective, logits, eta, true, weight, found.gain)
        slacks = objective.slacks(sums)
    # The rule gets logits without offsets: factor·(scale·logits + own) + found offsets.
    factor = found.factor * problem.scale
    corrected = offsets is not None or factor != 1 or bool(np.any(found.offsets))
    return DecisionRule(
        gain=found.gain,
        decision=settings.decision,
        source=found.source,
        metric=settings.metric,
        constraint=settings.constraint,
        score=found.score,
        offsets=found.factor * problem.own + found.offsets if corrected else None,
        factor=factor,
        task=_task(rows.multilabel, number),
        classes=names,
        class_dim=1 if settings.class_dim is None else settings.class_dim,
        class_prior=_shares(problem.labels if tuned_by_labels else eta, weight, number),
        rows=len(logits),
        slacks=slacks,
        confidence=None if settings.confidence is None else float(settings.confidence),
        promised=found.promised,
        argmax_score=argmax_score,
        pos_label=classes.labels[classes.positive] if number == 2 and not rows.multilabel else None,
    )


def _task(multilabel: bool, columns: int) -> Task:
    """The task of a rule for so many columns of scores."""
    if multilabel:
        return "multilabel"
    return "binary" if columns == 2 else "multiclass"


def _problem(
    settings: FitSettings,
    rows: Rows,
    offsets: "Values | None",
    groups: np.ndarray | None,
    names: list[str | float] | None,
) -> FitProblem:
    """Prepare the rows that have weight."""
    owner = settings.owner
    multilabel = rows.multilabel
    number = rows.logits.shape[1]
    counted = rows.counted
    # Only ratios of weights matter, but the priors of `calibration` need counts of rows.
    rows = rows._replace(weight=with_mean_one(rows.weight))
    if not counted.all():  # avoids copies
        rows = rows.chosen(np.flatnonzero(counted))
    number_of_groups = 0
    group_of_row = None
    if groups is not None:
        values, group_of_row = np.unique(groups[counted], return_inverse=True)
        number_of_groups = len(values)
        require(number_of_groups > 1, owner, "constraint_groups", "name at least two groups", 1)
    if multilabel:
        require(
            groups is None and settings.confidence is None,
            owner,
            "constraint_groups and confidence",
            "be None for multilabel problems",
            settings.confidence,
            "Fit each label by itself.",
        )
    objective = Objective.of(
        owner, settings.metric, settings.constraint, names, number_of_groups, multilabel=multilabel
    )
    if not multilabel:
        objective = objective.counting(settings.class_order(number))
    logits, labels, weight = rows
    own = np.zeros(number)
    if offsets is not None:
        own = class_vector(owner, "offsets", offsets, number)
        logits = logits + own
    scale = 1.0 if labels is None else _scale(logits, multilabel)
    if scale != 1:
        logits = scale * logits
        own = scale * own
    # The argmax of the network's logits is that of η_j e^(−own_j).
    argmax = threshold_gains(own) if multilabel else normalised(np.diag(softmax(-own[None])[0]))
    return FitProblem(objective, logits, labels, weight, group_of_row, scale, own, argmax)


def _scale(logits: np.ndarray, multilabel: bool) -> float:
    """A factor for logits whose median log-odds are too large."""
    leads = np.abs(logits).ravel() if multilabel else _leads(logits)
    middle = (len(leads) - 1) // 2
    median = np.partition(leads, middle)[middle]
    return min(1.0, LARGEST_LOG_ODDS / max(float(median), 1e-300))


def _leads(logits: np.ndarray) -> np.ndarray:
    """How far the largest logit of each row is ahead of the second largest, (N,)."""
    leads = np.empty(len(logits))
    for part in blocks(*logits.shape):
        columns = logits[part].T
        largest = columns[0]
        second = np.full_like(largest, -np.inf)
        for column in columns[1:]:
            second = np.maximum(second, np.minimum(largest, column))
            largest = np.maximum(largest, column)
        leads[part] = largest - second
    return leads


def _search(settings: FitSettings, problem: FitProblem) -> Fitted:
    """Search for the rule, by the decision and the task."""
    objective, logits, labels, weight, groups, _, own, argmax = problem
    if settings.decision == "argmax":
        return Fitted(argmax, "argmax")
    if settings.decision == "expected" or labels is None:
        if objective.multilabel:
            return expected_thresholds(logits, weight, objective)
        return expected(logits, weight, objective, groups, labels)
    if objective.multilabel:
        return tuned_thresholds(logits, labels, weight, objective, own)
    rows = LogitRows(logits, labels, weight, argmax, groups)
    if settings.confidence:
        return promised(rows, objective, settings.confidence)
    return tuned(rows, objective)


def _shares(true: Any, weight: np.ndarray, number: int) -> np.ndarray:
    """The share of each class or label in the rows: of labels, or of probabilities."""
    if weight.ndim == 2:
        mass = (weight * true).sum(0)
    elif true.ndim == 1:
        mass = np.bincount(true, weight, number)
    else:
        mass = weight @ true
    return mass / np.maximum(weight.sum(0), 1e-300)
