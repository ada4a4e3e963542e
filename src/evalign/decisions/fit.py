"""How a decision rule is fitted to rows."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from evalign.core.batch import Task, check_task
from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.decisions.gains import confusions
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import (
    Values,
    as_labels,
    as_scores,
    as_weights,
    class_vector,
    is_multilabel,
    with_mean_one,
)
from evalign.decisions.rule import Decision, DecisionRule
from evalign.decisions.tuned import search, tuned


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
    classes: Sequence[str | int] | np.ndarray | None = None,
    offsets: Tensor | None = None,
    ignore_index: int = -100,
    class_dim: int = 1,
) -> DecisionRule:
    """The rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": found with the labels of validation rows: for two classes the best threshold of all,
      for more the gain matrix. Where labels are few, steadier rules are tried too, and the one that
      does best on rows it has not seen is taken (see `DecisionRule.source`).
    - "expected": found from the model's own probabilities, without labels; `y` only tells which
      rows are ignored. For two classes it is the best threshold for the expected confusion matrix;
      for more, the best step of a Frank–Wolfe search: a local optimum, proved to be global for
      concave metrics only. The probabilities should be calibrated.

    Scores, labels and weights may be tensors, arrays or lists.

    Args:
        logits: (N, C) or (B, C, ...), or (N,) or (N, 1) for two classes.
        y: labels (N,) or (B, ...), integers from 0 to C − 1. For "tuned".
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
            bounded too.
        classes: the names of the classes, in order.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), such as one
            trained with `AlignedLoss`. The logits, here and in calls of the rule, do not hold them.
        ignore_index: the label of rows to leave out.
        class_dim: the dimension of the classes; -1 for tokens (B, T, C). The rule remembers it.

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
    allowed = f"be one of {', '.join(get_args(Decision))}"
    require(decision in get_args(Decision), owner, "decision", allowed, repr(decision))
    cure = 'Use "tuned" or "expected".'
    free = decision != "argmax" or constraint is None
    require(free, owner, "constraint", "be None for argmax", repr(constraint), cure)
    check_task(owner, task)
    goal = Goal.of(owner, metric, constraint, classes)
    multilabel = is_multilabel(task, probabilities if logits is None else logits, y, class_dim)
    scores = as_scores(owner, logits, probabilities, multilabel=multilabel, class_dim=class_dim)
    rows, weight = scores.rows, as_weights(owner, sample_weight, scores)
    number = rows.shape[1]
    if task == "binary":
        cure = 'Labels that do not exclude each other are task="multilabel".'
        require(number == 2, owner, "task", f"be multiclass for {number} classes", "binary", cure)
    labels = None
    if y is not None:
        labels, seen = as_labels(owner, y, scores, multilabel=multilabel, ignore_index=ignore_index)
        weight = weight * seen
    elif decision == "tuned":
        cure = 'Without labels use decision="expected".'
        raise ValueError(complaint(owner, "y", "hold labels for tuned", None, cure))
    weight = with_mean_one(owner, weight)
    if y is not None or sample_weight is not None:
        counts = weight > 0
        rows, weight = rows[counts], weight[counts]
        labels = None if labels is None else labels[counts]

    argmax = torch.eye(number, dtype=torch.float64, device=rows.device)
    if offsets is not None:
        offsets = class_vector(owner, "offsets", offsets, rows)
        # Gains multiply probabilities η: the argmax of the logits is that of η_j e^(−offset_j).
        argmax, rows = (-offsets).softmax(0).diag(), rows + offsets
    eta, source, score, slacks = rows.softmax(1), decision, None, None
    if decision == "tuned":
        assert labels is not None
        gain, source, score = tuned(owner, rows, labels, weight, goal, argmax)
        prior = weight.new_zeros(number).index_add_(0, labels, weight)
    else:
        prior = weight @ eta
        gain = argmax
        if decision == "expected":
            gain = search(owner, rows, eta, weight.unsqueeze(0), goal)[0]
    if constraint is not None:
        target = eta
        if labels is not None and decision == "tuned":
            target = one_hot(labels, number).to(eta)
        slacks = goal.slacks(confusions(eta, target, weight.unsqueeze(0), gain.unsqueeze(0))[0])
    return DecisionRule(
        gain,
        decision,
        source,
        metric,
        constraint,
        score,
        offsets,
        task="binary" if number == 2 else "multiclass",
        classes=_names(owner, classes, number),
        class_dim=class_dim,
        class_prior=prior / prior.sum(),
        slacks=slacks,
    )


def _names(
    owner: str, classes: Sequence[str | int] | np.ndarray | None, number: int
) -> list[str | int] | None:
    """The names of the classes as Python's own strings and integers, which JSON can hold."""
    if classes is None:
        return None
    names = [name if isinstance(name, str | int) else name.item() for name in classes]
    allowed = f"hold a name for each of the {number} classes, each once"
    require(len(set(names)) == len(names) == number, owner, "classes", allowed, names)
    return names
