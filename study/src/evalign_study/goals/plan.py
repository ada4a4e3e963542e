"""The runs of the table of goals: first a search for learning rates, then those that count."""

from collections.abc import Iterable, Mapping

import numpy as np

from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.trainers.goal_methods import METHODS
from evalign_study.trainers.goals import PREFIX

TABLES = ("creditcard", "adult", "campaign", "mammography", "annthyroid")
IMAGES = ("cifar10_half",)
SETS = TABLES + IMAGES
EPOCHS = {"creditcard": 10}  # it has many rows
USUAL_EPOCHS = 40
IMBALANCE = 20.0  # negatives for a positive among the images
SPLITS = range(5)
# Splits on which the learning rate of each method is chosen, by its validation rows.
DEVELOPMENT = (100, 101)
RATES = (3e-4, 1e-3, 3e-3)
QUICK_SETS = ("mammography",)


def search(datasets: Iterable[str] = SETS, *, methods: Iterable[str] = tuple(METHODS)) -> list[Run]:
    """List the runs by which learning rates are chosen, as many for each method.

    Examples:
        >>> len(search(["adult"], methods=["weighted"]))  # 2 splits and 3 rates
        6
    """
    methods = list(methods)
    return [
        _run(dataset, method, split, rate)
        for dataset in datasets
        for split in DEVELOPMENT
        for method in methods
        for rate in RATES
    ]


def runs(
    records: Mapping[str, Record],
    datasets: Iterable[str] = SETS,
    *,
    methods: Iterable[str] = tuple(METHODS),
    splits: Iterable[int] = SPLITS,
) -> list[Run]:
    """List the runs that count, with the chosen rates; none where the search is not complete."""
    methods, splits = list(methods), list(splits)
    rates = {(d, m): chosen(records, d, m) for d in datasets for m in methods}
    return [
        _run(dataset, method, split, rate)
        for (dataset, method), rate in rates.items()
        if rate is not None
        for split in splits
    ]


def chosen(records: Mapping[str, Record], dataset: str, method: str) -> float | None:
    """The rate with the best mean score on the validation rows, for the goal the method aims at."""
    found: dict[float, list[float]] = {rate: [] for rate in RATES}
    for run in search([dataset], methods=[method]):
        if run.key not in records:
            return None
        pick = records[run.key]["picks"][METHODS[method].aim]
        found[run.learning_rate].append(pick["validation"])
    return max(found, key=lambda rate: float(np.mean(found[rate])))


def quick(datasets: Iterable[str]) -> list[Run]:
    """List the runs of a quick look, of the losses that need no other package."""
    ours = [name for name, method in METHODS.items() if method.loss is not None]
    runs = [_run(dataset, name, 0, RATES[1]) for dataset in datasets for name in ours]
    return [run.but(rows=400, epochs=2) for run in runs]


def _run(dataset: str, method: str, split: int, rate: float) -> Run:
    image = dataset in IMAGES
    return Run(
        dataset=dataset,
        variant="sound",
        method=PREFIX + method,
        network="tiny_darknet" if image else "mlp128",
        learning_rate=rate,
        dropout=0.0 if image else 0.1,
        epochs=EPOCHS.get(dataset, USUAL_EPOCHS),
        seed=split,
        split_seed=split,
        imbalance=IMBALANCE if image else None,
    )
