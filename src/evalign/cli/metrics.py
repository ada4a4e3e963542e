"""Metrics by name: the work of `evalign metrics`, which lists them, and the check of --metric."""

import torch

from evalign.cli.errors import UsageError, refused
from evalign.cli.terminal import terminal
from evalign.core.confusion import Confusion
from evalign.core.metrics import names, resolve

OF_CLASSES = {
    "f1": "harmonic mean of precision and recall",
    "f2": "as F1, recall twice as important",
    "f0.5": "as F1, precision twice as important",
    "precision": "share right of the rows given a class",
    "recall": "share found of the rows of a class",
    "specificity": "share not given it of the rows of others",
    "npv": "share right of the rows not given a class",
    "jaccard": "share right of the rows that have or get it",
    "informedness": "recall + specificity − 1 (Youden's J)",
    "markedness": "precision + npv − 1",
    "fowlkes_mallows": "geometric mean of precision and recall",
}
AVERAGES = {
    "": "positive class",
    "_macro": "mean of classes",
    "_micro": "all rows together",
    "_weighted": "mean by rows",
}
OF_ALL = {
    "accuracy": "share of rows with the right label",
    "balanced_accuracy": "mean recall of the classes",
    "g_mean": "geometric mean of the recalls of the classes",
    "matthews_corrcoef": "correlation of true and given labels (MCC)",
    "cohen_kappa": "agreement of true and given labels beyond chance",
    "cohen_kappa_linear": "the same for ordered classes, by their distance",
    "cohen_kappa_quadratic": "the same, by the square of the distance",
}
MORE = """
Also fB with another B, such as f0.25 or f3_macro: recall is B times as important as precision.
Also a mean cost, where less is better: "expected_cost[[0, 1], [5, 0]]", with a row for each true
class and a column for each given one."""


def meanings() -> dict[str, str]:
    """What each metric tells, by its name."""
    of_classes = {
        stem + end: f"{meaning}; {average}"
        for stem, meaning in OF_CLASSES.items()
        for end, average in AVERAGES.items()
    }
    return of_classes | OF_ALL


def list_metrics(*, as_json: bool) -> None:
    """Do the work of `evalign metrics`."""
    width = max(map(len, meanings())) + 2
    lines = [f"{name:<{width}}{meaning}" for name, meaning in meanings().items()]
    with terminal(as_json=as_json, quiet=False) as spoken:
        spoken.result({"metrics": meanings()}, *lines, *MORE.splitlines())


def check_metric(metric: str, classes: int | None = None) -> None:
    """Refuse an unknown metric, or one that cannot be computed for this number of classes."""
    try:
        function = resolve(metric, owner="evalign")
    except ValueError as error:
        raise UsageError(f"{error} `evalign metrics` lists the names.") from error
    if classes is None:
        return
    with refused():
        try:
            function(Confusion.from_matrix(torch.eye(classes, dtype=torch.float64)))
        except ValueError as error:
            if classes == 2 or f"{metric}_macro" not in names():
                raise
            cure = f"Use {metric}_macro, the mean of the classes."
            text = f"--metric {metric} is of one class, and the target has {classes}. {cure}"
            raise UsageError(text) from error
