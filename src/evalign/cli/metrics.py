"""The work of `evalign metrics`, which lists the metrics, and the check of --metric."""

from argparse import Namespace

from evalign.cli.errors import UsageError
from evalign.cli.terminal import Terminal
from evalign.core.metrics import names, resolve

AVERAGES = {
    "macro": "mean over the classes",
    "micro": "over all classes together",
    "weighted": "mean over the classes, weighted by their rows",
}
MORE = """
tp, fp, fn and tn count the true and false positives and negatives of a class; without _macro,
_micro or _weighted, of the positive class. β is the number in the name, which may be another one,
as in f0.25 or f3_macro. A mean cost, where less is better, is "expected_cost[[0, 1], [5, 0]]", with
a row for each true class and a column for each predicted one."""


def meanings() -> dict[str, str]:
    """What each metric measures, by its name."""
    found = {}
    for name in names():
        first = (type(resolve(name)).__doc__ or "").splitlines()[0].rstrip(".")
        average = AVERAGES.get(name.rpartition("_")[2])
        found[name] = f"{first}; {average}" if average else first
    return found


def list_metrics(spoken: Terminal, _: Namespace) -> None:
    """Do the work of `evalign metrics`."""
    width = max(map(len, meanings())) + 2
    lines = [f"{name:<{width}}{meaning}" for name, meaning in meanings().items()]
    spoken.result({"metrics": meanings()}, *lines, *MORE.splitlines())


def check_metric(metric: str) -> None:
    """Refuse an unknown metric."""
    try:
        resolve(metric, owner="evalign")
    except ValueError as error:
        raise UsageError(f"{error} `evalign metrics` lists the names.") from error
