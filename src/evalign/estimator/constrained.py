"""The constraint of an estimator: whose class it is about, and how good an epoch is under it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.constraints import Infeasible, OfClass, parse
from evalign.core.groups import MOST, stacked
from evalign.core.metrics import Metric, MetricFunction
from evalign.decisions import Decision, fit_decision
from evalign.decisions.fit import check_arguments, check_promise
from evalign.estimator.rows import OWNER, LabelledRows


def class_names(classes: np.ndarray) -> list[str]:
    """The names by which a constraint calls the classes."""
    return [str(label) for label in classes.tolist()]


def check_constraint(
    owner: str,
    metric: str | MetricFunction,
    decision: Decision,
    text: str,
    names: Sequence[str],
    *,
    gaps: bool = False,
) -> None:
    """Refuse what no training can heed, before it begins; where rows have groups, `gaps` can be."""
    check_arguments(owner, metric, decision, None, text, names)
    perfect = Confusion.from_matrix(torch.eye(len(names)))
    for each in parse(text, names, owner=owner):
        allowed, cure = "not be about gaps", "Bound them in fit_decision, which takes groups."
        require(gaps or not each.gap, owner, "constraint", allowed, repr(each.text), cure)
        each.slack(perfect, stacked([perfect]))  # complains if it is for two classes


def check_groups(
    constraint: str | None, names: Sequence[str], training: LabelledRows, validation: LabelledRows
) -> list[str]:
    """The gaps of a constraint. Refuse them without groups of rows, and groups without them."""
    gaps = [c.text for c in parse(constraint, names) if c.gap] if constraint is not None else []
    name, none = "constraint_groups", training.apart is None and validation.apart is None
    if not gaps:
        allowed, cure = "be None without a gap", 'A gap is constraint="gap(recall) <= 0.05".'
        require(none, OWNER, name, allowed, "groups", cure)
        return gaps
    allowed, cure = f"be given for {gaps[0]!r}", "Pass fit(..., constraint_groups=...), one a row."
    require(training.apart is not None, OWNER, name, allowed, None, cure)
    allowed, cure = f"have groups for {gaps[0]!r}", "Pass (X, y, None, constraint_groups)."
    require(validation.apart is not None, OWNER, "validation_data", allowed, None, cure)
    number = len(np.unique(cast(np.ndarray, validation.apart)))
    allowed = "leave rows of two groups to choose on"
    require(number > 1, OWNER, name, allowed, f"{number} group")
    return gaps


def group_numbers(training: LabelledRows, validation: LabelledRows) -> list[Tensor]:
    """The groups of rows to train and to choose on as numbers from 0, which losses take."""
    values = [cast(np.ndarray, rows.apart) for rows in (training, validation)]
    known, numbers = np.unique(np.concatenate(values), return_inverse=True)
    allowed, cure = f"name at most {MOST} groups", "Merge the smallest of them."
    require(len(known) <= MOST, OWNER, "constraint_groups", allowed, len(known), cure)
    return list(torch.from_numpy(numbers).split([len(each) for each in values]))


def oriented_constraint(
    arguments: dict[str, Any], classes: np.ndarray, multilabel: bool
) -> str | None:
    """The constraint as it was given, or about the first of two classes where that is positive.

    Args:
        arguments: of `AlignedClassifier`, checked.
        classes: the labels of the rows' codes.
        multilabel: whether a row has many of them.
    """
    text, names = arguments["constraint"], class_names(classes)
    allowed, cure = "be None for many labels a row", "AlignedDecisionCV around it takes one."
    require(text is None or not multilabel, OWNER, "constraint", allowed, repr(text), cure)
    check_promise(OWNER, arguments["decision"], text, arguments["confidence"])
    if text is None or len(names) < 2:
        return None
    check_constraint(OWNER, arguments["metric"], arguments["decision"], text, names, gaps=True)
    first = arguments["pos_label"] is not None and arguments["pos_label"] == classes[0]
    return renamed(text, names, names, 0) if first else text


def renamed(text: str, names: Sequence[str], to: Sequence[str], positive: int | None = None) -> str:
    """A constraint with other names of the classes.

    Args:
        text: the constraint.
        names: of the classes in it.
        to: their new names, in the same order.
        positive: the class that a score of two classes is about; None leaves it unsaid.
    """
    terms = []
    for each in parse(text, names, owner=OWNER):
        of, sign = each.metric, ">=" if each.at_least else "<="
        index = None
        if isinstance(of, OfClass):
            index = positive if of.index is None else of.index
        if isinstance(of, OfClass) and index is not None:
            name = f"{of.metric.stem}[{to[index]}]"
            terms.append(f"{f'gap({name})' if each.gap else name} {sign} {each.bound!r}")
        else:
            terms.append(each.text)
    return ", ".join(terms)


@dataclass(frozen=True)
class ConstrainedScore:
    """The metric of the best rule that meets a constraint, for the choice of the best epoch.

    Where no rule meets it, the score is worse than any of the metric, the more so the more the
    plain labels miss: the epoch that is closest to the bound is then the best.

    Args:
        metric: what is maximised, or a cost that is minimised.
        constraint: what the rule has to meet.
        classes: the names of the classes.
        offsets: to add to logits, for probabilities.
        groups: of the rows, in their order, for a gap; None for no gap.
    """

    metric: Metric
    constraint: str
    classes: tuple[str, ...]
    offsets: tuple[float, ...]
    groups: np.ndarray | None = None

    def __call__(self, logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        better = 1 if self.metric.greater_is_better else -1
        common: dict[str, Any] = {"sample_weight": weight, "offsets": list(self.offsets)}
        try:
            rule = fit_decision(
                logits,
                y,
                metric=self.metric,
                constraint=self.constraint,
                classes=list(self.classes),
                groups=self.groups,
                **common,
            )
        except Infeasible:
            low, high = (max(-1e6, min(bound, 1e6)) for bound in self.metric.bounds)
            plain = self._confusion(logits.argmax(1), y, weight, matrix=True)
            parts = self._parts(logits.argmax(1), y, weight)
            slacks = [each.slack(plain, parts) for each in parse(self.constraint, self.classes)]
            worst = low if better > 0 else high
            return worst - better * (1 - min(slacks).clamp(max=0))
        labels = rule.labels_of(rule.probabilities(logits)).to(y.device)
        return self.metric(self._confusion(labels, y, weight, matrix=self.metric.needs_matrix))

    def _parts(self, labels: Tensor, y: Tensor, weight: Tensor | None) -> Confusion | None:
        """The Confusions of the groups."""
        if self.groups is None:
            return None
        weight = torch.ones(len(y)).to(y.device) if weight is None else weight
        number = torch.from_numpy(np.unique(self.groups, return_inverse=True)[1]).to(y.device)
        own = (weight * (number == g) for g in range(int(number.amax()) + 1))
        return stacked([self._confusion(labels, y, each, matrix=True) for each in own])

    def _confusion(
        self, labels: Tensor, y: Tensor, weight: Tensor | None, *, matrix: bool
    ) -> Confusion:
        return Confusion.from_predictions(
            labels, y, num_classes=len(self.classes), sample_weight=weight, matrix=matrix
        )
