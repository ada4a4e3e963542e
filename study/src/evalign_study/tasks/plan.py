"""The runs of the tables of tasks."""

from collections.abc import Iterable

from evalign_study.records.run import Run
from evalign_study.trainers import multilabel as labels
from evalign_study.trainers.following import FOLLOWING
from evalign_study.trainers.pixel_methods import CANDIDATES, RIVALS
from evalign_study.trainers.recipe import USUAL

MULTILABEL = ("emotions", "scene", "yeast_genes", "medical", "enron", "bibtex")
SPLITS = range(5)
SEEDS = range(8)
# The few sections have more epochs, and batches that leave some of them for other steps.
DENSE = {
    "camvid": {"batch_size": 12, "epochs": 90},
    "membrane": {"batch_size": 6, "epochs": 300},
}
OURS = FOLLOWING  # with its defaults
PUBLISHED = ("camvid",)  # data sets that the publisher has split
# Splits of the development: stretches of the publisher's training and validation images.
DEVELOPMENT = (1, 3, 4, 6)


def dense(
    datasets: Iterable[str] = tuple(DENSE),
    *,
    methods: Iterable[str] = (*RIVALS, OURS),
    seeds: Iterable[int] = SEEDS,
) -> list[Run]:
    """List the runs of dense prediction. A seed is also that of the split, if nobody made one."""
    methods, datasets = list(methods), list(datasets)
    return [
        _dense(dataset, method).but(seed=seed, split_seed=0 if dataset in PUBLISHED else seed)
        for seed in seeds
        for dataset in datasets
        for method in methods
    ]


def multilabel(
    datasets: Iterable[str] = MULTILABEL,
    *,
    methods: Iterable[str] = (*labels.RIVALS, *dict.fromkeys(labels.OURS.values())),
    splits: Iterable[int] = SPLITS,
) -> list[Run]:
    """List the multilabel runs."""
    methods, splits = list(methods), list(splits)
    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=method,
            epochs=USUAL.epochs,
            seed=split,
            split_seed=split,
        )
        for dataset in datasets
        for split in splits
        for method in methods
    ]


def candidates(methods: Iterable[str] = tuple(CANDIDATES)) -> list[Run]:
    """List the runs by which one of the candidates was chosen."""
    methods = list(methods)
    return [
        _dense("camvid", method).but(seed=split, split_seed=split)
        for split in DEVELOPMENT
        for method in methods
    ]


def _dense(dataset: str, method: str) -> Run:
    return Run(
        dataset=dataset,
        variant="sound",
        method=method,
        network="unet",
        learning_rate=2e-3,
        **DENSE[dataset],
    )
