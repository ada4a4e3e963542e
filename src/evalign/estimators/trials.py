"""Cross-validate all candidates on the same folds, within the time limit, and fit their rules."""

import time
from numbers import Integral
from typing import Any, cast

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from evalign.core.constraints import Infeasible
from evalign.core.metrics import Metric
from evalign.estimators.blend import Trial
from evalign.estimators.candidates import OWNER, SECONDS
from evalign.estimators.evidence import WAYS, RuleSettings, cross_fit
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
from evalign.estimators.rows import LabelledRows
from evalign.tables.split import holdout_split

# Folds by the number of rows, at most. With more rows, a single held-out fifth is enough.
FOLDS = {5_000: 5, 20_000: 3}
# Rows by which the time of a larger table is estimated, if it is limited.
PROBES = (2_000, 8_000)
# Rows up to which one thread is enough. Threads of boosted trees mostly wait for each other, and
# wait busily: on two busy cores two take 95 s for 1,000,000 rows, and one 34 to 49 s.
ONE_THREAD = 1_000_000


class OutOfTime(Exception):
    """A candidate does not fit into the time limit; the text says why."""


def require_time(deadline: float, seconds: float, why: str) -> None:
    """Raise `OutOfTime` if a candidate needs more seconds than are left."""
    left = deadline - time.monotonic()
    if seconds > left:
        raise OutOfTime(f"{why}, and {max(0.0, left):.1f} s were left")


def mean_probabilities(models: list[Any], X: np.ndarray, classes: int) -> np.ndarray:
    """The mean probabilities (n, classes) of a candidate's models."""
    known = np.arange(classes)
    with threads(models[0], len(X)):
        return np.mean([class_scores(one, X, "predict_proba", known) for one in models], 0)


def folds(cv: Any, rows: LabelledRows, given: int, seed: int) -> list[Split]:
    """Training rows and held-out rows of each fold; both are all rows if these are too few.

    Of the rows given, those without weight are left out.
    """
    everything = np.arange(len(rows.y))
    if cv is None:
        cv = next((number for most, number in FOLDS.items() if len(rows.y) <= most), None)
    if cv is None:
        return [holdout_split(rows.y, groups=rows.groups, seed=seed)]
    if not isinstance(cv, Integral) and not hasattr(cv, "split"):  # numbers of the rows as given
        place = np.full(given, -1)
        place[rows.number] = everything
        given_parts: Any = check_cv(cv)
        named = ([place[row_numbers(side)] for side in part] for part in given_parts.split())
        cv = [[side[side >= 0] for side in part] for part in named]
    return splits(OWNER, cv, rows.X, rows.y, rows.y, rows.groups, seed) or [
        (everything, everything)
    ]


