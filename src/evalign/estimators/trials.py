"""Cross-validate all candidates on the same folds, within the time limit, and fit their rules."""

import time
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple, cast

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples
from threadpoolctl import threadpool_limits

from evalign.core.checks import require
from evalign.core.constraints import Infeasible
from evalign.core.input_warnings import warn
from evalign.core.metrics import Metric
from evalign.decisions import DecisionRule
from evalign.estimators.candidates import OWNER, SECONDS, CandidateModel
from evalign.estimators.choice import Trial
from evalign.estimators.classifier import AlignedClassifier
from evalign.estimators.evidence import RuleSettings, cross_fit
from evalign.estimators.forms import LabelledTable, TableForms
from evalign.estimators.judge import Judge
from evalign.estimators.out_of_fold import (
    OutOfFoldScores,
    Split,
    class_scores,
    fit_arguments,
    row_numbers,
    splits,
    trained,
)
from evalign.estimators.progress import Remaining, Tell
from evalign.training import TrainingWarning, holdout_split

# Folds by the number of rows, at most. With more rows, a single held-out fifth is enough.
FOLDS = {5_000: 5, 20_000: 3}
# Rows by which the time of a larger table is estimated, if it is limited.
PROBES = (2_000, 8_000)
# Rows up to which one thread is enough. Threads of boosted trees mostly wait for each other, and
# wait busily: on two busy cores two take 43 s for 100,000 rows, and one 4 s.
ONE_THREAD = 100_000
FLOAT32 = 1e-4  # by which a sum of many float32 probabilities may differ from 1


class OutOfTime(Exception):
    """A candidate does not fit into the time limit; the text says why."""


def require_time(deadline: float, seconds: float, why: str) -> None:
    """Raise `OutOfTime` if a candidate needs more seconds than are left."""
    left = deadline - time.monotonic()
    if seconds > left:
        raise OutOfTime(f"{why}, and {max(0.0, left):.1f} s were left")


class TrainedModels(NamedTuple):
    """A candidate with the models of all folds; `own` as in `CandidateModel`."""

    name: str
    own: bool
    models: list[Any]

    def rows(self, forms: TableForms) -> Any:
        """The form that it reads."""
        return forms.given if self.own else forms.matrix

    def probabilities(self, model: Any, rows: Any, classes: np.ndarray) -> np.ndarray:
        """The probabilities (n, C) of one of its models, for rows in the form that it reads.

        `classes` are the labels in the order of the columns.
        """
        known = classes if self.own else np.arange(len(classes))
        how: dict[str, Any] = {"owner": OWNER, "argument": "candidates"}
        values = class_scores(model, rows, "predict_proba", known, **how)
        ok = len(values) == _num_samples(rows) and bool((values >= 0).all())
        ok = ok and np.allclose(values.sum(1), 1, atol=FLOAT32)
        allowed = "give each row probabilities, with a sum of 1"
        require(ok, OWNER, "candidates", allowed, f"{self.name!r}, which does not")
        return values

    def mean(self, forms: TableForms, classes: np.ndarray) -> np.ndarray:
        """The mean probabilities of its models."""
        seen = self.rows(forms)
        with threads(self.models[0], _num_samples(seen)):
            return np.mean([self.probabilities(model, seen, classes) for model in self.models], 0)

    def out_of_fold(
        self, table: LabelledTable, classes: np.ndarray, parts: list[Split], seed: int
    ) -> OutOfFoldScores:
        """The probabilities of the rows that each model has not seen."""
        seen = self.rows(table.rows)
        values = [
            self.probabilities(model, _safe_indexing(seen, rows), classes)
            for model, (_, rows) in zip(self.models, parts, strict=True)
        ]
        return OutOfFoldScores.gathered(
            values,
            "predict_proba",
            table.codes,
            table.weight,
            parts,
            groups=table.groups,
            constraint_groups=table.constraint_groups,
            seed=seed,
        )


class Trials(NamedTuple):
    """The results of the candidates, by name.

    Args:
        trained: their models.
        tried: their out-of-fold scores and labels.
        rules: the rule of each alone.
        left_out: why a candidate was left out.
        judge: scores labels of the held-out rows.
    """

    trained: dict[str, TrainedModels]
    tried: dict[str, Trial]
    rules: dict[str, DecisionRule]
    left_out: dict[str, str]
    judge: Judge


def folds(cv: Any, table: LabelledTable, seed: int) -> list[Split]:
    """Training rows and held-out rows of each fold; both are all rows if these are too few."""
    rows = len(table.codes)
    if cv is None:
        cv = next((number for most, number in FOLDS.items() if rows <= most), None)
    if cv is None:
        return [holdout_split(table.codes, groups=table.groups, seed=seed)]
    if not isinstance(cv, Integral) and not hasattr(cv, "split"):  # numbers of the rows as given
        place = np.full(table.given, -1)  # in the table, which lacks rows without weight
        place[table.counted] = np.arange(rows)
        named = ([place[row_numbers(side)] for side in part] for part in cv)
        cv = [[side[side >= 0] for side in part] for part in named]
    parts = splits(OWNER, cv, table.rows.matrix, table.y, table.codes, table.groups, seed)
    return parts or [(np.arange(rows), np.arange(rows))]


