"""A decision rule: from scores to labels."""

import math
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from evalign.core.checks import complaint, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions import shift
from evalign.decisions.expected import best_of_classes, best_of_labels, slacks_of
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import (
    FLOOR,
    Scores,
    Values,
    as_counts,
    as_scores,
    as_weights,
    class_vector,
)
from evalign.decisions.state import Decision, fields_of

# Class shares that are estimated from fewer rows for each class, or with probabilities whose mean
# was so far from the shares of the fitting rows, as a part of them, are not to be trusted.
FEW_ROWS, LARGE_GAP = 30, 0.25


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """The label of a row with class probabilities η is argmax_j Σ_y η_y G[y, j].

    Made by `fit_decision`. The rule is frozen: the label of a row does not depend on other rows.
    It takes what `fit_decision` takes: logits, or probabilities by name. A tensor gives a tensor;
    an array or a list, a numpy array.

    Where a row has many labels, each is a problem of two classes, with a matrix of its own.

    Args:
        gain: G (C, C), float64; G[y, j] is the gain of label j where y is true. (L, 2, 2) for many
            labels a row.
        decision: "argmax", "tuned" or "expected".
        source: what G comes from: the decision itself, "labels" for "tuned" (for many labels a row
            the rule that won: "argmax", "expected", "calibrated", "shrunk" or "labels"), or
            "adapted".
        metric: the metric, as it was given.
        constraint: the constraint, as it was given.
        score: the metric of a tuned rule on the rows it was tuned on, greater is better; None for
            other decisions. It is of rules that have not seen the rows they are scored on, unless
            labels alone decide.
        offsets: what the rule adds to logits to make probabilities of them.
        factor: what it multiplies them by before: η = softmax(factor·logits + offsets).
        task: "binary", "multiclass" or "multilabel".
        classes: the names of the classes, as they were given.
        class_dim: the dimension of the classes in scores of more than two dimensions.
        class_prior: the share of each class (C,) among the rows that the rule was fitted on: of
            their labels if it is tuned, else of their probabilities. (L,) for many labels a row.
        calibration_gap: how far the mean probability of a class was from its share among the
            labels of those rows, as a part of that share; the largest that chance does not explain.
            None where there were no labels.
        rows: how many rows the rule was fitted on.
        slacks: how far each constraint is on the allowed side of its bound, on these rows.
        confidence: the probability that was asked for, with which constraints hold on new rows.
        promised: whether these rows show that they do; None where nothing was asked for.
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
    calibration_gap: float | None = None
    rows: int | None = None
    slacks: dict[str, float] | None = None
    confidence: float | None = None
    promised: bool | None = None

    def __call__(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Labels, int64: one for each row, or 0 or 1 for each label of each row."""
        scores, rows = self._rows("DecisionRule", logits, probabilities)
        labels = self.labels_of(self.softmax(rows))
        return scores.per_class(labels) if self._multilabel else scores.per_row(labels)

    def scores(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Scores, float64, in the shape of the rows with their classes; the label is the argmax.

        Where a row has many labels, those with a positive score are given.
        """
        scores, rows = self._rows("DecisionRule", logits, probabilities)
        return scores.per_class(self.scores_of(self.softmax(rows)))

    def probabilities(self, logits: Values) -> Any:
        """Probabilities η, float64, in the shape of the rows with their classes or labels."""
        scores, rows = self._rows("DecisionRule", logits, None)
        eta = self.softmax(rows)
        return scores.per_class(eta[..., 1] if self._multilabel else eta)

    @property
    def threshold(self) -> Any:
        """The probability of the second of two classes above which it is the label.

        It is that of the model, before the rule mends it: a float, or for many labels a row an
        array (L,). 0 is for always, 1 for never, as is what lies beyond the place of probabilities
        of 0 and 1. Rules of more classes do not have it.
        """
        at = self.log_odds
        at = torch.where(at.abs() > -math.log(FLOOR), at.sign() * torch.inf, at).sigmoid()
        return at.cpu().numpy() if self._multilabel else at.item()

    @property
    def log_odds(self) -> Tensor:
        """The `threshold` on the scale of the logits: (), or (L,) for many labels a row."""
        if not self._multilabel and len(self.gain) != 2:
            cure = "Call the rule: several classes have a gain matrix, and no threshold."
            allowed = "be of two classes to have a threshold"
            text = complaint("DecisionRule", "gain", allowed, len(self.gain), cure)
            raise AttributeError(text)
        gain, own = self.gain, torch.zeros(())
        # The second is better by G11 - G10 where it is true, and worse by G00 - G01 where not.
        lost, won = gain[..., 0, 0] - gain[..., 0, 1], gain[..., 1, 1] - gain[..., 1, 0]
        if self.offsets is not None:
            own = self.offsets if self._multilabel else self.offsets[1] - self.offsets[0]
        at = ((lost.clamp(min=0) / won.clamp(min=0)).log() - own) / self.factor
        return at.nan_to_num(torch.inf, torch.inf, -torch.inf)

    @property
    def _multilabel(self) -> bool:
        return self.task == "multilabel"

    def _rows(
        self, owner: str, logits: Values | None, probabilities: Values | None
    ) -> tuple[Scores, Tensor]:
        scores = as_scores(
            owner, logits, probabilities, multilabel=self._multilabel, class_dim=self.class_dim
        )
        name = "logits" if probabilities is None else "probabilities"
        kind = "labels" if self._multilabel else "classes"
        allowed = f"have {len(self.gain)} {kind}, as those the rule was fitted on"
        got = scores.rows.shape[1]
        require(got == len(self.gain), owner, name, allowed, got)
        return scores, scores.rows

    # The next three methods read no values, so that a module that holds a rule can be exported.

    def softmax(self, logits: Tensor) -> Tensor:
        """Probabilities (N, C) of logits (N, C) that are known to be finite.

        Where a row has many labels, (N, L, 2): that of each label's absence, and of the label.
        """
        logits = self._calibrated(logits)
        if self._multilabel:
            return torch.stack([-logits, logits], -1).sigmoid()
        return logits.softmax(1)

    def scores_of(self, probabilities: Tensor) -> Tensor:
        """Scores (N, C) of probabilities (N, C), float64: what each label is expected to gain.

        Where a row has many labels, (N, L): what each label gains over its absence.
        """
        gain = self.gain.to(probabilities.device)
        if not self._multilabel:
            return probabilities @ gain
        absent, present = (probabilities.unsqueeze(-2) @ gain).squeeze(-2).unbind(-1)
        return present - absent

    def labels_of(self, probabilities: Tensor) -> Tensor:
        """Labels (N,) of probabilities (N, C), float64; (N, L) of (N, L, 2)."""
        scores = self.scores_of(probabilities)
        return (scores > 0).long() if self._multilabel else scores.argmax(1)

    def _calibrated(self, logits: Tensor) -> Tensor:
        logits = self.factor * logits
        return logits if self.offsets is None else logits + self.offsets.to(logits.device)

    def adapt(
        self,
        logits: Values | None = None,
        *,
        probabilities: Values | None = None,
        class_prior: Values | None = None,
        sample_weight: Values | None = None,
    ) -> "DecisionRule":
        """A rule for rows like these, which need no labels: their class shares may be others.

        The shares are estimated from the probabilities, if they are not given. This assumes that
        the rows of each class are as before (and only their numbers are not), and that the
        probabilities were right. They are then corrected, and the rule is found anew from them, as
        by decision "expected". Shares that chance explains are not changed. Nothing is promised
        of it, as it has seen no labels.

        It warns where an estimate is not to be trusted: of fewer than 30 rows a class, without
        any row of a class, or if the mean probability of a class was more than a quarter of its
        share away from it on the rows that the rule was fitted on (`calibration_gap`).

        Args:
            logits: rows as in a call of the rule.
            probabilities: instead of logits.
            class_prior: the shares of the classes (C,), or of the rows with each label (L,).
            sample_weight: the weights of the rows.
        """
        owner, cure = "DecisionRule.adapt", 'Fit with decision="expected" or "tuned".'
        allowed = "not be argmax, which has nothing to adapt"
        require(self.decision != "argmax", owner, "decision", allowed, repr(self.decision), cure)
        for name in ("metric", "class_prior"):
            if getattr(self, name) is None:
                cure = "Pass it: DecisionRule.from_state_dict(state, metric=...)."
                cure = cure if name == "metric" else "Fit again."
                raise ValueError(complaint(owner, f"{name} of the rule", "be known", "none", cure))
        assert self.metric is not None
        assert self.class_prior is not None
        goal = Goal.of(owner, self.metric, self.constraint, self.classes)
        gaps = [each.text for each in goal.constraints if each.gap]
        cure = "Fit again, with groups=."
        allowed = "not bound a gap, whose groups are not known here"
        require(not gaps, owner, "constraint of the rule", allowed, gaps, cure)
        scores, rows = self._rows(owner, logits, probabilities)
        weight = as_counts(owner, as_weights(owner, sample_weight, scores))
        rows, weight = self._calibrated(rows)[weight > 0], weight[weight > 0]
        old = self.class_prior.to(rows)
        if class_prior is None:
            new = self._estimated(rows, weight, old)
        else:
            new = class_vector(owner, "class_prior", class_prior, len(old)).to(rows)
            one = self._multilabel or abs(new.sum().item() - 1) < 1e-6
            ok = bool((new > 0).all()) and bool((new < 1).all()) and one
            allowed = "hold shares between 0 and 1, which sum to 1 over classes"
            require(ok, owner, "class_prior", allowed, new.tolist())
        # A class without rows before has nothing that could be scaled.
        change = torch.where((old > 0) & (new > 0), new / old, 1).log()
        if self._multilabel:
            change = change - torch.where(old < 1, (1 - new) / (1 - old), 1).log()
        offsets = change if self.offsets is None else self.offsets.to(rows) + change
        weights = weight.unsqueeze(1).expand_as(rows) if self._multilabel else weight
        adapted = rows + change
        if self._multilabel:
            gain = best_of_labels(owner, adapted, weights, self.metric, goal)
        else:
            gain = best_of_classes(owner, adapted, weights, goal)
        eta = adapted.sigmoid() if self._multilabel else adapted.softmax(1)
        return replace(
            self,
            gain=gain,
            source="adapted",
            score=None,
            offsets=offsets,
            class_prior=new,
            rows=len(rows),
            slacks=slacks_of(goal, adapted, eta, eta, weights, gain, self._multilabel),
            confidence=None,
            promised=None,
        )

    def _estimated(self, rows: Tensor, weight: Tensor, old: Tensor) -> Tensor:
        before = self.rows or len(rows)
        if self._multilabel:
            pairs = torch.stack([-rows, rows], -1).sigmoid()
            new = shift.shares(pairs, weight, torch.stack([1 - old, old], -1), before)[:, 1]
        else:
            new = shift.shares(rows.softmax(1), weight, old, before)
        classes = 2 if self._multilabel else len(old)
        doubts = []
        if len(rows) < FEW_ROWS * classes:
            doubts.append(f"{len(rows)} rows are few for {classes} classes")
        if bool(((new < 1e-6) & (old > 1e-3)).any()):
            doubts.append("a class seems to be absent")
        if (self.calibration_gap or 0) > LARGE_GAP:
            doubts.append("the probabilities did not agree with the labels when it was fitted")
        if doubts and not torch.equal(new, old):
            text = f"The estimate of DecisionRule.adapt is not to be trusted: {', '.join(doubts)}."
            warnings.warn(f"{text} Pass class_prior= if you know it.", UserWarning, stacklevel=3)
        return new

    def state_dict(self) -> dict[str, Any]:
        """The rule as plain numbers and strings. A metric that was not a name is left out."""
        return {
            "gain": self.gain.tolist(),
            "decision": self.decision,
            "source": self.source,
            "metric": self.metric if isinstance(self.metric, str) else None,
            "constraint": self.constraint,
            "score": self.score,
            "offsets": None if self.offsets is None else self.offsets.tolist(),
            "factor": self.factor,
            "task": self.task,
            "classes": self.classes,
            "class_dim": self.class_dim,
            "class_prior": None if self.class_prior is None else self.class_prior.tolist(),
            "calibration_gap": self.calibration_gap,
            "rows": self.rows,
            "slacks": self.slacks,
            "confidence": self.confidence,
            "promised": self.promised,
        }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], *, metric: MetricFunction | None = None
    ) -> "DecisionRule":
        """The rule of a `state_dict`, with the metric again if that was not a name."""
        given = fields_of(state, [field.name for field in fields(cls)])
        given["metric"] = given.get("metric") if metric is None else metric
        return cls(**given)
