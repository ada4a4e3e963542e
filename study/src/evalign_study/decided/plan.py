"""The runs of the table of decisions: data sets, splits and classifiers."""

from collections.abc import Iterable

from evalign_study.records.made import Record
from evalign_study.records.run import Run
from evalign_study.suite.plan import SETS, SPLITS
from evalign_study.trainers.deciding import MODELS, PREFIX

ROWS = 50_000  # at most, of the training part and of the test part; only creditcard has more
QUICK_SETS, QUICK_ROWS = ("cardiotocography", "yeast"), 400
# Runs that did not end in the time of the others: boosting trains a tree for each class in each
# round, and a forest keeps all classes in each leaf; one data set has 257 classes. CatBoost's six
# fits on the other, 8 classes and 256 columns, had not ended after a quarter of an hour.
LEFT_OUT = {
    "caltech256_clip": (
        "random_forest",
        "hist_gradient_boosting",
        "lightgbm",
        "xgboost",
        "catboost",
    ),
    "reuters_r8": ("catboost",),
}


def planned(method: str, dataset: str) -> bool:
    """Tell whether a model is run on a data set."""
    return method.removeprefix(PREFIX) not in LEFT_OUT.get(dataset, ())


def complete(records: Iterable[Record]) -> list[Record]:
    """Keep the models that were run wherever others were; means of easy data sets would mislead."""
    found: dict[str, dict[tuple[str, int], Record]] = {}
    for record in records:
        run = record["run"]
        found.setdefault(run["method"], {})[run["dataset"], run["split_seed"]] = record
    everywhere = set().union(*found.values())
    return [
        record
        for method, there in found.items()
        if there.keys() >= {cell for cell in everywhere if planned(method, cell[0])}
        for record in there.values()
    ]


def runs(
    datasets: Iterable[str] = SETS,
    *,
    splits: Iterable[int] = SPLITS,
    models: Iterable[str] = tuple(MODELS),
    rows: int = ROWS,
) -> list[Run]:
    """List all or some runs.

    Examples:
        >>> len(runs(["adult"])), len(runs(["caltech256_clip"]))  # 5 splits; 8 models and 3
        (40, 15)
    """
    models, splits = list(models), list(splits)
    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=PREFIX + model,
            network="",
            split_seed=split,
            rows=rows,
        )
        for dataset in datasets
        for split in splits
        for model in models
        if planned(model, dataset)
    ]
