"""The commands: their arguments and their help. Each imports its work when it runs."""

from importlib import import_module
from time import monotonic
from typing import Annotated, Any

from typer import Option

from evalign.cli import options as opt
from evalign.cli.errors import UsageError
from evalign.cli.files import check_suffix


def _run(module: str, function: str, options: dict[str, Any]) -> None:
    """Import the work of a command, which takes seconds, and do it."""
    getattr(import_module(f"evalign.cli.{module}"), function)(**options)


def demo(as_json: opt.Json = False, quiet: opt.Quiet = False) -> None:
    """Run a small comparison on built-in data, in less than a minute.

    The data are scikit-learn's handwritten digits, made long-tailed: there are twenty times as many
    zeros as nines.
    """
    _run("compare", "show_demo", locals())


def fit(
    data: opt.Data,
    target: opt.Target,
    out: opt.NewRun,
    metric: opt.Metric = "f1_macro",
    model: opt.Model = "blend",
    time: opt.Time = None,
    quick: Annotated[
        bool, Option("--quick", help="Preview: a sample of the rows and quick models.")
    ] = False,
    recipe: opt.Recipe = None,
    decision: opt.Decision = "tuned",
    constraint: opt.Constraint = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = 0,
    epochs: opt.Epochs = None,
    group: opt.Group = None,
    weight: opt.Weight = None,
    drop: opt.Drop = None,
    positive: opt.Positive = None,
    validation: opt.Validation = None,
    test: opt.Test = None,
    baseline: Annotated[
        bool, Option(help="Compare with the best single model, or with a cross-entropy network.")
    ] = True,
    verbose: opt.Verbose = False,
    sep: opt.Sep = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    missing: opt.Missing = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Train the model that is best for the metric you report.

    Numbers are imputed and scaled, categories one-hot encoded, ids and constants left out. The run
    folder holds the model, its scores on test rows and a report. After a crash or Ctrl-C the same
    command resumes training.

    Examples:

        evalign fit data.csv --target label --metric f1_macro --out run

        evalign fit data.parquet --target fraud --positive yes --metric f1 --out run --time 5m
    """
    _run("fit", "fit_table", {**locals(), "start": monotonic()})


def predict(
    run: opt.RunFolder,
    data: opt.Data,
    out: opt.NewTable,
    sep: opt.Sep = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    missing: opt.Missing = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Label the rows of a table.

    The new table has the columns of DATA, `prediction`, and a column `probability_<class>` for each
    class. Rows are read and written in blocks, so the table may be larger than memory.

    Examples:

        evalign predict run new.csv --out scored.parquet
    """
    _run("predict", "label_table", locals())


def evaluate(
    run: opt.RunFolder,
    data: opt.Data,
    sep: opt.Sep = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    missing: opt.Missing = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Score the models of a run on labelled rows.

    Examples:

        evalign evaluate run test.csv
    """
    _run("predict", "score_table", locals())


def decide(
    data: opt.Data,
    out: opt.NewRuleOrTable,
    rule: opt.RuleFile = None,
    target: Annotated[str | None, opt.Column(help="Column with the label.")] = None,
    metric: opt.Metric = "f1_macro",
    decision: opt.Decision = "tuned",
    constraint: opt.Constraint = None,
    confidence: opt.Confidence = None,
    groups: Annotated[
        str | None, opt.Column(help='Groups of a constraint such as "gap(recall)".')
    ] = None,
    weight: opt.Weight = None,
    positive: opt.Positive = None,
    classes: Annotated[
        str | None, Option(metavar="A,B,C", help="The classes (default: those of the labels).")
    ] = None,
    logits: Annotated[
        bool, Option("--logits", help="The columns hold logits, not probabilities.")
    ] = False,
    sep: opt.Sep = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    missing: opt.Missing = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the best decision rule for a metric, from the probabilities of any model.

    DATA has the true label and a column for each class, named after the class or
    `probability_<class>`; for two classes, one column with the probability of the positive class is
    enough. Use rows that the model was not trained on. The gain over the most probable class is
    measured by cross-fitting. With --rule, a rule labels new rows.

    Examples:

        evalign decide scores.csv --target label --metric f1_macro --out rule.json

        evalign decide --rule rule.json new.csv --out labels.csv
    """
    options = locals()
    if (rule is None) == (target is None):
        raise UsageError("Give --target, to find a rule, or --rule, to use one.")
    if rule is not None:
        check_suffix(out)
        names = ("rule", "data", "out", "as_json", "quiet", *opt.READING)
        _run("decide", "apply_rule", {name: options[name] for name in names})
    else:
        check_suffix(out, (".json",))
        del options["rule"]
        _run("decide", "fit_rule", options)


def compare(
    data: opt.Data,
    target: opt.Target,
    metric: opt.Metric = "f1_macro",
    folds: Annotated[int, Option(min=2, help="Number of folds of the cross-validation.")] = 5,
    seeds: Annotated[
        int, Option(min=1, help="Repetitions of the cross-validation, each with other folds.")
    ] = 3,
    epochs: opt.Epochs = None,
    group: opt.Group = None,
    weight: opt.Weight = None,
    drop: opt.Drop = None,
    positive: opt.Positive = None,
    sep: opt.Sep = None,
    encoding: opt.Encoding = None,
    decimal: opt.Decimal = None,
    missing: opt.Missing = None,
    dates: opt.Dates = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare cross-entropy, EAST, the aligned recipe and trees on one table.

    All methods see the same folds. The p-values are of paired tests for repeated
    cross-validation (Nadeau and Bengio), adjusted for the number of methods (Holm).

    Examples:

        evalign compare data.csv --target label --metric f1_macro

        evalign compare data.parquet --target fraud --positive yes --metric f1 --seeds 1
    """
    _run("compare", "compare_methods", locals())


def metrics(as_json: opt.Json = False) -> None:
    """List the names of metrics, with what each measures.

    Examples:

        evalign metrics
    """
    _run("metrics", "list_metrics", locals())


def report(
    run: opt.RunFolder, out: opt.NewPage = None, as_json: opt.Json = False, quiet: opt.Quiet = False
) -> None:
    """Render the report of a run again: one HTML page that opens offline.

    Examples:

        evalign report run --out report.html
    """
    _run("predict", "render_report", locals())