def run_trials(
    candidates: Sequence[CandidateModel],
    table: LabelledTable,
    classes: np.ndarray,
    parts: list[Split],
    settings: RuleSettings,
    metric: Metric,
    *,
    deadline: float,
    n_jobs: int | None,
    seed: int,
    tell: Tell,
) -> Trials:
    """Train all candidates that the time allows, the first in any case, and fit their rules.

    `classes` are the labels in the order of their codes. The seed is of the rule's folds, if there
    is a single held-out part, and of the resamples.
    """
    ok = n_jobs is None or (isinstance(n_jobs, Integral) and n_jobs != 0)
    require(ok, OWNER, "n_jobs", "be a whole number, not 0, or None", repr(n_jobs))
    kept: dict[str, TrainedModels] = {}
    tried: dict[str, Trial] = {}
    rules: dict[str, DecisionRule] = {}
    left_out: dict[str, str] = {}
    judge = failed = None
    guesses = [guess(candidate, table, parts) for candidate in candidates]
    told = Remaining(tell, guesses)
    for candidate in candidates:
        name, start = candidate.name, time.monotonic()
        told.begin(f"{name}: training")
        limited = threads(candidate.estimator, len(table.codes))
        try:
            with limited, config_context(enable_metadata_routing=False):
                until = deadline if tried else np.inf
                models = train(candidate, table, parts, until, n_jobs, told)
                seconds = time.monotonic() - start
                oof = models.out_of_fold(table, classes, parts, seed)
        except OutOfTime as error:
            left_out[name] = str(error)
            told(f"{name}: left out: {error}")
            continue
        except Exception as error:
            how = "It is given the original rows." if candidate.own else ""
            error.add_note(f"This is an error of the candidate {name!r} of AlignedEnsemble. {how}")
            raise
        groups = None if table.groups is None else table.groups[oof.row]
        rest = len(parts[0][0]), settings.constraint is not None
        judge = judge or Judge(metric, oof, len(classes), groups, seed, *rest)
        found = cross_fit(oof, settings)
        with_rule, argmax = (judge.score(given) for given in found.labels.values())
        try:
            rules[name] = settings.rule(oof)
        except Infeasible as error:
            failed = error  # another candidate may meet the constraint
            left_out[name] = str(error)
            told(f"{name}: left out, as it does not meet the constraint")
            continue
        kept[name], tried[name] = models, Trial(oof, found.labels, seconds)
        sign = 1 if metric.greater_is_better else -1  # a cost is told as it is
        scores = f"{sign * with_rule:.4f} with its rule, {sign * argmax:.4f} by argmax"
        told(f"{name}: {metric.name} {scores}")
    if judge is None or not tried:
        assert failed is not None
        raise failed
    return Trials(kept, tried, rules, left_out, judge)


def train(
    candidate: CandidateModel,
    table: LabelledTable,
    parts: list[Split],
    deadline: float,
    n_jobs: int | None,
    tell: Remaining,
) -> TrainedModels:
    """A model for each fold, trained on the other folds; or `OutOfTime` and none.

    The first fold shows how long all take; then `n_jobs` are trained at once.
    """
    name, estimator, own = candidate
    models = TrainedModels(name, own, [])
    X, y = models.rows(table.rows), table.y if own else table.codes
    given = {"sample_weight": table.weight, "groups": table.groups}
    arguments, lacking = fit_arguments(estimator, **given)
    if "sample_weight" in lacking and np.ptp(cast(np.ndarray, table.weight)) > 0:
        what = f"The candidate {name!r} of {OWNER} takes no sample_weight"
        warn(f"{what}: the weights are for the choice and its rule alone.", TrainingWarning)
    first, *others = (rows for rows, _ in parts)
    number = len(parts)
    require_time(deadline, 0, "there was no time to begin")
    if deadline < np.inf and len(first) > PROBES[-1]:
        seconds = number * expected(estimator, X, y, first, arguments)
        require_time(deadline, seconds, f"its training would take about {seconds:.0f} s")
    start = time.monotonic()
    models.models.append(trained(estimator, X, y, first, arguments))
    took = time.monotonic() - start
    jobs = min(effective_n_jobs(cast(int, n_jobs)), max(1, len(others)))
    seconds = took * -(-len(others) // jobs)
    require_time(deadline, seconds, f"the first of {number} folds took {took:.1f} s")
    tell(f"{name}: fold 1 of {number} took {took:.1f} s", own=seconds)
    tasks = (delayed(trained)(estimator, X, y, rows, arguments) for rows in others)
    for model in Parallel(n_jobs=jobs, return_as="generator")(tasks) or ():
        models.models.append(model)
        done = len(models.models)
        own_seconds = seconds * (number - done) / (number - 1)
        tell(f"{name}: {done} of {number} folds done", passing=True, own=own_seconds)
    return models


def guess(candidate: CandidateModel, table: LabelledTable, parts: list[Split]) -> float:
    """The seconds that a candidate may take; one that the user gave is taken for a forest."""
    fixed, of_million = SECONDS["forest" if candidate.own else candidate.name]
    return len(parts) * (fixed + of_million * len(parts[0][0]) * table.rows.matrix.shape[1] / 1e6)


def expected(
    estimator: Any, X: Any, y: np.ndarray, rows: np.ndarray, arguments: dict[str, Any]
) -> float:
    """The expected seconds of training on many rows, from those on two smaller numbers of them.

    A part of the time may not depend on the number of rows.
    """
    seconds = []
    first = rows[np.unique(y[rows], return_index=True)[1]]  # a model may refuse to lack a class
    for number in PROBES:
        some = np.random.default_rng(0).choice(rows, number, replace=False)
        start = time.monotonic()
        trained(estimator, X, y, np.union1d(some, first), arguments)
        seconds.append(time.monotonic() - start)
    few, many = PROBES
    slope = max(0.0, seconds[1] - seconds[0]) / (many - few)
    return seconds[1] + slope * (len(rows) - many)


def threads(estimator: Any, rows: int) -> Any:
    """Limit the threads of compiled code, but for a network."""
    several = rows > ONE_THREAD or isinstance(estimator, AlignedClassifier)
    return threadpool_limits(None if several else 1, "openmp")
