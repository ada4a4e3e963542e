"""`evalign fit`: from a table to a run folder."""

import json
import platform
import shlex
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Option

import evalign
from evalign.cli import columns, run
from evalign.cli.dataset import (
    Dataset,
    Rows,
    check_metric,
    introduce,
    load,
    read_rows,
    warn_of_overlap,
    warn_of_scarce,
)
from evalign.cli.errors import UsageError
from evalign.cli.options import (
    EPOCHS,
    Data,
    Drop,
    Epochs,
    Group,
    Json,
    Metric,
    Positive,
    Quiet,
    Recipe,
    Seed,
    Target,
    Weight,
)
from evalign.cli.outcome import PREDICTIONS, contents, predictions, shown
from evalign.cli.run import REPORT
from evalign.cli.tables import TableFile, digest, writing
from evalign.cli.terminal import Terminal, terminal
from evalign.decisions import Decision
from evalign.estimator import AlignedClassifier
from evalign.recipes import RECIPES
from evalign.report import render, scores


def fit(
    data: Data,
    target: Target,
    out: Annotated[Path, Option(metavar="RUN", help="The folder to write, which is new.")],
    metric: Metric = "f1_macro",
    recipe: Recipe = "aligned",
    decision: Annotated[Decision, Option(help="From probabilities to labels.")] = "tuned",
    seed: Seed = 0,
    epochs: Epochs = EPOCHS,
    group: Group = None,
    weight: Weight = None,
    drop: Drop = None,
    positive: Positive = None,
    validation: Annotated[
        Path | None, Option(metavar="FILE", help="Rows to choose the epoch and the decision on.")
    ] = None,
    test: Annotated[
        Path | None, Option(metavar="FILE", help="Rows for the report (default: a fifth of DATA).")
    ] = None,
    baseline: Annotated[
        bool, Option(help="Train a cross-entropy model beside it, to compare with.")
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier on the metric it is judged by.

    Numbers are imputed and scaled, categories one-hot encoded, ids and constants left out. The run
    folder holds the model, its scores on test rows and a report. After a crash or Ctrl-C the same
    command goes on where it was.

    Examples:

        evalign fit data.csv --target label --metric f1_macro --out run

        evalign fit data.parquet --target fraud --positive yes --metric f1 --out run
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        if recipe not in RECIPES:
            raise UsageError(f"--recipe must be one of {', '.join(RECIPES)}. Got {recipe!r}.")
        source, given = TableFile(data), {"--validation": validation, "--test": test}
        others = {name: path and digest(TableFile(path).path) for name, path in given.items()}
        arguments: run.About = {
            "evalign": evalign.__version__,
            "data": digest(data),
            "--target": target,
            "--metric": metric,
            "--recipe": recipe,
            "--decision": decision,
            "--seed": seed,
            "--epochs": epochs,
            "--group": group,
            "--weight": weight,
            "--drop": drop or [],
            "--positive": positive,
            **others,
            "--baseline": baseline,
        }
        if done := run.finished(out, arguments):
            spoken.note(f"{out} is complete: this command has run before.")
            _show(spoken, out, done.read("metrics.json"))
            return

        roles: dict[str, Any] = {"target": target, "group": group, "weight": weight}
        dataset = load(source, **roles, drop=drop or (), positive=positive)
        check_metric(metric, len(dataset.labels.values))
        _check_names(source, dataset)
        parts = _split(dataset, test, validation, seed)
        introduce(spoken, dataset)
        files = {"DATA": arguments["data"], **{k: v for k, v in others.items() if v}}
        warn_of_overlap(files, parts)
        for name in [name for name in parts if name != "training"]:
            warn_of_scarce(name, parts[name].y[parts[name].counted], dataset.labels)

        recipes = {"model": recipe}
        if baseline and recipe != "cross_entropy":
            recipes["baseline"] = "cross_entropy"
        estimators = {
            name: AlignedClassifier(
                metric,
                recipe=recipe,
                decision=decision,
                epochs=epochs,
                random_state=seed,
                verbose=0 if quiet else 1,
            )
            for name, recipe in recipes.items()
        }
        try:
            with run.building(out, arguments) as (folder, checkpoints, about):
                about |= _about(dataset, data.name, parts)
                result = _build(folder, checkpoints, about, dataset, parts, estimators)
        except KeyboardInterrupt:
            spoken.note("Interrupted. The same command goes on where this one was.")
            raise
        _show(spoken, out, result)


def _check_names(source: TableFile, dataset: Dataset) -> None:
    """Refuse features whose names `predict` needs for its own columns."""
    taken = [name for name in dataset.columns.features if name in dataset.labels.written]
    if taken:
        cure = f"Rename it, or leave it out with --drop {taken[0]!r}."
        what = f"Column {taken[0]!r} of {source}"
        raise UsageError(f"{what} has the name of one that `evalign predict` adds. {cure}")


def _split(
    dataset: Dataset, test: Path | None, validation: Path | None, seed: int
) -> dict[str, Rows]:
    """ "training", "test" and "validation" rows.

    Without groups the classifier holds the last ones out itself, as well as they allow; of whole
    groups, the training rows could lose a class.
    """
    parts = {"training": dataset.rows}
    for name, path in {"test": test, "validation": validation}.items():
        training = parts["training"]
        if path is not None:
            parts[name] = read_rows(path, dataset)
        elif name == "test" or training.groups is not None:
            parts["training"], parts[name] = training.hold_out(dataset.labels, seed, name)
    return parts


def _build(
    folder: Path,
    checkpoints: Path,
    about: run.About,
    dataset: Dataset,
    parts: dict[str, Rows],
    estimators: dict[str, AlignedClassifier],
) -> dict[str, Any]:
    """All files of a run but `run.json`. Returns the scores."""
    training, tested, validated = parts["training"], parts["test"], parts.get("validation")
    pipeline = columns.pipeline(dataset.columns)
    X = np.asarray(pipeline.fit_transform(training.X))
    held_out: tuple[Any, ...] | None = None
    if validated is not None:
        held_out = (columns.transform(pipeline, validated.X), validated.y, validated.weight)
    (folder / "pipeline.skops").write_bytes(columns.dump(pipeline))
    for name, estimator in estimators.items():
        estimator.fit(
            X,
            training.y,
            training.weight,
            groups=training.groups,
            validation_data=held_out,
            checkpoint=checkpoints / name,
        )
        estimator.set_params(verbose=0).save(folder / name)

    table = predictions(columns.transform(pipeline, tested.X), tested, dataset.labels, estimators)
    with writing(folder / PREDICTIONS, table.schema) as write:
        write(table)
    histories = {name: estimator.history_ for name, estimator in estimators.items()}
    content = contents(table, dataset.labels, about, histories)
    result = scores(content)
    _write_json(folder / "history.json", histories)
    _write_json(folder / "metrics.json", result)
    (folder / REPORT).write_text(render(content, result), encoding="utf-8")
    return result


def _about(dataset: Dataset, file: str, parts: dict[str, Rows]) -> run.About:
    labels = dataset.labels
    counts = np.bincount(dataset.rows.y, minlength=len(labels.values))
    names = ("torch", "scikit-learn", "numpy")
    return {
        "file": file,
        "columns": asdict(dataset.columns),
        "classes": list(labels.values),
        "rows_per_class": counts.tolist(),
        "rows": {name: len(part.y) for name, part in parts.items()},
        "versions": {
            "evalign": evalign.__version__,
            "Python": platform.python_version(),
            **{name: version(name) for name in names},
        },
    }


def _show(spoken: Terminal, out: Path, result: dict[str, Any]) -> None:
    spoken.result({"run": str(out), **result}, *shown(result))
    again = f"evalign predict {shlex.quote(str(out))} new.csv --out scored.csv"
    spoken.note(f"Look at {out / REPORT}. Next: {again}")


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
