"""A decision rule, and how one is fitted."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evalign.core.checks import complaint, numbers, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import check_indices, row_weights
from evalign.decisions.goal import Goal
from evalign.decisions.tuned import search, tuned

Decision = Literal["argmax", "tuned", "expected"]


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """The label of a row with class probabilities η is argmax_j Σ_y η_y G[y, j].

    Made by `fit_decision`. The rule is frozen: the label of a row does not depend on other rows.

    Args:
        gain: G (C, C), float64; G[y, j] is the gain of label j where y is true.
        decision: "argmax", "tuned" or "expected".
        source: what G comes from: the decision itself, and for "tuned" the rule that won
            ("argmax", "expected", "calibrated" or "labels").
        metric: the metric, as it was given.
        constraint: the constraint, as it was given.
        score: the metric of a tuned rule on the rows it was tuned on, greater is better; None for
            other decisions. It is the best score of the rules that were compared. Rules that learn
            from labels are scored on rows they have not seen, unless labels alone decide.
        offsets: what the rule adds to logits to make probabilities of them, as given.
    """

    gain: Tensor
    decision: Decision
    source: str
    metric: str | MetricFunction | None = None
    constraint: str | None = None
    score: float | None = None
    offsets: Tensor | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """Labels (N,), int64."""
        return self.labels_of(self.probabilities(logits))

    def scores(self, logits: Tensor) -> Tensor:
        """Scores (N, C), float64; the label is their argmax."""
        return self.scores_of(self.probabilities(logits))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities η (N, C), float64."""
        logits = _class_logits("DecisionRule", logits)
        classes = len(self.gain)
        allowed = f"have {classes} classes, as those the rule was fitted on"
        require(logits.shape[1] == classes, "DecisionRule", "logits", allowed, logits.shape[1])
        return self.softmax(logits)

    # The next three methods read no values, so that a module that holds a rule can be exported.

    def softmax(self, logits: Tensor) -> Tensor:
        """Probabilities (N, C) of logits (N, C) that are known to be finite."""
        if self.offsets is not None:
            logits = logits + self.offsets.to(logits.device)
        return logits.softmax(1)

    def scores_of(self, probabilities: Tensor) -> Tensor:
        """Scores (N, C) of probabilities (N, C), float64: what each label is expected to gain."""
        return probabilities @ self.gain.to(probabilities.device)

    def labels_of(self, probabilities: Tensor) -> Tensor:
        """Labels (N,) of probabilities (N, C), float64."""
        return self.scores_of(probabilities).argmax(1)

    def adapt(self, logits: Tensor, *, sample_weight: Tensor | None = None) -> "DecisionRule":
        """A new rule from these rows, which need no labels: for decision "expected" only."""
        owner, cure = "DecisionRule.adapt", 'Fit with decision="expected".'
        allowed = 'be "expected", which needs no labels'
        require(self.decision == "expected", owner, "decision", allowed, repr(self.decision), cure)
        if self.metric is None:
            cure = "Pass it: DecisionRule.from_state_dict(state, metric=...)."
            raise ValueError(complaint(owner, "metric", "be known", "none", cure))
        return fit_decision(
            logits,
            metric=self.metric,
            decision="expected",
            sample_weight=sample_weight,
            constraint=self.constraint,
            offsets=self.offsets,
        )

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
        }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], *, metric: MetricFunction | None = None
    ) -> "DecisionRule":
        """The rule of a `state_dict`, with the metric again if that was not a name."""
        cure = "It is of an older version: fit again."
        require("offsets" in state, "DecisionRule", "state", "hold offsets", list(state), cure)
        gain, offsets = numbers(state["gain"]), state["offsets"]
        square = gain.ndim == 2 and gain.shape[0] == gain.shape[1] > 0
        ok = square and bool(gain.isfinite().all())
        require(ok, "DecisionRule", "gain", "be finite numbers (C, C)", tuple(gain.shape))
        known = get_args(Decision)
        allowed = f"be one of {', '.join(known)}"
        got = state["decision"]
        require(got in known, "DecisionRule", "decision", allowed, repr(got))
        return cls(
            **state
            | {
                "gain": gain,
                "metric": state["metric"] if metric is None else metric,
                "offsets": None if offsets is None else _offsets("DecisionRule", offsets, gain),
            }
        )


