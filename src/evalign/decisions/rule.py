"""A decision rule: from scores to labels."""

import math
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from evalign.core import stairs
from evalign.core.checks import require
from evalign.core.task import Task
from evalign.core.text import plain
from evalign.decisions import formula
from evalign.decisions.blocks import map_blocks
from evalign.decisions.inputs import FLOOR, ONE_ROW, Scores, as_scores
from evalign.decisions.saved_rule import OWNER, Decision, checked_state, write_rule

if TYPE_CHECKING:
    from evalign.core.metrics import MetricFunction
    from evalign.decisions.inputs import Values


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

    gain: np.ndarray
    decision: Decision
    source: str
    metric: "str | MetricFunction | None" = None
    constraint: str | None = None
    score: float | None = None
    offsets: np.ndarray | None = None
    factor: float = 1.0
    task: Task | None = None
    classes: list[str | float] | None = None
    class_dim: int = 1
    class_prior: np.ndarray | None = None
    rows: int | None = None
    slacks: dict[str, float] | None = None
    confidence: float | None = None
    promised: bool | None = None
    argmax_score: float | None = None
    named: bool = False

    def __post_init__(self) -> None:
        for name in ("gain", "offsets", "class_prior"):
            values = getattr(self, name)
            if values is not None:
                array = np.array(stairs.as_numpy(values), dtype=np.float64)
                object.__setattr__(self, name, array)

    def __call__(
        self, logits: "Values | None" = None, *, probabilities: "Values | None" = None
    ) -> Any:
        """Labels: class indices, or names if the fit was given names; 0 and 1 if multilabel."""
        scores = self._read(logits, probabilities)
        columns = scores.rows.shape[1:] if self.multilabel else ()
        labels = np.empty((len(scores.rows), *columns), dtype=np.int64)

        def of_block(logits: np.ndarray) -> np.ndarray:
            return formula.labels(self._expected_gains(logits), multilabel=self.multilabel)

        labels = map_blocks(of_block, scores.rows, labels)
        if self.named:
            return np.array(self.classes)[scores.shaped(labels)]
        return scores.in_original_form(labels)

    def scores(
        self, logits: "Values | None" = None, *, probabilities: "Values | None" = None
    ) -> Any:
        """Scores, a column for each class: labels are the argmax, or score > 0 if multilabel."""
        scores = self._read(logits, probabilities)
        gains = map_blocks(self._expected_gains, scores.rows, np.empty(scores.rows.shape))
        return scores.in_original_form(gains)

    def probabilities(self, logits: "Values") -> Any:
        """Probabilities η, float64, with a column for each class."""
        scores = self._read(logits, None)

        def of_block(logits: np.ndarray) -> np.ndarray:
            eta = self._probabilities(logits)
            return eta[..., 1] if self.multilabel else eta

        eta = map_blocks(of_block, scores.rows, np.empty(scores.rows.shape))
        return scores.in_original_form(eta)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        offsets = 0.0 if self.offsets is None else self.offsets
        return formula.probabilities(logits, self.factor, offsets, multilabel=self.multilabel)

    def _expected_gains(self, logits: np.ndarray) -> np.ndarray:
        eta = self._probabilities(logits)
        return formula.expected_gains(eta, self.gain, multilabel=self.multilabel)

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

    def _added(self, against: int) -> np.ndarray:
        """What has to be added to each logit for its class to be even with one class (C,).

        These numbers are the whole rule if G is diagonal, and otherwise exact where only the two
        classes are possible. A class that is never predicted has −∞.
        """
        gain = self.gain
        won = np.maximum(gain.diagonal() - gain[:, against], 0)
        lost = np.maximum(gain[against, against] - gain[against], 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by = np.log(won / lost)
        by[against] = 0
        if self.offsets is not None:
            by = by + self.offsets - self.offsets[against]
        return np.nan_to_num(by / self.factor, nan=-np.inf, posinf=np.inf, neginf=-np.inf)

    @property
    def threshold(self) -> Any:
        """The model's own probability above which it predicts the second of two classes.

        0 means always, 1 never. If multilabel it is an array (L,). More classes have no threshold.
        """
        at = np.asarray(self.log_odds)
        beyond = np.abs(at) > -math.log(FLOOR)
        within = np.where(beyond, 0, at)
        share = np.where(beyond, at > 0, 1 / (1 + np.exp(-within)))
        return share if self.multilabel else float(share)

    @property
    def log_odds(self) -> Any:
        """The `threshold` on the scale of the logits: a number, or an array (L,) if multilabel."""
        if self.multilabel:
            offsets = 0.0 if self.offsets is None else self.offsets
            with np.errstate(divide="ignore"):
                of_probabilities = np.log(self.gain[:, 0, 0]) - np.log(self.gain[:, 1, 1])
            return (of_probabilities - offsets) / self.factor
        if (number := len(self.gain)) != 2:
            raise AttributeError(f"A rule of {number} classes has no threshold. Call the rule.")
        return -float(self._added(0)[1])

    @property
    def multilabel(self) -> bool:
        """Whether each column is a label of its own."""
        return self.task == "multilabel"

    def _read(self, logits: "Values | None", probabilities: "Values | None") -> Scores:
        """The scores, checked to be of the classes or labels of the rule."""
        scores = as_scores(
            OWNER, logits, probabilities, None, self.task, self.class_dim, None, self.classes
        )
        kind = "labels" if self.multilabel else "classes"
        require(
            scores.rows.shape[1] == len(self.gain),
            OWNER,
            "logits" if probabilities is None else "probabilities",
            f"have {len(self.gain)} {kind}, as in the fit of the rule",
            scores.rows.shape[1],
            ONE_ROW,
        )
        return scores

    def as_module(self, *, probabilities: bool = False) -> Any:
        """The rule as an `nn.Module` from logits to label indices, to ship with a network.

        With `probabilities` the module returns labels and probabilities, with a column for each
        class. It checks nothing: a row with NaN or infinite logits gets the label −1. Needs
        PyTorch.

        Examples:
            >>> import torch
            >>> rule = DecisionRule(np.eye(3), "argmax", "argmax")
            >>> torch.nn.Sequential(torch.nn.Identity(), rule.as_module())(torch.eye(3))
            tensor([0, 1, 2])
        """
        return stairs.rule_module(self, probabilities)

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
        cls, state: dict[str, Any], *, metric: "MetricFunction | None" = None
    ) -> "DecisionRule":
        """Load the rule of a `state_dict`; pass the metric again if it was not a name."""
        arguments = checked_state(state, [field.name for field in fields(cls)])
        arguments["metric"] = arguments["metric"] if metric is None else metric
        return cls(**arguments)


def _from(name: str | float, threshold: float) -> str:
    if threshold in (0, 1):
        return f"{'never' if threshold else 'always'} {name}"
    # Two digits of it or of what it lacks to 1, whichever is smaller.
    digits = 1 - math.floor(math.log10(min(threshold, 1 - threshold)))
    return f"{name} from a probability of {round(threshold, digits):.10g} on"
