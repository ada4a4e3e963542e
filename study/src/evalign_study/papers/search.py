"""The papers' search for a setting: a grid on one seed, and the choice of its best run."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from evalign_study.data import card
from evalign_study.records.made import Record
from evalign_study.records.run import LOSS, Run
from evalign_study.trainers.methods import make
from evalign_study.trainers.tabular import GRID_SEED

BATCH_SIZES = (128, 256, 512, 1024, 2048)  # EAST E.4
LARGE_BATCHES = {"creditcard": (4096, 8192)}  # printed as 4069
LEARNING_RATES = (0.01, 0.001, 0.0001)
DROPOUTS = (0.25, 0.5)
RATES = (0.8, 0.9)


def grid(
    dataset: str,
    variant: Any,
    method: str,
    *,
    network: str = "mlp",
    epochs: int = 500,
    patience: int = 50,
    quick: bool = False,
    **fixed: Any,
) -> list[Run]:
    """List all configurations of EAST E.4 for a method, on `GRID_SEED`.

    Args:
        dataset: a name in `evalign_study.data`.
        variant: "paper" or "sound", see `Run`.
        method: a name in `methods.METHODS`.
        network: a name in `methods.NETWORKS`.
        epochs: the largest number of epochs.
        patience: 50 in EAST, 100 in MC-Fβ and BtG.
        quick: whether to take one configuration and two epochs.
        fixed: further fields of `Run`. A field of the grid that is given here is not searched.

    Examples:
        >>> len(grid("adult", "paper", "cross_entropy")), len(grid("adult", "paper", "east_f1"))
        (30, 60)
    """
    axes: dict[str, Sequence[Any]] = {
        "batch_size": BATCH_SIZES + LARGE_BATCHES.get(dataset, ()),
        "learning_rate": LEARNING_RATES,
        "dropout": DROPOUTS,
        "rate": RATES,
    }
    if quick:
        epochs, axes = 2, {"batch_size": [2048], "learning_rate": [0.001], "dropout": [0.25]}
        axes["rate"] = RATES[-1:]
    if not make(method, torch.tensor(card(dataset).counts), dataset).annealed:
        axes["rate"] = [None]
    axes |= {name: [value] for name, value in fixed.items()}
    return [
        Run(
            dataset=dataset,
            variant=variant,
            method=method,
            network=network,
            epochs=epochs,
            patience=patience,
            seed=GRID_SEED,
            **dict(zip(axes, values, strict=True)),
        )
        for values in itertools.product(*axes.values())
    ]


def chosen(records: Iterable[Record], criterion: str) -> Run:
    """Choose the best run of a grid by its validation rows; a diverged one only if all diverged.

    Args:
        records: the records of the whole grid.
        criterion: "loss", the papers' selection, or the name of a metric.
    """

    def score(record: Record) -> float:
        if record.get("diverged"):
            return -math.inf
        pick = record["picks"][criterion]
        return -pick["validation_loss"] if criterion == LOSS else pick["validation"][criterion]

    return Run(**max(records, key=score)["run"])
