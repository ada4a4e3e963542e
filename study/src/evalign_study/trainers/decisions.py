"""What a trained network scores under each decision, a rule from scores to labels.

Every trainer asks here, so that all records hold the same of a pick. Which decision to use is
chosen by a score of the validation rows, which must not flatter a rule that was fitted on them.
Where classes are tested in other shares than those they occur in, weights put that right.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, get_args

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, fit_decision
from evalign_study.records.run import triples

DECISIONS: tuple[Decision, ...] = get_args(Decision)
THRESHOLDS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")  # BtG averages them
MOST_TUNED = 100  # classes; with more, fitting a rule takes longer than training


class Pick(NamedTuple):
    """An epoch of a training that was the best by something.

    Args:
        epoch: its number.
        validation: logits of the validation rows.
        test: logits of the test rows.
        diverged: whether it stands for a training that has no best epoch.
    """

    epoch: int
    validation: Tensor
    test: Tensor
    diverged: bool = False

    @classmethod
    def constant(cls, validation: int, test: int, classes: int) -> "Pick":
        """Stand for a training that diverged: it says the first class of so many rows."""
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
    """Make labels by every decision and score them: what a record holds of a pick.

    That is the epoch, of two classes the AUROC of the test rows, and for every decision the
    validation score, the test scores and the confusion matrix of the test rows.

    Labels by argmax are those of the logits; the other rules go by probabilities, with offsets.
    The validation score flatters little: the rule "expected" is fitted without labels, and a tuned
    one is scored by cross-fitting where labels are few (`DecisionRule.score`). With more than
    MOST_TUNED classes nothing is tuned. Where training diverged there is nothing to fit a rule to:
    all decisions are argmax.

    Args:
        pick: what is decided on.
        validation: labels of the validation rows, on which rules are fitted.
        test: labels of the test rows.
        metric: what rules are fitted for, and the validation score.
        names: metrics of the test rows.
        decisions: names of `Decision`, or thresholds on the probability of class 1 of two.
        offsets: to be added to logits before probabilities are made of them.
        weights: of a test row of each class; None for all alike. The matrix has counts.
        matrix: whether it is written.
    """
    classes = pick.test.shape[1]
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
    """A decision as a function from logits to labels, and its own score if it has one."""
    if decision not in DECISIONS:
        threshold, shift = float(decision), 0.0 if offsets is None else offsets
        return lambda z: ((z + shift).double().softmax(1)[:, 1] > threshold).long(), None
    rule = fit_decision(logits, y, metric=metric, decision=decision, offsets=offsets)
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
    found = (resolve(metric) if isinstance(metric, str) else metric for metric in metrics)
    return [float(score(confusion)) for score in found]
