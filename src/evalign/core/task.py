"""The three kinds of problems."""

from typing import Literal, get_args

from evalign.core.checks import require

Task = Literal["binary", "multiclass", "multilabel"]


def check_task(owner: str, task: str | None) -> None:
    require(
        task in (None, *get_args(Task)),
        owner,
        "task",
        'be "binary", "multiclass", "multilabel" or None (inferred from the shapes)',
        repr(task),
    )
