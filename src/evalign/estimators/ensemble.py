"""`AlignedEnsemble`: the weighted mean of several models, decided for a metric."""

import copy
import time
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _num_samples, check_is_fitted

from evalign.core.checks import require
from evalign.core.errors import TrainingWarning
from evalign.core.input_warnings import warn
from evalign.core.metrics import MetricFunction, resolve
from evalign.decisions import DecisionRule
from evalign.estimators.blend import Trial, blend, calibrated
from evalign.estimators.candidates import (
    BLEND,
    DEFAULT,
    OWNER,
    build,
    chosen_recipe,
    without_torch,
)
from evalign.estimators.judge import Judge
from evalign.estimators.progress import narrated
from evalign.estimators.rows import read_rows
from evalign.estimators.spine import Aligned
from evalign.estimators.targets import Targets, warn_of_lost
from evalign.estimators.trials import folds, mean_probabilities, run_trials, threads
from evalign.tables.features import Features, read


def as_numbers(matrix: Any) -> np.ndarray:
    """The matrix as trees take it, dense."""
    return matrix.toarray() if sparse.issparse(matrix) else matrix


class AlignedEnsemble(Aligned):
    """The weighted mean of several models for a table, with a decision rule.

    All candidates are cross-validated on the same folds, and a decision rule (`fit_decision`) is
    fitted to the out-of-fold probabilities. The models of the folds are kept, and `predict` takes
    the mean of their probabilities, which is what the rule was fitted to.

    Args:
        metric: a name ("f1_macro", "matthews_corrcoef", ...), a metric of `evalign.metrics` or a
            function of a `Confusion`. Names without an average ("f1") are for two classes.
        candidates: names, or pairs of a name and a scikit-learn classifier with `predict_proba`.
            All see the columns as numbers (`FrameEncoder`), and class codes, the places in
            `classes_`.
            "network" is `AlignedClassifier`, which needs PyTorch, "boosting" scikit-learn's
            histogram gradient boosting, "forest" extra trees, "linear" logistic regression of
            scaled columns. Their probabilities are calibrated, and their weights in the mean
            maximise the likelihood of the held-out labels.
        cv: the number of folds, stratified and shuffled, or a splitter of scikit-learn. None for 5
            folds up to 5,000 rows, 3 up to 20,000, and a single held-out fifth beyond.
        decision: "tuned", "expected" or "argmax", see `fit_decision`.
        constraint: such as "recall >= 0.9", see `fit_decision`.
        confidence: probability that the constraint holds on new data, see `AlignedDecisionCV`.
        pos_label: the positive class of two, for metrics like "f1"; None for the last in order.
        classes: all labels in the order of the metric, see `AlignedDecisionCV`.
        time_limit: seconds for all of `fit`. Candidates are trained from fast to slow; one whose
            folds would not fit in is left out (`left_out_`). The first is always trained, and a
            fold that has begun is trained to its end.
        n_jobs: how many folds are trained at once, in processes of their own.
        random_state: seed of the folds and of the named candidates.
        verbose: 1 shows the progress.

    Attributes:
        classes_: the labels, sorted.
        weights_: of the candidates whose mean `predict` uses, by name; they sum to 1.
        calibrations_: the rule whose `probabilities` of each of these candidates are mixed.
        models_: the models of the folds, by the name of each candidate that was tried.
        rules_: the rule of each candidate alone.
        rule_: the `DecisionRule` that `predict` uses, for the columns of `predict_proba`.
        cv_results_: columns of a table (`pandas.DataFrame(clf.cv_results_)`) with a row for each
            candidate, and a last one for the ensemble. "candidate" is its name, "weight" that of
            `weights_`, "seconds" what its training took. "rule_score" is the metric (a cost is
            negated) of labels by rules that were fitted to the other folds, "argmax_score" that of
            the most probable labels, and "gain" how far the ensemble is ahead of the candidate with
            its rule. The suffixes "_low" and "_high" are 95% intervals for other rows and trainings
            (a paired bootstrap, widened as by Nadeau and Bengio). For each fold, the weights and
            the rule are found anew on the other folds.
        gain_: how far the ensemble is ahead of "against", the candidate with the best
            "argmax_score" (with a constraint, which argmax ignores, the best "rule_score"):
            "value", "low" and "high". That candidate, unlike the ensemble, is chosen on the very
            rows it is scored on, so the gain is too small rather than too large. With fewer than
            ten groups, counted in "few_groups", intervals are unreliable.
        left_out_: why a candidate was left out, by its name: time, or the constraint; of the
            network also that PyTorch is missing.
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

    weights_: dict[str, float]
    rules_: dict[str, DecisionRule]
    calibrations_: dict[str, DecisionRule]
    cv_results_: dict[str, list[Any]]
    gain_: dict[str, Any]
    left_out_: dict[str, str]
    features_: Features
    n_features_in_: int
    feature_names_in_: np.ndarray
    models_: dict[str, list[Any]]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
    }
    _kept = (
        "models_",
        "weights_",
        "calibrations_",
        "rules_",
        "cv_results_",
        "gain_",
        "left_out_",
        "features_",
    )

    def __init__(
        self,
        metric: str | MetricFunction = "f1_macro",
        *,
        candidates: Sequence[Any] = DEFAULT,
        cv: Any = None,
        decision: str = "tuned",
        constraint: str | None = None,
        confidence: float | None = None,
        pos_label: Any = None,
        classes: Any = None,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.metric = metric
        self.candidates = candidates
        self.cv = cv
        self.decision = decision
        self.constraint = constraint
        self.confidence = confidence
        self.pos_label = pos_label
        self.classes = classes
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
        constraint_groups: Any = None,
    ) -> Self:
        """Train the candidates, blend them, and fit the rule.

        Args:
            X: rows, as `AlignedClassifier` takes them.
            y: a label per row, numbers or strings.
            sample_weight: a weight per row, for the candidates that take one, the blend and the
                rule. Only ratios count: candidates get weights with a mean of 1. Rows of weight 0
                are left out; a class that has no others stays in `classes_`, with next to no
                probability.
            groups: a value per row; the rows of a group stay together in the folds.
            constraint_groups: a group per row, for a constraint such as "gap(recall) <= 0.05".
        """
        tried = self._try(X, y, sample_weight, groups, constraint_groups)
        targets, features, judge, trials, left_out = tried
        with threads(None, len(judge.rows.y)):
            weights, calibrations, rule, own = blend(trials, self._settings(targets))
        self._targets, self.features_, self.left_out_ = targets, features, left_out
        self.weights_, self.calibrations_, self.rule_ = weights, calibrations, rule
        self.models_ = {name: one.models for name, one in trials.items()}
        self.rules_ = {name: one.rule for name, one in trials.items()}
        labels = {name: one.labels for name, one in trials.items()}
        self.cv_results_ = {
            "candidate": [*trials, BLEND],
            "weight": [*(weights.get(name, 0.0) for name in trials), 1.0],
            "seconds": [*(one.seconds for one in trials.values()), np.nan],
            **judge.table(labels, own),
        }
        self.gain_ = judge.gain(labels, own["rule"])
        self._set_columns(features)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, n_classes): the weighted mean, before the rule's own calibration."""
        check_is_fitted(self)
        return self._scores(X)["probabilities"]

    def only(self, name: str) -> Self:
        """One candidate with its rule, as a classifier of its own."""
        check_is_fitted(self)
        known = list(self.models_)
        require(name in known, f"{OWNER}.only", "name", f"be one of {known}", repr(name))
        alone = copy.copy(self)
        alone.weights_, alone.rule_, alone.calibrations_ = {name: 1.0}, self.rules_[name], {}
        return alone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _try(
        self, *given: Any
    ) -> tuple[Targets, Features, Judge, dict[str, Trial], dict[str, str]]:
        """Train the candidates on the folds, and fit the rule of each, given what `fit` is.

        The labels, the columns, and what `run_trials` gives.
        """
        start = time.monotonic()
        self._validate_params()
        deadline = start + (np.inf if self.time_limit is None else self.time_limit)
        metric = resolve(self.metric, owner=OWNER)
        rows, targets, features = read_rows(OWNER, self, metric, *given)
        cure = "Use AlignedClassifier, or AlignedDecisionCV around a classifier that takes several."
        require(not targets.multilabel, OWNER, "y", "hold one label per row", "several", cure)
        rows = rows._replace(X=as_numbers(rows.X))
        settings = self._settings(targets)
        settings.check(OWNER, rows.constraint_groups)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        parts = folds(self.cv, rows, _num_samples(given[1]), seed)
        warn_of_lost(targets, rows.y, parts)
        most = max(len(training) for training, _ in parts)
        recipe = chosen_recipe(None, self.constraint)
        candidates = build(self.candidates, self.metric, recipe, most, seed, targets.of_codes)
        metric = targets.placed(OWNER, metric)
        with narrated(self.verbose) as tell:
            judge, trials, left_out = run_trials(
                candidates,
                rows,
                parts,
                settings,
                metric,
                deadline=deadline,
                n_jobs=self.n_jobs,
                seed=seed,
                tell=tell,
            )
            for name, why in without_torch(self.candidates).items():
                tell(f"{name}: left out: {why}")
                left_out[name] = why
        if doubt := settings.doubt(judge.rows):
            warn(doubt, TrainingWarning)
        return targets, features, judge, trials, left_out

    def _scores(self, X: Any) -> dict[str, np.ndarray]:
        matrix = self.features_.matrix(OWNER, read(self, X, reset=False), warn=True)
        rows, number = as_numbers(matrix), len(self.classes_)
        named = ((name, self.models_[name]) for name in self.weights_)
        each = {name: mean_probabilities(models, rows, number) for name, models in named}
        each |= {name: calibrated(rule, each[name]) for name, rule in self.calibrations_.items()}
        return {
            "probabilities": np.average([*each.values()], 0, weights=list(self.weights_.values()))
        }

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        classes = self.classes_
        rules = [*self.rules_.values(), *self.calibrations_.values()]
        ok = type(self.features_) is Features and all(type(rule) is DecisionRule for rule in rules)
        ok = ok and all(type(x) is dict for x in (self.cv_results_, self.gain_, self.left_out_))
        ok = ok and all(len(rule.gain) == len(classes) for rule in rules)
        require(ok, "state", "rules", "be rules for the classes, and features learnt", "others")
        for name, models in self.models_.items():
            known = np.arange(len(classes))
            ok = bool(models) and all(np.isin(m.classes_, known).all() for m in models)
            require(ok, "state", "models_", "be models of these classes", name)
        weights, names = self.weights_, {*self.models_}
        ok = bool(weights) and {*weights} <= names == {*self.rules_}
        ok = ok and all(0 < weight <= 1 for weight in weights.values())
        ok = ok and self.calibrations_.keys() in (weights.keys(), set())
        require(ok, "state", "weights", f"be those of some of {sorted(names)}", weights)
        self._set_columns(self.features_)
