"""A decision rule: from scores to labels."""

import math
import os
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction
from evalign.core.text import plain
from evalign.decisions.inputs import FLOOR, ONE_ROW, Scores, Values, as_scores
from evalign.decisions.module import RuleModule
from evalign.decisions.saved_rule import Decision, checked_state, write_rule
from evalign.membership.rows import Task


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """A rule that gives a row with class probabilities η the label argmax_j Σ_y η_y G[y, j].

    Made by `fit_decision`, whose forms of logits and probabilities it takes. The label of a row
    does not depend on other rows. In a multilabel problem each label is a binary problem. Metric,
    constraint, confidence and classes are as they were given.

    Args:
        gain: G (C, C), float64; G[y, j] is the gain of label j if y is true. (L, 2, 2) if
            multilabel.
        decision: "argmax", "tuned" or "expected".
        source: the origin of G: "argmax", "expected", or "labels" for a tuned rule, which is
            "argmax" if fewer than two classes have labels.
        score: the metric of a tuned rule on the rows of the fit, greater is better, cross-fitted
            unless only labels count.
        argmax_score: the metric of argmax on the same rows.
        offsets: added to logits: η = softmax(factor·logits + offsets).
        class_dim: the dimension of the classes in scores of more than two dimensions.
        class_prior: the share of each class (C,) or label (L,) in the rows of the fit: by labels
            if the rule is tuned, otherwise by probabilities.
        rows: the number of rows of the fit.
        slacks: the distance of each constraint to its bound on these rows, positive if it is met.
        promised: whether these rows prove the constraints at the given confidence.
        named: whether labels are returned by the names in `classes`.
    """

    gain: Tensor
    decision: Decision
    source: str
    metric: str | MetricFunction | None = None
    constraint: str | None = None
    score: float | None = None
    offsets: Tensor | None = None
    factor: float = 1.0
    task: Task | None = None
    classes: list[str | float] | None = None
    class_dim: int = 1
    class_prior: Tensor | None = None
    rows: int | None = None
    slacks: dict[str, float] | None = None
    confidence: float | None = None
    promised: bool | None = None
    argmax_score: float | None = None
    named: bool = False

    def __call__(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Labels: class indices, or names if the fit was given names; 0 and 1 if multilabel."""
        scores, formula = self._read("DecisionRule", logits, probabilities)
        labels = scores.in_original_form(formula.labels_of(formula.softmax(scores.rows)))
        names = np.array(self.classes)
        return names[np.asarray(labels.tolist(), np.int64)] if self.named else labels

    def scores(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Scores, a column for each class: labels are the argmax, or score > 0 if multilabel."""
        scores, formula = self._read("DecisionRule", logits, probabilities)
        return scores.in_original_form(formula.scores_of(formula.softmax(scores.rows)))

    def probabilities(self, logits: Values) -> Any:
        """Probabilities η, float64, with a column for each class."""
        scores, formula = self._read("DecisionRule", logits, None)
        eta = formula.softmax(scores.rows)
        return scores.in_original_form(eta[..., 1] if self.multilabel else eta)

    def __str__(self) -> str:
        """The rule in words: from which probability on, or by which offsets of the logits."""
        names = self.classes or [f"class {place}" for place in range(len(self.gain))]
        if self.multilabel or len(names) == 2:
            named = names if self.multilabel else names[1:]
            return "\n".join(map(_from, named, np.atleast_1d(self.threshold).tolist()))
        most = 0 if self.class_prior is None else int(self.class_prior.argmax())
        width = max(len(str(name)) for name in names)
        added = zip(names, self._added(most).tolist(), strict=True)
        lines = [f"{name!s:{width}}  {by:+.2f}" for name, by in added]
        return "\n".join(["the largest logit plus", *lines])

    def _added(self, against: int) -> Tensor:
        """What has to be added to each logit for its class to be even with one class (C,).

        These numbers are the whole rule if G is diagonal, and otherwise exact where only the two
        classes are possible. A class that is never predicted has −∞.
        """
        gain = self.gain
        won = (gain.diag() - gain[:, against]).clamp(min=0)
        lost = (gain[against, against] - gain[against]).clamp(min=0)
        by = (won / lost).log()
        by[against] = 0
        if self.offsets is not None:
            by = by + self.offsets - self.offsets[against]
        return (by / self.factor).nan_to_num(-torch.inf, torch.inf, -torch.inf)

    @property
    def threshold(self) -> Any:
        """The model's own probability above which it predicts the second of two classes.

        0 means always, 1 never. If multilabel it is an array (L,). More classes have no threshold.
        """
        at = self.log_odds
        at = torch.where(at.abs() > -math.log(FLOOR), at.sign() * torch.inf, at).sigmoid()
        return at.cpu().numpy() if self.multilabel else at.item()

    @property
    def log_odds(self) -> Tensor:
        """The `threshold` on the scale of the logits: (), or (L,) if multilabel."""
        if self.multilabel:
            offsets = 0 if self.offsets is None else self.offsets
            return ((self.gain[:, 0, 0] / self.gain[:, 1, 1]).log() - offsets) / self.factor
        if (number := len(self.gain)) != 2:
            raise AttributeError(f"A rule of {number} classes has no threshold. Call the rule.")
        return -self._added(0)[1]

    @property
    def multilabel(self) -> bool:
        """Whether each column is a label of its own."""
        return self.task == "multilabel"

    def _read(
        self, owner: str, logits: Values | None, probabilities: Values | None
    ) -> tuple[Scores, RuleModule]:
        """The scores, and the formula on their device."""
        how = self.task, self.class_dim, None, self.classes
        scores = as_scores(owner, logits, probabilities, None, *how)
        name = "logits" if probabilities is None else "probabilities"
        kind = "labels" if self.multilabel else "classes"
        allowed = f"have {len(self.gain)} {kind}, as in the fit of the rule"
        got = scores.rows.shape[1]
        require(got == len(self.gain), owner, name, allowed, got, ONE_ROW)
        return scores, RuleModule(self).to(scores.rows.device)

    def as_module(self, *, probabilities: bool = False) -> RuleModule:
        """The rule as a module from logits to label indices, to ship with a network.

        With `probabilities` the module returns labels and probabilities, with a column for each
        class. It checks nothing: a row with NaN or infinite logits gets the label −1.

        Examples:
            >>> rule = DecisionRule(torch.eye(3).double(), "argmax", "argmax")
            >>> torch.nn.Sequential(torch.nn.Identity(), rule.as_module())(torch.eye(3))
            tensor([0, 1, 2])
        """
        return deepcopy(RuleModule(self, probabilities))  # its buffers are its own

    def state_dict(self) -> dict[str, Any]:
        """The rule as plain numbers and strings, without a metric that is not a name."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        state["metric"] = self.metric if isinstance(self.metric, str) else None
        return plain(state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rule as a JSON file, which `evalign.load` opens."""
        write_rule(path, self)

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], *, metric: MetricFunction | None = None
    ) -> "DecisionRule":
        """Load the rule of a `state_dict`; pass the metric again if it was not a name."""
        found = checked_state(state, [field.name for field in fields(cls)])
        found["metric"] = found["metric"] if metric is None else metric
        return cls(**found)


def _from(name: str | float, threshold: float) -> str:
    if threshold in (0, 1):
        return f"{'never' if threshold else 'always'} {name}"
    # Two digits of it or of what it lacks to 1, whichever is smaller.
    digits = 1 - math.floor(math.log10(min(threshold, 1 - threshold)))
    return f"{name} from a probability of {round(threshold, digits):.10g} on"
