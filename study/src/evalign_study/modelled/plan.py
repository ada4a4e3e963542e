"""The runs of the table of models: data sets, splits and metrics."""

from collections.abc import Iterable

from evalign_study.decided.plan import QUICK_ROWS, QUICK_SETS, ROWS
from evalign_study.records.run import Run
from evalign_study.suite.plan import SETS, SPLITS
from evalign_study.trainers import rivals
from evalign_study.trainers.methods import GOALS
from evalign_study.trainers.modelling import DEFAULTS, WITH_NETWORK

__all__ = ["QUICK_ROWS", "QUICK_SETS", "ROWS", "SETS", "SPLITS", "of_rivals", "runs"]


def runs(
    datasets: Iterable[str] = SETS,
    *,
    splits: Iterable[int] = SPLITS,
    goals: Iterable[str] = tuple(GOALS),
    kinds: Iterable[str] = (DEFAULTS, WITH_NETWORK),
    rows: int = ROWS,
) -> list[Run]:
    """List all or some runs.

    Examples:
        >>> len(runs(["adult"]))  # 5 splits, 4 metrics, without and with the network
        40
    """
    splits, goals, datasets = list(splits), list(goals), list(datasets)
    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=kind + goal,
            network="",
            split_seed=split,
            rows=rows,
        )
        for kind in kinds
        for split in splits
        for goal in goals
        for dataset in datasets
    ]


def of_rivals(datasets: Iterable[str] = SETS, *, rows: int = ROWS) -> list[Run]:
    """List the runs of our quick models and of AutoGluon: one split, in F1.

    Examples:
        >>> [run.method for run in of_rivals(["adult"])]
        ['rival_quick', 'rival_medium_quality', 'rival_best_quality']
    """
    few = [name for name in datasets if name != "caltech256_clip"]  # boosting of 257 classes
    common = {"variant": "sound", "network": "", "split_seed": 0, "rows": rows}
    return [Run(dataset=name, method=method, **common) for name in few for method in rivals.METHODS]
