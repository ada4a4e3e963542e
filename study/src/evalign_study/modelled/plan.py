"""The runs of the table of models: data sets, splits and metrics."""

from collections.abc import Iterable

from evalign_study.decided.plan import QUICK_ROWS, QUICK_SETS, ROWS
from evalign_study.records.run import Run
from evalign_study.suite.plan import SETS, SPLITS
from evalign_study.trainers.methods import GOALS
from evalign_study.trainers.modelling import PREFIX

__all__ = ["QUICK_ROWS", "QUICK_SETS", "SETS", "SPLITS", "runs"]


def runs(
    datasets: Iterable[str] = SETS,
    *,
    splits: Iterable[int] = SPLITS,
    goals: Iterable[str] = tuple(GOALS),
    rows: int = ROWS,
) -> list[Run]:
    """List all or some runs.

    Examples:
        >>> len(runs(["adult"]))  # 5 splits and 4 metrics
        20
    """
    goals, datasets = list(goals), list(datasets)
    return [
        Run(
            dataset=dataset,
            variant="sound",
            method=PREFIX + goal,
            network="",
            split_seed=split,
            rows=rows,
        )
        for split in splits
        for goal in goals
        for dataset in datasets
    ]
