"""Fit a rule to rows in float64: which search finds it, by the decision and the task."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions import multilabel
from evalign.decisions.class_shares import calibration_gap
from evalign.decisions.confusions import normalised
from evalign.decisions.expected import best_of_classes, best_of_labels, slacks_of
from evalign.decisions.inputs import Values, class_vector
from evalign.decisions.objective import Objective
from evalign.decisions.promise import promised
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.saved_rule import is_name
from evalign.decisions.threshold import threshold_gains
from evalign.decisions.tuned import Fitted, calibrate, search, tuned

# Median log-odds of scores that are larger: a softmax would see no differences between them.
LARGEST_LOG_ODDS = 20.0


def fit_rows(
    owner: str,
    rows: Tensor,
    labels: Tensor | None,
    weight: Tensor,
    *,
    metric: str | MetricFunction,
    decision: Decision,
    task: Task | None,
    constraint: str | None,
    confidence: float | None,
    classes: Sequence[str | float] | np.ndarray | None,
    offsets: Values | None,
    class_dim: int,
    groups: Tensor | None = None,
    number_of_rows: int | None = None,
) -> DecisionRule:
    """Fit a rule to rows as `inputs.Scores` holds them, with weights that are 1 on average.

    `groups` numbers the group of each row. `number_of_rows` is the number that the rows stand for,
    if they are a sample.
    """
    many, number = task == "multilabel", rows.shape[1]
    if task == "binary":
        cure = 'Labels that do not exclude each other are task="multilabel".'
        require(number == 2, owner, "task", f"be multiclass for {number} classes", "binary", cure)
    if decision == "tuned" and labels is None:
        raise labels_missing(owner)
    names = _names(owner, classes, number)
    of_groups = 0 if groups is None else int(groups.amax()) + 1
    objective = Objective.of(owner, metric, constraint, names, of_groups)
    check_groups(objective, many, confidence)
    own = rows.new_zeros(number)
    if offsets is not None:
        own = class_vector(owner, "offsets", offsets, number).to(rows)
        rows = rows + own
    scale = 1.0 if labels is None else _scale(rows, many)
    rows, own = scale * rows, scale * own
    if many:
        mass, target = weight, labels
        found = _for_labels(rows, labels, weight, metric, objective, decision, own)
        eta = rows.sigmoid()
    else:
        mass = weight.unsqueeze(1)
        target = None if labels is None else torch.eye(number, device=rows.device).to(rows)[labels]
        if confidence is not None:
            assert target is not None
            found = promised(
                rows, target, weight, objective, _argmax(own), confidence, groups, names
            )
        else:
            found = _for_classes(rows, target, weight, objective, decision, own, groups)
        eta = (found.factor * rows + found.offsets).softmax(1)
    true = objective.by_group(eta if decision == "expected" or target is None else target, groups)
    prior = mass * (target if decision == "tuned" and target is not None else eta)
    # The rule sees logits without offsets: factor·(scale·logits + own) + those that were found.
    factor = found.factor * scale
    corrected = offsets is not None or factor != 1 or bool(found.offsets.any())
    return DecisionRule(
        gain=found.gain,
        decision=decision,
        source=found.source,
        metric=metric,
        constraint=constraint,
        score=found.score,
        offsets=found.factor * own + found.offsets if corrected else None,
        factor=factor,
        task="multilabel" if many else "binary" if number == 2 else "multiclass",
        classes=names,
        class_dim=class_dim,
        class_prior=prior.sum(0) / mass.sum(0).clamp(min=1e-300),
        calibration_gap=None if target is None else calibration_gap(eta, target, mass),
        rows=len(rows) if number_of_rows is None else number_of_rows,
        slacks=slacks_of(objective, rows, eta, true, weight, found.gain),
        confidence=None if confidence is None else float(confidence),
        promised=found.promised,
    )


def _for_labels(
    logits: Tensor,
    y: Tensor | None,
    weight: Tensor,
    metric: str | MetricFunction,
    objective: Objective,
    decision: Decision,
    own: Tensor,
) -> Fitted:
    """The rule of a multilabel problem, of which the network's own thresholds are `own`."""
    source, score = decision, None
    if decision == "argmax":
        gain = threshold_gains(own)
    elif decision == "expected":
        gain = best_of_labels(logits, weight, metric, objective)
    else:
        assert y is not None
        of_labels = multilabel.LabelObjective.of(metric, objective)
        found, score = multilabel.tuned(logits, y, weight, of_labels)
        gain, source = threshold_gains(found), "labels"
    return Fitted(gain, 1.0, torch.zeros_like(own), source, score)


