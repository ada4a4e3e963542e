"""How a decision rule is fitted to rows."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.doubts import LIKE_ONE, warn_of_one_hot
from evalign.core.metrics import MetricFunction, resolve
from evalign.core.rows import Task, check_task
from evalign.decisions import multilabel
from evalign.decisions.cuts import threshold_gains
from evalign.decisions.expected import expected_gain, slacks_of
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import (
    Groups,
    Values,
    as_counts,
    as_groups,
    as_labels,
    as_scores,
    as_weights,
    class_vector,
    layout,
)
from evalign.decisions.promise import promised
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.shift import gap
from evalign.decisions.state import is_name
from evalign.decisions.tuned import mend, search, tuned


@torch.no_grad()
def fit_decision(
    logits: Values | None = None,
    y: Values | None = None,
    *,
    probabilities: Values | None = None,
    metric: str | MetricFunction,
    decision: Decision = "tuned",
    task: Task | None = None,
    sample_weight: Values | None = None,
    constraint: str | None = None,
    groups: Groups | None = None,
    confidence: float | None = None,
    classes: Sequence[str | float] | np.ndarray | None = None,
    offsets: Values | None = None,
    ignore_index: int = -100,
    class_dim: int | None = None,
) -> DecisionRule:
    """The rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": found with the labels of validation rows: for two classes the best threshold of all,
      for more the gain matrix. The probabilities are corrected with the labels by few numbers, and
      where labels are few, the search believes what they say as much as the labels.
    - "expected": found from probabilities. Labels `y`, where there are any and classes exclude each
      other, correct them by few numbers: a factor of the logits, and offsets. For two classes the
      rule is the best threshold for the expected confusion matrix; for more, the best step of a
      Frank–Wolfe search: a local optimum, sure to be global only for metrics that are linear in
      the matrix. Without labels the probabilities should be calibrated.

    Scores, labels and weights may be tensors, arrays or lists.

    Args:
        logits: (N, C) or (B, C, ...), or (N,) or (N, 1) for two classes.
        y: labels (N,) or (B, ...), integers from 0 to C − 1. For "tuned"; "expected" corrects
            the probabilities with them.
        probabilities: instead of logits, in the same shapes; (N,) are those of class 1. They may
            be 0 or 1, which counts as 6e-8 away from it: the logarithm has to be finite.
        metric: a name, a metric of `evalign.metrics`, or any function of a `Confusion` that returns
            a scalar tensor. A cost is minimised.
        decision: "argmax", "tuned" or "expected".
        task: "binary", "multiclass" or "multilabel"; by default as the shapes say.
        sample_weight: (N,) or (B, ...), not negative; twice the weight counts twice, whatever their
            scale.
        constraint: such as "recall >= 0.9": of the rules that meet it on these rows, the best.
            The labels (or for "expected", the probabilities) are then taken at their word. Several
            are joined by commas; "recall[2] >= 0.9" is of class 2, by index or by its name in
            `classes`; "fpr", "fnr" and "predicted_rate", the share of rows with a label, can be
            bounded too. "gap(recall) <= 0.05" bounds the difference between groups of rows.
        groups: (N,) or (B, ...), the group of each row for a gap: integers or strings. The rule
            does not see groups: one rule for all is found. A group in which the metric is 0/0 does
            not count, as for recall one without a row of the class.
        confidence: such as 0.95: the constraint shall hold on new rows with this probability, and
            not only on these, which have to be independent draws. `rule.promised` tells whether
            it does; a warning says how many rows it takes if not. Exact for two classes, rows
            of equal weight and recall, specificity, fpr, fnr or predicted_rate; nearly so for
            precision, npv and accuracy; approximate for all else.
        classes: the names of the classes, in order.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), such as one
            trained with `AlignedLoss`. The logits, here and in calls of the rule, do not hold them.
        ignore_index: the label of rows to leave out.
        class_dim: the dimension of the classes; -1 for tokens (B, T, C). The rule remembers it.
            None is 1, with a warning where either may be meant.

    Raises:
        ValueError: if no rule is found that meets the constraint; the text says how far one gets.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.4, 0.0], [2.0, 0.0]])
        >>> rule = fit_decision(logits, metric="f1", decision="expected")
        >>> rule(logits)
        tensor([0, 1, 1, 0])
        >>> fit_decision(probabilities=[0.1, 0.4, 0.4], metric="f1", decision="expected")([0, 2])
        array([1, 1])
    """
    owner = "fit_decision"
    check_arguments(owner, metric, decision, task, constraint, classes)
    check_promise(owner, decision, constraint, confidence)
    given = probabilities if logits is None else logits
    class_dim, many = layout(owner, task, given, y, class_dim)
    scores = as_scores(owner, logits, probabilities, multilabel=many, class_dim=class_dim)
    rows, weight = scores.rows, as_weights(owner, sample_weight, scores)
    if many:
        weight = weight.unsqueeze(1).expand_as(rows)
    labels = None
    if y is not None:
        labels, seen = as_labels(owner, y, scores, multilabel=many, ignore_index=ignore_index)
        weight = weight * seen
        if many and task is None:
            # Probabilities of exclusive classes add up to 1. Logits do not tell.
            from_one = (rows.sigmoid().sum(1) - 1).abs()
            if probabilities is None or bool((from_one < LIKE_ONE).all()):
                warn_of_one_hot(owner, labels, "y")
    weight = as_counts(owner, weight)
    counts = weight.sum(1) > 0 if many else weight > 0
    group = None if groups is None else as_groups(owner, groups, scores, counts)
    if not counts.all():  # else copies would take a tenth of the time
        rows, weight = rows[counts], weight[counts]
        labels = None if labels is None else labels[counts]
        group = None if group is None else group[counts]
    return fit_rows(
        owner,
        rows,
        labels,
        weight,
        metric=metric,
        decision=decision,
        task="multilabel" if many else task,
        constraint=constraint,
        classes=classes,
        offsets=offsets,
        class_dim=class_dim,
        groups=group,
        confidence=confidence,
    )


def check_arguments(
    owner: str,
    metric: str | MetricFunction,
    decision: Decision,
    task: Task | None,
    constraint: str | None,
    classes: Sequence[str | float] | np.ndarray | None,
) -> None:
    """Check what can be checked before there are rows."""
    allowed = f"be one of {', '.join(get_args(Decision))}"
    require(decision in get_args(Decision), owner, "decision", allowed, repr(decision))
    cure = 'Use "tuned" or "expected".'
    free = decision != "argmax" or constraint is None
    require(free, owner, "constraint", "be None for argmax", repr(constraint), cure)
    check_task(owner, task)
    Goal.of(owner, metric, constraint, classes)


def check_promise(
    owner: str, decision: Decision, constraint: str | None, confidence: float | None
) -> None:
    """Check a confidence before there are rows."""
    if confidence is None:
        return
    ok = isinstance(confidence, Real) and not isinstance(confidence, bool)
    ok = ok and 0.5 <= float(confidence) < 1
    require(ok, owner, "confidence", "lie from 0.5 to below 1", repr(confidence))
    cure = 'Name what is promised: constraint="recall >= 0.9".'
    none = constraint is None
    require(not none, owner, "confidence", "be None without a constraint", confidence, cure)
    cure = 'Use decision="tuned", with labels: probabilities alone promise nothing.'
    allowed = f"be None for {decision}"
    require(decision == "tuned", owner, "confidence", allowed, confidence, cure)


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
    # Gains multiply probabilities η: the argmax of the logits is that of η_j e^(−offset_j).
    argmax = torch.eye(number).to(rows) if offsets is None else (-own).softmax(0).diag()
    eta = rows.sigmoid() if many else rows.softmax(1)
    mass = weight if many else weight.unsqueeze(1)
    target = labels
    if labels is not None and not many:
        target = torch.eye(number, dtype=rows.dtype, device=rows.device)[labels]

    needed = 2 if number == 2 else 1  # rows of a class: a threshold on one side of one row is luck
    source, score, factor, more = decision, None, 1.0, torch.zeros_like(own)
    keeps = None
    if decision == "argmax":
        gain = threshold_gains(own) if many else argmax
    elif decision == "expected" and target is not None and not many:
        corrected = mend(rows, target, weight)
        eta, factor, more = corrected
        believed = goal.by_group(corrected.believed(rows, target, weight), groups)
        gain = search(owner, eta.log(), believed, weight, goal)
    elif decision == "expected":
        gain = expected_gain(owner, rows, weight, metric, goal, many, groups)
    elif many:
        label_goal = multilabel.LabelGoal.of(resolve(metric), goal)
        assert labels is not None
        found, source, score = multilabel.tuned(owner, rows, labels, weight, label_goal, own)
        gain = threshold_gains(found)
    elif target is not None and (target.sum(0) >= needed).sum() < 2 and constraint is None:
        source, gain = "argmax", argmax  # labels of one class tell nothing about the others
    else:
        assert labels is not None
        assert target is not None
        if confidence is None:
            found = tuned(owner, rows, labels, target, weight, goal, argmax, groups)
        else:
            found, keeps = promised(
                owner, rows, labels, target, weight, goal, argmax, confidence, groups, names
            )
        gain, factor, more, score = found
        source, eta = "labels", (factor * rows + more).softmax(1)
    true = goal.by_group(eta if decision == "expected" or target is None else target, groups)
    prior = mass * (target if decision == "tuned" and target is not None else eta)
    # The rule sees logits without offsets: factor·(logits + own) + more.
    mended = factor * scale != 1 or bool(more.any())
    return DecisionRule(
        gain,
        decision,
        source,
        metric,
        constraint,
        score,
        None if offsets is None and not mended else factor * own + more,
        factor * scale,
        task="multilabel" if many else "binary" if number == 2 else "multiclass",
        classes=names,
        class_dim=class_dim,
        class_prior=prior.sum(0) / mass.sum(0).clamp(min=1e-300),
        calibration_gap=None if target is None else gap(eta, target, mass),
        rows=len(rows) if counted is None else counted,
        slacks=slacks_of(goal, rows, eta, true, weight, gain, many),
        confidence=None if confidence is None else float(confidence),
        promised=keeps,
    )


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