@torch.no_grad()
def fit_decision(
    logits: Tensor,
    y: Tensor | None = None,
    *,
    metric: str | MetricFunction,
    decision: Decision = "tuned",
    sample_weight: Tensor | None = None,
    constraint: str | None = None,
    offsets: Tensor | None = None,
) -> DecisionRule:
    """The rule from scores to labels that is best for a metric. Deterministic, in float64.

    - "argmax": the class with the largest logit.
    - "tuned": found with the labels of validation rows: for two classes the best threshold of all,
      for more the gain matrix. Where labels are few, steadier rules are tried too, and the one that
      does best on rows it has not seen is taken (see `DecisionRule.source`).
    - "expected": found from the model's own probabilities, without labels; `y` is not used.
      For two classes it is the best threshold for the expected confusion matrix; for more, the
      best step of a Frank–Wolfe search: a local optimum, proved to be global for concave metrics
      only. The probabilities should be calibrated.

    Args:
        logits: (N, C), or (N,) or (N, 1) for two classes.
        y: labels (N,), integers from 0 to C − 1. For "tuned".
        metric: a name, a metric of `evalign.metrics`, or any function of a `Confusion` that returns
            a scalar tensor. A cost is minimised.
        decision: "argmax", "tuned" or "expected".
        sample_weight: (N,), not negative; twice the weight counts twice, whatever their scale.
        constraint: such as "recall >= 0.9": of the rules that meet it on these rows, the best.
            The labels (or for "expected", the probabilities) are then taken at their word.
        offsets: (C,), of a network whose probabilities are softmax(logits + offsets), such as one
            trained with `AlignedLoss`. The logits, here and in calls of the rule, do not hold them.

    Raises:
        ValueError: if no rule meets the constraint; the text says how far one gets.

    Examples:
        >>> logits = torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.4, 0.0], [2.0, 0.0]])
        >>> rule = fit_decision(logits, metric="f1", decision="expected")
        >>> rule(logits)
        tensor([0, 1, 1, 0])
    """
    owner = "fit_decision"
    allowed = f"be one of {', '.join(get_args(Decision))}"
    require(decision in get_args(Decision), owner, "decision", allowed, repr(decision))
    cure = 'Use "tuned" or "expected".'
    free = decision != "argmax" or constraint is None
    require(free, owner, "constraint", "be None for argmax", repr(constraint), cure)
    goal = Goal.of(owner, metric, constraint)
    logits = _class_logits(owner, logits)
    weight = _weights(owner, sample_weight, logits)
    labels = None
    if decision == "tuned":
        if y is None:
            cure = 'Without labels use decision="expected".'
            raise ValueError(complaint(owner, "y", "hold labels for tuned", None, cure))
        labels = _labels(owner, y, logits)
    if sample_weight is not None:
        counts = weight > 0
        logits, weight = logits[counts], weight[counts]
        labels = None if labels is None else labels[counts]

    argmax = torch.eye(logits.shape[1], dtype=torch.float64, device=logits.device)
    if offsets is not None:
        offsets = _offsets(owner, offsets, logits)
        # Gains multiply probabilities η: the argmax of the logits is that of η_j e^(−offset_j).
        argmax, logits = (-offsets).softmax(0).diag(), logits + offsets
    source, score = decision, None
    if labels is not None:
        gain, source, score = tuned(owner, logits, labels, weight, goal, argmax)
    elif decision == "expected":
        gain = search(owner, logits, logits.softmax(1), weight.unsqueeze(0), goal)[0]
    else:
        gain = argmax
    return DecisionRule(gain, decision, source, metric, constraint, score, offsets)


def _class_logits(owner: str, logits: Tensor) -> Tensor:
    """(N, C) in float64, without a graph; a binary logit z becomes (0, z)."""
    logits = torch.as_tensor(logits).detach().double()
    if logits.ndim == 2 and logits.shape[1] == 1:
        logits = logits.squeeze(1)
    if logits.ndim == 1:
        logits = torch.stack([torch.zeros_like(logits), logits], 1)
    allowed = "have shape (N, C), or (N,) or (N, 1) for two classes, with at least one row"
    require(logits.ndim == 2 and len(logits) > 0, owner, "logits", allowed, tuple(logits.shape))
    cure = "The network has diverged or its input holds such values."
    wrong = logits[~logits.isfinite()]
    require(not len(wrong), owner, "logits", "be finite", wrong[:1].tolist(), cure)
    # Only differences of logits count, and large logits would overflow.
    return logits - logits.amax(1, keepdim=True)


def _labels(owner: str, y: Tensor, logits: Tensor) -> Tensor:
    y = torch.as_tensor(y).to(logits.device)
    y = y.squeeze(1) if y.ndim == 2 and y.shape[1] == 1 else y
    require(y.shape == logits.shape[:1], owner, "y", f"have shape ({len(logits)},)", tuple(y.shape))
    labels = y.long()
    wrong = y[labels != y]
    require(not len(wrong), owner, "y", "hold class indices", wrong[:1].tolist())
    check_indices(owner, "y", labels, logits.shape[1])
    return labels


def _offsets(owner: str, offsets: Tensor, logits: Tensor) -> Tensor:
    vector, classes = numbers(offsets), logits.shape[1]
    ok = vector.shape == (classes,) and bool(vector.isfinite().all())
    allowed = f"hold a finite number for each of the {classes} classes"
    require(ok, owner, "offsets", allowed, repr(offsets))
    return vector.to(logits)


def _weights(owner: str, sample_weight: Tensor | None, logits: Tensor) -> Tensor:
    if sample_weight is None:
        return logits.new_ones(len(logits))
    weight = torch.as_tensor(sample_weight).detach().to(logits)
    weight = row_weights(owner, weight, logits.shape[:1])
    ok = bool((weight >= 0).all() and weight.isfinite().all() and weight.sum() > 0)
    require(ok, owner, "sample_weight", "be finite, not negative and not all 0", "other numbers")
    # Only their ratios count. On average 1, as without weights: the priors of `calibrate` are for
    # counts of rows. By the largest first: its sum might overflow.
    weight = weight / weight.amax()
    return weight / weight[weight > 0].mean()
