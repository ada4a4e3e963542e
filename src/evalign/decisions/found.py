"""A rule for rows in float64: which search finds it, by the decision and the kind of labels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction, resolve
from evalign.core.rows import Task
from evalign.decisions import multilabel
from evalign.decisions.cuts import threshold_gains
from evalign.decisions.expected import best_of_classes, best_of_labels, slacks_of
from evalign.decisions.gains import normalised
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import Values, class_vector
from evalign.decisions.promise import promised
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.shift import gap
from evalign.decisions.state import is_name
from evalign.decisions.tuned import mend, search, tuned


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
    classes: Sequence[str | float] | np.ndarray | None,
    offsets: Values | None,
    class_dim: int,
    counted: int | None = None,
    groups: Tensor | None = None,
    confidence: float | None = None,
) -> DecisionRule:
    """Fit a rule to rows as `inputs.Scores` holds them, with weights that are 1 on average.

    `counted` is the number of rows that they stand for, if it is another. `groups` numbers the
    group of each row.
    """
    many, number = task == "multilabel", rows.shape[1]
    if task == "binary":
        cure = 'Labels that do not exclude each other are task="multilabel".'
        require(number == 2, owner, "task", f"be multiclass for {number} classes", "binary", cure)
    if decision == "tuned" and labels is None:
        cure = 'Without labels use decision="expected".'
        raise ValueError(complaint(owner, "y", "hold labels for tuned", None, cure))
    names = _names(owner, classes, number)
    goal = Goal.of(
        owner, metric, constraint, names, 0 if groups is None else int(groups.amax()) + 1
    )
    check_groups(owner, goal, many, confidence)
    own = rows.new_zeros(number)
    if offsets is not None:
        own = class_vector(owner, "offsets", offsets, number).to(rows)
        rows = rows + own
    scale = 1.0 if labels is None else _scale(rows, many)
    rows, own = scale * rows, scale * own
    if many:
        mass, target = weight, labels
        found = _for_labels(owner, rows, labels, weight, metric, goal, decision, own)
        eta = rows.sigmoid()
    else:
        mass = weight.unsqueeze(1)
        target = None if labels is None else torch.eye(number, device=rows.device).to(rows)[labels]
        found = _for_classes(
            owner, rows, target, weight, goal, decision, own, groups, confidence, names
        )
        eta = (found.factor * rows + found.offsets).softmax(1)
    true = goal.by_group(eta if decision == "expected" or target is None else target, groups)
    prior = mass * (target if decision == "tuned" and target is not None else eta)
    # The rule sees logits without offsets: factor·(scale·logits + own) + those that were found.
    factor = found.factor * scale
    mended = offsets is not None or factor != 1 or bool(found.offsets.any())
    return DecisionRule(
        found.gain,
        decision,
        found.source,
        metric,
        constraint,
        found.score,
        found.factor * own + found.offsets if mended else None,
        factor,
        task="multilabel" if many else "binary" if number == 2 else "multiclass",
        classes=names,
        class_dim=class_dim,
        class_prior=prior.sum(0) / mass.sum(0).clamp(min=1e-300),
        calibration_gap=None if target is None else gap(eta, target, mass),
        rows=len(rows) if counted is None else counted,
        slacks=slacks_of(goal, rows, eta, true, weight, found.gain, many),
        confidence=None if confidence is None else float(confidence),
        promised=found.promised,
    )


class _Found(NamedTuple):
    """The gains of a rule for factor·logits + offsets, and what they come from."""

    gain: Tensor
    factor: float
    offsets: Tensor
    score: float | None
    source: str
    promised: bool | None = None


def _for_labels(
    owner: str,
    logits: Tensor,
    y: Tensor | None,
    weight: Tensor,
    metric: str | MetricFunction,
    goal: Goal,
    decision: Decision,
    own: Tensor,
) -> _Found:
    """The rule of many labels a row, of which the network's own thresholds are `own`."""
    source, score = decision, None
    if decision == "argmax":
        gain = threshold_gains(own)
    elif decision == "expected":
        gain = best_of_labels(owner, logits, weight, metric, goal)
    else:
        assert y is not None
        label_goal = multilabel.LabelGoal.of(resolve(metric), goal)
        found, source, score = multilabel.tuned(owner, logits, y, weight, label_goal, own)
        gain = threshold_gains(found)
    return _Found(gain, 1.0, torch.zeros_like(own), score, source)


