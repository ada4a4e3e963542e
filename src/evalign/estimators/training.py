"""Train a candidate fold by fold, within the time limit."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from joblib import effective_n_jobs
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _num_samples
from threadpoolctl import threadpool_limits

from evalign.core.checks import require
from evalign.estimators.candidates import OWNER, CandidateModel
from evalign.estimators.narration import Tell
from evalign.estimators import AlignedClassifier, held_out
from evalign.estimators.network import Defaults, chosen, find_device
from evalign.estimators.out_of_fold import Split, class_scores
from evalign.tables.values import take_rows

# Rows that estimate the time of a larger table, if it is limited; then four times as many.
PROBE = 2000
# Rows up to which one thread is enough. Threads of boosted trees on few rows mostly wait for each
# other: two threads on two busy cores take ten times as long for 2,000 rows.
ONE_THREAD = 10_000
# Rows of a fold from which a network may choose its best epoch on it. On noise labels it then seems
# to have a mean MCC of 0.06, and with fewer rows more.
LARGE_FOLD = 200
FLOAT32 = 1e-4  # by which a sum of many float32 probabilities may differ from 1


class OutOfTime(Exception):
    """A candidate does not fit into the time limit; the text says why."""


@dataclass
class Clock:
    """The remaining time.

    Args:
        limit: seconds in all; None for no limit.
        reserve: seconds to keep for what comes after training.
        start: when the clock started.
    """

    limit: float | None
    reserve: float = 0.0
    start: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """Seconds for training."""
        limit = np.inf if self.limit is None else self.limit
        return self.start + limit - time.monotonic() - self.reserve

    def require(self, seconds: float, why: str) -> None:
        """Raise `OutOfTime` if a candidate needs more than is left."""
        if seconds > self.left:
            raise OutOfTime(f"{why}, and {max(0.0, self.left):.1f} s were left")


class TableForms(NamedTuple):
    """Rows in all the forms that candidates read.

    Args:
        given: as they came.
        declared: typed columns that are learnt from. The kind of a column is found from all rows,
            so that a network does not judge it by the rows of its fold.
        matrix: the same as numbers, within the range of float32.
    """

    given: Any
    declared: Any
    matrix: np.ndarray

    def seen_by(self, candidate: "CandidateModel | TrainedModels") -> Any:
        """The form that a candidate reads."""
        if candidate.own:
            return self.given
        return self.declared if candidate.frame else self.matrix

    def take(self, rows: np.ndarray) -> "TableForms":
        """Some of the rows, by their numbers."""
        return TableForms(*(take_rows(form, rows) for form in self))


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The training rows of an ensemble.

    Args:
        rows: in all forms.
        y: the original labels.
        codes: the labels' codes, of two the positive one last.
        weight: a weight per row, or None.
        groups: a group per row, or None.
        counted: the positions of the rows in the original table, without those of weight 0.
    """

    rows: TableForms
    y: np.ndarray
    codes: np.ndarray
    weight: np.ndarray | None
    groups: np.ndarray | None
    counted: np.ndarray

    def seen_by(self, candidate: CandidateModel) -> tuple[Any, np.ndarray]:
        """The rows and labels that a candidate is trained on."""
        return self.rows.seen_by(candidate), self.y if candidate.own else self.codes


class TrainedModels(NamedTuple):
    """A candidate with the models of all folds.

    Args:
        name: as in `CandidateModel`; so are the next two.
        own: whether the user gave it, so that its classes are the labels, not their codes.
        frame: whether it reads the original rows.
        models: one for each fold.
    """

    name: str
    own: bool
    frame: bool
    models: list[Any]

    def probabilities(self, model: Any, rows: Any, classes: np.ndarray) -> np.ndarray:
        """The probabilities (n, C) of one of its models, for rows in the form that it reads.

        `classes` are the labels in the order of the columns.
        """
        known = classes if self.own else np.arange(len(classes))
        values = class_scores(
            model,
            rows,
            "predict_proba",
            known,
            multilabel=False,
            owner=OWNER,
            argument="candidates",
        )
        ok = len(values) == _num_samples(rows) and bool((values >= 0).all())
        ok = ok and np.allclose(values.sum(1), 1, atol=FLOAT32)
        allowed = "give each row probabilities, with a sum of 1"
        require(ok, OWNER, "candidates", allowed, f"{self.name!r}, which does not")
        return values

    def mean(self, rows: TableForms, classes: np.ndarray) -> np.ndarray:
        """The mean probabilities of its models."""
        seen = rows.seen_by(self)
        return np.mean([self.probabilities(model, seen, classes) for model in self.models], 0)


class Watch:
    """Called after each epoch of a network: stops it if the time does not suffice.

    Args:
        clock: the remaining time.
        epochs: that must fit into it, judged by the first; later only the next one must, as
            training may stop early.
        said: the name of the network.
        tell: prints progress.
    """

    def __init__(self, clock: Clock, epochs: int, said: str, tell: Tell) -> None:
        self.clock, self.epochs, self.said, self.tell = clock, epochs, said, tell

    def __call__(self, record: dict[str, Any]) -> None:
        self.tell(f"{self.said}, epoch {record['epoch']}", passing=True)
        needed = record["seconds"] * (self.epochs - 1)
        self.clock.require(needed, f"its networks would take {needed:.1f} s more")
        self.epochs = 2


