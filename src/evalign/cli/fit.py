"""The work of `evalign fit`: from a table to a run folder."""

import json
import platform
import shlex
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import evalign
from evalign.cli import run
from evalign.cli.dataset import (
    Rows,
    TrainingTable,
    check_metric,
    introduce,
    load,
    read_rows,
    warn_of_overlap,
    warn_of_scarce,
)
from evalign.cli.errors import UsageError
from evalign.cli.files import digest
from evalign.cli.outcome import contents, predictions, shown, was_seen
from evalign.cli.run import PREDICTIONS, REPORT
from evalign.cli.tables import TableFile, writing
from evalign.cli.terminal import Terminal, terminal
from evalign.decisions import Decision
from evalign.estimator import AlignedClassifier
from evalign.recipes import RECIPES
from evalign.report import render, scores


def fit_table(
    data: Path,
    out: Path,
    *,
    target: str,
    metric: str,
    recipe: str,
    decision: Decision,
    seed: int,
    epochs: int | None,
    group: str | None,
    weight: str | None,
    drop: list[str],
    positive: str | None,
    validation: Path | None,
    test: Path | None,
    baseline: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Do the work of `evalign fit`; its options are explained in `commands`."""
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        if recipe not in RECIPES:
            raise UsageError(f"--recipe must be one of {', '.join(RECIPES)}. Got {recipe!r}.")
        source, given = TableFile(data), {"--validation": validation, "--test": test}
        others = {name: path and digest(path) for name, path in given.items()}
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
            "--drop": drop,
            "--positive": positive,
            **others,
            "--baseline": baseline,
        }
        if done := run.finished(out, arguments):
            with done.reading("metrics.json"):
                list(shown(result := done.read("metrics.json")))
            spoken.note(f"{out} is complete: this command has run before.")
            _show(spoken, out, result)
            return

        roles: dict[str, Any] = {"target": target, "group": group, "weight": weight}
        dataset = load(source, **roles, drop=drop, positive=positive)
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
            spoken.note("The same command goes on where this one was.")
            raise
        _show(spoken, out, result)


def _check_names(source: TableFile, dataset: TrainingTable) -> None:
    """Refuse a feature with a name that `predict` gives to a column of its own."""
    taken = [name for name in dataset.columns.features if name in dataset.labels.written]
    if taken:
        cure = f"Rename it, or leave it out with --drop {taken[0]!r}."
        what = f"Column {taken[0]!r} of {source}"
        raise UsageError(f"{what} has the name of one that `evalign predict` adds. {cure}")


def _split(
    dataset: TrainingTable, test: Path | None, validation: Path | None, seed: int
) -> dict[str, Rows]:
    """Split the rows into "training", "test" and "validation".

    Without groups there is no "validation": the classifier holds those rows out itself. With groups
    they are held out here, and a split that takes a class from the training rows is refused.
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
    dataset: TrainingTable,
    parts: dict[str, Rows],
    estimators: dict[str, AlignedClassifier],
) -> dict[str, Any]:
    """Write all files of a run except `run.json`, and return the scores."""
    training, tested, validated = parts["training"], parts["test"], parts.get("validation")
    held_out: tuple[Any, ...] | None = None
    if validated is not None:
        held_out = (validated.X, validated.y, validated.weight)
    for name, estimator in estimators.items():
        estimator.fit(
            training.X,
            training.y,
            training.weight,
            groups=training.groups,
            validation_data=held_out,
            checkpoint=checkpoints / name,
        )
        estimator.set_params(verbose=0).save(folder / name)

    table = predictions(tested, dataset.labels, estimators)
    with writing(folder / PREDICTIONS, table.schema) as write:
        write(table)
    histories = {name: estimator.history_ for name, estimator in estimators.items()}
    seen = was_seen(about, about["arguments"]["--test"])
    content = contents(table, dataset.labels, about, histories, seen=seen)
    result = scores(content)
    _write_json(folder / "history.json", histories)
    _write_json(folder / "metrics.json", result)
    (folder / REPORT).write_text(render(content, result), encoding="utf-8")
    return result


def _about(dataset: TrainingTable, file: str, parts: dict[str, Rows]) -> run.About:
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
