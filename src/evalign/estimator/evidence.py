"""What a decision rule brings over argmax, on rows that it was not fitted to."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from evalign.core.confusion import Confusion
from evalign.core.constraints import Infeasible, parse, undefined_without_rows
from evalign.core.estimates import Estimate, estimate
from evalign.core.groups import of_each, stacked
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.core.text import counted
from evalign.decisions import Decision, DecisionRule, fit_decision
from evalign.decisions.fit import check_arguments
from evalign.decisions.objective import Objective
from evalign.decisions.promise import NotPromisedWarning
from evalign.estimator.answers import OWNER, Answers, as_argument
from evalign.estimator.constrained import gaps_of

# Rows outside of the most frequent class. With fewer, what a tuned rule gains over argmax is luck.
FEWEST = 10
CURVE = 200  # thresholds at most


@dataclass(frozen=True)
class Wanted:
    """What a rule is fitted for: the arguments of `fit_decision` of these names.

    `groups` are those of the rows of the whole table.
    """

    metric: str | MetricFunction
    decision: Decision
    constraint: str | None
    classes: Sequence[Any]
    confidence: float | None = None
    groups: np.ndarray | None = None

    def check(self, owner: str) -> None:
        """Refuse what no rule can heed, before a classifier is trained."""
        check_arguments(owner, self.metric, self.decision, None, self.constraint, self.classes)
        if self.decision != "argmax":
            gaps_of(owner, self.constraint, self.classes, self.groups)

    def doubt(self, answers: Answers) -> str | None:
        """Why no rule is fitted to these answers, in which case argmax takes its place."""
        if self.constraint is not None or self.decision == "argmax":
            return None
        if answers.constant:
            return (
                "All rows have the same scores, so that there is nothing to decide by: labels are "
                "those with the highest one. Look at the classifier's features and settings."
            )
        if self.decision == "tuned" and answers.telling < FEWEST:
            are = "is" if answers.telling == 1 else "are"
            return (
                f"{counted(answers.telling)} outside of the most frequent class {are} too few to "
                f"tune a decision on, which takes {FEWEST}: labels are those with the highest "
                "score. Give more rows, or decide by the probabilities (decision expected)."
            )
        return None

    def rule(self, answers: Answers, decision: Decision | None = None) -> DecisionRule:
        """The rule for some answers.

        A promise counts rows, so that it sees a row once that was held out several times.
        """
        if decision is None:
            decision = "argmax" if self.doubt(answers) else self.decision
        promising = self.confidence is not None and decision == self.decision
        if promising:
            answers = answers.take(np.unique(answers.row, return_index=True)[1])
        free = decision == "argmax" or self.groups is None
        return fit_decision(
            **as_argument(answers.values, answers.method),
            y=answers.y,
            metric=self.metric,
            decision=decision,
            task="multilabel" if answers.multilabel else None,
            sample_weight=answers.weight,
            constraint=None if decision == "argmax" else self.constraint,
            groups=None if free else cast(np.ndarray, self.groups)[answers.row],
            confidence=self.confidence if promising else None,
            classes=self.classes,
        )


@contextmanager
def unspoken() -> Iterator[None]:
    """Keep back that a rule promises nothing, where it is one of many: the last one says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPromisedWarning)
        yield


def score_of(
    metric: Metric, labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int
) -> float:
    """The metric of codes or indicators, or minus the metric if it is a cost."""
    value = metric(_confusion(labels, y, weight, classes, metric.needs_matrix)).item()
    return value if metric.greater_is_better else -value


class CrossFitted(NamedTuple):
    """Ways to decide, each fitted to all folds but one and used on that one, in turn.

    Args:
        scores: "greater is better", (folds,), by the way's name; NaN where the metric is not
            defined, or no rule meets the constraint on the other folds.
        labels: (N,) or (N, L), by the way's name; −1 where there is no rule.
        rules: those of the first way, one for each fold.
    """

    scores: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]
    rules: list[DecisionRule | None]


def cross_fit(
    answers: Answers, wanted: Wanted, decisions: dict[str, Decision | None]
) -> CrossFitted:
    """Fit rules to the other folds and score them, fold by fold; None is the wanted decision."""
    metric, number = resolve(wanted.metric, owner=OWNER), len(wanted.classes)
    folds = np.unique(answers.fold)
    scores = {name: np.full(len(folds), np.nan) for name in decisions}
    labels = {name: np.full_like(answers.y, -1) for name in decisions}
    rules: list[DecisionRule | None] = []
    for place, fold in enumerate(folds):
        test = np.asarray(answers.fold == fold)
        held_out = answers.take(test)
        for name, decision in decisions.items():
            found = rule_without(answers, test, wanted, decision)
            if name == next(iter(decisions)):
                rules.append(found)
            if found is None:
                continue
            given = found(**as_argument(held_out.values, held_out.method))
            labels[name][test] = given
            scores[name][place] = score_of(metric, given, held_out.y, held_out.weight, number)
    return CrossFitted(scores, labels, rules)


def others(answers: Answers, some: np.ndarray) -> np.ndarray:
    """A mask of the answers for other rows than these, which may be there several times."""
    return np.asarray(~np.isin(answers.row, answers.row[some]))


def rule_without(
    answers: Answers, some: np.ndarray, wanted: Wanted, decision: Decision | None
) -> DecisionRule | None:
    """The rule of all answers but some; None if no others are there or the constraint is too much.

    All rows may allow for a constraint that is too much for some, and some may be of one group.
    """
    rest = answers.take(others(answers, some))
    gap = wanted.groups is not None and decision != "argmax"
    alone = gap and len(np.unique(cast(np.ndarray, wanted.groups)[rest.row])) < 2
    if not len(rest.row) or alone:
        return None
    try:
        with unspoken():
            return wanted.rule(rest, decision)
    except Infeasible:
        return None


