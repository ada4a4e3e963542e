"""What a decision rule gains over argmax, on rows that it was not fitted to."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from evalign.core.checks import complaint, require
from evalign.core.confusion import Confusion
from evalign.core.constraints import Infeasible, parse, undefined_without_rows
from evalign.core.estimates import Estimate, estimate
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule, fit_decision
from evalign.decisions.fit_rows import FitSettings
from evalign.decisions.promise import NotPromisedWarning
from evalign.estimators.out_of_fold import OWNER, OutOfFoldScores

# Rows outside of the most frequent class. With fewer, a tuned rule gains over argmax by luck.
MIN_TUNING_ROWS = 10
WAYS: dict[str, Decision | None] = {"rule": None, "argmax": "argmax"}


@dataclass(frozen=True)
class RuleSettings:
    """Arguments of `fit_decision`."""

    metric: str | MetricFunction
    decision: Decision
    constraint: str | None
    classes: Sequence[Any]
    confidence: float | None = None

    def check(self, owner: str, groups: np.ndarray | None) -> None:
        """Refuse settings that no rule can meet, before a classifier is trained."""
        given = {"constraint": self.constraint, "classes": self.classes}
        FitSettings(owner, self.metric, self.decision, confidence=self.confidence, **given)
        parts = parse(self.constraint, self.classes, owner=owner) if self.constraint else ()
        gaps, name = [each.text for each in parts if each.gap], "constraint_groups"
        if not gaps:
            allowed, cure = "be None without a gap", 'A gap is constraint="gap(recall) <= 0.05".'
            require(groups is None, owner, name, allowed, "groups", cure)
        elif groups is None:
            cure = (
                "Pass fit(X, y, constraint_groups=...), a group per row; for validation_data as "
                "its fourth part."
            )
            raise ValueError(complaint(owner, name, f"be given for {gaps[0]!r}", None, cure))
        else:
            number = len(np.unique(groups))
            require(number > 1, owner, name, "name at least two groups", number)
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

    def rule(self, oof: OutOfFoldScores, decision: Decision | None = None) -> DecisionRule:
        """Fit the rule, or that of another decision, which promises nothing."""
        own = decision is None or decision == self.decision
        decision = decision or ("argmax" if self.doubt(oof) else self.decision)
        free = decision == "argmax"
        return fit_decision(
            **oof.argument,
            y=oof.y,
            metric=self.metric,
            decision=decision,
            task="multilabel" if oof.multilabel else None,
            sample_weight=oof.weight,
            constraint=None if free else self.constraint,
            groups=None if free else oof.groups,
            confidence=self.confidence if own else None,
            classes=self.classes,
            offsets=oof.offsets,
        )

    def rule_without(
        self, oof: OutOfFoldScores, fold: int, decision: Decision | None
    ) -> DecisionRule | None:
        """The rule of the rows of all other folds; None if there are none or none can be fitted.

        The other rows may not allow for the constraint, or be of one group.
        """
        rest = oof.take(oof.fold != fold)
        alone = rest.groups is not None and len(np.unique(rest.groups)) < 2
        if not len(rest.y) or (alone and decision != "argmax"):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotPromisedWarning)  # the final rule says so
                return self.rule(rest, decision)
        except Infeasible:
            return None


def perfect(classes: int, *, multilabel: bool = False) -> Confusion:
    """All rows labelled correctly. A metric or a constraint that is for two classes may refuse."""
    if multilabel:
        one = torch.ones(classes)
        return Confusion(one, one, one, 2 * one, multilabel=True)
    return Confusion.from_matrix(torch.eye(classes))


def score_of(
    metric: Metric, labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int
) -> float:
    """The metric of codes or indicators, negated if it is a cost."""
    value = metric(_confusion(labels, y, weight, classes, metric.needs_matrix)).item()
    return value if metric.greater_is_better else -value


class CrossFitted(NamedTuple):
    """Decisions that were fitted to all folds but one and applied to that one, in turn.

    Args:
        scores: (folds,), greater is better, by the decision's name; NaN where the metric is
            undefined or no rule meets the constraint on the other folds.
        labels: (N,) or (N, L), by the decision's name; −1 where there is no rule.
        rules: the rule of the first decision for each fold.
    """

    scores: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    rules: list[DecisionRule | None]


def cross_fit(
    oof: OutOfFoldScores, settings: RuleSettings, decisions: dict[str, Decision | None] = WAYS
) -> CrossFitted:
    """Fit rules to the other folds and score them, fold by fold; None is the settings' decision."""
    metric, number = resolve(settings.metric, owner=OWNER), len(settings.classes)
    folds = np.unique(oof.fold)
    scores = {name: np.full(len(folds), np.nan) for name in decisions}
    labels = {name: np.full_like(oof.y, -1) for name in decisions}
    rules: list[DecisionRule | None] = []
    for place, fold in enumerate(folds):
        test = np.asarray(oof.fold == fold)
        held_out = oof.take(test)
        for name, decision in decisions.items():
            found = settings.rule_without(oof, fold, decision)
            if name == "rule":
                rules.append(found)
            if found is not None:
                given = labels[name][test] = found(**held_out.argument)
                scores[name][place] = score_of(metric, given, held_out.y, held_out.weight, number)
    return CrossFitted(scores, labels, rules)


