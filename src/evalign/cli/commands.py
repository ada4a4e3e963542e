"""The commands: their arguments and their help. Each imports its work when it runs."""

import gc
import os
from argparse import Namespace
from importlib import import_module
from inspect import signature
from pathlib import Path
from time import monotonic
from typing import Any

from typer import Option

from evalign.cli import options as opt
from evalign.cli.errors import UsageError
from evalign.cli.files import check_suffix, new_folder, table, writable
from evalign.cli.options import goal, output, reading, roles, sharing


def _do(work: str, shared: dict[str, Any], *, first: str = "", **own: Any) -> None:
    """Say what comes first, import the work of a command, which takes seconds, and do it.

    It gets the options as attributes; `reading` holds those about reading a file.
    """
    # Threads that wait busily for each other stand still for minutes where other programs run.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    module, function = work.split(".")
    given = Namespace(**own, **shared)
    given.reading = {name: shared.get(name) for name in signature(reading).parameters}
    terminal = import_module("evalign.cli.terminal").terminal
    with terminal(as_json=given.as_json, quiet=given.quiet) as spoken:
        if first:
            spoken.note(first)
        gc.disable()  # what is loaded lasts, and to look for garbage in it takes a second
        try:
            do = getattr(import_module(f"evalign.cli.{module}"), function)
        finally:
            gc.enable()
        if not gc.get_freeze_count():
            gc.freeze()
        do(spoken, given)


@sharing(output)
def demo(**shared: Any) -> None:
    """Show what a rule, a bound and a blend do, in half a minute.

    The problem comes with scikit-learn: handwritten digits. Writes evalign-demo.html.
    """
    _do("demo.show_demo", **locals())


# Help that does not fit beside its option
MODEL = "One model, or a weighted mean of several (blend)."
TIME = "Time limit of the whole command, such as 10s, 5m or 1h; slow models are skipped."
TEST = "Test rows (default: a fifth of DATA, held out)."
NEW_RULE = "Rule to write (.json); with --rule, the labelled table to write."
PAGE = "Page to write (default: RUN/report.html)."


@sharing(goal, roles, reading, output)
def fit(
    data: opt.Data,
    target: opt.Target,
    out: Path = Option(..., metavar="RUN", help="A new folder for results.", callback=new_folder),
    model: opt.MODELS = Option("blend", help=MODEL),
    time: str | None = Option(None, metavar="TIME", help=TIME, callback=opt.seconds),
    seed: int = Option(
        0, metavar="N", min=0, max=2**31 - 1, help="Seed of the split and of training."
    ),
    epochs: opt.Epochs = None,
    test: Path | None = opt.OldFile(None, help=TEST, callback=table),
    **shared: Any,
) -> None:
    """Train the best model for the metric you report.

    Numbers are imputed and scaled, categories one-hot encoded, ids and constants left out. The run
    folder holds the model, its scores on test rows and a report.

    Examples:

        evalign fit data.csv --target label --metric f1_macro --out run

        evalign fit data.parquet --target fraud --positive yes --metric f1 --out run --time 5m
    """
    first = f"Loading. A fit takes {opt.LEAST:g} s or more: about how many, once the table is read."
    _do("fit.fit_table", **locals(), start=monotonic())


@sharing(reading, output)
def predict(run: opt.RunFolder, data: opt.Data, out: opt.NewTable, **shared: Any) -> None:
    """Label the rows of a table.

    The new table has the columns of DATA, `prediction`, and a column `probability_<class>` for each
    class. Rows are read and written in blocks, so the table may be larger than memory.
    """
    _do("predict.label_table", **locals())


@sharing(reading, output)
def evaluate(run: opt.RunFolder, data: opt.Data, **shared: Any) -> None:
    """Score the models of a run on labelled rows."""
    _do("predict.score_table", **locals())


@sharing(goal, reading, output)
def decide(
    data: opt.Data,
    out: Path = opt.NewFile(..., help=NEW_RULE, callback=writable(".json", *opt.SUFFIXES)),
    rule: Path | None = opt.OldFile(None, help="Rule of `evalign decide`, to label rows with."),
    target: str | None = opt.Column(None, help="Label column."),
    groups: opt.Groups = None,
    weight: opt.Weight = None,
    positive: opt.Positive = None,
    classes: opt.Classes = None,
    logits: bool = opt.Flag("--logits", help="The columns hold logits, not probabilities."),
    **shared: Any,
) -> None:
    """Find the best decision rule for a metric, from the probabilities of any model.

    DATA has the true label and a column for each class, named after the class or
    `probability_<class>`; for two classes, that of the positive class is enough. Use rows that the
    model was not trained on. The gain over argmax is measured by cross-fitting. With --rule, the
    command labels new rows with a saved rule, also one that was saved in Python.

    Examples:

        evalign decide scores.csv --target label --metric f1_macro --out rule.json

        evalign decide --rule rule.json new.csv --out labels.csv
    """
    if (rule is None) == (target is None):
        raise UsageError("Give --target, to find a rule, or --rule, to use one.")
    check_suffix(out, (".json",) if rule is None else opt.SUFFIXES)
    _do("decide.fit_rule" if rule is None else "decide.apply_rule", **locals())


@sharing(roles, reading, output)
def compare(
    data: opt.Data,
    target: opt.Target,
    metric: opt.Metric = "f1_macro",
    folds: int = Option(5, metavar="N", min=2, help="Number of folds of the cross-validation."),
    epochs: opt.Epochs = None,
    **shared: Any,
) -> None:
    """Compare trees, a linear model and, with PyTorch, networks of three recipes on one table.

    All see the same folds, and are judged by argmax and with a decision rule, as is their blend.

    Examples:

        evalign compare data.csv --target label --metric f1_macro

        evalign compare data.parquet --target fraud --positive yes --metric f1 --folds 10
    """
    _do("compare.compare_methods", **locals())


@sharing(output)
def metrics(**shared: Any) -> None:
    """List all metrics and what they measure."""
    _do("metrics.list_metrics", **locals())


@sharing(output)
def report(
    run: opt.RunFolder,
    out: Path | None = opt.NewFile(None, help=PAGE, callback=writable(".html")),
    **shared: Any,
) -> None:
    """Render the report of a run again, as one HTML page that works offline."""
    _do("predict.render_report", **locals())
