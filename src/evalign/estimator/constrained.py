"""The constraint of an estimator: checks, its positive class, and the score of an epoch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.constraints import OfClass, parse
from evalign.core.metrics import Metric, MetricFunction
from evalign.decisions import Decision
from evalign.decisions.fit_rows import FitSettings, check_promise
from evalign.decisions.gain_search import quick_standing
from evalign.decisions.objective import Objective
from evalign.estimator.rows import OWNER
from evalign.training.averaging import offsets_of

INFINITE = 1e30  # stands for the bounds of an unbounded metric, as nothing is worse than ∞


def class_names(classes: np.ndarray) -> list[str]:
    """The names by which a constraint calls the classes."""
    return [str(label) for label in classes.tolist()]


def check_constraint(
    owner: str,
    metric: str | MetricFunction,
    decision: Decision,
    text: str,
    names: Sequence[str],
    confidence: float | None,
) -> None:
    """Refuse a constraint that no rule can meet, or promise."""
    FitSettings(owner, metric, decision, constraint=text, confidence=confidence, classes=names)
    perfect = Confusion.from_matrix(torch.eye(len(names)))
    for each in parse(text, names, owner=owner):
        each.slack(perfect, [perfect])  # raises if it is for two classes only


def gaps_of(
    owner: str, constraint: str | None, names: Sequence[Any], groups: np.ndarray | None
) -> list[str]:
    """The gaps of a constraint; refuse groups without a gap, and a gap without two groups."""
    parts = () if constraint is None else parse(constraint, names, owner=owner)
    gaps, name = [each.text for each in parts if each.gap], "constraint_groups"
    if not gaps:
        allowed, cure = "be None without a gap", 'A gap is constraint="gap(recall) <= 0.05".'
        require(groups is None, owner, name, allowed, "groups", cure)
    elif groups is None:
        cure = (
            "Pass fit(X, y, constraint_groups=...), a group per row; for validation_data as its "
            "fourth part."
        )
        raise ValueError(complaint(owner, name, f"be given for {gaps[0]!r}", None, cure))
    else:
        number = len(np.unique(groups))
        require(number > 1, owner, name, "name at least two groups", number)
    return gaps


def group_numbers(
    constraint: str | None, names: Sequence[str], groups: np.ndarray | None
) -> np.ndarray | None:
    """The groups of the validation rows as numbers from 0; None if no gap is bounded."""
    if not gaps_of(OWNER, constraint, names, groups):
        return None
    return np.unique(cast(np.ndarray, groups), return_inverse=True)[1]


def oriented_constraint(
    arguments: dict[str, Any], classes: np.ndarray, multilabel: bool
) -> str | None:
    """The checked constraint, about the first of two classes if that is the positive one."""
    text, names = arguments["constraint"], class_names(classes)
    allowed, cure = "be None if multilabel", "AlignedDecisionCV around it takes one."
    require(text is None or not multilabel, OWNER, "constraint", allowed, repr(text), cure)
    check_promise(OWNER, arguments["decision"], text, arguments["confidence"])
    if text is None:
        return None
    asked = arguments["metric"], arguments["decision"], text, names, arguments["confidence"]
    check_constraint(OWNER, *asked)
    first = arguments["pos_label"] is not None and arguments["pos_label"] == classes[0]
    return _of_first(text, names) if first else text


def _of_first(text: str, names: Sequence[str]) -> str:
    """The constraint, with metrics of two classes about the first one."""
    terms = []
    for each in parse(text, names, owner=OWNER):
        of = each.metric
        if isinstance(of, OfClass) and of.index is None:
            name, sign = f"{of.metric.stem}[{names[0]}]", ">=" if each.at_least else "<="
            terms.append(f"{f'gap({name})' if each.gap else name} {sign} {each.bound!r}")
        else:
            terms.append(each.text)
    return ", ".join(terms)


@dataclass(frozen=True)
class ConstrainedScore:
    """The metric under a constraint, to choose the best epoch by.

    It is that of the best rule found by a quick search near argmax; for two classes, of the best
    rule. If the rule violates the constraint, the score is worse than any value of the metric, and
    worse the larger the violation, so the epoch closest to the bound wins.

    Args:
        metric: maximised, or minimised if it is a cost.
        constraint: what the rule has to meet.
        classes: the names of the classes.
        loss: whose current offsets, if it has some, make probabilities of the logits.
        groups: the rows' groups as numbers; None if no gap is bounded.
    """

    metric: Metric
    constraint: str
    classes: tuple[str, ...]
    loss: nn.Module = field(repr=False)
    groups: np.ndarray | None = None

    def __call__(self, logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        logits = logits.double()
        mass = torch.ones_like(logits[:, 0]) if weight is None else weight.to(logits)
        groups = None if self.groups is None else torch.from_numpy(self.groups).to(y)
        number = 0 if groups is None else int(groups.amax()) + 1
        goal = Objective.of(OWNER, self.metric, self.constraint, self.classes, number).compacted()
        offsets = offsets_of(self.loss)
        offsets = torch.zeros_like(logits[0]) if offsets is None else offsets.to(logits)
        target = goal.by_group(one_hot(y, len(self.classes)).to(logits), groups)
        missing, score = quick_standing(
            (logits + offsets).softmax(1), target, mass, goal, (-offsets).softmax(0)
        )
        better = 1 if self.metric.greater_is_better else -1
        low, high = (max(-INFINITE, min(bound, INFINITE)) for bound in self.metric.bounds)
        worst = low if better > 0 else high
        step = max(1.0, abs(worst))  # beside a large bound a small step would be rounded off
        return torch.where(missing < 0, worst - better * step * (1 - missing), better * score)
