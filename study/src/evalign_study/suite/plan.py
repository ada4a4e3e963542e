"""The runs of the suite: data sets, splits, our recipe and its opponents."""

from collections.abc import Iterable

from evalign_study.records.run import Run
from evalign_study.trainers.methods import EAST, GOALS, OPPONENTS, OURS
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
DEVELOPED = (  # tables by which the settings of our loss were chosen (study/benchmarks/following)
    "waveform",
    "cardiotocography",
    "annthyroid",
    "mammography",
    "cocktailparty",
    "page_blocks",
    "yeast",
    "winequality_white",
    "satimage",
)
METHODS = (*OPPONENTS, *(f"{name}_{goal}" for name in (OURS, EAST) for goal in GOALS))
SPLITS = range(5)
EPOCHS = {"creditcard": 30}  # it has many rows; the others have the trainer's number

# Data sets of images, with the ratio of the first class's rows to the last one's.
IMAGE_SETS = tuple((name, ratio) for name in ("cifar10", "fashion_mnist") for ratio in (10, 100))
IMAGE_SPLITS = range(3)
IMAGE_NETWORK, IMAGE_EPOCHS = "resnet18", 40

# A quick look takes small sets of two classes, for which rules are fitted fast.
QUICK_SETS, QUICK_EPOCHS = ("cardiotocography", "waveform"), 2


def runs(
    datasets: Iterable[str] = SETS, *, splits: Iterable[int] = SPLITS, epochs: int | None = None
) -> list[Run]:
    """List all or some runs of tables. Their batch size is 0, which stands for the trainer's own.

    Args:
        datasets: names in `SETS`.
        splits: the seeds of the splits. The training has a seed of its own for each.
        epochs: the epochs of every training; None for the number of the data set or the trainer.

    Examples:
        >>> len(runs(["adult"]))  # 5 splits; 5 opponents, and EAST's and ours for 4 metrics
        65
    """
    splits = list(splits)
    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=method,
            learning_rate=USUAL.learning_rate,
            dropout=USUAL.dropout,
            epochs=epochs or EPOCHS.get(dataset, USUAL.epochs),
            seed=split + 1,
            split_seed=split,
        )
        for dataset in datasets
        for split in splits
        for method in METHODS
    ]


def image_runs(
    sets: Iterable[tuple[str, float]] = IMAGE_SETS,
    *,
    splits: Iterable[int] = IMAGE_SPLITS,
    epochs: int = IMAGE_EPOCHS,
) -> list[Run]:
    """List all or some runs of long-tailed images; see `runs`.

    EAST's, which stay at one class for as long as these train, are not among them.

    Args:
        sets: pairs as in `IMAGE_SETS`.
        splits: the seeds of the thinning and of the split.
        epochs: the epochs of every training.

    Examples:
        >>> len(image_runs())  # 4 sets, 3 splits, 5 opponents and 4 metrics
        108
    """
    splits = list(splits)
    return [
        run.but(network=IMAGE_NETWORK, imbalance=ratio, dropout=0.0)
        for dataset, ratio in sets
        for run in runs([dataset], splits=splits, epochs=epochs)
        if not run.method.startswith(EAST)
    ]
