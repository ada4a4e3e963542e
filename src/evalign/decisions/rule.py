"""A decision rule: from scores to labels."""

import math
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from evalign.core import stairs
from evalign.core.checks import require
from evalign.core.positive import place_of_positive
from evalign.core.task import Task
from evalign.core.text import plain
from evalign.decisions import formula
from evalign.decisions.blocks import map_blocks
from evalign.decisions.inputs import FLOOR, ONE_ROW, Scores, as_scores
from evalign.decisions.rule_in_words import in_words
from evalign.decisions.saved_rule import OWNER, Decision, checked_state, write_rule

if TYPE_CHECKING:
    from evalign.core.metrics import MetricFunction
    from evalign.decisions.inputs import Values


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """A rule that gives a row with class probabilities η the label argmax_j Σ_y η_y G[y, j].

    Made by `fit_decision`, whose forms of logits and probabilities it takes. The label of a row
    does not depend on other rows. In a multilabel problem each label is a binary problem. Metric,
    constraint, and confidence are as they were given.

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
        classes: the labels in the order of the columns, in which form the rule returns them; None
            for 0, 1, …
        pos_label: the positive class of two, which a single column of scores and `threshold` are
            of; it does not change the order of the columns.
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
    classes: list[Any] | None = None
    class_dim: int = 1
    class_prior: np.ndarray | None = None
    rows: int | None = None
    slacks: dict[str, float] | None = None
    confidence: float | None = None
    promised: bool | None = None
    argmax_score: float | None = None
    pos_label: Any = None

    def __post_init__(self) -> None:
        for name in ("gain", "offsets", "class_prior"):
            values = getattr(self, name)
            if values is not None:
                array = np.array(stairs.as_numpy(values), dtype=np.float64)
                object.__setattr__(self, name, array)

    def __call__(
        self, logits: "Values | None" = None, *, probabilities: "Values | None" = None
    ) -> Any:
        """Labels in the form of the fit: its classes, or indices; 0 and 1 if multilabel."""
        scores = self._read(logits, probabilities)
        codes = scores.shaped(self._codes(scores))
        if self.classes is None or self.multilabel:
            return stairs.in_form_of(codes, scores.container)
        kinds = {isinstance(label, str) for label in self.classes}
        labels = np.array(self.classes, dtype=object if len(kinds) > 1 else None)[codes]
        text = labels.dtype.kind not in "biuf"
        return labels if text else stairs.in_form_of(labels, scores.container)

    def codes(
        self, logits: "Values | None" = None, *, probabilities: "Values | None" = None
    ) -> np.ndarray:
        """The place of each label in `classes`; 0 and 1 if multilabel."""
        scores = self._read(logits, probabilities)
        return scores.shaped(self._codes(scores))

    def _codes(self, scores: Scores) -> np.ndarray:
        columns = scores.rows.shape[1:] if self.multilabel else ()
        labels = np.empty((len(scores.rows), *columns), dtype=np.int64)

        def of_block(logits: np.ndarray) -> np.ndarray:
            return formula.labels(self._expected_gains(logits), multilabel=self.multilabel)

        return map_blocks(of_block, scores.rows, labels)

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
        """The rule in words that give its labels where they are applied by hand."""
        return in_words(self)

    @property
    def threshold(self) -> Any:
        """The model's own probability above which it predicts the positive one of two classes.

        0 means always, 1 never. If multilabel it is an array (L,). More classes have no threshold.
        """
        return self.threshold_of(self.positive)

    def threshold_of(self, place: int) -> Any:
        """The same for one of two classes by its place; of each label if multilabel."""
        at = np.asarray(self._log_odds_of(place))
        beyond = np.abs(at) > -math.log(FLOOR)
        within = np.where(beyond, 0, at)
        share = np.where(beyond, at > 0, 1 / (1 + np.exp(-within)))
        return share if self.multilabel else float(share)

    @property
    def log_odds(self) -> Any:
        """The `threshold` on the scale of the logits: a number, or an array (L,) if multilabel."""
        return self._log_odds_of(self.positive)

    def _log_odds_of(self, place: int) -> Any:
        if self.multilabel:
            offsets = 0.0 if self.offsets is None else self.offsets
            with np.errstate(divide="ignore"):
                of_probabilities = np.log(self.gain[:, 0, 0]) - np.log(self.gain[:, 1, 1])
            return (of_probabilities - offsets) / self.factor
        if (number := len(self.gain)) != 2:
            raise AttributeError(f"A rule of {number} classes has no threshold. Call the rule.")
        other = 1 - place
        won = max(self.gain[place, place] - self.gain[place, other], 0)
        lost = max(self.gain[other, other] - self.gain[other, place], 0)
        if won == 0 or lost == 0:  # one class is never predicted
            return math.inf if won == 0 else -math.inf
        lead = math.log(lost / won)
        if self.offsets is not None:
            lead += self.offsets[other] - self.offsets[place]
        return float(lead / self.factor)

    @property
    def positive(self) -> int:
        """The place of the positive class of two."""
        return place_of_positive(self.classes or (0, 1), self.pos_label)

    @property
    def multilabel(self) -> bool:
        """Whether each column is a label of its own."""
        return self.task == "multilabel"

    def _read(self, logits: "Values | None", probabilities: "Values | None") -> Scores:
        """The scores, checked to be of the classes or labels of the rule."""
        scores = as_scores(
            OWNER,
            logits,
            probabilities,
            None,
            self.task,
            self.class_dim,
            None,
            self.classes,
            self.positive,
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