def run_trials(
    candidates: dict[str, Any],
    rows: LabelledRows,
    parts: list[Split],
    settings: RuleSettings,
    metric: Metric,
    *,
    deadline: float,
    n_jobs: int | None,
    seed: int,
    tell: Tell,
) -> tuple[Judge, dict[str, Trial], dict[str, str]]:
    """Train all candidates that the time allows, the first in any case, and fit their rules.

    Beside their judge and the trials, by name, comes why others were left out. The seed is of the
    rule's folds, if there is a single held-out part, and of the resamples.
    """
    tried: dict[str, Trial] = {}
    left_out: dict[str, str] = {}
    judge = failed = None
    classes, numbers = len(settings.classes), len(parts[0][0]) * rows.X.shape[1] * len(parts)
    weight = rows.weight if np.ptp(rows.weight) else None
    guesses = {name: guess(name, len(parts), numbers) for name in candidates}
    told = Remaining(tell, sum(guesses.values()))
    for name, estimator in candidates.items():
        start = time.monotonic()
        told(f"{name}: training", passing=True)
        each = guesses[name] / len(parts)
        try:
            with threads(estimator, len(rows.y)), config_context(enable_metadata_routing=False):
                until = deadline if tried else np.inf
                models = train(name, estimator, rows, weight, parts, until, n_jobs, told, each)
                seconds = time.monotonic() - start
                values = [
                    class_scores(model, rows.X[held], "predict_proba", np.arange(classes))
                    for model, (_, held) in zip(models, parts, strict=True)
                ]
            oof = OutOfFoldScores.gathered(
                values,
                "predict_proba",
                rows.y,
                weight,
                parts,
                groups=rows.groups,
                constraint_groups=rows.constraint_groups,
                seed=seed,
            )
            with threads(None, len(rows.y)):
                found = Trial(models, oof, cross_fit(oof, settings), settings.rule(oof), seconds)
        except (OutOfTime, Infeasible) as error:
            failed = error  # another candidate may be faster, or meet the constraint
            left_out[name] = str(error)
            told(f"{name}: left out: {error}", done=guesses[name])
            continue
        except Exception as error:
            how = "It is given class codes, and the columns as numbers."
            error.add_note(f"This is an error of the candidate {name!r} of AlignedEnsemble. {how}")
            raise
        tried[name] = found
        together = None if rows.groups is None else rows.groups[oof.row]
        rest = len(parts[0][0]), settings.constraint is not None
        judge = judge or Judge(metric, oof, classes, together, seed, *rest)
        with_rule, argmax = (judge.score(found.labels[way]) for way in WAYS)
        sign = 1 if metric.greater_is_better else -1  # a cost is told as it is
        scores = f"{sign * with_rule:.4f} with its rule, {sign * argmax:.4f} by argmax"
        told(f"{name}: {metric.name} {scores}")
    if judge is None or not tried:
        assert failed is not None
        raise failed
    return judge, tried, left_out


def train(
    name: str,
    estimator: Any,
    table: LabelledRows,
    weight: np.ndarray | None,
    parts: list[Split],
    deadline: float,
    n_jobs: int | None,
    tell: Remaining,
    guessed: float,
) -> list[Any]:
    """A model for each fold, trained on the other folds; or `OutOfTime` and none.

    The first fold shows how long all take; then `n_jobs` are trained at once. `guessed` are the
    seconds of a fold.
    """
    X, y = table.X, table.y
    arguments = fit_arguments(estimator, sample_weight=weight, groups=table.groups)
    first, *others = (rows for rows, _ in parts)
    number = len(parts)
    require_time(deadline, 0, "there was no time to begin")
    if deadline < np.inf and len(first) > PROBES[-1]:
        seconds = number * expected(estimator, X, y, first, arguments)
        require_time(deadline, seconds, f"its training would take about {seconds:.0f} s")
    start = time.monotonic()
    models = [trained(estimator, X, y, first, arguments)]
    took = time.monotonic() - start
    jobs = min(effective_n_jobs(cast(int, n_jobs)), max(1, len(others)))
    seconds = took * -(-len(others) // jobs)
    require_time(deadline, seconds, f"the first of {number} folds took {took:.1f} s")
    tell(f"{name}: fold 1 of {number} took {took:.1f} s", done=guessed)
    tasks = (delayed(trained)(estimator, X, y, rows, arguments) for rows in others)
    for model in Parallel(n_jobs=jobs, return_as="generator")(tasks) or ():
        models.append(model)
        tell(f"{name}: {len(models)} of {number} folds done", passing=True, done=guessed)
    return models


def guess(name: str, folds: int, numbers: int) -> float:
    """The seconds that a candidate may take; one that the user gave is taken for a forest."""
    fixed, of_million = SECONDS.get(name, SECONDS["forest"])
    return folds * fixed + of_million * numbers / 1e6


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
    """Limit the threads of compiled code, of rules too, but for a network."""
    several = rows > ONE_THREAD or getattr(estimator, "trains_a_network", False)
    return threadpool_limits(None if several else 1, "openmp")
