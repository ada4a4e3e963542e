"""What a trained network scores, for each decision: a rule from scores to labels.

Which decision to use is chosen by a score of the validation rows, which must not flatter a rule
that was fitted on them. Where classes are tested in other shares than those they occur in, weights
put that right.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from evalign.core.confusion import Confusion
from evalign.core.metrics import resolve
from evalign.decisions import Decision, fit_decision
from evalign_study.records.picks import MOST_TUNED
from evalign_study.records.run import triples

DECISIONS: tuple[Decision, ...] = get_args(Decision)
MOST_WRITTEN = 20  # classes; with more, the matrices would be most of a file of records


class Pick(NamedTuple):
    """The best epoch of a training.

    Args:
        epoch: its number; 0 for the constant model that stands for a training which diverged.
        validation: logits of the validation rows.
        test: logits of the test rows.
    """

    epoch: int
    validation: Tensor
    test: Tensor

    @classmethod
    def constant(cls, validation: int, test: int, classes: int) -> "Pick":
        """Of so many rows: as in `picks.Picks`, it says the first class of every one."""
        return cls(0, torch.zeros(validation, classes), torch.zeros(test, classes))


def rule(
    pick: Pick,
    validation: Tensor,
    test: Tensor,
    metric: str,
    *,
    offsets: Tensor | None = None,
    decisions: Iterable[Decision] = DECISIONS,
    weights: Tensor | None = None,
) -> dict[str, Any]:
    """The epoch, and for every decision the scores of the validation and the test rows.

    Labels by argmax are those of the logits; the other rules go by probabilities, with offsets.
    The validation score flatters little: the rule "expected" is fitted without labels, and a tuned
    one is scored by cross-fitting where labels are few (`DecisionRule.score`). With more than
    MOST_TUNED classes nothing is tuned, and where training diverged there is nothing to fit a rule
    to: all decisions are argmax.

    Args:
        pick: what is ruled on.
        validation: labels of the validation rows, on which rules are fitted.
        test: labels of the test rows.
        metric: what is scored, and what rules are fitted for.
        offsets: to be added to logits before probabilities are made of them.
        decisions: some.
        weights: of a test row of each class; None for all alike. A record's matrix has counts.
    """
    classes = pick.test.shape[1]
    found: dict[str, dict[str, Any]] = {}
    for decision in decisions:
        if decision == "tuned" and classes > MOST_TUNED:
            continue
        kind = decision if pick.epoch else "argmax"
        fitted = fit_decision(
            pick.validation, validation, metric=metric, decision=kind, offsets=offsets
        )
        known, labels, score = fitted(pick.validation), fitted(pick.test), fitted.score
        found[decision] = {
            "validation": _score(known, validation, classes, metric) if score is None else score,
            "test": _score(labels, test, classes, metric, weights),
        }
        if classes <= MOST_WRITTEN:
            found[decision]["matrix"] = triples(labels, test)
    return {"epoch": pick.epoch, "decisions": found}


def _score(
    labels: Tensor, y: Tensor, classes: int, metric: str, weights: Tensor | None = None
) -> float:
    confusion = Confusion.from_predictions(
        labels,
        y,
        num_classes=classes,
        sample_weight=None if weights is None else weights[y],
        matrix=True,
    )
    return float(resolve(metric)(confusion))
