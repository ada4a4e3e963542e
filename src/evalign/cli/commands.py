"""The commands: their arguments and their help. Each imports its work when it runs."""

from time import monotonic
from typing import Annotated

from typer import Option

from evalign.cli.errors import UsageError
from evalign.cli.files import check_json, check_suffix
from evalign.cli.options import (
    DECISIONS,
    MODEL,
    Confidence,
    Constraint,
    Data,
    Decision,
    Drop,
    Epochs,
    Group,
    Json,
    Metric,
    Model,
    NewPage,
    NewRuleOrTable,
    NewRun,
    NewTable,
    Positive,
    Quiet,
    Recipe,
    RuleFile,
    RunFolder,
    Seed,
    Target,
    Test,
    Time,
    Validation,
    Weight,
    seconds,
)


def demo(as_json: Json = False, quiet: Quiet = False) -> None:
    """Run a small comparison on data that comes with evalign, in less than a minute.

    The data are scikit-learn's handwritten digits, made long-tailed: there are twenty times as many
    zeros as nines.
    """
    from evalign.cli.compare import show_demo

    show_demo(as_json=as_json, quiet=quiet)


def fit(
    data: Data,
    target: Target,
    out: NewRun,
    metric: Metric = "f1_macro",
    model: Model = MODEL,
    time: Time = None,
    quick: Annotated[
        bool, Option("--quick", help="A preview: some rows, and the models that take a second.")
    ] = False,
    recipe: Recipe = None,
    decision: Decision = "tuned",
    constraint: Constraint = None,
    confidence: Confidence = None,
    seed: Seed = 0,
    epochs: Epochs = None,
    group: Group = None,
    weight: Weight = None,
    drop: Drop = None,
    positive: Positive = None,
    validation: Validation = None,
    test: Test = None,
    baseline: Annotated[
        bool,
        Option(help="Compare with the best single model, or with a cross-entropy network."),
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train the model that is best for the metric it is judged by.

    Numbers are imputed and scaled, categories one-hot encoded, ids and constants left out. The run
    folder holds the model, its scores on test rows and a report. After a crash or Ctrl-C the same
    command continues where it stopped.

    Examples:

        evalign fit data.csv --target label --metric f1_macro --out run

        evalign fit data.parquet --target fraud --positive yes --metric f1 --out run --time 5m
    """
    start, limit = monotonic(), seconds(time)  # the import takes seconds, which count
    from evalign.cli.fit import fit_table

    fit_table(
        data,
        out,
        target=target,
        metric=metric,
        model=model,
        time=limit,
        start=start,
        quick=quick,
        recipe=recipe,
        decision=decision,
        constraint=constraint,
        confidence=confidence,
        seed=seed,
        epochs=epochs,
        group=group,
        weight=weight,
        drop=drop or [],
        positive=positive,
        validation=validation,
        test=test,
        baseline=baseline,
        as_json=as_json,
        quiet=quiet,
    )


def predict(
    run: RunFolder, data: Data, out: NewTable, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Label the rows of a table.

    The new table has the columns of DATA, then `prediction` and a `probability_` of each class.
    Rows are read and written block by block, so that a table may be larger than memory.

    Examples:

        evalign predict run new.csv --out scored.parquet
    """
    from evalign.cli.predict import label_table

    label_table(run, data, out, as_json=as_json, quiet=quiet)


def evaluate(run: RunFolder, data: Data, as_json: Json = False, quiet: Quiet = False) -> None:
    """Score the models of a run on rows with labels.

    Examples:

        evalign evaluate run test.csv
    """
    from evalign.cli.predict import score_table

    score_table(run, data, as_json=as_json, quiet=quiet)


def decide(
    data: Data,
    out: NewRuleOrTable,
    rule: RuleFile = None,
    target: Annotated[str | None, Option(metavar="COL", help="The column with the label.")] = None,
    metric: Annotated[
        str | None, Option(help="What to decide for (default: f1_macro), by scikit-learn's name.")
    ] = None,
    decision: Annotated[
        DECISIONS | None,
        Option(
            help="How to find the rule: by the labels (tuned, the default), by the probabilities "
            "alone (expected), or the most probable class (argmax)."
        ),
    ] = None,
    constraint: Annotated[
        str | None, Option(metavar="TEXT", help='What must hold, such as "recall >= 0.9".')
    ] = None,
    confidence: Confidence = None,
    groups: Annotated[
        str | None, Option(metavar="COL", help='The groups of a constraint such as "gap(recall)".')
    ] = None,
    weight: Weight = None,
    positive: Positive = None,
    classes: Annotated[
        str | None,
        Option(
            metavar="A,B,C", help="The classes, or their columns (default: those of the labels)."
        ),
    ] = None,
    logits: Annotated[
        bool, Option("--logits", help="The columns hold logits, not probabilities.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the labels that a metric asks for, from the probabilities of any model.

    DATA has a column for each class, named as the class (or `probability_` and its name), and the
    true label; for two classes, one column with the probability of the positive one is enough.
    The rows must not be those that the model was trained on. What the rule brings over the most
    probable class is measured by cross-fitting. With --rule, a rule labels new rows.

    Examples:

        evalign decide scores.csv --target label --metric f1_macro --out rule.json

        evalign decide --rule rule.json new.csv --out labels.csv
    """
    fitting = {
        "--target": target,
        "--metric": metric,
        "--decision": decision,
        "--constraint": constraint,
        "--confidence": confidence,
        "--groups": groups,
        "--weight": weight,
        "--positive": positive,
        "--classes": classes,
        "--logits": logits or None,
    }
    given = [name for name, value in fitting.items() if value is not None]
    if rule is not None:
        if given:
            raise UsageError(f"{given[0]} is for a new rule. Leave it out, or leave out --rule.")
        check_suffix(out)
        from evalign.cli.decide import apply_rule

        apply_rule(rule, data, out, as_json=as_json, quiet=quiet)
        return
    if target is None:
        raise UsageError("--target must name the column with the label, or --rule a rule to use.")
    check_json(out)
    from evalign.cli.decide import fit_rule

    fit_rule(
        data,
        out,
        target=target,
        metric=metric or "f1_macro",
        decision=decision or "tuned",
        constraint=constraint,
        confidence=confidence,
        groups=groups,
        weight=weight,
        positive=positive,
        classes=None if classes is None else [name.strip() for name in classes.split(",")],
        logits=logits,
        as_json=as_json,
        quiet=quiet,
    )


def compare(
    data: Data,
    target: Target,
    metric: Metric = "f1_macro",
    folds: Annotated[
        int, Option(min=2, help="Of the cross-validation; fewer if a class has fewer rows.")
    ] = 5,
    seeds: Annotated[
        int,
        Option(
            min=1, help="How often the cross-validation is repeated, each time with other folds."
        ),
    ] = 3,
    epochs: Epochs = None,
    group: Group = None,
    weight: Weight = None,
    drop: Drop = None,
    positive: Positive = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare cross-entropy, EAST, the aligned recipe and trees on one table.

    All methods see the same folds. The p-values are of paired tests for repeated
    cross-validation (Nadeau and Bengio), adjusted for the number of methods (Holm).

    Examples:

        evalign compare data.csv --target label --metric f1_macro

        evalign compare data.parquet --target fraud --positive yes --metric f1 --seeds 1
    """
    from evalign.cli.compare import compare_methods

    compare_methods(
        data,
        target=target,
        metric=metric,
        folds=folds,
        seeds=seeds,
        epochs=epochs,
        group=group,
        weight=weight,
        drop=drop or [],
        positive=positive,
        as_json=as_json,
        quiet=quiet,
    )


def metrics(as_json: Json = False) -> None:
    """List the names of metrics, with what each tells.

    Examples:

        evalign metrics
    """
    from evalign.cli.metrics import list_metrics

    list_metrics(as_json=as_json)


def report(
    run: RunFolder, out: NewPage = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Render the report of a run again: one HTML page that opens offline.

    Examples:

        evalign report run --out report.html
    """
    from evalign.cli.predict import render_report

    render_report(run, out, as_json=as_json, quiet=quiet)