def train(
    candidate: CandidateModel,
    table: LabelledTable,
    parts: list[Split],
    clock: Clock,
    *,
    n_jobs: int | None,
    checkpoint: str | os.PathLike[str] | None,
    tell: Tell,
) -> TrainedModels:
    """A model for each fold, trained on the other folds; or `OutOfTime` and none.

    Args:
        candidate: what is trained.
        table: all rows.
        parts: the folds.
        clock: the remaining time; the first fold shows how long all of them take.
        n_jobs: how many of the others are trained at once.
        checkpoint: a folder for the checkpoints of networks, or None.
        tell: prints progress.
    """
    X, y = table.seen_by(candidate)
    rows, others, folds = parts[0][0], parts[1:], len(parts)
    name, network = candidate.name, candidate.estimator
    is_network, how = isinstance(network, AlignedClassifier), Defaults()
    if is_network:
        how = chosen(network.get_params(deep=False), len(rows), find_device(network.device))

    def arguments(rows: np.ndarray) -> dict[str, Any]:
        groups = table.groups
        if is_network and groups is not None and len(np.unique(groups[rows])) == 1:
            groups = None  # it could hold none out
        return candidate.fit_arguments(table.weight, groups)

    def work(fold: int, part: Split, alone: bool) -> tuple[Any, ...]:
        rows, held = part
        estimator: Any = candidate.estimator
        more = arguments(rows)
        # A rule of its own would be fitted to the scores that it is to be judged by.
        if is_network and network.decision == "argmax" and len(held) >= LARGE_FOLD:
            more |= _validation(X, y, table.weight, rows, held)
        if is_network and checkpoint is not None:
            more["checkpoint"] = Path(checkpoint) / f"{name}-{fold}"
        if is_network and network.on_epoch is None and alone:
            said = f"{name}: fold {fold + 1} of {folds}"
            estimator = clone(network)
            estimator.on_epoch = Watch(clock, 2 if fold else how.epochs * folds, said, tell)
        return estimator, X, y, rows, more

    clock.require(0, "there was no time to begin")
    if clock.limit is not None and len(rows) > PROBE:
        seconds = folds * _expected(network, how, X, y, rows, arguments(rows))
        clock.require(seconds, f"its training would take about {seconds:.0f} s")

    start = time.monotonic()
    models = [trained(*work(0, parts[0], True))]
    took = time.monotonic() - start
    jobs = min(effective_n_jobs(cast(int, n_jobs)), max(1, len(others)))
    seconds = took * -(-len(others) // jobs)
    clock.require(seconds, f"the first of {folds} folds took {took:.1f} s")
    rest = f", the others about {seconds:.0f} s" if others else ""
    tell(f"{name}: fold 1 of {folds} took {took:.1f} s{rest}")
    tasks = (delayed(trained)(*work(fold, part, jobs == 1)) for fold, part in enumerate(others, 1))
    for model in Parallel(n_jobs=jobs, return_as="generator")(tasks) or ():
        models.append(model)
        tell(f"{name}: {len(models)} of {folds} folds done", passing=True)
    for model in models if is_network else ():
        model.on_epoch = network.on_epoch
    return TrainedModels(name, candidate.own, candidate.frame, models)


def _validation(
    X: Any, y: np.ndarray, weight: np.ndarray | None, rows: np.ndarray, held: np.ndarray
) -> dict[str, Any]:
    """The held-out fold, as the validation rows of a network.

    The network then trains on all rows of the other folds. Classes that these lack are left out.
    """
    held = held[np.isin(y[held], y[rows])]
    if not len(held):
        return {}
    weights = () if weight is None else (weight[held],)
    return {"validation_data": (take_rows(X, held), y[held], *weights)}


def _expected(
    estimator: Any, how: Defaults, X: Any, y: Any, rows: np.ndarray, arguments: dict[str, Any]
) -> float:
    """The expected seconds of training on these rows, estimated from some of them.

    For a network, from one epoch. For others, from two sizes, as a part of the time may not depend
    on the number of rows.
    """

    def took(number: int, estimator: Any = estimator) -> tuple[float, Any]:
        some = np.random.default_rng(0).choice(rows, number, replace=False)
        if not isinstance(estimator, AlignedClassifier):  # others may refuse to lack a class
            classes, first = np.unique(y[rows], return_index=True)
            some = np.append(some, rows[first[~np.isin(classes, y[some])]])
        some.sort()
        start = time.monotonic()
        model = trained(estimator, X, y, some, arguments)
        return time.monotonic() - start, model

    if isinstance(estimator, AlignedClassifier):
        once: Any = clone(estimator)
        once.set_params(epochs=1, batch_size=how.batch_size, verbose=0)
        seconds, model = took(PROBE, once)
        if isinstance(model, AlignedClassifier):  # and not what stands in for it: see `held_out`
            seconds = model.history_[0]["seconds"]
        return seconds * how.epochs * len(rows) / PROBE
    small, _ = took(PROBE)
    if len(rows) <= 4 * PROBE:
        return small * len(rows) / PROBE
    large, _ = took(4 * PROBE)
    return large + max(0.0, large - small) / (3 * PROBE) * (len(rows) - 4 * PROBE)


def trained(estimator: Any, X: Any, y: Any, rows: np.ndarray, arguments: dict[str, Any]) -> Any:
    """A copy of a classifier, trained on some of the rows.

    Arguments are named as without scikit-learn's metadata routing, where a pipeline knows the steps
    that take them.
    """
    few = len(rows) <= ONE_THREAD and not isinstance(estimator, AlignedClassifier)
    threads = threadpool_limits(1 if few else None, "openmp")
    with threads, config_context(enable_metadata_routing=False):
        return held_out.trained(estimator, X, y, rows, arguments)
