"""The commands: their arguments and their help. Each imports its work when it runs."""

from typing import Annotated

from typer import Option

from evalign.cli.options import (
    EPOCHS,
    Data,
    Decision,
    Drop,
    Epochs,
    Group,
    Json,
    Metric,
    NewPage,
    NewRun,
    NewTable,
    Positive,
    Quiet,
    Recipe,
    RunFolder,
    Seed,
    Target,
    Test,
    Validation,
    Weight,
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
    recipe: Recipe = "aligned",
    decision: Decision = "tuned",
    seed: Seed = 0,
    epochs: Epochs = EPOCHS,
    group: Group = None,
    weight: Weight = None,
    drop: Drop = None,
    positive: Positive = None,
    validation: Validation = None,
    test: Test = None,
    baseline: Annotated[
        bool, Option(help="Train a cross-entropy model beside it, to compare with.")
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier on the metric it is judged by.

    Numbers are imputed and scaled, categories one-hot encoded, ids and constants left out. The run
    folder holds the model, its scores on test rows and a report. After a crash or Ctrl-C the same
    command continues where it stopped.

    Examples:

        evalign fit data.csv --target label --metric f1_macro --out run

        evalign fit data.parquet --target fraud --positive yes --metric f1 --out run
    """
    from evalign.cli.fit import fit_table

    fit_table(
        data,
        out,
        target=target,
        metric=metric,
        recipe=recipe,
        decision=decision,
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


def compare(
    data: Data,
    target: Target,
    metric: Metric = "f1_macro",
    folds: Annotated[int, Option(min=2, help="Of the cross-validation.")] = 5,
    seeds: Annotated[int, Option(min=1, help="How often the cross-validation is repeated.")] = 3,
    epochs: Epochs = EPOCHS,
    group: Group = None,
    weight: Weight = None,
    drop: Drop = None,
    positive: Positive = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare cross-entropy, other losses, the aligned recipes and trees on one table.

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


def report(
    run: RunFolder, out: NewPage = None, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Render the report of a run again: one HTML page that opens offline.

    Examples:

        evalign report run --out report.html
    """
    from evalign.cli.predict import render_report

    render_report(run, out, as_json=as_json, quiet=quiet)
