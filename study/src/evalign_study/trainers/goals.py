"""Networks for goals beyond one number, of two classes, and the rules that meet their bounds.

Every loss has the same network, budget of steps, schedule, average of weights and choice of the
epoch: the best by the average precision of the validation rows, which all of their positives
decide, while a goal under a bound hangs on a few. On these rows the rule for a goal is fitted, once
so that it keeps to its bound there ("met") and once so that it does on new rows with a confidence
("promised"). A threshold of two classes is found by ranks, so that what a loss does to the scale of
logits makes no difference.
"""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from evalign import fit_decision
from evalign.core.constraints import Infeasible
from evalign.training import Settings, three_way_split
from evalign.training.averaging import average_network
from evalign.training.scaling import QuantileNormal
from evalign_study import data
from evalign_study.data import Dataset
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers import images
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.crops import Images
from evalign_study.trainers.goal_methods import (
    BOUNDED,
    METHODS,
    Bounded,
    Matrix,
    reached,
    share,
)
from evalign_study.trainers.images import Parts, seeded
from evalign_study.trainers.libauc_losses import rival
from evalign_study.trainers.methods import NETWORKS
from evalign_study.trainers.prepared import thin
from evalign_study.trainers.recipe import USUAL

PREFIX = "goal_"
CONFIDENCES = {"met": None, "promised": 0.95}
BLOCK = 4096  # rows evaluated at a time


class TableRows(NamedTuple):
    """Rows of features, and row numbers of the three parts, positives first in that of training."""

    X: Tensor
    y: Tensor
    training: Tensor
    validation: Tensor
    test: Tensor


class GoalPick(NamedTuple):
    """The best epoch of a training, by the average precision of the validation rows.

    Args:
        average_precision: what it was.
        epoch: its number; 0 for a training that diverged, for which all rows are alike.
        known: log-odds of the validation rows.
        unseen: log-odds of the test rows.
    """

    average_precision: float
    epoch: int
    known: np.ndarray
    unseen: np.ndarray


def train_goal(run: Run) -> Record:
    """Train a network, and for each goal of its method fit the rules and score them.

    Tables are trained on one core, images on a GPU if there is one. A pick is a goal. It has what
    the best threshold reaches on the validation rows and on the test rows themselves; of a bounded
    goal also, for each rule, the counts of the validation rows and of the test rows, and whether
    the bound was promised. A bound that no rule meets leaves a rule that labels no row.
    """
    name = run.method.removeprefix(PREFIX)
    allowed = f"be one of {', '.join(METHODS)}"
    require(name in METHODS, "train_goal", "method", allowed, repr(run.method))
    start, rows = time.perf_counter(), prepare(run)
    with threadpool_limits(1), seeded(run.seed), warnings.catch_warnings():
        # One core for a run, so that runs side by side do not wait for each other.
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")  # of bounds out of reach, and of too few rows to promise
        learner = GoalLearner(run, rows)
        best = best_epoch(learner)
        y, y_test = (rows.y[part].cpu().numpy() for part in (rows.validation, rows.test))
        picks = {goal: _judged(goal, best, y, y_test) for goal in METHODS[name].goals}
    cuda = rows.y.device.type == "cuda"
    return record(
        run,
        epochs=run.epochs,
        capped=False,  # the last epoch is the planned end of the schedule
        seconds=time.perf_counter() - start,
        picks=picks,
        diverged=best.epoch == 0,
        batch_size=learner.batch_size,
        device=rows.y.device.type,
        precision="bfloat16" if cuda else "float32",
    )


def best_epoch(learner: "GoalLearner") -> GoalPick:
    """Train, and keep the best epoch."""
    rows = learner.rows
    y = rows.y[rows.validation].cpu().numpy()
    best = GoalPick(-math.inf, 0, np.zeros(len(y)), np.zeros(len(rows.test)))
    for epoch in range(1, learner.settings.epochs + 1):
        learner.epoch()
        known = learner.log_odds(rows.validation)
        if not np.isfinite(known).all():
            break
        score = float(average_precision_score(y, known))
        if score > best.average_precision:
            unseen = np.nan_to_num(learner.log_odds(rows.test))
            best = GoalPick(score, epoch, known, unseen)
    return best


