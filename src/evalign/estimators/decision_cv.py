"""`AlignedDecisionCV`: the best decision rule for a metric, around any classifier."""

from typing import Any, Self

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from evalign.core import stairs
from evalign.core.checks import refuse_masked
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn
from evalign.core.metrics import MetricFunction, resolve
from evalign.estimators.evidence import evidence
from evalign.estimators.out_of_fold import (
    OWNER,
    Method,
    OutOfFoldScores,
    as_argument,
    class_scores,
    fit_arguments,
    scoring_method,
    splits,
    trained,
)
from evalign.estimators.spine import Aligned
from evalign.estimators.targets import Targets, read_targets, row_groups, row_weights, warn_of_lost

COLUMNS = ("n_features_in_", "feature_names_in_")


def _has_probabilities(self: Any) -> bool:
    if hasattr(self, "_method"):
        return self._method == "predict_proba"
    return hasattr(self.estimator, "predict_proba")


class AlignedDecisionCV(MetaEstimatorMixin, Aligned):
    """Any classifier, with the decision rule that is best for a metric.

    The classifier is cross-validated, and a decision rule (`fit_decision`) is fitted to its scores
    for the held-out rows. If these are badly calibrated, the rule corrects them.

    Args:
        estimator: a classifier or a pipeline with `predict_proba` or `decision_function`.
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are for two classes.
        decision: "tuned", "expected" or "argmax", see `fit_decision`.
        constraint: such as "recall >= 0.9", see `fit_decision`.
        confidence: probability that the constraint holds on new data, such as 0.95, see
            `fit_decision`. `rule_.promised` is about classifiers like those of the folds.
        cv: the number of folds, stratified and shuffled; a splitter of scikit-learn that
            holds out no row more than once; or "prefit"
            for a classifier that was fitted before, on other rows than those given to `fit`.
        pos_label: the positive class of two, for metrics like "f1"; None for the last in order.
        classes: all labels, also those without rows, in the order of a metric of ordinal classes or
            of costs; None for the sorted labels of the rows, or the order of an ordered column of
            pandas or polars. Columns stay in the order of `classes_`.
        n_jobs: how many folds are trained at once.
        random_state: seed of the folds if `cv` is a number.

    Attributes:
        estimator_: the classifier, trained on all rows.
        rule_: the `DecisionRule` that `predict` uses, for the columns of `predict_proba`.
        classes_: the labels, sorted; if multilabel, the numbers of the columns.
        cv_results_: what the rule gains. `rule_scores` and `argmax_scores` are the metric (negated
            if a cost) on each fold, of the rule fitted to the other folds and of argmax, and
            `mean_rule_score` and `mean_argmax_score` their means. For a single split, or more than
            ten, these are five folds of the held-out rows instead. `gain` is the mean difference,
            from `gain_low` to `gain_high` with 95% confidence (Nadeau and Bengio's). For two
            classes, `threshold` is the rule's, on the scale of its scores. With a constraint,
            `held_out_slacks` says for each of its parts how far the rules of the other folds are on
            the allowed side of the bound, on all held-out rows.
        n_features_in_, feature_names_in_: as in scikit-learn, where the classifier has them.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = make_classification(1500, weights=[0.9], class_sep=0.7, random_state=0)
        >>> clf = AlignedDecisionCV(LogisticRegression(), "f1", random_state=0)
        >>> clf = clf.fit(X[:700], y[:700])
        >>> clf.cv_results_["mean_rule_score"] > clf.cv_results_["mean_argmax_score"]
        True
    """

    estimator_: Any
    cv_results_: dict[str, Any]
    n_features_in_: int
    feature_names_in_: np.ndarray
    _method: Method
    _kept = ("estimator_", "cv_results_", "_method", *COLUMNS)

    def __init__(
        self,
        estimator: Any,
        metric: str | MetricFunction = "f1_macro",
        *,
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        cv: Any = 5,
        pos_label: Any = None,
        classes: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.cv = cv
        self.pos_label = pos_label
        self.classes = classes
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        constraint_groups: Any = None,
        **params: Any,
    ) -> Self:
        """Cross-validate the classifier, and fit the rule to its scores of the held-out rows.

        Args:
            X: rows, in any form that the classifier takes.
            y: a label per row, numbers or strings; or 0 and 1 of shape (N, L) if multilabel.
            sample_weight: a weight per row, for the rule, and for the classifier if it takes one.
            constraint_groups: a group per row, integers or strings, for a constraint such as
                "gap(recall) <= 0.05". The folds do not depend on them.
            groups: a value per row; where `cv` is a number, the rows of a group stay together, and
                a splitter is given them.
            params: for the classifier's `fit`.
        """
        method = scoring_method(self.estimator)
        prefit = isinstance(self.cv, str) and self.cv == "prefit"
        if prefit:
            check_is_fitted(self.estimator)
        X = stairs.as_numpy(X)
        refuse_masked(OWNER, "X", X)
        fixed = prefit or isinstance(self.estimator, FrozenEstimator)
        known = self.estimator.classes_ if fixed else None
        metric = resolve(self.metric, owner=OWNER)
        y, targets, codes = read_targets(OWNER, y, metric, self.pos_label, known, self.classes)
        X, y = indexable(X, y)
        settings = self._settings(targets)
        groups = row_groups(OWNER, groups, len(y))
        constraint_groups = row_groups(OWNER, constraint_groups, len(y), "constraint_groups")
        settings.check(OWNER, constraint_groups, multilabel=targets.multilabel)
        weight = row_weights(OWNER, sample_weight, len(y))
        given = row_weights(OWNER, sample_weight, len(y), given=True)
        params |= fit_arguments(self.estimator, sample_weight=given)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))

        parts = [] if prefit else splits(OWNER, self.cv, X, y, codes, groups, seed)
        warn_of_lost(targets, codes, parts)
        work = delayed(trained)
        tasks = (work(self.estimator, X, y, rows, params) for rows, _ in parts)
        models = list(Parallel(n_jobs=self.n_jobs)(tasks) or [])
        everything = np.arange(len(y))
        whole = self.estimator if prefit else trained(self.estimator, X, y, everything, params)
        if not parts:  # all rows are scored by the classifier itself
            models, parts = [whole], [(codes[:0], everything)]
        values = [
            _scores(model, _safe_indexing(X, rows), method, targets)
            for model, (_, rows) in zip(models, parts, strict=True)
        ]
        how = {"groups": groups, "constraint_groups": constraint_groups, "seed": seed}
        oof = OutOfFoldScores.gathered(values, method, codes, weight, parts, **how)
        self.rule_, self.cv_results_ = evidence(oof, settings)
        if doubt := settings.doubt(oof):
            warn(doubt, TrainingWarning)
        self.estimator_, self._targets, self._method = whole, targets, method
        for name in COLUMNS:
            vars(self).pop(name, None)
            if hasattr(whole, name):
                setattr(self, name, getattr(whole, name))
        return self

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """The classifier's own probabilities, before the rule's calibration.

        If multilabel, the probability of each label, (n, n_labels).
        """
        check_is_fitted(self)
        return self._scores(X)["probabilities"]

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.classifier_tags.multi_label = getattr(own.classifier_tags, "multi_label", False)
        tags.target_tags.multi_output = (
            tags.target_tags.multi_output or own.target_tags.multi_output
        )
        return tags

    def _scores(self, X: Any) -> dict[str, Any]:
        X = stairs.as_numpy(X)
        refuse_masked(OWNER, "X", X)
        return as_argument(_scores(self.estimator_, X, self._method, self._targets), self._method)


def _scores(model: Any, X: Any, method: Method, targets: Targets) -> np.ndarray:
    """Scores by a classifier, with columns in the order of `classes_`."""
    return class_scores(model, X, method, targets.classes, multilabel=targets.multilabel)
