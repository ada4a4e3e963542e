"""Which runs the suite asks for: data sets, splits and seeds, ours and the opponents."""

from collections.abc import Iterable

from evalign_study.records.run import Run
from evalign_study.trainers.methods import GOALS, OPPONENTS, OURS, VARIANTS
from evalign_study.trainers.recipe import TRAINER

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
EPOCHS = {"creditcard": 30}  # of so many rows; the others have the trainer's

# Data sets of images, with how many times the first class outnumbers the last.
IMAGE_SETS = tuple((name, ratio) for name in ("cifar10", "fashion_mnist") for ratio in (10, 100))
IMAGE_SPLITS, IMAGE_SEEDS = range(3), (1,)
IMAGE_NETWORK, IMAGE_EPOCHS = "resnet18", 60

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
    """List all runs of tables, or some. Their batch size 0 is the trainer's own.

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


def image_runs(
    sets: Iterable[tuple[str, float]] = IMAGE_SETS,
    *,
    splits: Iterable[int] = IMAGE_SPLITS,
    seeds: Iterable[int] = IMAGE_SEEDS,
    epochs: int = IMAGE_EPOCHS,
) -> list[Run]:
    """List all runs of long-tailed images, or some, without variants of ours; see `runs`.

    Args:
        sets: as in `IMAGE_SETS`.
        splits: seeds of the thinning and of the split.
        seeds: of the trainings.
        epochs: of every training.

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
