"""The work of `evalign fit`: from a table to a run folder."""

import platform
import shlex
from argparse import Namespace
from dataclasses import asdict
from importlib.metadata import version
from time import monotonic
from typing import Any

import numpy as np

import evalign
from evalign.cli import run
from evalign.cli.dataset import LabelledFrame, TrainingTable, load, split
from evalign.cli.errors import UsageError, refused
from evalign.cli.outcome import (
    contents,
    importance,
    predictions,
    rule_in_words,
    shown,
    tried_models,
)
from evalign.cli.terminal import Terminal
from evalign.estimators import AlignedClassifier, AlignedEnsemble
from evalign.estimators.candidates import BLEND, DEFAULT
from evalign.report import render
from evalign.store.files import digest
from evalign.tables.files import writing
from evalign.tables.labels import Labels
from evalign.tables.warnings import warn_of_perfect
from evalign.training.recipes import chosen_recipe

# Seconds of a time limit that are reserved for the report, and the least for training.
REPORT_TIME, LEAST_TIME = 3.0, 1.0
# Options that a run does not name: those that do not change it, and those that stand for files.
OTHERS = ("out", "as_json", "quiet", "start", "reading", "data", "validation", "test")


def fit_table(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign fit`."""
    network = given.model == run.NETWORK
    for name in () if network else ("recipe", "epochs"):
        if getattr(given, name) is not None:
            raise UsageError(f"--{name} must be left out without --model {run.NETWORK}.")
    if network:
        given.recipe = chosen_recipe(given.recipe, given.constraint)
    files = {"data": given.data, "--validation": given.validation, "--test": given.test}
    arguments: run.About = {
        "evalign": evalign.__version__,
        **{f"--{name}": value for name, value in vars(given).items() if name not in OTHERS},
        **{name: path and digest(path) for name, path in files.items()},
    }
    if given.time is not None and network:
        cure = "Use --epochs for one network."
        raise UsageError(f"--time must be left out with --model {run.NETWORK}. {cure}")

    dataset = load(given)
    labels = dataset.labels
    parts = split(dataset, given, inner=network)
    dataset.introduce(spoken)

    about = {"arguments": arguments, **_about(dataset, given.data.name, parts)}
    del dataset  # `parts` hold a copy of its rows
    limit = given.time  # of the command, from its start
    if limit is not None:
        limit = max(LEAST_TIME, limit - (monotonic() - given.start) - REPORT_TIME)
    models = estimators(given, labels, limit)
    with run.building(given.out, about) as new:
        with refused():
            models, tried = _trained(new, labels, parts, models)
        result = _tested(new, labels, parts["test"], models, tried, spoken.warned)
    spoken.result({"run": str(given.out), **result}, *shown(result))
    again = f"evalign predict {shlex.quote(str(given.out))} new.csv --out scored.csv"
    spoken.note(f"Look at {given.out / run.REPORT}. Next: {again}")


def estimators(given: Namespace, labels: Labels, limit: float | None) -> dict[str, run.Model]:
    """The models to train for the options of a command, within a limit of seconds."""
    metric, model, recipe = given.metric, given.model, given.recipe
    usual = {name: getattr(given, name) for name in ("decision", "constraint", "confidence")}
    usual |= {"pos_label": labels.positive, "random_state": given.seed}
    usual["verbose"] = 0 if given.quiet else 1
    if model == run.NETWORK:
        recipes = {"model": recipe}
        if given.baseline and recipe != "cross_entropy":
            recipes["baseline"] = "cross_entropy"
        return {
            name: AlignedClassifier(metric, recipe=kind, epochs=given.epochs, **usual)
            for name, kind in recipes.items()
        }
    ensemble = AlignedEnsemble(
        metric,
        candidates=DEFAULT if model == BLEND else (model,),
        time_limit=limit,
        **usual,
    )
    return {"model": ensemble}


def _trained(
    new: run.NewRun, labels: Labels, parts: dict[str, LabelledFrame], models: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Train the models and save them; return them and the candidates of an ensemble."""
    tried = None
    for name, model in list(models.items()):
        _train(model, labels, parts)
        if isinstance(model, AlignedEnsemble):
            new.about["baseline"] = run.strongest(model)
            models = run.with_baseline(model, new.about)
            results = (model.cv_results_, model.gain_, model.left_out_)
            tried = tried_models(*results, new.about["arguments"]["--metric"])
        model.set_params(verbose=0).save(new.folder / name)
    return models, tried


def _train(model: run.Model, labels: Labels, parts: dict[str, LabelledFrame]) -> None:
    """Fit to folds of the training rows, or to all of them where validation rows are given."""
    rows, validated, known = parts["training"], parts.get("validation"), labels.array
    given: dict[str, Any] = {}
    if isinstance(model, AlignedClassifier) and validated is not None:
        given["validation_data"] = (validated.X, known[validated.y], validated.weight)
    elif validated is not None:
        fold = np.split(np.arange(len(rows.y) + len(validated.y)), [len(rows.y)])
        rows = rows.followed_by(validated)
        model.set_params(cv=[tuple(fold)])
    model.fit(rows.X, known[rows.y], rows.weight, groups=rows.groups, **given)


def _tested(
    new: run.NewRun, labels: Labels, tested: LabelledFrame, models: Any, tried: Any, notes: Any
) -> dict[str, Any]:
    """Write the files about the test rows and the report; return the scores."""
    folder, about = new
    arguments, rule = about["arguments"], models["model"].rule_
    about |= {"slacks": list((rule.slacks or {}).values()), "promised": rule.promised}
    table, path = predictions(tested, labels, models), folder / run.PREDICTIONS
    with writing(path, path) as write:
        write(table)
    warn_of_perfect(table, labels.names)
    columns, rows = importance(models["model"], labels, tested, arguments["--seed"])
    details = {
        "candidates": tried,
        "findings": {
            "notes": notes,
            "rules": [rule_in_words(model) for model in models.values()],
            "columns": columns,
            "rows": rows,
        },
    }
    content, result = contents(table, labels, about, arguments["--test"], details)
    run.dump(folder / run.DETAILS, details)
    run.dump(folder / run.METRICS, result)
    (folder / run.REPORT).write_text(render(content, result), encoding="utf-8")
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
