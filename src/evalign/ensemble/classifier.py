"""`AlignedEnsemble`: the best of several models for a metric, or their mean."""

import copy
import os
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import Decision, DecisionRule
from evalign.decisions.fit import check_arguments
from evalign.ensemble.candidates import AUTO, BLEND, DEFAULT, OWNER, build
from evalign.ensemble.choice import choose
from evalign.ensemble.progress import narrated
from evalign.ensemble.training import Clock, LabelledTable, Trained
from evalign.ensemble.trying import folds, try_all
from evalign.estimator import held_out
from evalign.estimator.evidence import Wanted
from evalign.estimator.rows import read, read_features, weights
from evalign.estimator.targets import Targets, read_targets, warn_of_lost
from evalign.training import TrainingWarning


class AlignedEnsemble(ClassifierMixin, BaseEstimator):
    """The best of several models for a table, or the mean of them, with the labels for a metric.

    Each candidate is trained on all folds but one and asked about that one, in turn; all see the
    same folds. From these answers a decision rule is fitted (`fit_decision`). The models of the
    folds are kept, and `predict` takes the mean of their probabilities: it is what the rule was
    fitted to, it is better than one model is, and nothing has to be trained again.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are of two classes.
        candidates: names, or pairs of a name and a scikit-learn classifier with `predict_proba`.
            "network" is `AlignedClassifier`, "boosting" scikit-learn's histogram gradient
            boosting, "forest" extra trees, "linear" logistic regression of scaled columns.
            "lightgbm", "xgboost" and "catboost" are candidates where they are named and installed.
        choose: "blend" for the mean of the candidates' probabilities, "auto" for the candidate
            with the best metric.
        cv: the number of folds, stratified and shuffled, or a splitter of scikit-learn. None for 5
            folds up to 5,000 rows, 3 up to 20,000, and a single fifth that is held out beyond.
        decision: "tuned", "expected" or "argmax", see `fit_decision`.
        constraint: such as "recall >= 0.9", see `fit_decision`.
        pos_label: of two classes the positive one, which "f1" and the like are about; None for the
            last in order.
        time_limit: seconds for all of `fit`. Candidates are trained from quick to slow; one whose
            folds would not fit in is left out (`left_out_`). The first is always trained.
        n_jobs: how many folds are trained at once, in processes of their own.
        random_state: the seed of the folds and of the candidates that are named.
        verbose: 1 shows how far it is.

    Attributes:
        classes_: the labels, sorted.
        members_: the names of the candidates whose mean `predict` uses.
        models_: the models of the folds, by the name of each candidate that was tried.
        rules_: the rule of each of these by itself.
        rule_: the `DecisionRule` that `predict` uses. `rule_.classes` has its classes in order; of
            two, the positive one is the last.
        cv_results_: columns of a table (`pandas.DataFrame(clf.cv_results_)`) with a row for each
            candidate, and a last one for the ensemble. "candidate" is its name, "used" whether it
            is one of `members_`, "seconds" what its training took. "rule_score" is the metric (a
            cost is negated) of labels by rules that were fitted to the other folds, "argmax_score"
            that of the most probable labels, and "gain" how far the ensemble is ahead of the
            candidate with its rule. "_low" and "_high" behind these are 95% intervals, for other
            rows (a paired bootstrap). The ensemble is chosen anew for each fold, by the others.
        gain_: how far the ensemble is ahead of the best candidate by argmax, which is chosen anew
            for each fold too: "value", "low" and "high". "against" is the one that all rows choose.
        left_out_: why a candidate was not tried, by its name.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Examples:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(1500, weights=[0.9], class_sep=0.7, random_state=0)
        >>> clf = AlignedEnsemble("f1", candidates=["boosting", "linear"], cv=3, random_state=0)
        >>> clf = clf.fit(X[:700], y[:700])
        >>> clf.members_, clf.score(X[700:], y[700:]) > 0.6
        (('linear', 'boosting'), True)
    """

    classes_: np.ndarray
    members_: tuple[str, ...]
    rules_: dict[str, DecisionRule]
    rule_: DecisionRule
    cv_results_: dict[str, list[Any]]
    gain_: dict[str, Any]
    left_out_: dict[str, str]
    n_features_in_: int
    feature_names_in_: np.ndarray
    _order: np.ndarray
    _trained: dict[str, Trained]

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        candidates: Sequence[Any] = DEFAULT,
        choose: str = BLEND,
        cv: Any = None,
        decision: str = "tuned",
        constraint: str | None = None,
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
        self.pos_label = pos_label
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Train the candidates, choose or blend them, and fit the rule.

        Args:
            X: rows, as `AlignedClassifier` takes them. A classifier that you gave sees a frame as
                it came.
            y: a label per row: numbers or strings.
            sample_weight: a weight per row: of the candidates that take one, the choice and the
                rule; rows of weight 0 are left out.
            groups: a value per row; the rows of a group stay together in the folds.
            checkpoint: a folder for the checkpoints of networks. The same call goes on from them,
                see `AlignedClassifier.fit`.
        """
        clock = Clock(self.time_limit)
        self._check()
        numbers, labels = read(self, X, y, reset=True)
        X, matrix = _both(X, numbers)
        weight = None if sample_weight is None else weights(sample_weight, len(labels))
        groups = None if groups is None else np.asarray(groups)
        if weight is not None and not weight.all():
            counted = np.flatnonzero(weight)
            X, matrix = cast(Any, _safe_indexing(X, counted)), matrix[counted]
            labels, weight = labels[counted], weight[counted]
            groups = None if groups is None else groups[counted]
        _, labels, targets, codes = read_targets(self, matrix, labels)
        require(not targets.multilabel, OWNER, "y", "hold one label per row", "several")
        names, decision = targets.names, cast(Decision, self.decision)
        if len(names) > 1:
            check_arguments(OWNER, self.metric, decision, None, self.constraint, names)
        wanted = Wanted(self.metric, decision, self.constraint, names)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        table = LabelledTable(X, matrix, labels, codes, weight, groups)
        parts = folds(OWNER, self.cv, table, seed)
        warn_of_lost(targets, codes, parts)
        rows = max(len(rows) for rows, _ in parts)
        candidates = build(self.candidates, self.metric, rows, len(parts), seed)

        self.classes_, self._order = targets.classes, targets.order
        if len(names) == 1:  # nothing to learn
            self.members_, self.cv_results_, self.gain_ = (), {}, {}
            self._trained, self.rules_, self.left_out_ = {}, {}, {}
            self.rule_ = DecisionRule(torch.ones(1, 1).double(), "argmax", "argmax", self.metric)
            return self
        with narrated(self.verbose) as tell:
            trials = try_all(
                candidates,
                table,
                self.classes_[self._order],
                parts,
                wanted,
                resolve(self.metric, owner=OWNER),
                clock=clock,
                n_jobs=self.n_jobs,
                seed=seed,
                checkpoint=checkpoint,
                tell=tell,
            )
            chosen = choose(trials.tried, self.choose, wanted, trials.judge)
        if doubt := wanted.doubt(chosen.answers):
            warnings.warn(doubt, TrainingWarning, stacklevel=2)
        self._trained, self.rules_, self.left_out_ = trials.trained, trials.rules, trials.left_out
        self.members_, self.cv_results_, self.gain_ = chosen.members, chosen.results, chosen.gain
        self.rule_ = wanted.rule(chosen.answers)
        return self

    @property
    def models_(self) -> dict[str, list[Any]]:
        check_is_fitted(self)
        return {name: one.models for name, one in self._trained.items()}

    def predict(self, X: Any) -> np.ndarray:
        """Labels, by the rule that `fit` made."""
        values = self._values(X)
        one = np.zeros(len(values), int)
        codes = self.rule_(probabilities=values) if values.shape[1] > 1 else one
        return self._targets.decode(codes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes): the mean of the members. What mends them is in the rule."""
        return self._values(X)[:, np.argsort(self._order)]

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores behind `predict`.

        For two classes (n,), positive where the second is predicted; for more (n, n_classes), and
        their argmax is predicted.
        """
        values = self._values(X)
        if values.shape[1] == 1:
            return np.zeros(values.shape)
        scores = self.rule_.scores(probabilities=values)[:, np.argsort(self._order)]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The metric of the predictions, or minus the metric if it is a cost: greater is better."""
        labels = self.predict(X)
        weight = None if sample_weight is None else weights(sample_weight, len(labels))
        return self._targets.score(OWNER, resolve(self.metric, owner=OWNER), labels, y, weight)

    def only(self, name: str) -> Self:
        """One of the candidates by itself, with its rule, as a classifier of its own."""
        check_is_fitted(self)
        known = list(self.models_)
        require(name in known, f"{OWNER}.only", "name", f"be one of {known}", repr(name))
        alone = copy.copy(self)
        alone.members_, alone.rule_ = (name,), self.rules_[name]
        return alone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "rule_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
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
        require(ok, OWNER, "time_limit", "be a number of seconds, or None", repr(limit))

    def _values(self, X: Any) -> np.ndarray:
        """The mean probability of the members, with columns in the order of the rule."""
        check_is_fitted(self)
        read = read_features(self, X)
        if not self.members_:
            return np.ones((read.shape[0], 1))
        X, matrix = _both(X, read)
        ordered = self.classes_[self._order]
        return np.mean([self._trained[name].mean(X, matrix, ordered) for name in self.members_], 0)

    @property
    def _targets(self) -> Targets:
        return Targets(self.classes_, self._order, False)


def _both(X: Any, read: Any) -> tuple[Any, np.ndarray]:
    """The rows as they came where they are a frame, and as numbers."""
    matrix = read.toarray() if sparse.issparse(read) else read
    return X if hasattr(X, "columns") else matrix, matrix
