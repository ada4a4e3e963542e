"""Fit a rule to scores of any form, all at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalign.core.checks import require
from evalign.core.input_warnings import warn, warn_of_one_hot
from evalign.core.metrics import MetricFunction
from evalign.core.task import Task
from evalign.decisions.classes import CODED, codes_of, is_multilabel, named_columns
from evalign.decisions.fit_rows import fit_rows
from evalign.decisions.inputs import group_values
from evalign.decisions.rule import DecisionRule
from evalign.decisions.saved_rule import Decision
from evalign.decisions.settings import FitSettings, read_rows

if TYPE_CHECKING:
    from evalign.decisions.inputs import Groups, Values


def fit_decision(
    logits: "Values | None" = None,
    y: "Values | None" = None,
    *,
    probabilities: "Values | None" = None,
    metric: str | MetricFunction,
    decision: Decision = "tuned",
    task: Task | None = None,
    sample_weight: "Values | None" = None,
    constraint: str | None = None,
    constraint_groups: "Groups | None" = None,
    confidence: float | None = None,
    classes: Sequence[str | float] | np.ndarray | None = None,
    pos_label: Any = None,
    offsets: "Values | None" = None,
    ignore_index: int = -100,
    class_dim: int | None = None,
) -> DecisionRule:
    """Find the rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": uses the labels of validation rows. For two classes the rule is the best of all
      thresholds, for more a gain matrix. If labels are few, probabilities calibrated with the
      labels count too.
    - "expected": uses probabilities, calibrated with labels `y` of exclusive classes if there are
      any. For two classes the rule is the best threshold for the expected confusion matrix; for
      more, a local optimum, which is surely global only for metrics linear in the matrix.

    Scores, labels and weights may be arrays, lists or tensors on any device, and a rule returns
    labels in the container of its scores. The search runs in NumPy, on the CPU.

    Args:
        logits: (N, C) or (B, C, ...), or (N,) or (N, 1) for two classes.
        y: labels (N,) or (B, ...): integers from 0 to C − 1, strings, or integers named in
            `classes`; 0 and 1 in the shape of the logits for a multilabel problem. The rule returns
            labels as they are given here.
        probabilities: instead of logits, in the same shapes; (N,) are of the positive class. 0 and
            1 are moved by 6e-8, for the logarithm. A frame's columns go by the names of the
            classes.
        metric: a name, a metric of `evalign.metrics`, or any function of a `Confusion` that returns
            a number. A cost is minimised.
        decision: "argmax", "tuned" or "expected".
        task: "binary", "multiclass" or "multilabel"; inferred from the shapes by default.
        sample_weight: (N,) or (B, ...), not negative. Only ratios of weights matter.
        constraint: a bound that the rule has to meet on these rows, such as "recall >= 0.9".
            Commas separate several. "recall[2] >= 0.9" is about class 2, by index or by its name
            in `classes`. "fpr", "fnr" and "predicted_rate", the share of rows with a label, can be
            bounded too. "gap(recall) <= 0.05" bounds the difference between groups of rows.
        constraint_groups: (N,) or (B, ...), the group of each row for a gap: integers or strings.
            There is one rule for all groups. A group in which the metric is 0/0 is left out.
        confidence: promise that the constraint holds on new data. With 0.95, at most 5% of draws
            of independent rows give a rule that is promised and breaks it, for any number of
            classes; for recall, precision and other rates, and their gaps. If the rows are too few,
            `rule.promised` is False, the rule is the safest one found, and a warning says what the
            rows prove.
        classes: the labels of all classes, also of those without rows, in the order of the
            columns. Ordinal classes and costs count them in this order too. Where the columns of a
            frame have their names, it is the order of the metric alone. Strings as labels are
            sorted by default, like scikit-learn's columns; an ordered column of pandas or polars
            brings the order of the metric. Integer labels with text `classes` are places in it.
        pos_label: the positive class of two, which metrics such as "f1" and a single column of
            scores are of. By default 1 or True, else the second of the classes.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), as after
            training with `AlignedLoss`. Pass logits without offsets, here and to the rule.
        ignore_index: the label of rows to leave out.
        class_dim: the dimension of the classes; -1 for tokens (B, T, C). The rule remembers it. The
            default is 1, with a warning if the shapes are ambiguous.

    Raises:
        ValueError: if no rule meets the constraint; the message says how close the best one comes.

    Examples:
        >>> logits = np.array([[2.0, 0.0], [0.5, 0.0], [0.4, 0.0], [2.0, 0.0]])
        >>> rule = fit_decision(logits, metric="f1", decision="expected")
        >>> rule(logits)
        array([0, 1, 1, 0])
        >>> fit_decision(probabilities=[0.1, 0.4, 0.4], metric="f1", decision="expected")([0, 2])
        array([1, 1])
    """
    owner = "fit_decision"
    empty = isinstance(y, list) and not y
    require(not empty, owner, "y", "hold a label for each row", "an empty list")
    scores = logits if probabilities is None else probabilities
    order = classes
    if not is_multilabel(scores, y, task):
        named = named_columns(owner, scores, y, classes, pos_label, ignore_index, class_dim)
        classes = named.names
        order = named.order
        codes = None if y is None else codes_of(owner, y, classes, ignore_index)
        if codes is not None:
            y = codes
            ignore_index = CODED
    settings = FitSettings(
        owner,
        metric,
        decision,
        task,
        constraint,
        confidence,
        classes,
        ignore_index,
        class_dim,
        pos_label,
        order,
    )
    return fit_codes(
        settings,
        logits,
        y,
        probabilities=probabilities,
        sample_weight=sample_weight,
        offsets=offsets,
        constraint_groups=constraint_groups,
    )


def fit_codes(
    settings: FitSettings,
    logits: "Values | None" = None,
    y: "Values | None" = None,
    *,
    probabilities: "Values | None" = None,
    sample_weight: "Values | None" = None,
    offsets: "Values | None" = None,
    constraint_groups: "Groups | None" = None,
) -> DecisionRule:
    """Fit a rule to labels that are places among the classes of the settings."""
    owner = settings.owner
    rows, shape = read_rows(settings, logits, y, probabilities, sample_weight)
    if rows.multilabel and rows.y is not None and settings.task is None:
        warn_of_one_hot(owner, rows.y, "y")
    if settings.decision == "tuned" and rows.y is not None and not rows.multilabel:
        classes_seen = np.unique(rows.y[rows.counted])
        if len(classes_seen) == 1:
            warn(f"y of {owner} holds one class only, which says nothing about the others.")
    group_of_row = None
    if constraint_groups is not None:
        group_of_row = group_values(owner, constraint_groups, shape, "constraint_groups").ravel()
    return fit_rows(settings, rows, offsets, group_of_row)
