"""`AlignedDecisionCV`: the best decision rule for a metric, around any classifier."""

import warnings
from dataclasses import replace
from typing import Any, Self, cast, get_args

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.utils import Bunch, _safe_indexing, check_random_state, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from evalign.core.checks import refuse_masked, require
from evalign.core.metrics import MetricFunction, resolve
from evalign.core.numerics import with_mean_one
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit_rows import check_promise
from evalign.estimators import held_out
from evalign.estimators.evidence import RuleSettings, evidence
from evalign.estimators.out_of_fold import (
    OWNER,
    Method,
    OutOfFoldScores,
    as_argument,
    class_scores,
    scoring_method,
)
from evalign.estimators.plot import plot
from evalign.estimators.rows import restored, row_groups, row_weights, weights
from evalign.estimators.storage import Savable, all_arguments, saved_arguments
from evalign.estimators.targets import Targets, read_targets, warn_of_lost
from evalign.store.archive import register
from evalign.training import TrainingWarning


def _has_probabilities(self: Any) -> bool:
    if hasattr(self, "_method"):
        return self._method == "predict_proba"
    return hasattr(self.estimator, "predict_proba")


class AlignedDecisionCV(Savable, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
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
        cv: the number of folds, stratified and shuffled; a splitter of scikit-learn; or "prefit"
            for a classifier that was fitted before, on other rows than those given to `fit`.
        ensemble: whether to keep the classifiers of the folds and average their scores. If not,
            one classifier is trained on all rows in the end.
        pos_label: the positive class of two, for metrics like "f1"; None for the last in order.
        n_jobs: how many folds are trained at once.
        random_state: seed of the folds if `cv` is a number.

    Attributes:
        estimator_: the classifier, trained on all rows; not with `ensemble`.
        estimators_: the classifiers of the folds; only with `ensemble`.
        rule_: the `DecisionRule` that `predict` uses. `rule_.classes` are its classes in order; of
            two, the positive one is the last.
        classes_: the labels, sorted; if multilabel, the numbers of the columns.
        cv_results_: what the rule gains. `rule_scores`,
            `argmax_scores` and `expected_scores` are the metric (negated if a cost) on each fold:
            of the rule fitted to the other folds, of argmax, and of decision "expected" fitted to
            the other folds. If folds hold fewer than ten rows on average (`LeaveOneOut`), these
            are five folds of all rows instead. `mean_rule_score`, `std_rule_score` and so on
            summarise them. `gain` is the mean difference of the first two, from `gain_low` to
            `gain_high` with 95% confidence, and `gain_p` its p-value (Nadeau and Bengio's).
            `sources` is the rule's `source` without each fold; `confusion` and `argmax_confusion`
            are of all folds together. For two classes, `threshold` is the rule's and
            `fold_thresholds` are those without each fold, on the scale of the classifier's scores;
            `threshold_scores` (folds, thresholds) is the metric at each of `thresholds`. With a
            constraint, `fold_slacks` says for each of its parts how far the rule of the other
            folds is on the allowed side of the bound on each fold; with a confidence,
            `fold_promised` says whether that rule promised it.
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

    classes_: np.ndarray
    rule_: DecisionRule
    cv_results_: dict[str, Any]
    n_features_in_: int
    feature_names_in_: np.ndarray
    _method: Method
    _order: np.ndarray
    _multilabel: bool

    def __init__(
        self,
        estimator: Any,
        metric: str | MetricFunction = "f1_macro",
        *,
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        cv: Any = 5,
        ensemble: bool = False,
        pos_label: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.cv = cv
        self.ensemble = ensemble
        self.pos_label = pos_label
        self.n_jobs = n_jobs
        self.random_state = random_state

    @restored
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
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
            params: `groups` for the folds: where `cv` is a number, the rows of a group stay
                together. The others are for the classifier's `fit`. With scikit-learn's metadata
                routing, all go where they were requested.
        """
        prefit = self._check()
        X, y, targets, codes = read_targets(self, X, y)
        weight = None if sample_weight is None else weights(OWNER, sample_weight, len(codes))
        constraint_groups = row_groups(OWNER, constraint_groups, len(codes), "constraint_groups")
        names, decision = targets.names, cast(Decision, self.decision)
        settings = RuleSettings(
            self.metric, decision, self.constraint, names, self.confidence, constraint_groups
        )
        settings.check(OWNER)
        routed = self._routed(weight, params)
        weight = None if weight is None else with_mean_one(weight)
        split_params, fit_params = routed.splitter.split, routed.estimator.fit
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))

        parts = [] if prefit else held_out.splits(self.cv, X, y, codes, split_params, seed)
        warn_of_lost(targets, codes, parts)
        trained = held_out.train(self.estimator, X, y, parts, fit_params, self.n_jobs)
        for name in ("estimator_", "estimators_", "n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        if self.ensemble and parts:
            self.estimators_ = trained
        else:
            model = self.estimator
            self.estimator_ = model if prefit else held_out.fitted(model, X, y, fit_params)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self._models[0], name):
                setattr(self, name, getattr(self._models[0], name))
        self.classes_, self._order, self._multilabel = targets
        self._method = scoring_method(self.estimator)

        if not parts:  # all rows are scored by the classifier itself
            trained, parts = self._models, [(codes[:0], np.arange(len(codes)))]
        values = [
            self._class_scores(model, _safe_indexing(X, rows))
            for model, (_, rows) in zip(trained, parts, strict=True)
        ]
        oof = held_out.gathered(values, self._method, X, codes, weight, parts, split_params, seed)
        self._decide(oof, settings)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the fitted rule."""
        check_is_fitted(self)
        return self._targets.decode(self._applied("__call__", X))

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """The classifier's own probabilities, or their mean, before the rule's calibration."""
        check_is_fitted(self)
        mean = self._mean_scores(X)
        if not self._multilabel:
            return mean[:, np.argsort(self._order)]
        one = self._models[0].predict_proba(_safe_indexing(X, [0]))
        listed = isinstance(one, list)  # an array of each label, as forests give them
        return [np.stack([1 - label, label], 1) for label in mean.T] if listed else mean

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), with
        the prediction as argmax; if multilabel (n, n_labels), positive where a label is predicted.
        """
        check_is_fitted(self)
        return self._targets.decision(self._applied("scores", X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, negated if it is a cost: greater is better."""
        labels = self.predict(X)
        weight = None if sample_weight is None else row_weights(OWNER, sample_weight, labels)
        metric = resolve(self.metric, owner=OWNER)
        return self._targets.score(OWNER, metric, labels, y, weight)

    def plot(self, ax: Any = None) -> Any:
        """Plot the effect of the rule and return the Axes. Needs matplotlib.

        For two classes: the metric against the threshold, mean and standard deviation over the
        folds, with the thresholds of the rule and of argmax. For more: the gain of each class.

        Args:
            ax: the Axes to draw on; new ones by default.
        """
        check_is_fitted(self)
        metric = resolve(self.metric, owner=OWNER)
        return plot(self.cv_results_, metric, self._targets.names, self._method, ax)

    def get_metadata_routing(self) -> MetadataRouter:
        """Route the arguments of `fit`, as scikit-learn asks for it."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        splitter = self.cv if hasattr(self.cv, "split") else StratifiedGroupKFold()
        router = MetadataRouter(owner=self).add_self_request(self)
        router = router.add(estimator=self.estimator, method_mapping=to_fit)
        return router.add(splitter=splitter, method_mapping=to_split)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rule_")

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.classifier_tags.multi_label = getattr(own.classifier_tags, "multi_label", False)
        tags.target_tags.multi_output = (
            tags.target_tags.multi_output or own.target_tags.multi_output
        )
        return tags

    def _check(self) -> bool:
        """Refuse arguments that `fit` cannot use; return whether the classifier is fitted."""
        scoring_method(self.estimator)
        known = get_args(Decision)
        allowed = f"be one of {', '.join(known)}"
        require(self.decision in known, OWNER, "decision", allowed, repr(self.decision))
        check_promise(OWNER, cast(Decision, self.decision), self.constraint, self.confidence)
        allowed = 'be a number of folds, at least 2, a splitter of scikit-learn, or "prefit"'
        prefit = isinstance(self.cv, str) and self.cv == "prefit"
        require(prefit or held_out.makes_folds(self.cv), OWNER, "cv", allowed, repr(self.cv))
        if prefit:
            check_is_fitted(self.estimator)
        return prefit

    def _routed(self, weight: np.ndarray | None, params: dict[str, Any]) -> Any:
        """The arguments for the splitter and those for the classifier."""
        if _routing_enabled():
            return process_routing(self, "fit", sample_weight=weight, **params)
        split = {"groups": params.pop("groups")} if "groups" in params else {}
        if weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                params["sample_weight"] = weight
            else:
                name = type(self.estimator).__name__
                text = (
                    f"{name}.fit takes no sample_weight: the weights are for the rule alone. Use "
                    "scikit-learn's metadata routing to pass them on inside a pipeline."
                )
                warnings.warn(text, TrainingWarning, stacklevel=4)
        return Bunch(splitter=Bunch(split=split), estimator=Bunch(fit=params))

    def _decide(self, oof: OutOfFoldScores, settings: RuleSettings) -> None:
        if doubt := settings.doubt(oof):
            warnings.warn(doubt, TrainingWarning, stacklevel=4)
        self.rule_ = settings.rule(oof)
        self.cv_results_ = evidence(oof, settings, self.rule_)

    @property
    def _targets(self) -> Targets:
        return Targets(self.classes_, self._order, self._multilabel)

    @property
    def _models(self) -> list[Any]:
        return self.estimators_ if hasattr(self, "estimators_") else [self.estimator_]

    def _class_scores(self, model: Any, X: Any) -> np.ndarray:
        """Scores by a classifier, with columns in the order of the rule."""
        ordered = self.classes_[self._order]
        return class_scores(model, X, self._method, ordered, multilabel=self._multilabel)

    def _mean_scores(self, X: Any) -> np.ndarray:
        """The mean scores of the classifiers, of which some may not know all classes."""
        refuse_masked(OWNER, "X", X)
        return np.mean([self._class_scores(model, X) for model in self._models], 0)

    def _applied(self, function: str, X: Any) -> np.ndarray:
        """A method of the rule, applied to the mean scores of the rows."""
        return getattr(self.rule_, function)(**as_argument(self._mean_scores(X), self._method))

    def _saved(self) -> dict[str, Any]:
        arguments = saved_arguments(self)
        names = self.get_params(deep=False)
        fitted = {name: value for name, value in vars(self).items() if name not in names}
        return arguments | {"fitted": fitted}

    @classmethod
    def _opened(cls, state: dict[str, Any], **given: Any) -> Self:
        fitted, classifier = state["fitted"], cls(**all_arguments(OWNER, state, given))
        vars(classifier).update(fitted)
        if fitted:
            rule, order = classifier.rule_, classifier._order
            ok = type(rule) is DecisionRule and len(rule.gain) == len(classifier.classes_)
            ok = ok and np.array_equal(np.sort(order), np.arange(len(order)))
            require(ok, "state", "rule", "be that of the classes", type(rule).__name__)
            if not isinstance(classifier.metric, str):
                classifier.rule_ = replace(rule, metric=classifier.metric)
        return classifier


register(AlignedDecisionCV, AlignedDecisionCV._saved, AlignedDecisionCV._opened)
