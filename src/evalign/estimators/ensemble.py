"""`AlignedEnsemble`: the best of several models for a metric, or their weighted mean."""

import copy
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit_rows import check_promise
from evalign.estimators.candidates import AUTO, BLEND, DEFAULT, OWNER, build
from evalign.estimators.choice import choose
from evalign.estimators.fitted_ensemble import FittedEnsemble
from evalign.estimators.narration import narrated
from evalign.estimators.table_forms import read_rows, read_table
from evalign.estimators.training import Clock
from evalign.estimators.trials import folds, run_trials
from evalign.estimators import held_out, storage
from evalign.estimators.evidence import RuleSettings
from evalign.estimators.rows import restored, row_groups, row_weights
from evalign.estimators.targets import warn_of_lost
from evalign.estimators.recipes import chosen_recipe
from evalign.store.archive import register
from evalign.tables.features import Features
from evalign.training import TrainingWarning


class AlignedEnsemble(storage.Savable, ClassifierMixin, BaseEstimator):
    """The best of several models for a table, or their weighted mean, with a decision rule.

    All candidates are cross-validated on the same folds, and a decision rule (`fit_decision`) is
    fitted to the out-of-fold probabilities. The models of the folds are kept, and `predict` takes
    the mean of their probabilities, which is what the rule was fitted to.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are for two classes.
        candidates: names, or pairs of a name and a scikit-learn classifier with `predict_proba`.
            "network" is `AlignedClassifier`, "boosting" scikit-learn's histogram gradient
            boosting, "forest" extra trees, "linear" logistic regression of scaled columns.
            "lightgbm", "xgboost" and "catboost" are candidates where they are named and installed;
            an ensemble with them is kept by joblib, not by `save`.
        choose: "blend" for the mean of the candidates' probabilities, with the weights that
            maximise the likelihood of the held-out labels; "auto" for the candidate with the best
            metric.
        cv: the number of folds, stratified and shuffled, or a splitter of scikit-learn. None for 5
            folds up to 5,000 rows, 3 up to 20,000, and a single held-out fifth beyond.
        decision: "tuned", "expected" or "argmax", see `fit_decision`.
        constraint: such as "recall >= 0.9", see `fit_decision`.
        confidence: probability that the constraint holds on new data, see `AlignedDecisionCV`.
        pos_label: the positive class of two, for metrics like "f1"; None for the last in order.
        time_limit: seconds for all of `fit`. Candidates are trained from fast to slow; one whose
            folds would not fit in is left out (`left_out_`). The first is always trained.
        n_jobs: how many folds are trained at once, in processes of their own.
        random_state: seed of the folds and of the named candidates.
        verbose: 1 shows the progress.

    Attributes:
        classes_: the labels, sorted.
        weights_: of the candidates whose mean `predict` uses, by name; they sum to 1.
        models_: the models of the folds, by the name of each candidate that was tried.
        rules_: the rule of each candidate alone.
        rule_: the `DecisionRule` that `predict` uses. `rule_.classes` are its classes in order; of
            two, the positive one is the last.
        cv_results_: columns of a table (`pandas.DataFrame(clf.cv_results_)`) with a row for each
            candidate, and a last one for the ensemble. "candidate" is its name, "weight" that of
            `weights_`, "seconds" what its training took. "rule_score" is the metric (a cost is
            negated) of labels by rules that were fitted to the other folds, "argmax_score" that of
            the most probable labels, and "gain" how far the ensemble is ahead of the candidate with
            its rule. The suffixes "_low" and "_high" are 95% intervals for other rows (a paired
            bootstrap). For each fold, the ensemble is chosen anew on the other folds.
        gain_: how far the ensemble is ahead of "against", the candidate with the best
            "argmax_score": "value", "low" and "high". That candidate, unlike the ensemble, is
            chosen on the very rows it is scored on, so the gain is too small rather than too
            large. With fewer than ten groups, counted in "few_groups", intervals are unreliable.
        left_out_: why a candidate was left out, by its name: time, or the constraint.
        features_: the `Features`: what was learned about the columns, and which were dropped.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(1500, weights=[0.9], class_sep=0.7, random_state=0)
        >>> clf = AlignedEnsemble("f1", candidates=["boosting", "linear"], cv=3, random_state=0)
        >>> clf = clf.fit(X[:700], y[:700])
        >>> sorted(clf.weights_), clf.score(X[700:], y[700:]) > 0.5
        (['boosting', 'linear'], True)
    """

    n_features_in_: int
    feature_names_in_: np.ndarray
    _fitted: FittedEnsemble

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        candidates: Sequence[Any] = DEFAULT,
        choose: str = BLEND,
        cv: Any = None,
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        pos_label: Any = None,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.metric = metric
        self.candidates = candidates
        self.choose = choose
        self.cv = cv
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.pos_label = pos_label
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @restored
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        constraint_groups: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train the candidates, choose or blend them, and fit the rule.

        Args:
            X: rows, as `AlignedClassifier` takes them. A classifier that you gave sees the original
                frame, and later ones with columns in this order.
            y: a label per row, numbers or strings.
            sample_weight: a weight per row, for the candidates that take one, the choice and the
                rule. Only ratios count: candidates get weights with a mean of 1. Rows of weight 0
                are left out; a class that has no others stays in `classes_`, with probability 0.
            groups: a value per row; the rows of a group stay together in the folds.
            constraint_groups: a group per row, for a constraint such as "gap(recall) <= 0.05".
            checkpoint: a folder for the checkpoints of networks, from which the same call resumes,
                see `AlignedClassifier.fit`.
        """
        clock = Clock(self.time_limit)
        self._check()
        table, targets, features = read_table(self, X, y, sample_weight, groups)
        names, decision = targets.names, cast(Decision, self.decision)
        rows = _num_samples(y)
        constraint_groups = row_groups(OWNER, constraint_groups, rows, "constraint_groups")
        if constraint_groups is not None:
            constraint_groups = constraint_groups[table.counted]
        settings = RuleSettings(
            self.metric, decision, self.constraint, names, self.confidence, constraint_groups
        )
        settings.check(OWNER)
        check_promise(OWNER, decision, self.constraint, self.confidence)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = folds(OWNER, self.cv, table, rows, seed)
        warn_of_lost(targets, table.codes, parts)
        most = max(len(training) for training, _ in parts)
        recipe = chosen_recipe(None, self.constraint)
        candidates = build(self.candidates, self.metric, recipe, most, seed)

        with narrated(self.verbose) as tell:
            trials = run_trials(
                candidates,
                table,
                targets.classes[targets.order],
                parts,
                settings,
                resolve(self.metric, owner=OWNER),
                clock=clock,
                n_jobs=self.n_jobs,
                seed=seed,
                checkpoint=checkpoint,
                tell=tell,
            )
            chosen = choose(trials.tried, self.choose, settings, trials.judge)
        if doubt := settings.doubt(chosen.oof):
            warnings.warn(doubt, TrainingWarning, stacklevel=2)
        self._fitted = FittedEnsemble(
            targets,
            features,
            trials.trained,
            chosen.weights,
            settings.rule(chosen.oof),
            trials.rules,
            chosen.results,
            chosen.gain,
            trials.left_out,
        )
        return self

    @property
    def classes_(self) -> np.ndarray:
        return self._state().targets.classes

    @property
    def weights_(self) -> dict[str, float]:
        return self._state().weights

    @property
    def models_(self) -> dict[str, list[Any]]:
        return {name: one.models for name, one in self._state().trained.items()}

    @property
    def rule_(self) -> DecisionRule:
        return self._state().rule

    @property
    def rules_(self) -> dict[str, DecisionRule]:
        return self._state().rules

    @property
    def cv_results_(self) -> dict[str, list[Any]]:
        return self._state().results

    @property
    def gain_(self) -> dict[str, Any]:
        return self._state().gain

    @property
    def features_(self) -> Features:
        return self._state().features

    @property
    def left_out_(self) -> dict[str, str]:
        return self._state().left_out

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the fitted rule."""
        return self._state().targets.decode(self.rule_(probabilities=self._values(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes): the weighted mean, before the rule's calibration."""
        return self._values(X)[:, np.argsort(self._state().targets.order)]

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), with
        the prediction as argmax.
        """
        scores = self.rule_.scores(probabilities=self._values(X))
        return self._state().targets.decision(scores)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, negated if it is a cost: greater is better."""
        labels = self.predict(X)
        weight = None if sample_weight is None else row_weights(OWNER, sample_weight, labels)
        metric = resolve(self.metric, owner=OWNER)
        return self._state().targets.score(OWNER, metric, labels, y, weight)

    def only(self, name: str) -> Self:
        """One candidate with its rule, as a classifier of its own."""
        fitted = self._state()
        known = list(fitted.trained)
        require(name in known, f"{OWNER}.only", "name", f"be one of {known}", repr(name))
        alone = copy.copy(self)
        alone._fitted = replace(fitted, weights={name: 1.0}, rule=fitted.rules[name])
        return alone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _check(self) -> None:
        """Refuse arguments that `fit` cannot use."""
        known = self.choose in (BLEND, AUTO)
        require(known, OWNER, "choose", f"be {BLEND} or {AUTO}", repr(self.choose))
        allowed = "be a number of folds, at least 2, a splitter of scikit-learn, or None"
        ok = self.cv is None or held_out.makes_folds(self.cv)
        require(ok, OWNER, "cv", allowed, repr(self.cv))
        limit = self.time_limit
        ok = limit is None or (
            isinstance(limit, Real) and not isinstance(limit, bool) and limit > 0
        )
        require(ok, OWNER, "time_limit", "be seconds, above 0, or None", repr(limit))

    def _state(self) -> FittedEnsemble:
        check_is_fitted(self)
        return self._fitted

    def _values(self, X: Any) -> np.ndarray:
        """The mean probabilities, with columns in the order of the rule."""
        fitted = self._state()
        return fitted.mean(read_rows(self, X, fitted.features))

    def _saved(self) -> dict[str, Any]:
        return storage.saved_arguments(self) | {"fitted": self._state().state_dict()}

    @classmethod
    def _opened(cls, state: dict[str, Any], **given: Any) -> Self:
        ensemble = cls(**storage.all_arguments(OWNER, state, given))
        ensemble._fitted = FittedEnsemble.from_state_dict(state["fitted"], ensemble.metric)
        storage.set_columns(ensemble, ensemble.features_)
        return ensemble


register(AlignedEnsemble, AlignedEnsemble._saved, AlignedEnsemble._opened)
