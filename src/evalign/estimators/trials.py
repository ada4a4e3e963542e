"""Cross-validate all candidates on the same folds, and fit their rules."""

import os
import time
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from evalign.core.checks import require
from evalign.core.constraints import Infeasible
from evalign.core.input_warnings import warn
from evalign.core.metrics import Metric
from evalign.decisions import DecisionRule
from evalign.estimators.candidates import OWNER, CandidateModel
from evalign.estimators.choice import DECISIONS, Judge, Trial
from evalign.estimators.narration import Tell
from evalign.estimators.training import Clock, LabelledTable, OutOfTime, TrainedModels, train
from evalign.estimators import held_out
from evalign.estimators.evidence import RuleSettings, cross_fit, without_promise_warnings
from evalign.estimators.out_of_fold import OutOfFoldScores, Split
from evalign.tables.values import take_rows
from evalign.training import TrainingWarning, holdout_split

# Folds by the number of rows, at most. With more rows, a single held-out fifth is enough.
FOLDS = {5_000: 5, 20_000: 3}


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


def folds(owner: str, cv: Any, table: LabelledTable, given: int, seed: int) -> list[Split]:
    """Training rows and held-out rows of each fold; both are all rows if these are too few.

    `given` is the number of rows including those of weight 0.
    """
    rows = len(table.codes)
    if cv is None:
        cv = next((number for most, number in FOLDS.items() if rows <= most), None)
    if cv is None:
        return [holdout_split(table.codes, groups=table.groups, seed=seed)]
    if not isinstance(cv, Integral) and not hasattr(cv, "split"):  # numbers of the rows as given
        place = np.full(given, -1)  # in the table, which lacks rows without weight
        place[table.counted] = np.arange(rows)
        named = ([place[held_out.row_numbers(side)] for side in part] for part in cv)
        cv = [[side[side >= 0] for side in part] for part in named]
    X, groups = table.rows.matrix, _groups(table)
    parts = held_out.splits(cv, X, table.y, table.codes, groups, seed, owner=owner)
    return parts or [(np.arange(rows), np.arange(rows))]


def run_trials(
    candidates: Sequence[CandidateModel],
    table: LabelledTable,
    classes: np.ndarray,
    parts: list[Split],
    settings: RuleSettings,
    metric: Metric,
    *,
    clock: Clock,
    n_jobs: int | None,
    seed: int,
    checkpoint: str | os.PathLike[str] | None,
    tell: Tell,
) -> Trials:
    """Train all candidates that the time limit allows, and fit their rules.

    Args:
        candidates: the first is tried however long it takes.
        table: all rows.
        classes: the labels in the order of their codes.
        parts: the folds.
        settings: of the rules.
        metric: that of `settings`.
        clock: the remaining time.
        n_jobs: see `train`, as for the last two.
        seed: of the rule's folds, if there is a single held-out part, and of the resamples.
        checkpoint: a folder, or None.
        tell: prints progress.
    """
    ok = n_jobs is None or (isinstance(n_jobs, Integral) and n_jobs != 0)
    require(ok, OWNER, "n_jobs", "be a whole number, not 0, or None", repr(n_jobs))
    trained: dict[str, TrainedModels] = {}
    tried: dict[str, Trial] = {}
    rules: dict[str, DecisionRule] = {}
    left_out: dict[str, str] = {}
    judge = failed = None
    weighted = table.weight is not None and np.ptp(table.weight) > 0
    for candidate in candidates:
        if weighted and "sample_weight" not in candidate.fit_parameters:
            what = f"The candidate {candidate.name!r} of {OWNER} takes no sample_weight"
            warn(f"{what}: the weights are for the choice and its rule alone.", TrainingWarning)
        name, start = candidate.name, time.monotonic()
        limit = clock if tried else Clock(None)
        try:
            how = {"n_jobs": n_jobs, "checkpoint": checkpoint, "tell": tell}
            models = train(candidate, table, parts, limit, **how)
            seconds, start = time.monotonic() - start, time.monotonic()
            oof = _out_of_fold(models, table, classes, parts, seed)
        except OutOfTime as error:
            left_out[name] = str(error)
            tell(f"{name}: left out: {error}")
            continue
        except Exception as error:
            how = "It is given the original rows." if candidate.own else ""
            error.add_note(f"This is an error of the candidate {name!r} of AlignedEnsemble. {how}")
            raise
        found = cross_fit(oof, settings, DECISIONS)
        try:
            with without_promise_warnings():
                rules[name] = settings.rule(oof)
        except Infeasible as error:
            failed = error  # another candidate may meet the constraint
            left_out[name] = str(error)
            tell(f"{name}: left out, as it does not meet the constraint")
            continue
        trained[name] = models
        tried[name] = Trial(oof, found, seconds)
        # The next candidate, and the ensemble, take as long for their rules.
        clock.reserve = max(clock.reserve, 2 * (time.monotonic() - start))
        judge = judge or _judge(oof, metric, len(classes), table.groups, seed)
        sign = 1 if metric.greater_is_better else -1  # a cost is told as it is
        with_rule, without = (sign * judge.score(found.labels[way]) for way in DECISIONS)
        tell(f"{name}: {metric.name} {with_rule:.4f} with its rule, {without:.4f} by argmax")
    if judge is None:
        assert failed is not None
        raise failed
    return Trials(trained, tried, rules, left_out, judge)


def _out_of_fold(
    trained: TrainedModels, table: LabelledTable, classes: np.ndarray, parts: list[Split], seed: int
) -> OutOfFoldScores:
    """The out-of-fold probabilities of a candidate."""
    X = table.rows.seen_by(trained)
    values = [
        trained.probabilities(model, take_rows(X, rows), classes)
        for model, (_, rows) in zip(trained.models, parts, strict=True)
    ]
    return held_out.gathered(
        values,
        "predict_proba",
        table.rows.matrix,
        table.codes,
        table.weight,
        parts,
        _groups(table),
        seed,
    )


def _judge(
    oof: OutOfFoldScores, metric: Metric, classes: int, groups: np.ndarray | None, seed: int
) -> Judge:
    # A splitter may hold a row out several times.
    once = len(np.unique(oof.row)) == len(oof.row)
    together = None if once else oof.row
    return Judge(metric, oof, classes, together if groups is None else groups[oof.row], seed)


def _groups(table: LabelledTable) -> dict[str, Any]:
    """The arguments of a splitter."""
    return {} if table.groups is None else {"groups": table.groups}
