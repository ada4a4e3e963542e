"""Fit a decision rule to scores of any form."""

from collections.abc import Sequence
from numbers import Real
from typing import get_args

import numpy as np
import torch

from evalign.core.checks import require
from evalign.core.input_warnings import LIKE_ONE, warn_of_one_hot
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task, check_task
from evalign.decisions.found import fit_rows
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import (
    Groups,
    Values,
    as_counts,
    as_groups,
    as_labels,
    as_scores,
    as_weights,
    layout,
)
from evalign.decisions.rule import Decision, DecisionRule


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
    allowed, cure = "come with a constraint", 'Give one, such as "recall >= 0.9".'
    require(constraint is not None, owner, "confidence", allowed, confidence, cure)
    allowed, cure = "come with the decision tuned", "Probabilities alone promise nothing."
    require(decision == "tuned", owner, "confidence", allowed, f"the decision {decision}", cure)
