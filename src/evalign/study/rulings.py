"""What a trained network scores, for each pick of an epoch and each decision.

A *pick* is the epoch with the lowest validation loss ("loss") or with the best metric of the
validation rows ("metric"); a *decision* is a rule from scores to labels. Which of them to use is
chosen by a score of the validation rows, which must not flatter a rule that was fitted on them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from evalign.decisions import Decision, fit_decision
from evalign.decisions.tuned import FOLDS, folds
from evalign.study.picks import MOST_TUNED
from evalign.study.prepared import Rows
from evalign.study.run import LOSS, scores, triples
from evalign.training.many import METRIC

PICKS = (LOSS, METRIC)
DECISIONS: tuple[Decision, ...] = get_args(Decision)
MOST_WRITTEN = 20  # classes; with more, the matrices would be most of a file of records


class Pick(NamedTuple):
    """An epoch of a training.

    Args:
        epoch: its number; 0 for the constant model that stands for a training which diverged.
        validation: logits of the validation rows, offsets included.
        test: logits of the test rows, likewise.
    """

    epoch: int
    validation: Tensor
    test: Tensor


def rule(
    picks: Mapping[str, Pick], validation: Tensor, test: Tensor, metric: str
) -> dict[str, dict[str, Any]]:
    """The picks of a record, for one metric. An epoch that was picked twice is ruled on once.

    Args:
        picks: by the name of the pick.
        validation: labels of the validation rows.
        test: labels of the test rows.
        metric: what is scored, and what rules are fitted for.
    """
    epochs = {pick.epoch: pick for pick in picks.values()}
    ruled = {
        epoch: decisions((pick.validation, validation), (pick.test, test), metric, fits=epoch > 0)
        for epoch, pick in epochs.items()
    }
    return {
        name: {"epoch": pick.epoch, "decisions": ruled[pick.epoch]} for name, pick in picks.items()
    }


def decisions(
    validation: Rows, test: Rows, metric: str, *, fits: bool = True
) -> dict[str, dict[str, Any]]:
    """For every decision the score of the validation rows, that of the test rows and its matrix.

    The validation score is honest: the rule "expected" is fitted without labels, and a tuned one is
    scored by cross-fitting. With more than MOST_TUNED classes nothing is tuned.

    Args:
        validation: (logits, y), on which rules are fitted.
        test: (logits, y).
        metric: what is scored, and what rules are fitted for.
        fits: false where there is nothing to fit a rule to: all decisions are then argmax.
    """
    classes = test[0].shape[1]
    found: dict[str, dict[str, Any]] = {}
    for decision in DECISIONS:
        if decision == "tuned" and classes > MOST_TUNED:
            continue
        kind = decision if fits else "argmax"
        fitted = fit_decision(*validation, metric=metric, decision=kind)
        known = cross_fitted(*validation, metric) if kind == "tuned" else fitted(validation[0])
        matrix = triples(fitted(test[0]), test[1])
        found[decision] = {
            "validation": _score(triples(known, validation[1]), classes, metric),
            "test": _score(matrix, classes, metric),
        }
        if classes <= MOST_WRITTEN:
            found[decision]["matrix"] = matrix
    return found


def cross_fitted(logits: Tensor, y: Tensor, metric: str) -> Tensor:
    """Labels of every row by a tuned rule that was fitted on the other folds."""
    labels, fold = torch.empty_like(y), folds(y)
    for held_out in (fold == k for k in range(FOLDS)):
        fitted = fit_decision(logits[~held_out], y[~held_out], metric=metric, decision="tuned")
        labels[held_out] = fitted(logits[held_out])
    return labels


def _score(matrix: list[list[int]], classes: int, metric: str) -> float:
    return scores(matrix, classes, (metric,))[metric]