def mean_difference(scores: np.ndarray, metric: Metric) -> Estimate:
    """The mean over folds of differences of a metric, with its interval; NaN for fewer than two."""
    values = scores[np.isfinite(scores)]
    if len(values) < 2:
        return Estimate(_of_finite(np.mean, values), np.nan, np.nan, np.nan)
    low, high = metric.bounds
    return estimate(values.tolist(), len(scores), (low - high, high - low))


def evidence(oof: OutOfFoldScores, settings: RuleSettings) -> tuple[DecisionRule, dict[str, Any]]:
    """The rule, and what it gains fold by fold.

    See `AlignedDecisionCV.cv_results_` for the names.
    """
    metric, number = resolve(settings.metric, owner=OWNER), len(settings.classes)
    decisions = dict(WAYS)
    if settings.decision == "tuned":
        decisions["expected"] = "expected"
    folds, rule = np.unique(oof.fold), settings.rule(oof)
    scores, labels, rules = cross_fit(oof, settings, decisions)
    result: dict[str, Any] = {}
    for name, values in scores.items():
        result[f"{name}_scores"] = values
        result[f"mean_{name}_score"] = _of_finite(np.mean, values)
        result[f"std_{name}_score"] = _of_finite(np.std, values)
    if settings.constraint is not None:
        result["fold_slacks"] = _slacks(oof, settings, labels["rule"], folds)
    gain = mean_difference(scores["rule"] - scores["argmax"], metric)
    result |= dict(zip(("gain", "gain_low", "gain_high", "gain_p"), gain, strict=True))
    if number == 2 and not oof.multilabel:
        own = [np.nan if found is None else threshold(found, oof) for found in rules]
        result |= {"threshold": threshold(rule, oof), "fold_thresholds": np.array(own)}
    return rule, result


def _slacks(
    oof: OutOfFoldScores, settings: RuleSettings, labels: np.ndarray, folds: np.ndarray
) -> dict[str, np.ndarray]:
    """How far each constraint is from its bound on each fold, by the rule of the other folds.

    NaN where there is no rule, no row that the constraint is about, or a single group.
    """
    constraints = parse(settings.constraint or "", settings.classes, owner=OWNER)
    result = {each.text: np.full(len(folds), np.nan) for each in constraints}

    def of(rows: np.ndarray) -> Confusion:
        part = oof.take(rows)
        return _confusion(labels[rows], part.y, part.weight, len(settings.classes), True)

    for place, fold in enumerate(folds):
        own = np.asarray(oof.fold == fold)
        if (labels[own] < 0).any():
            continue
        parts = None
        if oof.groups is not None:
            parts = [of(own & (oof.groups == group)) for group in np.unique(oof.groups[own])]
        for each in constraints:
            strict = replace(each, metric=undefined_without_rows(each.metric))
            counted = [part for part in parts or () if each.metric(part).isfinite()]
            if not each.gap or len(counted) > 1:
                result[each.text][place] = strict.slack(of(own), parts).item()
    return result


def threshold(rule: DecisionRule, oof: OutOfFoldScores) -> float:
    """The score of the second class above which it is predicted."""
    return rule.log_odds.item() if oof.method == "decision_function" else rule.threshold


def _of_finite(function: Any, values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(function(values)) if len(values) else float("nan")


def _confusion(
    labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int, matrix: bool
) -> Confusion:
    several = y.ndim == 2
    given, true = (torch.from_numpy(x.astype(bool if several else np.int64)) for x in (labels, y))
    return Confusion.from_predictions(
        given,
        true,
        num_classes=None if several else max(2, classes),
        sample_weight=None if weight is None else torch.from_numpy(weight),
        matrix=matrix and not several,
    )
