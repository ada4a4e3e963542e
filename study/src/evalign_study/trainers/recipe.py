"""Networks for tables of features, for the suite.

All methods have one trainer, and those of one split train as one stack (`many`). One
training of an opponent serves all metrics; our recipe and EAST have a training for each metric.
Because one training serves several metrics, none of them may end it early: every training goes
through the whole cosine schedule (patience None), and the best epoch by each metric is kept.
`tailed` trains images in the same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from evalign.metrics import resolve
from evalign.training import Settings
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import require
from evalign_study.trainers import stacks
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.decisions import Pick, decide
from evalign_study.trainers.many import METRIC, Member, Trained, fit_many
from evalign_study.trainers.methods import (
    GOALS,
    NETWORKS,
    OPPONENTS,
    Method,
    Problem,
    cooling,
    make,
)
from evalign_study.trainers.picks import finite
from evalign_study.trainers.prepared import Prepared
from evalign_study.trainers.stacks import best_epochs, logits_of, numbers, rows_of, tf32

RATE = 0.9  # EAST's cooling (EAST 4.3)
WITHOUT_PRIOR = ("logit_adjusted", "balanced_cross_entropy")  # in the logits of these opponents
MOST_WRITTEN = 20  # classes; for more of them, matrices would take up most of a file of records


class Usual(NamedTuple):
    """How the networks of the suite are trained; `Settings` has the rest."""

    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    dropout: float = 0.2
    epochs: int = 100
    ema_decay: float = 0.995


USUAL = Usual()


def units(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs that train together: those of one split of a data set."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(_shared(run), []).append(run)
    return list(found.values())


def _shared(run: Run) -> tuple[Any, ...]:
    return run.dataset, run.variant, run.split_seed, run.epochs, run.imbalance


def metrics(problem: Problem) -> list[str]:
    """Name the metrics of the suite for this problem.

    Examples:
        >>> metrics(Problem(torch.ones(3), "yeast"))
        ['f1_macro', 'matthews_corrcoef', 'balanced_accuracy', 'f2_macro']
    """
    return [problem.metric(name) for name in GOALS.values()]


def train(runs: Sequence[Run]) -> Iterator[Record]:
    """Train the runs of one unit, on a GPU if there is one, in as many stacks as memory requires.

    A record has a pick for every metric of the run.
    """
    first = runs[0]
    alike = len({_shared(run) for run in runs}) == 1
    allowed = "be of one split of one data set, and share epochs"
    require(alike, "train", "runs", allowed, f"{len(runs)} runs that do not")
    prepared = rows_of(first)
    names = dict.fromkeys(run.method for run in runs)
    methods = {name: make(name, prepared.counts, first.dataset) for name in names}
    rows = usual_batch_size(len(prepared.training[1]))
    size = max(1, stacks.NUMBERS // numbers(first.but(batch_size=rows)))
    for start in range(0, len(runs), size):
        yield from _train_stack(runs[start : start + size], methods, prepared, rows)


def _train_stack(
    runs: Sequence[Run], methods: Mapping[str, Method], prepared: Prepared, batch_size: int
) -> Iterator[Record]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = prepared.to(device)
    names = metrics(Problem(prepared.counts, runs[0].dataset))
    build = partial(NETWORKS[runs[0].network], rows.training[0].shape[1], rows.classes, 0.0)
    with tf32(device):
        fitted = fit_many(
            build,
            [
                Member(
                    methods[run.method].loss,
                    run.learning_rate,
                    run.seed,
                    run.dropout,
                    cooling(RATE, None) if methods[run.method].annealed else None,
                )
                for run in runs
            ],
            *rows.training,
            validation=rows.validation,
            metric=names[0],
            settings=Settings(
                epochs=runs[0].epochs,
                batch_size=batch_size,
                weight_decay=USUAL.weight_decay,
                ema_decay=USUAL.ema_decay,
                patience=None,
                watch="loss",
            ),
            also={name: resolve(name) for name in names[1:]},
        )
        network = build().to(device).eval()
        labels = rows.validation[1].cpu(), rows.test[1].cpu()
        calls, judged = [], []
        for run, trained in zip(runs, fitted, strict=True):
            method = methods[run.method]
            judged.append(names if run.method in OPPONENTS else [method.target])
            how = decided_as(run.method, method, prepared.counts)
            for name in judged[-1]:
                pick = _pick(trained, network, rows, METRIC if name == names[0] else name)
                calls.append(delayed(decide)(pick, *labels, name, names=[name], **how))
    # Rules are fitted in parallel, so that a GPU does not wait for a single core.
    decided: Any = iter(Parallel(n_jobs=-1 if device == "cuda" else 1)(calls))
    lengths = np.array([len(trained.history) for trained in fitted])
    for run, trained, metrics_of_run in zip(runs, fitted, judged, strict=True):
        shares = [e["seconds"] / (lengths >= e["epoch"]).sum() for e in trained.history]
        yield record(
            run,
            epochs=len(shares),
            capped=False,  # the last epoch is the planned end of the schedule
            seconds=float(sum(shares)),
            picks={name: next(decided) for name in metrics_of_run},
            diverged=not best_epochs(trained),
            batch_size=batch_size,
            device=device,
            precision="tf32" if device == "cuda" else "float32",
        )


def decided_as(name: str, method: Method, counts: Tensor) -> dict[str, Any]:
    """Return the arguments with which `decide` takes the logits of a method.

    Logit adjustment and weights by inverse frequency take the whole prior out of the logits: argmax
    is taken of these logits, as published, and the prior is added back for their probabilities.
    """
    given = counts.clamp(min=1).log() if name in WITHOUT_PRIOR else method.offsets
    return {
        "offsets": given if isinstance(given, Tensor) else None,
        "matrix": len(counts) <= MOST_WRITTEN,
    }


def _pick(trained: Trained, network: nn.Module, rows: Prepared, criterion: str) -> Pick:
    """Find the best epoch by a criterion, as `fit_many` calls it."""
    best = best_epochs(trained)
    if not best:
        return Pick.constant(len(rows.validation[1]), len(rows.test[1]), rows.classes)
    weights = trained.best[criterion]
    known, unseen = (finite(logits_of(network, weights, X)) for X, _ in rows[1:3])
    return Pick(best[criterion]["epoch"], known, unseen, offsets=trained.offsets.get(criterion))