def _for_classes(
    owner: str,
    logits: Tensor,
    target: Tensor | None,
    weight: Tensor,
    goal: Goal,
    decision: Decision,
    own: Tensor,
    groups: Tensor | None,
    confidence: float | None,
    names: list[str | float] | None,
) -> _Found:
    """The rule of classes that exclude each other, for logits that hold the offsets `own`."""
    # Gains multiply probabilities η: the argmax of the logits is that of η_j e^(−offset_j).
    argmax, unchanged = normalised((-own).softmax(0).diag()), torch.zeros_like(own)
    if decision == "argmax":
        return _Found(argmax, 1.0, unchanged, None, decision)
    if decision == "expected" and target is None:
        gain = best_of_classes(owner, logits, weight, goal, groups)
        return _Found(gain, 1.0, unchanged, None, decision)
    assert target is not None
    if decision == "expected":
        eta, factor, offsets = corrected = mend(logits, target, weight)
        believed = goal.by_group(corrected.believed(logits, target, weight), groups)
        gain = search(owner, eta.log(), believed, weight, goal)
        return _Found(gain, factor, offsets, None, decision)
    needed = 2 if len(own) == 2 else 1  # rows of a class: a threshold beside a single row is luck
    if (target.sum(0) >= needed).sum() < 2 and not goal.constraints:
        # Labels of one class tell nothing about the others.
        return _Found(argmax, 1.0, unchanged, None, "argmax")
    rest = logits, target, weight, goal, argmax
    if confidence is None:
        return _Found(*tuned(owner, *rest, groups), "labels")
    found, keeps = promised(owner, *rest, confidence, groups, names)
    return _Found(*found, "labels", keeps)


def check_groups(owner: str, goal: Goal, many: bool, confidence: float | None = None) -> None:
    """Refuse groups without a gap and a gap without groups, and what many labels cannot have."""
    gaps = [each.text for each in goal.constraints if each.gap]
    cure = 'Leave them out, or bound a gap: constraint="gap(recall) <= 0.05".'
    none = goal.groups and not gaps
    require(not none, owner, "groups", "be None without a gap", f"{goal.groups} groups", cure)
    if gaps and not goal.groups:
        cure = "Pass groups=, a group for each row."
        if owner != "fit_decision":
            cure = f"Use fit_decision with groups=. {owner} keeps no groups of rows."
        require(False, owner, "groups", f"be given for {gaps[0]!r}", None, cure)
    cure = "Fit a rule for each label by itself."
    for name, given in {"groups": goal.groups, "confidence": confidence}.items():
        allowed = "be None for many labels a row"
        require(not (many and given), owner, name, allowed, given, cure)


def _scale(rows: Tensor, many: bool) -> float:
    """A factor for scores far beyond log-odds, of which a softmax would see no differences."""
    lead = rows.abs() if many else rows.topk(2, 1).values.diff(dim=1).abs()
    return min(1.0, 20 / lead.median().clamp(min=1e-300).item())


def _names(
    owner: str, classes: Sequence[str | float] | np.ndarray | None, number: int
) -> list[str | float] | None:
    """The names of the classes as Python's own strings and numbers, which JSON can hold."""
    if classes is None:
        return None
    given: Sequence[Any] = list(classes)
    names = [name.item() if hasattr(name, "item") else name for name in given]
    allowed = f"hold a name for each of the {number} classes, each once: strings or finite numbers"
    ok = all(map(is_name, names)) and len(set(names)) == len(names) == number
    require(ok, owner, "classes", allowed, names, "Name others by str(name).")
    return names
