"""Fit a rule to rows in float64, by the search for the decision and the task."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction
from evalign.core.numerics import with_mean_one
from evalign.core.text import listed
from evalign.core.values import tensor_of
from evalign.decisions.confusions import confusion_of, normalised
from evalign.decisions.inputs import Values, as_labels, as_scores, as_weights, class_vector
from evalign.decisions.multilabel import expected_thresholds, tuned_thresholds
from evalign.decisions.objective import Objective
from evalign.decisions.p_values import RATES, rate_of
from evalign.decisions.promise import promised
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.saved_rule import class_names
from evalign.decisions.threshold import threshold_gains
from evalign.decisions.tuned import Fitted, LogitRows, expected, tuned
from evalign.membership.rows import Task, check_task

# Scores with larger median log-odds are scaled down: their softmax would saturate.
LARGEST_LOG_ODDS = 20.0


@dataclass(frozen=True)
class FitSettings:
    """Arguments of `fit_decision` and `DecisionFitter`, as far as they can be checked alone."""

    owner: str
    metric: str | MetricFunction
    decision: Decision = "tuned"
    task: Task | None = None
    constraint: str | None = None
    confidence: float | None = None
    classes: Sequence[str | float] | np.ndarray | None = None
    ignore_index: int = -100
    class_dim: int | None = None

    def __post_init__(self) -> None:
        owner, known = self.owner, get_args(Decision)
        allowed = f"be one of {', '.join(known)}"
        require(self.decision in known, owner, "decision", allowed, repr(self.decision))
        free, cure = self.decision != "argmax" or self.constraint is None, 'Use "tuned".'
        require(free, owner, "constraint", "be None for argmax", repr(self.constraint), cure)
        check_task(owner, self.task)
        objective = Objective.of(owner, self.metric, self.constraint, self.classes, None)
        if self.confidence is None:
            return
        ok = isinstance(self.confidence, Real) and 0.5 <= float(self.confidence) < 1
        require(ok, owner, "confidence", "lie from 0.5 to below 1", repr(self.confidence))
        ok = self.constraint is not None and self.decision == "tuned"
        allowed = 'come with a constraint, such as "recall >= 0.9", and decision tuned'
        got = f"constraint {self.constraint!r} and decision {self.decision}"
        require(ok, owner, "confidence", allowed, got, "A promise is of labels.")
        others = [each.text for each in objective.constraints if rate_of(each) is None]
        allowed = f"come with bounds on {', '.join(RATES)}, each of one class, or on their gaps"
        require(not others, owner, "confidence", allowed, listed(others))


class Rows(NamedTuple):
    """Logits (R, C), labels (R,) and weights (R,), or all of them (R, L) if multilabel.

    Rows of a stream have random keys (R,), and the label −1 if they came without one.
    """

    logits: Tensor
    y: Tensor | None
    weight: Tensor
    keys: Tensor | None = None

    @property
    def multilabel(self) -> bool:
        return self.weight.ndim == 2

    def to(self, device: str) -> "Rows":
        given = {name: part for name, part in self._asdict().items() if part is not None}
        return self._replace(**{name: part.to(device) for name, part in given.items()})


def read_rows(
    settings: FitSettings,
    logits: Values | None,
    y: Values | None,
    probabilities: Values | None,
    sample_weight: Values | None,
) -> tuple[Rows, tuple[int, ...]]:
    """Read rows of weight 0 where a label is ignored, and their shape before it was flattened."""
    owner = settings.owner
    cure = "As class indices: np.unique(y, return_inverse=True)[1]."
    labels = None if y is None else tensor_of(owner, "y", y, cure)
    cure = 'Without labels use decision="expected".'
    ok = settings.decision != "tuned" or labels is not None
    require(ok, owner, "y", "hold labels for decision tuned", None, cure)
    how = settings.task, settings.class_dim, settings.ignore_index, settings.classes
    scores = as_scores(owner, logits, probabilities, labels, *how)
    weight = as_weights(owner, sample_weight, scores)
    if labels is not None:
        labels, seen = as_labels(owner, labels, scores, settings.ignore_index)
        weight = weight * seen
    return Rows(scores.rows, labels, weight), scores.shape


def fit_rows(
    settings: FitSettings, given: Rows, offsets: Values | None, groups: np.ndarray | None = None
) -> DecisionRule:
    """Fit a rule to rows, which may have groups (R,)."""
    (rows, labels, weight, _), multilabel = given, given.multilabel
    owner, decision, number = settings.owner, settings.decision, rows.shape[1]
    if settings.task == "binary":
        cure = 'Labels that do not exclude each other are task="multilabel".'
        require(number == 2, owner, "task", f"be multiclass for {number} classes", "binary", cure)
    allowed = "leave at least one row that is not ignored and whose weight is not 0"
    require(bool((weight > 0).any()), owner, "y and sample_weight", allowed, "none")
    # Only ratios of weights matter, but the priors of `calibration` need counts of rows.
    weight = with_mean_one(weight)
    counts = weight.sum(1) > 0 if multilabel else weight > 0
    if not counts.all():  # avoids copies, a tenth of the time
        rows, weight = rows[counts], weight[counts]
        labels = None if labels is None else labels[counts]
    names = None if settings.classes is None else class_names(owner, settings.classes, number)
    number_of_groups, of_rows = 0, None
    if groups is not None:
        values, codes = np.unique(groups[counts.cpu().numpy()], return_inverse=True)
        number_of_groups, of_rows = len(values), torch.from_numpy(codes).to(rows.device)
        require(number_of_groups > 1, owner, "groups", "name at least two groups", 1)
    if multilabel:
        ok = groups is settings.confidence is None
        allowed, cure = "be None for multilabel problems", "Fit each label by itself."
        require(ok, owner, "groups and confidence", allowed, settings.confidence, cure)
    objective = Objective.of(
        owner, settings.metric, settings.constraint, names, number_of_groups, multilabel=multilabel
    )
    own = rows.new_zeros(number)
    if offsets is not None:
        own = class_vector(owner, "offsets", offsets, number).to(rows)
    rows, scale = rows + own, 1.0
    if labels is not None:
        lead = rows.abs() if multilabel else rows.topk(2, 1).values.diff(dim=1).abs()
        scale = min(1.0, LARGEST_LOG_ODDS / lead.median().clamp(min=1e-300).item())
    rows, own = scale * rows, scale * own
    # The argmax of the network's logits is that of η_j e^(−own_j).
    argmax = threshold_gains(own) if multilabel else normalised((-own).softmax(0).diag())
    target = labels if labels is None or multilabel else torch.eye(number).to(rows)[labels]
    if decision == "argmax":
        found = Fitted(argmax, "argmax")
    elif decision == "expected" or target is None:
        found = (
            expected_thresholds(rows, weight, objective)
            if multilabel
            else expected(rows, weight, objective, of_rows, target)
        )
    elif multilabel:
        found = tuned_thresholds(rows, target, weight, objective, own)
    else:
        labelled = LogitRows(rows, target, weight, argmax, of_rows)
        sure = settings.confidence
        found = promised(labelled, objective, sure) if sure else tuned(labelled, objective)
    mass = weight if multilabel else weight.unsqueeze(1)
    eta = rows.sigmoid() if multilabel else (found.factor * rows + found.offsets).softmax(1)
    true = eta if decision == "expected" or target is None else target
    true = objective.by_group(true, of_rows)
    argmax_score = None
    if found.score is not None:
        sums = confusion_of(objective, rows, rows.softmax(1), true, weight, argmax)
        argmax_score = objective.unconstrained().scores(sums.unsqueeze(0)).item()
    prior = mass * (target if decision == "tuned" and target is not None else eta)
    # The rule gets logits without offsets: factor·(scale·logits + own) + found offsets.
    factor = found.factor * scale
    corrected = offsets is not None or factor != 1 or bool(found.offsets.any())
    return DecisionRule(
        gain=found.gain,
        decision=decision,
        source=found.source,
        metric=settings.metric,
        constraint=settings.constraint,
        score=found.score,
        offsets=found.factor * own + found.offsets if corrected else None,
        factor=factor,
        task="multilabel" if multilabel else "binary" if number == 2 else "multiclass",
        classes=names,
        class_dim=1 if settings.class_dim is None else settings.class_dim,
        class_prior=prior.sum(0) / mass.sum(0).clamp(min=1e-300),
        rows=len(rows),
        slacks=objective.slacks(confusion_of(objective, rows, eta, true, weight, found.gain)),
        confidence=None if settings.confidence is None else float(settings.confidence),
        promised=found.promised,
        argmax_score=argmax_score,
    )