def _argmax(own: Tensor) -> Tensor:
    """The gains of the network's own labels: the argmax of the logits is that of η_j e^(−own_j)."""
    return normalised((-own).softmax(0).diag())


def _for_classes(
    logits: Tensor,
    target: Tensor | None,
    weight: Tensor,
    objective: Objective,
    decision: Decision,
    own: Tensor,
    groups: Tensor | None,
) -> Fitted:
    """The rule of exclusive classes, for logits that hold the offsets `own`."""
    unchanged = torch.zeros_like(own)
    if decision == "expected":
        if target is None:
            gain = best_of_classes(logits, weight, objective, groups)
            return Fitted(gain, 1.0, unchanged, decision)
        eta, factor, offsets = calibrated = calibrate(logits, target, weight)
        believed = objective.by_group(calibrated.believed(logits, target, weight), groups)
        gain = search(eta.log(), believed, weight, objective)
        return Fitted(gain, factor, offsets, decision)
    if decision == "tuned":
        assert target is not None
        # Labels of one class tell nothing about the others, and a threshold beside the only row of
        # a class is luck.
        needed = 2 if len(own) == 2 else 1
        if (target.sum(0) >= needed).sum() >= 2 or objective.constraints:
            return tuned(logits, target, weight, objective, _argmax(own), groups)
    return Fitted(_argmax(own), 1.0, unchanged, "argmax")


def labels_missing(owner: str) -> ValueError:
    """The error for a tuned rule without labels."""
    cure = 'Without labels use decision="expected".'
    return ValueError(complaint(owner, "y", "hold labels for tuned", None, cure))


def check_groups(objective: Objective, many: bool, confidence: float | None = None) -> None:
    """Refuse groups without a gap, a gap without groups, and both and confidence if multilabel."""
    owner, gaps = objective.owner, [each.text for each in objective.constraints if each.gap]
    cure = 'Leave them out, or bound a gap: constraint="gap(recall) <= 0.05".'
    none = objective.groups and not gaps
    require(not none, owner, "groups", "be None without a gap", f"{objective.groups} groups", cure)
    if gaps and not objective.groups:
        cure = "Pass groups=, a group for each row."
        if owner != "fit_decision":
            cure = f"Use fit_decision with groups=. {owner} keeps no groups of rows."
        require(False, owner, "groups", f"be given for {gaps[0]!r}", None, cure)
    cure = "Fit a rule for each label by itself."
    for name, given in {"groups": objective.groups, "confidence": confidence}.items():
        allowed = "be None for multilabel problems"
        require(not (many and given), owner, name, allowed, given, cure)


def _scale(rows: Tensor, many: bool) -> float:
    """A factor for scores far beyond log-odds."""
    lead = rows.abs() if many else rows.topk(2, 1).values.diff(dim=1).abs()
    return min(1.0, LARGEST_LOG_ODDS / lead.median().clamp(min=1e-300).item())


def _names(
    owner: str, classes: Sequence[str | float] | np.ndarray | None, number: int
) -> list[str | float] | None:
    """The names of the classes as Python's own strings and numbers, which JSON can hold."""
    if classes is None:
        return None
    names = np.asarray(classes, dtype=object).tolist()
    names = [name.item() if isinstance(name, np.generic) else name for name in names]
    allowed = f"hold a name for each of the {number} classes, each once: strings or finite numbers"
    ok = all(map(is_name, names)) and len(set(names)) == len(names) == number
    require(ok, owner, "classes", allowed, names, "Name others by str(name).")
    return names
