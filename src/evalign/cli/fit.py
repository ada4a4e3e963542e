"""The work of `evalign fit`: from a table to a run folder."""

import platform
import shlex
from argparse import Namespace
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import evalign
from evalign.cli import run
from evalign.cli.dataset import LabelledFrame, TrainingTable, load, split
from evalign.cli.errors import UsageError, refused
from evalign.cli.findings import cuts, importance
from evalign.cli.models import estimators, train, training_seconds
from evalign.cli.outcome import contents, predictions, shown, tried_models
from evalign.cli.run import DETAILS, METRICS, NETWORK, PREDICTIONS, REPORT, NewRun, dump
from evalign.cli.terminal import Terminal
from evalign.ensemble import AlignedEnsemble
from evalign.recipes import chosen_recipe
from evalign.report import render
from evalign.store.files import digest
from evalign.tables.files import writing
from evalign.tables.labels import Labels
from evalign.tables.warnings import warn_of_perfect

QUICK_ROWS = 2500  # of a preview
PREVIEW = "This is a preview. Without --quick all rows and models are used."
# Options that do not change a run, and those that stand for files.
OTHERS = ("out", "verbose", "as_json", "quiet", "start", "reading", "data", "validation", "test")


def fit_table(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign fit`."""
    given.recipe = chosen_recipe(given.recipe, given.constraint)
    files = {"data": given.data, "--validation": given.validation, "--test": given.test}
    arguments: run.About = {
        "evalign": evalign.__version__,
        **{f"--{name}": value for name, value in vars(given).items() if name not in OTHERS},
        **{name: path and digest(path) for name, path in files.items()},
    }
    if done := run.finished(given.out, arguments):
        spoken.note(f"{given.out} is complete: this command has run before.")
        with done.reading(METRICS):
            _show(spoken, given.out, done.read(METRICS))
        return
    network = given.model == NETWORK
    if given.time is not None and network:
        cure = "Use --epochs for one network."
        raise UsageError(f"--time must be left out with --model {NETWORK}. {cure}")

    most = QUICK_ROWS if given.quick else None
    dataset = load(given, most)
    labels = dataset.labels
    parts = split(dataset, given, most, inner=network)
    dataset.introduce(spoken, verbose=given.verbose)

    models = estimators(given, labels, training_seconds(given))
    with run.building(given.out, arguments) as new:
        new.about.update(_about(dataset, given.data.name, parts))
        with refused():
            models, tried = _trained(new, labels, parts, models)
        result = _tested(new, labels, parts["test"], models, tried, spoken.warned)
    _show(spoken, given.out, result)


def _trained(
    new: NewRun, labels: Labels, parts: dict[str, LabelledFrame], models: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Train the models and save them; return them and the candidates of an ensemble."""
    tried = None
    for name, model in list(models.items()):
        train(model, labels, parts["training"], parts.get("validation"), new.checkpoints / name)
        if isinstance(model, AlignedEnsemble):
            new.about["baseline"] = run.strongest(model)
            models, tried = run.with_baseline(model, new.about), tried_models(model)
        model.set_params(verbose=0).save(new.folder / name)
    return models, tried


def _tested(
    new: NewRun, labels: Labels, tested: LabelledFrame, models: Any, tried: Any, warned: list[str]
) -> dict[str, Any]:
    """Write the files about the test rows and the report; return the scores."""
    folder, _, about = new
    arguments, rule = about["arguments"], models["model"].rule_
    about |= {"slacks": list((rule.slacks or {}).values()), "promised": rule.promised}
    table, path = predictions(tested, labels, models), folder / PREDICTIONS
    with writing(path, path) as write:
        write(table)
    warn_of_perfect(table, labels.names)
    columns, rows = importance(models["model"], labels, tested, arguments["--seed"])
    # Rules are told against the first of two classes, or the most frequent one.
    against = int(np.argmax(about["rows_per_class"])) if len(labels.values) > 2 else 0
    details = {
        "history": {name: getattr(model, "history_", []) for name, model in models.items()},
        "candidates": tried,
        "findings": {
            "notes": [PREVIEW, *warned] if arguments["--quick"] else warned,
            "against": against,
            "cuts": [cuts(model, labels, against) for model in models.values()],
            "columns": columns,
            "rows": rows,
        },
    }
    content, result = contents(table, labels, about, arguments["--test"], details)
    dump(folder / DETAILS, details)
    dump(folder / METRICS, result)
    (folder / REPORT).write_text(render(content, result), encoding="utf-8")
    return result


def _about(dataset: TrainingTable, file: str, parts: dict[str, LabelledFrame]) -> run.About:
    labels, names = dataset.labels, ("evalign", "torch", "scikit-learn", "numpy")
    counts = np.bincount(dataset.rows.y, minlength=len(labels.values))
    return {
        "file": file,
        "columns": asdict(dataset.columns),
        "classes": list(labels.values),
        "rows_per_class": counts.tolist(),
        "rows": {name: len(part.y) for name, part in parts.items()},
        "versions": {"Python": platform.python_version()} | {name: version(name) for name in names},
    }


def _show(spoken: Terminal, out: Path, result: dict[str, Any]) -> None:
    spoken.result({"run": str(out), **result}, *shown(result))
    again = f"evalign predict {shlex.quote(str(out))} new.csv --out scored.csv"
    spoken.note(f"Look at {out / REPORT}. Next: {again}")
