"""`AlignedEnsemble`: the best of several models for a metric, or their mean."""

import copy
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit import check_promise
from evalign.ensemble import storage
from evalign.ensemble.candidates import AUTO, BLEND, DEFAULT, OWNER, build
from evalign.ensemble.choice import choose
from evalign.ensemble.fitted_ensemble import FittedEnsemble
from evalign.ensemble.narration import narrated
from evalign.ensemble.reading import read_rows, read_table
from evalign.ensemble.training import Clock
from evalign.ensemble.trials import folds, run_trials
from evalign.estimator import held_out
from evalign.estimator.evidence import RuleSettings
from evalign.estimator.frames import Features
from evalign.estimator.rows import constraint_values, restored, row_weights
from evalign.estimator.storage import reading
from evalign.estimator.targets import warn_of_lost
from evalign.recipes import chosen_recipe
from evalign.training import TrainingWarning


class AlignedEnsemble(ClassifierMixin, BaseEstimator):
    """The best of several models for a table, or the mean of them, with the labels for a metric.

    Each candidate is trained on all folds but one and asked about that one, in turn; all see the
    same folds. From these oof a decision rule is fitted (`fit_decision`). The models of the
    folds are kept, and `predict` takes the mean of their probabilities: it is what the rule was
    fitted to, and nothing has to be trained again.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are of two classes.
        candidates: names, or pairs of a name and a scikit-learn classifier with `predict_proba`.
            "network" is `AlignedClassifier`, "boosting" scikit-learn's histogram gradient
            boosting, "forest" extra trees, "linear" logistic regression of scaled columns.
            "lightgbm", "xgboost" and "catboost" are candidates where they are named and installed.
        choose: "blend" for the mean of the candidates' probabilities, with the weights that make
            the labels of rows held out most likely; "auto" for the candidate with the best metric.
        cv: the number of folds, stratified and shuffled, or a splitter of scikit-learn. None for 5
            folds up to 5,000 rows, 3 up to 20,000, and a single fifth that is held out beyond.
        decision: "tuned", "expected" or "argmax", see `fit_decision`.
        constraint: such as "recall >= 0.9", see `fit_decision`.
        confidence: such as 0.95, with which it shall hold on new rows, see `AlignedDecisionCV`.
        pos_label: of two classes the positive one, which "f1" and the like are about; None for the
            last in order.
        time_limit: seconds for all of `fit`. Candidates are trained from quick to slow; one whose
            folds would not fit in is left out (`left_out_`). The first is always trained.
        n_jobs: how many folds are trained at once, in processes of their own.
        random_state: the seed of the folds and of the candidates that are named.
        verbose: 1 shows how far it is.

    Attributes:
        classes_: the labels, sorted.
        weights_: of the candidates whose mean `predict` uses, by name; they sum to 1.
        models_: the models of the folds, by the name of each candidate that was tried.
        rules_: the rule of each of these by itself.
        rule_: the `DecisionRule` that `predict` uses. `rule_.classes` has its classes in order; of
            two, the positive one is the last.
        cv_results_: columns of a table (`pandas.DataFrame(clf.cv_results_)`) with a row for each
            candidate, and a last one for the ensemble. "candidate" is its name, "weight" that of
            `weights_`, "seconds" what its training took. "rule_score" is the metric (a cost is
            negated) of labels by rules that were fitted to the other folds, "argmax_score" that of
            the most probable labels, and "gain" how far the ensemble is ahead of the candidate with
            its rule. "_low" and "_high" behind these are 95% intervals, for other
            rows (a paired bootstrap). The ensemble is chosen anew for each fold, by the others.
        gain_: how far the ensemble is ahead of "against", the candidate with the best
            "argmax_score": "value", "low" and "high". It was chosen by the very rows, the ensemble
            was not, so that the gain is too small rather than too large. Of fewer than ten groups,
            whose number is then "few_groups", no interval is to be trusted.
        left_out_: why a candidate is not in it, by its name: time, or the constraint.
        features_: the `Features`: what was learnt of the columns, and which were left out.
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
            X: rows, as `AlignedClassifier` takes them. A classifier that you gave sees a frame as
                it came, later ones too with columns in this order.
            y: a label per row: numbers or strings.
            sample_weight: a weight per row: of the candidates that take one, the choice and the
                rule. Only the ratios count: candidates are given weights with a mean of 1. Rows of
                weight 0 are left out; a class that has no others stays in `classes_`, with
                probability 0.
            groups: a value per row; the rows of a group stay together in the folds.
            constraint_groups: a group per row, for a constraint such as "gap(recall) <= 0.05".
            checkpoint: a folder for the checkpoints of networks. The same call goes on from them,
                see `AlignedClassifier.fit`.
        """
        clock = Clock(self.time_limit)
        self._check()
        table, targets, features = read_table(self, X, y, sample_weight, groups)
        names, decision = targets.names, cast(Decision, self.decision)
        rows = _num_samples(y)
        apart = constraint_values(OWNER, constraint_groups, rows)
        apart = None if apart is None else apart[table.counted]
        settings = RuleSettings(
            self.metric, decision, self.constraint, names, self.confidence, apart
        )
        if len(names) > 1:
            settings.check(OWNER)
            check_promise(OWNER, decision, self.constraint, self.confidence)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = folds(OWNER, self.cv, table, rows, seed)
        warn_of_lost(targets, table.codes, parts)
        most = max(len(training) for training, _ in parts)
        recipe = chosen_recipe(None, self.constraint)
        candidates = build(self.candidates, self.metric, recipe, most, seed)

        if len(names) == 1:  # nothing to learn
            rule = DecisionRule(torch.ones(1, 1).double(), "argmax", "argmax", self.metric)
            self._fitted = FittedEnsemble(targets, features, {}, {}, rule, {}, {}, {}, {})
            return self
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
        """Labels, by the rule that `fit` made."""
        values = self._values(X)
        one = np.zeros(len(values), int)
        codes = self.rule_(probabilities=values) if values.shape[1] > 1 else one
        return self._state().targets.decode(codes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes): the weighted mean. What mends them is in the rule."""
        return self._values(X)[:, np.argsort(self._state().targets.order)]

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), and
        their argmax is predicted.
        """
        values = self._values(X)
        if values.shape[1] == 1:
            return np.zeros(values.shape)
        return self._state().targets.decision(self.rule_.scores(probabilities=values))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, or minus the metric if it is a cost: greater is better."""
        labels = self.predict(X)
        weight = None if sample_weight is None else row_weights(OWNER, sample_weight, labels)
        metric = resolve(self.metric, owner=OWNER)
        return self._state().targets.score(OWNER, metric, labels, y, weight)

    def only(self, name: str) -> Self:
        """One of the candidates by itself, with its rule, as a classifier of its own."""
        fitted = self._state()
        known = list(fitted.trained)
        require(name in known, f"{OWNER}.only", "name", f"be one of {known}", repr(name))
        alone = copy.copy(self)
        alone._fitted = replace(fitted, weights={name: 1.0}, rule=fitted.rules[name])
        return alone

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder without pickle (skops, safetensors and JSON), whole or not at all.

        A splitter is not written, nor is a metric that is not a name: give it to `load` again.
        Networks must be free of functions. Needs `skops`.
        """
        fitted = self._state()
        arguments = storage.plain_arguments(self.get_params(deep=False))
        state = {"arguments": arguments, **fitted.state_dict()}
        storage.save(path, state, list(fitted.trained.values()))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, trusted: Sequence[str] = (), **arguments: Any
    ) -> Self:
        """Open what `save` wrote; `arguments` of the constructor replace the saved ones.

        Args:
            path: the folder.
            trusted: the names of types that models of yours hold. skops builds no others but those
                of scikit-learn and of the models that have a name here.
            arguments: such as `metric`, where it is not a name.
        """
        state, trained = storage.load(path, trusted)
        given = storage.constructor_arguments(path, state, trained, arguments)
        with reading(path, OWNER):
            ensemble = cls(**given)
            ensemble._fitted = FittedEnsemble.from_state_dict(state, trained, ensemble.metric)
            features = ensemble._fitted.features
            ensemble.n_features_in_ = len(features.given)
            if features.named:
                ensemble.feature_names_in_ = np.array(features.given, dtype=object)
        return ensemble

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
        """The mean probability, with columns in the order of the rule."""
        fitted = self._state()
        return fitted.mean(read_rows(self, X, fitted.features))
