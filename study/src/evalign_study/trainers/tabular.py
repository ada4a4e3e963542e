"""Networks for tables of features, as the papers train them.

All methods have the same split and the same rows. Runs that share a batch size train together
(`many`).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import nn

from evalign.metrics import resolve
from evalign.training import Settings
from evalign_study.records.made import Record, record
from evalign_study.records.run import LOSS, Run
from evalign_study.refusals import require
from evalign_study.trainers import stacks
from evalign_study.trainers.decisions import MOST_TUNED
from evalign_study.trainers.many import METRIC, Member, Trained, fit_many
from evalign_study.trainers.methods import NETWORKS, OPTIMIZER, Method, cooling, make
from evalign_study.trainers.picks import Picks
from evalign_study.trainers.prepared import Prepared
from evalign_study.trainers.stacks import best_epochs, logits_of, numbers, pairwise, rows_of, tf32

GRID_SEED = 0  # the seed of the runs of a grid; trials have the seeds after it
# The fields that all runs of a stack share.
SHARED = (
    "dataset",
    "variant",
    "network",
    "batch_size",
    "epochs",
    "patience",
    "split_seed",
    "imbalance",
    "rows",
)


def units(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs that train together, with no more in a group than memory holds."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault((_shared(run), pairwise(run)), []).append(run)
    parts = []
    for group in found.values():
        size = max(1, stacks.NUMBERS // numbers(group[0]))
        parts += [group[i : i + size] for i in range(0, len(group), size)]
    return parts


def _shared(run: Run) -> tuple[Any, ...]:
    return tuple(getattr(run, name) for name in SHARED)


def train(runs: Sequence[Run]) -> Iterator[Record]:
    """Train runs of one unit, on a GPU if there is one, and assess every pick on the test rows."""
    first = runs[0]
    alike = len({_shared(run) for run in runs}) == 1
    require(alike, "train", "runs", f"share {', '.join(SHARED)}", f"{len(runs)} runs that do not")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    prepared = rows_of(first).thinned(first.rows)
    names = dict.fromkeys(run.method for run in runs)
    methods = {name: make(name, prepared.counts, first.dataset) for name in names}
    features = prepared.training[0].shape[1]
    build = partial(NETWORKS[first.network], features, prepared.classes, 0.0)
    rows = prepared.to(device)
    metric, *also = prepared.metrics
    with tf32(device):
        fitted = fit_many(
            build,
            [_member(run, methods[run.method].loss) for run in runs],
            *rows.training,
            validation=rows.validation,
            metric=metric,
            settings=Settings(
                epochs=first.epochs,
                batch_size=first.batch_size,
                patience=first.patience,
                watch=LOSS,
                **OPTIMIZER,
            ),
            also={name: resolve(name) for name in also},
        )
        network = build().to(device).eval()
        # A setting of the grid is chosen by its validation rows, so its test scores are not
        # computed.
        tested = [(run, one) for run, one in zip(runs, fitted, strict=True) if not _of_grid(run)]
        calls = [
            delayed(_picks(methods[run.method], one, network, rows).assessed)(
                methods[run.method].target,
                thresholds=run.network == "mlp32",  # BtG's network; BtG averages over thresholds
            )
            for run, one in tested
        ]
    # Rules are fitted in parallel, so that a GPU does not wait for a single core. With too many
    # classes no rule is fitted, and processes would not pay.
    fits = rows.classes <= MOST_TUNED
    assessed: Any = iter(Parallel(n_jobs=-1 if device == "cuda" and fits else 1)(calls))
    lengths = np.array([len(trained.history) for trained in fitted])
    for run, trained in zip(runs, fitted, strict=True):
        best = best_epochs(trained)
        shares = [e["seconds"] / (lengths >= e["epoch"]).sum() for e in trained.history]
        yield record(
            run,
            epochs=len(shares),
            capped=run.capped(len(shares), best[LOSS]["epoch"] if best else 0),
            seconds=float(sum(shares)),
            picks=_validated(best, metric) if _of_grid(run) else next(assessed),
            diverged=not best,
            device=device,
            precision="tf32" if device == "cuda" else "float32",
        )


def _of_grid(run: Run) -> bool:
    return run.seed == GRID_SEED


def _validated(best: dict[str, Any], metric: str) -> dict[str, Any]:
    """Make the "picks" of a record, without test scores."""
    return {
        metric if name == METRIC else name: {
            "epoch": epoch["epoch"],
            "validation_loss": epoch["validation_loss"],
            "validation": {metric: epoch["validation_metric"], **epoch["also"]},
        }
        for name, epoch in best.items()
    }


def _picks(method: Method, trained: Trained, network: nn.Module, rows: Prepared) -> Picks:
    """Collect the best epochs by any criterion, in order, as only these can be picked."""
    picks = Picks(rows.validation[1], rows.test[1], rows.classes, method.offsets)
    best = best_epochs(trained)
    criteria = {epoch["epoch"]: name for name, epoch in best.items()}
    for number, name in sorted(criteria.items()):
        logits = partial(logits_of, network, trained.best[name])
        loss = best[name]["validation_loss"]
        known, unseen = logits(rows.validation[0]), partial(logits, rows.test[0])
        picks.tell(number, loss, known, unseen, trained.offsets.get(name))
    return picks


def _member(run: Run, loss: nn.Module) -> Member:
    annealing = None if run.rate is None else cooling(run.rate, run.patience)
    return Member(loss, run.learning_rate, run.seed, run.dropout, annealing)
