"""The suite of the recipe: ours against the losses of today, over data sets, metrics and splits.

All methods have one trainer, that of `AlignedClassifier`, and those of one split train as one stack
(`training.many`). One training of an opponent serves all metrics; ours has a training for each.
Because one training serves several metrics, none of them may end it early: every training goes
through the whole cosine schedule (patience None), and the best epoch by each metric is kept.
`rulings` scores them, `standings` compares. Long-tailed images are in `tailed`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.core.metrics import resolve
from evalign.decisions import Decision
from evalign.estimator import AlignedClassifier
from evalign.training import Settings
from evalign.training.settings import usual_batch_size
from evalign_study.records.picks import finite
from evalign_study.records.results import Record, record
from evalign_study.records.run import Run
from evalign_study.suite.rulings import DECISIONS, Pick, rule
from evalign_study.trainers import stacks
from evalign_study.trainers.many import METRIC, Member, Trained, fit_many
from evalign_study.trainers.methods import (
    GOALS,
    NETWORKS,
    UNAVERAGED,
    VARIANTS,
    Method,
    Problem,
    make,
)
from evalign_study.trainers.prepared import Prepared
from evalign_study.trainers.stacks import best_epochs, logits_of, numbers, rows_of, tf32

SETS = (
    "adult",
    "mammography",
    "creditcard",
    "cocktailparty",
    "annthyroid",
    "campaign",
    "cardiotocography",
    "magic_gamma",
    "page_blocks",
    "reuters_r8",
    "satimage",
    "waveform",
    "winequality_white",
    "yeast",
    "caltech256_clip",
)
SPLITS, SEEDS = range(5), range(1, 4)
ABLATED = range(2)  # splits; what takes a part of our recipe away is asked of these alone
OPPONENTS = ("cross_entropy", "balanced_cross_entropy", "focal", "logit_adjusted")
OURS = "aligned"
UNLABELLED: tuple[Decision, ...] = ("argmax", "expected")  # decisions that need no labels
EPOCHS = {"creditcard": 30}  # of so many rows; the others have the trainer's
TRAINER = AlignedClassifier()  # its numbers, and where it has none, those of `Settings`
# A quick look: small sets of two classes, for which rules are fitted in no time.
QUICK_SETS, QUICK_EPOCHS = ("cardiotocography", "waveform"), 2


def runs(
    datasets: Iterable[str] = SETS,
    *,
    splits: Iterable[int] = SPLITS,
    seeds: Iterable[int] = SEEDS,
    variants: Iterable[str] = tuple(VARIANTS),
    epochs: int | None = None,
) -> list[Run]:
    """All runs of the suite, or some. Their batch size 0 is the trainer's own.

    Args:
        datasets: names of `SETS`.
        splits: seeds of the splits.
        seeds: of the trainings.
        variants: of ours, see `methods.VARIANTS`; but for the recipe itself on the splits `ABLATED`
            alone. The opponents are always there.
        epochs: of every training; None for the data set's or the trainer's.

    Examples:
        >>> len(runs(["adult"], variants=["aligned"]))  # 4 opponents and 4 metrics
        120
    """
    variants, seeds, splits = list(variants), list(seeds), list(splits)

    def methods(split: int) -> list[str]:
        there = [variant for variant in variants if variant == OURS or split in ABLATED]
        return [*OPPONENTS, *(f"{variant}_{goal}" for variant in there for goal in GOALS)]

    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=method,
            learning_rate=TRAINER.learning_rate,
            dropout=TRAINER.dropout,
            epochs=epochs or EPOCHS.get(dataset, TRAINER.epochs),
            seed=seed,
            split_seed=split,
        )
        for dataset in datasets
        for split in splits
        for method in methods(split)
        for seed in seeds
    ]


def units(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that train together: of one split of one data set, and of one `ema_decay`."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(_shared(run), []).append(run)
    return list(found.values())


def _shared(run: Run) -> tuple[Any, ...]:
    return run.dataset, run.variant, run.split_seed, run.epochs, run.imbalance, ema_decay(run)


def ema_decay(run: Run) -> float | None:
    """The decay of the average of weights; None for the runs that show what it brings."""
    return None if run.method.startswith(UNAVERAGED) else TRAINER.ema_decay


def metrics(problem: Problem) -> list[str]:
    """The metrics of the suite, by their names for this problem.

    Examples:
        >>> metrics(Problem(torch.ones(3), "yeast"))
        ['f1_macro', 'matthews_corrcoef', 'balanced_accuracy', 'f2_macro']
    """
    return [problem.metric(name) for name in GOALS.values()]


def train(runs: Sequence[Run]) -> Iterator[Record]:
    """Train the runs of one unit, on a GPU if there is one, in as many stacks as memory asks for.

    A record has as its "picks" for every metric of the run the epoch and the decisions, see
    `rulings.rule`.
    """
    first = runs[0]
    alike = len({_shared(run) for run in runs}) == 1
    allowed = "be of one split of one data set, and share epochs and ema_decay"
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
                Member(methods[run.method].loss, run.learning_rate, run.seed, run.dropout)
                for run in runs
            ],
            *rows.training,
            validation=rows.validation,
            metric=names[0],
            settings=Settings(
                epochs=runs[0].epochs,
                batch_size=batch_size,
                weight_decay=TRAINER.weight_decay,
                ema_decay=ema_decay(runs[0]),
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
            ruled_as = ruling(run.method, method, prepared.counts)
            for name in judged[-1]:
                pick = _pick(trained, network, rows, METRIC if name == names[0] else name)
                calls.append(delayed(rule)(pick, *labels, name, **ruled_as))
    # A GPU must not wait for one core of many.
    ruled: Any = iter(Parallel(n_jobs=-1 if device == "cuda" else 1)(calls))
    lengths = np.array([len(trained.history) for trained in fitted])
    for run, trained, of in zip(runs, fitted, judged, strict=True):
        shares = [e["seconds"] / (lengths >= e["epoch"]).sum() for e in trained.history]
        yield record(
            run,
            epochs=len(shares),
            capped=False,  # the schedule ends where it should
            seconds=float(sum(shares)),
            picks={name: next(ruled) for name in of},
            diverged=not best_epochs(trained),
            batch_size=batch_size,
            device=device,
            precision="tf32" if device == "cuda" else "float32",
        )


def ruling(name: str, method: Method, counts: Tensor) -> dict[str, Any]:
    """How `rulings.rule` is to take the logits of a method.

    Logit adjustment has taken all of the prior out: its labels by argmax are of the logits as they
    are, as published, and its probabilities have the prior back. What takes a part of our recipe
    away is compared by the rules that need no labels.
    """
    given = counts.clamp(min=1).log() if name == "logit_adjusted" else method.offsets
    offsets = given if isinstance(given, Tensor) else None
    whole = name in (*OPPONENTS, *(f"{OURS}_{goal}" for goal in GOALS))
    return {"offsets": offsets, "decisions": DECISIONS if whole else UNLABELLED}


def _pick(trained: Trained, network: nn.Module, rows: Prepared, criterion: str) -> Pick:
    """The best epoch by a criterion, as `fit_many` calls it."""
    best = best_epochs(trained)
    if not best:
        return Pick.constant(len(rows.validation[1]), len(rows.test[1]), rows.classes)
    weights = trained.best[criterion]
    logits = (finite(logits_of(network, weights, X)) for X, _ in rows[1:3])
    return Pick(best[criterion]["epoch"], *logits)
