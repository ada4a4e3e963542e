"""What a decision rule gains over argmax, on rows that it was not fitted to."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalign.core.checks import require
from evalign.core.class_order import ClassOrder
from evalign.core.confusion import Confusion
from evalign.core.constraints import Constraint, Infeasible, parse
from evalign.core.estimates import Estimate, estimate
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit import fit_codes
from evalign.decisions.promise import NotPromisedWarning
from evalign.decisions.settings import FitSettings
from evalign.estimators.out_of_fold import OWNER, OutOfFoldScores

# Rows outside of the most frequent class. With fewer, a tuned rule gains over argmax by luck.
MIN_TUNING_ROWS = 10
WAYS = ("rule", "argmax")
Labels = dict[str, np.ndarray]  # by each way: (N,) or (N, L); −1 where there is no rule


@dataclass(frozen=True)
class RuleSettings:
    """Arguments of `fit_decision`; `classes` are in the order of the columns."""

    metric: str | MetricFunction
    decision: Decision
    constraint: str | None
    classes: Sequence[Any]
    confidence: float | None = None
    order: Sequence[Any] | None = None
    pos_label: Any = None

    @property
    def class_order(self) -> ClassOrder:
        """How the metric counts the classes."""
        return ClassOrder(len(self.classes), self.classes, self.order, self.pos_label)

    def resolved(self, owner: str, *, multilabel: bool = False) -> Metric:
        """The metric of labels as codes: it knows the positive class and the order."""
        metric = resolve(self.metric, owner=owner)
        return metric if multilabel else self.class_order.placed(owner, metric)

    def constraints(self, owner: str, *, multilabel: bool = False) -> tuple[Constraint, ...]:
        """The constraints on labels as codes."""
        parts = () if self.constraint is None else parse(self.constraint, self.classes, owner=owner)
        if multilabel:
            return parts
        return tuple(self.class_order.placed_constraint(owner, each) for each in parts)

    def check(self, owner: str, groups: np.ndarray | None, *, multilabel: bool = False) -> None:
        """Refuse settings that no rule can meet, before a classifier is trained."""
        given = {"constraint": self.constraint, "classes": self.classes}
        FitSettings(owner, self.metric, self.decision, confidence=self.confidence, **given)
        parts = self.constraints(owner, multilabel=multilabel)
        gap = next((each.text for each in parts if each.gap), None)
        number = 0 if groups is None else len(np.unique(groups))
        allowed, cure = "be None without a gap", 'A gap is constraint="gap(recall) <= 0.05".'
        if gap is not None:
            allowed, cure = f"name two groups or more for {gap!r}", "Pass a group per row to fit."
        ok, got = number > 1 if gap else groups is None, f"{number} groups"
        require(ok, owner, "constraint_groups", allowed, got, cure)
        for each in parts:
            ideal = perfect(len(self.classes))
            each.slack(ideal, [ideal])  # raises if it is for two classes only

    def doubt(self, oof: OutOfFoldScores) -> str | None:
        """Why argmax has to take the place of a fitted rule, if it has to."""
        free = self.constraint is None and self.decision == "tuned"
        if not free or oof.minority_rows >= MIN_TUNING_ROWS:
            return None
        return (
            f"Tuning a decision takes {MIN_TUNING_ROWS} rows outside of the most frequent class, "
            f"and there are {oof.minority_rows}: labels are those of the highest score. Give more "
            "rows, or decide by the probabilities (decision expected)."
        )

    def rule(self, oof: OutOfFoldScores, way: str = "rule") -> DecisionRule:
        """Fit the rule, or argmax, which heeds no constraint."""
        argmax = way == "argmax" or self.doubt(oof) is not None
        decision = "argmax" if argmax else self.decision
        settings = FitSettings(
            "fit_decision",
            self.metric,
            decision,
            "multilabel" if oof.multilabel else None,
            None if argmax else self.constraint,
            None if argmax else self.confidence,
            self.classes,
            pos_label=self.pos_label,
            order=self.order,
        )
        return fit_codes(
            settings,
            **oof.argument,
            y=oof.y,
            sample_weight=oof.weight,
            offsets=oof.offsets,
            constraint_groups=None if argmax else oof.groups,
        )

    def rule_without(self, oof: OutOfFoldScores, fold: int, way: str) -> DecisionRule | None:
        """The rule of the rows of all other folds; None if there are none or none can be fitted.

        The other rows may not allow for the constraint, or be of one group.
        """
        rest = oof.take(oof.fold != fold)
        alone = rest.groups is not None and len(np.unique(rest.groups)) < 2
        if not len(rest.y) or (alone and way == "rule"):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotPromisedWarning)  # the final rule says so
                return self.rule(rest, way)
        except Infeasible:
            return None


def perfect(classes: int, *, multilabel: bool = False) -> Confusion:
    """All rows labelled correctly. A metric or a constraint that is for two classes may refuse."""
    if multilabel:
        one = np.ones(classes)
        return Confusion(one, one, one, 2 * one, multilabel=True)
    return Confusion.from_matrix(np.eye(classes))


def score_of(
    metric: Metric, labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int
) -> float:
    """The metric of codes or indicators, negated if it is a cost."""
    value = metric(_confusion(labels, y, weight, classes, metric.needs_matrix)).item()
    return value if metric.greater_is_better else -value


def cross_fit(
    oof: OutOfFoldScores,
    settings: RuleSettings,
    without: Callable[[np.ndarray], OutOfFoldScores] | None = None,
) -> Labels:
    """The labels of each fold by a rule fitted to the other folds, and by argmax.

    Scores that are fitted too, as a mean with weights, come from a function that finds them
    `without` the rows of a mask.
    """
    labels = {way: np.full_like(oof.y, -1) for way in WAYS}
    for fold in np.unique(oof.fold):
        own = np.asarray(oof.fold == fold)
        seen = oof if without is None else without(own)
        for way in WAYS:
            rule = settings.rule_without(seen, fold, way)
            if rule is not None:
                labels[way][own] = rule.codes(**seen.take(own).argument)
    return labels


def mean_difference(scores: np.ndarray, metric: Metric) -> Estimate:
    """The mean over folds of differences of a metric, with its interval; NaN for fewer than two."""
    values = scores[np.isfinite(scores)]
    if len(values) < 2:
        return Estimate(_mean(values), np.nan, np.nan, np.nan)
    low, high = metric.bounds
    return estimate(values.tolist(), len(scores), (low - high, high - low))


def evidence(oof: OutOfFoldScores, settings: RuleSettings) -> tuple[DecisionRule, dict[str, Any]]:
    """The rule, and what it gains fold by fold.

    See `AlignedDecisionCV.cv_results_` for the names.
    """
    metric = settings.resolved(OWNER, multilabel=oof.multilabel)
    number = len(settings.classes)
    labels, rule = cross_fit(oof, settings), settings.rule(oof)
    result: dict[str, Any] = {}
    for way, given in labels.items():
        scores = result[f"{way}_scores"] = np.array(
            [_score(metric, given, oof, oof.fold == fold, number) for fold in np.unique(oof.fold)]
        )
        result[f"mean_{way}_score"] = _mean(scores)
    gain = mean_difference(result["rule_scores"] - result["argmax_scores"], metric)
    result |= dict(zip(("gain", "gain_low", "gain_high"), gain, strict=False))
    if settings.constraint is not None:
        result["held_out_slacks"] = _slacks(oof, settings, labels["rule"])
    if number == 2 and not oof.multilabel:
        of_log_odds = oof.method == "decision_function"
        result["threshold"] = rule.log_odds if of_log_odds else rule.threshold
    return rule, result


def _score(
    metric: Metric, labels: np.ndarray, oof: OutOfFoldScores, rows: np.ndarray, classes: int
) -> float:
    """The score of some rows; NaN if they have no labels."""
    part, given = oof.take(rows), labels[rows]
    return np.nan if (given < 0).any() else score_of(metric, given, part.y, part.weight, classes)


def _slacks(oof: OutOfFoldScores, settings: RuleSettings, labels: np.ndarray) -> dict[str, float]:
    """How far each bound is met on the rows that have a label, by rules of the other folds.

    NaN for a gap of a single group.
    """

    def of(rows: np.ndarray) -> Confusion:
        part = oof.take(rows)
        return _confusion(labels[rows], part.y, part.weight, len(settings.classes), True)

    known = labels.reshape(len(labels), -1).min(1) >= 0
    groups = np.zeros(len(labels)) if oof.groups is None else oof.groups
    parts = [of(known & (groups == group)) for group in np.unique(groups[known])]
    whole, slacks = of(known), {}
    for each in settings.constraints(OWNER, multilabel=oof.multilabel):
        alone = each.gap and len(parts) < 2
        slacks[each.text] = np.nan if alone else each.slack(whole, parts).item()
    return slacks


def _mean(values: np.ndarray) -> float:
    """The mean of the finite values; NaN if there are none."""
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else np.nan


def _confusion(
    labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int, matrix: bool
) -> Confusion:
    several = y.ndim == 2
    return Confusion.from_predictions(
        labels,
        y,
        num_classes=None if several else max(2, classes),
        task="multilabel" if several else None,
        sample_weight=weight,
        matrix=matrix and not several,
    )