def mean_of(scores: np.ndarray, answers: Answers) -> Estimate:
    """The mean over folds with its interval; NaN where fewer than two folds have a score."""
    values = scores[np.isfinite(scores)]
    if len(values) < 2:
        return Estimate(_of_finite(np.mean, values), np.nan, np.nan, np.nan)
    # A row may be held out several times: the folds of one repetition.
    folds = len(np.unique(answers.fold))
    once = max(2, round(len(np.unique(answers.row)) * folds / len(answers.row)))
    return estimate(values.tolist(), once)


def evidence(answers: Answers, wanted: Wanted, rule: DecisionRule) -> dict[str, Any]:
    """Score, fold by fold, argmax and the rule that is fitted to the other folds.

    See `AlignedDecisionCV.cv_results_` for the names.
    """
    metric, number = resolve(wanted.metric, owner=OWNER), len(wanted.classes)
    decisions: dict[str, Decision | None] = {"rule": None, "argmax": "argmax"}
    if wanted.decision == "tuned":
        decisions["expected"] = "expected"
    folds = np.unique(answers.fold)
    scores, labels, rules = cross_fit(answers, wanted, decisions)
    result: dict[str, Any] = {}
    for name, values in scores.items():
        result[f"{name}_scores"] = values
        result[f"mean_{name}_score"] = _of_finite(np.mean, values)
        result[f"std_{name}_score"] = _of_finite(np.std, values)
    result["sources"] = ["none" if found is None else found.source for found in rules]
    if wanted.constraint is not None:
        result["fold_slacks"] = _slacks(answers, wanted, labels["rule"], folds)
    if wanted.confidence is not None:
        result["fold_promised"] = [found is not None and found.promised for found in rules]
    gain = mean_of(scores["rule"] - scores["argmax"], answers)
    result |= dict(zip(("gain", "gain_low", "gain_high", "gain_p"), gain, strict=True))
    decided = np.flatnonzero((labels["rule"] >= 0).reshape(len(answers.y), -1).all(1))
    for key, name in {"confusion": "rule", "argmax_confusion": "argmax"}.items():
        part = answers.take(decided)
        result[key] = _matrices(labels[name][decided], part.y, part.weight, number)
    if number == 2 and not answers.multilabel:
        result |= _curve(answers, metric, folds)
        own = [np.nan if found is None else threshold(found, answers) for found in rules]
        result |= {"threshold": threshold(rule, answers), "fold_thresholds": np.array(own)}
    return result


def _slacks(
    answers: Answers, wanted: Wanted, labels: np.ndarray, folds: np.ndarray
) -> dict[str, np.ndarray]:
    """How far each constraint is from its bound on each fold, by the rule of the others.

    NaN where there is no rule, no row that the constraint is about, or one group alone.
    """
    constraints = parse(wanted.constraint or "", wanted.classes, owner=OWNER)
    result = {each.text: np.full(len(folds), np.nan) for each in constraints}
    groups = None if wanted.groups is None else wanted.groups[answers.row]

    def of(rows: np.ndarray) -> Confusion:
        part = answers.take(rows)
        return _confusion(labels[rows], part.y, part.weight, len(wanted.classes), True)

    for place, fold in enumerate(folds):
        own = np.asarray(answers.fold == fold)
        if (labels[own] < 0).any():
            continue
        parts = None
        if groups is not None:
            parts = stacked([of(own & (groups == group)) for group in np.unique(groups[own])])
        for each in constraints:
            strict = replace(each, metric=undefined_without_rows(each.metric))
            if not each.gap or (parts and of_each(each.metric, parts).isfinite().sum() > 1):
                result[each.text][place] = strict.slack(of(own), parts).item()
    return result


def threshold(rule: DecisionRule, answers: Answers) -> float:
    """The answer (probability or score) of the second class above which it is the label."""
    return rule.log_odds.item() if answers.method == "decision_function" else rule.threshold


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


def _matrices(
    labels: np.ndarray, y: np.ndarray, weight: np.ndarray | None, classes: int
) -> np.ndarray:
    """The confusion matrix (C, C), or one for each of several labels, (L, 2, 2)."""
    if y.ndim == 1:
        return _confusion(labels, y, weight, classes, True).matrix.numpy()
    columns = range(y.shape[1])
    each = [_confusion(labels[:, k], y[:, k], weight, 2, True).matrix.numpy() for k in columns]
    return np.stack(each)


def _curve(answers: Answers, metric: Metric, folds: np.ndarray) -> dict[str, np.ndarray]:
    """The metric at many thresholds, (folds, thresholds)."""
    first, second = answers.values.T
    value = second if answers.method == "predict_proba" else second - first
    thresholds = np.unique(np.quantile(value, np.linspace(0, 1, CURVE)))
    weight = np.ones(len(value)) if answers.weight is None else answers.weight
    matrices = np.empty((len(folds), len(thresholds), 2, 2))
    for place, fold in enumerate(folds):
        for true in (0, 1):
            rows = (answers.fold == fold) & (answers.y == true)
            order = np.argsort(value[rows])
            mass = np.concatenate([[0], weight[rows][order].cumsum()])
            below = mass[np.searchsorted(value[rows][order], thresholds, side="right")]
            matrices[place, :, true] = np.stack([below, mass[-1] - below], -1)
    scores = Objective.of(OWNER, metric, None).scores(torch.from_numpy(matrices)).numpy()
    return {
        "thresholds": thresholds,
        "threshold_scores": np.where(np.isfinite(scores), scores, np.nan),
    }
