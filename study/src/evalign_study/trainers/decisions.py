"""The scores of a trained network under each decision, a rule from scores to labels.

Every trainer calls `decide`, so that all records have the same fields for a pick. The decision is
chosen by a score of the validation rows, which must not flatter a rule that was fitted on them.
Where the test rows have other class shares than the population, weights correct for it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, get_args

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from evalign import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, fit_decision
from evalign_study.records.run import triples

DECISIONS: tuple[Decision, ...] = get_args(Decision)
# BtG averages over them.
THRESHOLDS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")
MOST_TUNED = 100  # classes; for more of them, fitting a rule takes longer than training


class Pick(NamedTuple):
    """An epoch of a training that was the best by some criterion.

    Args:
        epoch: its number.
        validation: logits of the validation rows.
        test: logits of the test rows.
        diverged: whether it stands in for a training that has no best epoch.
        offsets: those of the loss at this epoch, where they change (`Method`); else None.
    """

    epoch: int
    validation: Tensor
    test: Tensor
    diverged: bool = False
    offsets: Tensor | None = None

    @classmethod
    def constant(cls, validation: int, test: int, classes: int) -> "Pick":
        """Make the pick of a training that diverged, which gives all rows the first class."""
        return cls(0, torch.zeros(validation, classes), torch.zeros(test, classes), True)


def decide(
    pick: Pick,
    validation: Tensor,
    test: Tensor,
    metric: str | MetricFunction,
    *,
    names: Sequence[str],
    decisions: Iterable[str] = DECISIONS,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
    matrix: bool = True,
) -> dict[str, Any]:
    """Make labels by every decision, and score them; return the record's fields for a pick.

    The fields are the epoch, the AUROC of the test rows if there are two classes, and for every
    decision the validation score, the test scores and the confusion matrix of the test rows.

    Argmax is taken of the logits; the other rules use the probabilities, with offsets. The
    validation score flatters little: the rule "expected" is fitted without labels, and a tuned one
    is scored by cross-fitting where labels are few (`DecisionRule.score`). With more than
    MOST_TUNED classes nothing is tuned. Where training diverged there is nothing to fit a rule to:
    all decisions are argmax.

    Args:
        pick: the epoch, with its logits.
        validation: labels of the validation rows, on which rules are fitted.
        test: labels of the test rows.
        metric: the metric that rules are fitted for, and that of the validation score.
        names: the metrics of the test rows.
        decisions: names of `Decision`, or, for two classes, thresholds on the probability of class
            1.
        offsets: to be added to logits before probabilities are made of them, unless the pick has
            its own.
        weights: the weight of a test row of each class; None for equal weights. The matrix always
            has counts.
        matrix: whether to include the confusion matrix.
    """
    classes = pick.test.shape[1]
    offsets = offsets if pick.offsets is None else pick.offsets
    found: dict[str, dict[str, Any]] = {}
    for decision in decisions:
        if decision == "tuned" and classes > MOST_TUNED:
            continue
        name = "argmax" if pick.diverged else decision
        rule, score = _rule(name, pick.validation, validation, metric, offsets)
        if score is None:
            score = _score(rule(pick.validation), validation, classes, [metric])[0]
        labels = rule(pick.test)
        tested = _score(labels, test, classes, names, weights)
        found[decision] = {
            "validation": score,
            "test": dict(zip(names, tested, strict=True)),
        }
        if matrix:
            found[decision]["matrix"] = triples(labels, test)
    told = {"epoch": pick.epoch, "decisions": found}
    if classes == 2:
        margin = pick.test[:, 1] - pick.test[:, 0]
        told["auroc"] = float(roc_auc_score(test, margin.double()))
    return told


def _rule(
    decision: str,
    logits: Tensor,
    y: Tensor,
    metric: str | MetricFunction,
    offsets: Tensor | None,
) -> tuple[Callable[[Tensor], Tensor], float | None]:
    """Make a decision: a function from logits to labels, and its own score if it has one."""
    if decision not in DECISIONS:
        threshold, shift = float(decision), 0.0 if offsets is None else offsets
        return lambda z: ((z + shift).double().softmax(1)[:, 1] > threshold).long(), None
    # Only a tuned rule is given labels: "expected" would correct the probabilities with them.
    known = y if decision == "tuned" else None
    rule = fit_decision(logits, known, metric=metric, decision=decision, offsets=offsets)
    return rule, rule.score


def _score(
    labels: Tensor,
    y: Tensor,
    classes: int,
    metrics: Sequence[str | MetricFunction],
    weights: Tensor | None = None,
) -> list[float]:
    confusion = Confusion.from_predictions(
        labels,
        y,
        num_classes=classes,
        sample_weight=None if weights is None else weights[y],
        matrix=True,
    )
    return [float(resolve(metric)(confusion)) for metric in metrics]