class GoalLearner:
    """A network and how it is trained: AdamW with a cosine schedule, its weights averaged.

    LibAUC's losses bring their own optimiser, with the same schedule, and their own batches, of the
    same number and size.
    """

    def __init__(self, run: Run, rows: TableRows | Images) -> None:
        self.rows, self.device = rows, rows.y.device
        features = rows.X.shape[1] if isinstance(rows, TableRows) else 3
        self.network = NETWORKS[run.network](features, 2, run.dropout).to(self.device)
        self.averaged = copy.deepcopy(self.network).requires_grad_(False).eval()
        number = len(rows.training)
        self.steps = math.ceil(number / usual_batch_size(number))  # of an epoch
        self.batch_size = number // self.steps
        self.settings = Settings(
            epochs=run.epochs,
            learning_rate=run.learning_rate,
            weight_decay=USUAL.weight_decay,
            ema_decay=USUAL.ema_decay,
        )
        self.order = torch.Generator(self.device).manual_seed(run.seed)
        self.number = 0
        y, decay = rows.y[rows.training], self.settings.weight_decay
        name = run.method.removeprefix(PREFIX)
        build = METHODS[name].loss
        self.loss: Callable[..., Tensor]
        if build is None:
            self.loss, self.optimizer, self.batches = rival(
                name,
                self.network,
                y,
                batch_size=self.batch_size,
                learning_rate=run.learning_rate,
                weight_decay=decay,
                seed=run.seed,
            )
            self.clip_norm = None  # these clip by themselves
        else:
            loss = build(y.bincount(minlength=2).double().cpu()).to(self.device).train()
            self.loss = lambda logits, y, place: loss(logits, y)
            self.optimizer = torch.optim.AdamW(
                self.network.parameters(), weight_decay=decay, fused=True
            )
            self.batches = self._shuffled()
            self.clip_norm = self.settings.clip_norm

    def epoch(self) -> None:
        """Train on as many batches as the training rows fill."""
        self.network.train()
        for _ in range(self.steps):
            place = next(self.batches)
            rows = self.rows.training[place]
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate(self.number, self.settings.epochs * self.steps)
            value = self.loss(self._logits(self.network, rows, True), self.rows.y[rows], place)
            self.optimizer.zero_grad()
            value.backward()
            if self.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.network.parameters(), self.clip_norm)
            self.optimizer.step()
            average_network(self.averaged, self.network, self.settings.decay(self.number))
            self.number += 1

    @torch.no_grad()
    def log_odds(self, rows: Tensor) -> np.ndarray:
        """The log-odds of rows, by the average of the weights."""
        blocks = [self._logits(self.averaged, block, False) for block in rows.split(BLOCK)]
        return torch.cat(blocks).diff(dim=1)[:, 0].double().cpu().numpy()

    def _logits(self, network: nn.Module, rows: Tensor, training: bool) -> Tensor:
        if isinstance(self.rows, TableRows):
            return network(self.rows.X[rows])
        places = self.rows.draw(len(rows), self.order) if training else None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return network(self.rows.crops(rows, places)).float()

    def _shuffled(self) -> Iterator[Tensor]:
        """Places of an epoch's rows in random order; the few that fill no batch are left out."""
        number, size = len(self.rows.training), self.batch_size
        while True:
            order = torch.randperm(number, generator=self.order, device=self.device)
            yield from order[: self.steps * size].split(size)


def prepare(run: Run) -> TableRows | Images:
    """Split a table, or images of which most positives are left out, on the device they need."""
    if run.imbalance is None:
        return _table(run.dataset, run.split_seed, run.rows)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stored = images.prepare(run, device, thinned)
    return stored._replace(training=_positives_first(stored.y, stored.training))


@lru_cache(maxsize=1)
def _table(name: str, split_seed: int, most: int | None) -> TableRows:
    """Split the distinct rows. Numbers become normal quantiles; what is 0 or 1 stays.

    Equal rows on both sides of a split would give labels away. All of them on one side, thousands
    in mammography, would make that side unlike the others, and a promise is about rows like those
    that it was made on.
    """
    loaded = data.load(name, preparation="sound")
    distinct = np.unique(loaded.groups, return_index=True)[1]
    split = three_way_split(loaded.y[distinct], seed=split_seed)
    parts = [
        torch.from_numpy(rows[thin(loaded.y[rows], most)]) for rows in map(distinct.take, split)
    ]
    X, y = torch.from_numpy(loaded.X.astype(np.float32)), torch.from_numpy(loaded.y)
    flags = ((X == 0) | (X == 1)).all(0)
    X = torch.cat([X[:, ~flags], X[:, flags]], 1)
    X = QuantileNormal(X[parts[0]], int(flags.sum()))(X)
    return TableRows(X, y, _positives_first(y, parts[0]), *parts[1:])


def thinned(dataset: Dataset, run: Run) -> Parts:
    """Keep a positive for every `imbalance` negatives, in all three parts alike."""
    assert run.imbalance is not None
    negative, positive = (np.flatnonzero(dataset.y == label) for label in (0, 1))
    number = round(len(negative) / run.imbalance)
    kept = np.random.default_rng(run.split_seed).choice(positive, number, replace=False)
    rows = np.sort(np.concatenate([negative, kept]))
    training, validation, test = three_way_split(dataset.y[rows], seed=run.split_seed)
    return rows[training], rows[validation], rows[test]


def _positives_first(y: Tensor, rows: Tensor) -> Tensor:
    return rows[y[rows].argsort(descending=True, stable=True)]


def _judged(goal: str, pick: GoalPick, y: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    found = {
        "epoch": pick.epoch,
        "validation": reached(y, pick.known)[goal],
        "test": reached(y_test, pick.unseen)[goal],
    }
    if goal not in BOUNDED:
        return found
    rules = {
        name: _ruled(BOUNDED[goal], confidence, pick, y, y_test)
        for name, confidence in CONFIDENCES.items()
    }
    return found | {"rules": rules}


def _ruled(
    goal: Bounded, confidence: float | None, pick: GoalPick, y: np.ndarray, y_test: np.ndarray
) -> dict[str, Any]:
    try:
        rule = fit_decision(
            pick.known, y, metric=goal.metric, constraint=goal.constraint, confidence=confidence
        )
        known, unseen, promised = rule(pick.known), rule(pick.unseen), rule.promised
    except Infeasible:
        known, unseen = np.zeros_like(y), np.zeros_like(y_test)
        promised = None if confidence is None else False
    matrix = _matrix(y_test, unseen)
    part, whole = share(goal.metric, matrix)
    return {
        "test": part / whole if whole else 0.0,
        "validation_matrix": _matrix(y, known),
        "matrix": matrix,
        "promised": promised,
    }


def _matrix(y: np.ndarray, labels: np.ndarray) -> Matrix:
    return np.bincount(2 * y + labels, minlength=4).reshape(2, 2).tolist()
