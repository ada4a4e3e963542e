"""A decision rule: from scores to labels."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from torch import Tensor

from evalign.core.checks import complaint, numbers, require
from evalign.core.metrics import MetricFunction
from evalign.core.rows import Task
from evalign.decisions.gains import confusions
from evalign.decisions.goal import Goal
from evalign.decisions.inputs import Values, as_scores, as_weights, class_vector, with_mean_one
from evalign.decisions.tuned import search

Decision = Literal["argmax", "tuned", "expected"]


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """The label of a row with class probabilities η is argmax_j Σ_y η_y G[y, j].

    Made by `fit_decision`. The rule is frozen: the label of a row does not depend on other rows.
    It takes what `fit_decision` takes: logits, or probabilities by name. A tensor gives a tensor;
    an array or a list, a numpy array.

    Args:
        gain: G (C, C), float64; G[y, j] is the gain of label j where y is true.
        decision: "argmax", "tuned" or "expected".
        source: what G comes from: the decision itself, and "labels" for "tuned".
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
            their labels if it is tuned, else of their probabilities.
        slacks: how far each constraint is on the allowed side of its bound, on these rows.
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
    classes: list[str | int] | None = None
    class_dim: int = 1
    class_prior: Tensor | None = None
    slacks: dict[str, float] | None = None

    def __call__(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Labels, int64, one for each row, in the shape of the rows."""
        scores, eta = self._eta(logits, probabilities)
        return scores.per_row(self.labels_of(eta))

    def scores(self, logits: Values | None = None, *, probabilities: Values | None = None) -> Any:
        """Scores, float64, in the shape of the rows with their classes; the label is the argmax."""
        scores, eta = self._eta(logits, probabilities)
        return scores.per_class(self.scores_of(eta))

    def probabilities(self, logits: Values) -> Any:
        """Probabilities η, float64, in the shape of the rows with their classes."""
        scores, eta = self._eta(logits, None)
        return scores.per_class(eta)

    def _eta(self, logits: Values | None, probabilities: Values | None) -> tuple[Any, Tensor]:
        owner, classes = "DecisionRule", len(self.gain)
        scores = as_scores(owner, logits, probabilities, multilabel=False, class_dim=self.class_dim)
        name = "logits" if probabilities is None else "probabilities"
        got = scores.rows.shape[1]
        allowed = f"have {classes} classes, as those the rule was fitted on"
        require(got == classes, owner, name, allowed, got)
        return scores, self.softmax(scores.rows)

    # The next three methods read no values, so that a module that holds a rule can be exported.

    def softmax(self, logits: Tensor) -> Tensor:
        """Probabilities (N, C) of logits (N, C) that are known to be finite."""
        logits = self.factor * logits
        if self.offsets is not None:
            logits = logits + self.offsets.to(logits.device)
        return logits.softmax(1)

    def scores_of(self, probabilities: Tensor) -> Tensor:
        """Scores (N, C) of probabilities (N, C), float64: what each label is expected to gain."""
        return probabilities @ self.gain.to(probabilities.device)

    def labels_of(self, probabilities: Tensor) -> Tensor:
        """Labels (N,) of probabilities (N, C), float64."""
        return self.scores_of(probabilities).argmax(1)

    def adapt(
        self,
        logits: Values | None = None,
        *,
        probabilities: Values | None = None,
        sample_weight: Values | None = None,
    ) -> "DecisionRule":
        """A new rule from these rows, which need no labels: for decision "expected" only."""
        owner, cure = "DecisionRule.adapt", 'Fit with decision="expected".'
        allowed = 'be "expected", which needs no labels'
        require(self.decision == "expected", owner, "decision", allowed, repr(self.decision), cure)
        if self.metric is None:
            cure = "Pass it: DecisionRule.from_state_dict(state, metric=...)."
            raise ValueError(complaint(owner, "metric", "be known", "none", cure))
        scores, eta = self._eta(logits, probabilities)
        weight = with_mean_one(owner, as_weights(owner, sample_weight, scores))
        goal, rows = Goal.of(owner, self.metric, self.constraint, self.classes), weight.unsqueeze(0)
        gain, slacks = search(owner, eta.log(), eta, rows, goal), None
        if goal.constraints:
            slacks = goal.slacks(confusions(eta, eta, rows, gain)[0])
        prior = weight @ eta / weight.sum()
        return replace(self, gain=gain[0], class_prior=prior, slacks=slacks)

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
            "slacks": self.slacks,
        }

    @classmethod
    def from_state_dict(
        cls, state: dict[str, Any], *, metric: MetricFunction | None = None
    ) -> "DecisionRule":
        """The rule of a `state_dict`, with the metric again if that was not a name."""
        cure = "It is of an older version: fit again."
        require("offsets" in state, "DecisionRule", "state", "hold offsets", list(state), cure)
        gain = numbers(state["gain"])
        square = gain.ndim == 2 and gain.shape[0] == gain.shape[1] > 0
        ok = square and bool(gain.isfinite().all())
        require(ok, "DecisionRule", "gain", "be finite numbers (C, C)", tuple(gain.shape))
        known = get_args(Decision)
        allowed = f"be one of {', '.join(known)}"
        got = state["decision"]
        require(got in known, "DecisionRule", "decision", allowed, repr(got))
        vectors: dict[str, Any] = {
            name: None
            if state.get(name) is None
            else class_vector("DecisionRule", name, state[name], gain)
            for name in ("offsets", "class_prior")
        }
        metric = state["metric"] if metric is None else metric
        fields: dict[str, Any] = state | vectors | {"gain": gain, "metric": metric}
        return cls(**fields)
