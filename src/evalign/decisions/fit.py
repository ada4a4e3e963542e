"""Fit a decision rule to scores of any form."""

from collections.abc import Sequence

import numpy as np
import torch

from evalign.core.input_warnings import warn_of_one_hot
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions.fit_rows import FitSettings, fit_rows, read_rows
from evalign.decisions.inputs import Groups, Values, as_groups
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
    """Find the rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": found with the labels of validation rows: for two classes the best of all thresholds,
      for more the gain matrix. Where labels are few, the search also believes the probabilities,
      calibrated with the labels.
    - "expected": found from probabilities. Labels `y` of exclusive classes, if given, calibrate
      them by a factor of the logits and offsets. For two classes the rule is the best threshold for
      the expected confusion matrix; for more, the best step of a Frank–Wolfe search: a local
      optimum, sure to be global only for metrics that are linear in the matrix. Without labels the
      probabilities should be calibrated.

    Scores, labels and weights may be tensors, arrays or lists.

    Args:
        logits: (N, C) or (B, C, ...), or (N,) or (N, 1) for two classes.
        y: labels (N,) or (B, ...), integers from 0 to C − 1; 0 and 1 in the shape of the logits for
            a multilabel problem.
        probabilities: instead of logits, in the same shapes; (N,) are those of class 1. 0 and 1 are
            allowed and count as 6e-8 away: the logarithm has to be finite.
        metric: a name, a metric of `evalign.metrics`, or any function of a `Confusion` that returns
            a scalar tensor. A cost is minimised.
        decision: "argmax", "tuned" or "expected".
        task: "binary", "multiclass" or "multilabel"; by default as the shapes say.
        sample_weight: (N,) or (B, ...), not negative. Only ratios of weights matter.
        constraint: such as "recall >= 0.9": the best of the rules that meet it on these rows.
            Labels (or for "expected", probabilities) then decide alone. Several are joined by
            commas. "recall[2] >= 0.9" is about class 2, by index or by its name in `classes`.
            "fpr", "fnr" and "predicted_rate", the share of rows with a label, can be bounded too.
            "gap(recall) <= 0.05" bounds the difference between groups of rows.
        groups: (N,) or (B, ...), the group of each row for a gap: integers or strings. One rule for
            all groups is found, which does not see them. A group in which the metric is 0/0, such
            as recall without a row of the class, does not count.
        confidence: such as 0.95: the probability that the constraint holds on new data, if these
            rows are independent draws. `rule.promised` tells whether it does; if not, a warning
            says how many rows that takes. Exact for two classes, rows of equal weight and recall,
            specificity, fpr, fnr or predicted_rate; nearly so for precision, npv and accuracy;
            approximate otherwise.
        classes: the names of the classes, in order.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), such as one
            trained with `AlignedLoss`. Pass logits without them, here and to the rule.
        ignore_index: the label of rows to leave out.
        class_dim: the dimension of the classes; -1 for tokens (B, T, C). The rule remembers it.
            None is 1, with a warning where the shapes leave both open.

    Raises:
        ValueError: if no rule meets the constraint; the message says how far one gets.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.4, 0.0], [2.0, 0.0]])
        >>> rule = fit_decision(logits, metric="f1", decision="expected")
        >>> rule(logits)
        tensor([0, 1, 1, 0])
        >>> fit_decision(probabilities=[0.1, 0.4, 0.4], metric="f1", decision="expected")([0, 2])
        array([1, 1])
    """
    owner = "fit_decision"
    settings = FitSettings(
        owner, metric, decision, task, constraint, confidence, classes, ignore_index, class_dim
    )
    scores, labels, weight = read_rows(settings, logits, y, probabilities, sample_weight)
    if scores.multilabel and labels is not None and task is None:
        warn_of_one_hot(owner, labels, "y")
    return fit_rows(
        settings,
        scores.rows,
        labels,
        weight,
        multilabel=scores.multilabel,
        offsets=offsets,
        groups=None if groups is None else as_groups(owner, groups, scores),
    )
