"""The runs of the suite: data sets, splits and seeds, our recipe and its opponents."""

from collections.abc import Iterable

from evalign_study.records.run import Run
from evalign_study.trainers.methods import GOALS, OPPONENTS, OURS, VARIANTS
from evalign_study.trainers.recipe import USUAL

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
ABLATED = range(2)  # the only splits of the variants that leave out a part of our recipe
EPOCHS = {"creditcard": 30}  # it has many rows; the others have the trainer's number

# Data sets of images, with the ratio of the first class's rows to the last one's.
IMAGE_SETS = tuple((name, ratio) for name in ("cifar10", "fashion_mnist") for ratio in (10, 100))
IMAGE_SPLITS, IMAGE_SEEDS = range(3), (1,)
IMAGE_NETWORK, IMAGE_EPOCHS = "resnet18", 60

# A quick look takes small sets of two classes, for which rules are fitted fast.
QUICK_SETS, QUICK_EPOCHS = ("cardiotocography", "waveform"), 2


def runs(
    datasets: Iterable[str] = SETS,
    *,
    splits: Iterable[int] = SPLITS,
    seeds: Iterable[int] = SEEDS,
    variants: Iterable[str] = tuple(VARIANTS),
    epochs: int | None = None,
) -> list[Run]:
    """List all or some runs of tables. Their batch size is 0, which stands for the trainer's own.

    Args:
        datasets: names in `SETS`.
        splits: the seeds of the splits.
        seeds: the seeds of the trainings.
        variants: the variants of our recipe, see `methods.VARIANTS`. All but the recipe itself are
            run on the splits `ABLATED` only. The opponents are always included.
        epochs: the epochs of every training; None for the number of the data set or the trainer.

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
            learning_rate=USUAL.learning_rate,
            dropout=USUAL.dropout,
            epochs=epochs or EPOCHS.get(dataset, USUAL.epochs),
            seed=seed,
            split_seed=split,
        )
        for dataset in datasets
        for split in splits
        for method in methods(split)
        for seed in seeds
    ]


def image_runs(
    sets: Iterable[tuple[str, float]] = IMAGE_SETS,
    *,
    splits: Iterable[int] = IMAGE_SPLITS,
    seeds: Iterable[int] = IMAGE_SEEDS,
    epochs: int = IMAGE_EPOCHS,
) -> list[Run]:
    """List all or some runs of long-tailed images, without the variants of our recipe; see `runs`.

    Args:
        sets: pairs as in `IMAGE_SETS`.
        splits: the seeds of the thinning and of the split.
        seeds: the seeds of the trainings.
        epochs: the epochs of every training.

    Examples:
        >>> len(image_runs())  # 4 sets, 3 splits, 4 opponents and 4 metrics
        96
    """
    splits, seeds = list(splits), list(seeds)
    return [
        run.but(network=IMAGE_NETWORK, imbalance=ratio, dropout=0.0)
        for dataset, ratio in sets
        for run in runs([dataset], splits=splits, seeds=seeds, variants=[OURS], epochs=epochs)
    ]
