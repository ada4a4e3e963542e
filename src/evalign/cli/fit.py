"""The work of `evalign fit`: from a table to a run folder."""

import json
import platform
import shlex
import warnings
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

import evalign
from evalign.cli import run
from evalign.cli.dataset import (
    Rows,
    TrainingTable,
    check_columns,
    check_names,
    introduce,
    load,
    split,
    warn_of_overlap,
    warn_of_scarce,
)
from evalign.cli.errors import DataWarning, UsageError, refused
from evalign.cli.files import digest, partial_folder
from evalign.cli.findings import findings
from evalign.cli.metrics import check_metric
from evalign.cli.models import (
    estimators,
    seconds_left,
    seconds_to_shuffle,
    time_limit,
    train,
)
from evalign.cli.outcome import contents, met, predictions, shown, tried_models, was_seen
from evalign.cli.run import NETWORK, PREDICTIONS, REPORT
from evalign.cli.tables import TableFile, writing
from evalign.cli.terminal import Terminal, terminal
from evalign.core.constraints import Infeasible
from evalign.core.resampling import FEW
from evalign.decisions import Decision
from evalign.decisions.fit_rows import check_promise
from evalign.ensemble.candidates import AUTO, BLEND, DEFAULT
from evalign.estimator import AlignedClassifier
from evalign.estimator.constrained import check_constraint
from evalign.estimator.folds import Folds
from evalign.estimator.rows import LostClass
from evalign.recipes import RECIPES, chosen_recipe
from evalign.report import TriedModels, render, scores

QUICK_ROWS = 2500  # of a preview
PREVIEW = "This is a preview. Without --quick all rows and models are used."


def fit_table(
    data: Path,
    out: Path,
    *,
    target: str,
    metric: str,
    model: str,
    time: float | None,
    start: float,
    quick: bool,
    recipe: str | None,
    decision: Decision,
    constraint: str | None,
    confidence: float | None,
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
    """Do the work of `evalign fit`; its options are explained in `commands`.

    `start` is when the command began, on the monotonic clock: a time limit counts from there.
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        check_metric(metric)
        recipe = chosen_recipe(recipe, constraint)
        if recipe not in RECIPES:
            raise UsageError(f"--recipe must be one of {', '.join(RECIPES)}. Got {recipe!r}.")
        if time is not None and model == NETWORK:
            cure = "Use --epochs for one network."
            raise UsageError(f"--time must be left out with --model {NETWORK}. {cure}")
        if model not in (AUTO, BLEND, *DEFAULT) and find_spec(model) is None:
            cure = f"Run: pip install {model}"
            raise UsageError(f"--model must be installed. Got {model!r}, which is not. {cure}")
        source, given = TableFile(data), {"--validation": validation, "--test": test}
        others = {name: path and digest(path) for name, path in given.items()}
        arguments: run.About = {
            "evalign": evalign.__version__,
            "data": digest(data),
            "--target": target,
            "--metric": metric,
            "--model": model,
            "--time": time,
            "--quick": quick,
            "--recipe": recipe,
            "--decision": decision,
            "--constraint": constraint,
            "--confidence": confidence,
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
        most = QUICK_ROWS if quick else None
        dataset = load(source, **roles, drop=drop, positive=positive, most=most, seed=seed)
        check_metric(metric, len(dataset.labels.values))
        with refused():
            check_promise("evalign fit", decision, constraint, confidence)
            if constraint is not None:
                names = dataset.labels.names
                check_constraint("evalign fit", metric, decision, constraint, names)
        check_names(source, dataset)
        parts = split(dataset, test, validation, most, seed, inner=model == NETWORK)
        check_columns(parts["training"])
        introduce(spoken, dataset)
        files = {"DATA": arguments["data"], **{k: v for k, v in others.items() if v}}
        warn_of_overlap(files, parts)
        for name, part in parts.items():
            warn_of_scarce(name, part.y[part.counted], dataset.labels)

        left = time_limit(arguments) if time is None else seconds_left(time, start)
        models = estimators(arguments, dataset.labels, left, 0 if quiet else 1)
        if len(models) == 2:
            also = "Leave it out with --no-baseline."
            spoken.note(f"Two networks are trained, the second one to compare with. {also}")
        try:
            with run.building(out, arguments) as (folder, checkpoints, about):
                about |= _about(dataset, data.name, parts)
                told = spoken.warned
                result = _build(folder, checkpoints, about, dataset, parts, models, told)
        except KeyboardInterrupt:
            kept = partial_folder(out).exists()  # of a network; other models begin anew
            then = "goes on where this one was" if kept else "begins anew"
            spoken.note(f"The same command {then}.")
            raise
        _show(spoken, out, result)
        if time is not None and (took := monotonic() - start) > time:
            why = "reading, the quickest model and the report take as long as they do"
            spoken.note(f"Note: it took {took:.0f} s, more than --time allows: {why}.")


def _build(
    folder: Path,
    checkpoints: Path,
    about: run.About,
    dataset: TrainingTable,
    parts: dict[str, Rows],
    models: dict[str, run.Model],
    warned: list[str],
) -> dict[str, Any]:
    """Write all files of a run except `run.json`, and return the scores.

    What was `warned` of until the report is written is in it.
    """
    models, tried = _trained(folder, checkpoints, about, dataset, parts, models)
    tested, arguments = parts["test"], about["arguments"]
    if arguments["--constraint"] is not None:
        rule = models["model"].rule_
        about |= {"slacks": list((rule.slacks or {}).values()), "promised": rule.promised}
    table = predictions(tested, dataset.labels, models)
    with writing(folder / PREDICTIONS, table.schema) as write:
        write(table)
    given, several = table["model_prediction"].unique(), len(np.unique(tested.y)) > 1
    if several and len(given) == 1:
        alone = f"The model labels every test row {given[0].as_py()!r}: it tells nothing apart."
        warnings.warn(alone, DataWarning, stacklevel=2)
    right = several and table["model_prediction"].equals(table["label"])
    if right and np.bincount(tested.y).min() >= FEW:
        cure = "look for a column that gives the label away, and leave it out with --drop"
        perfect = f"Every test row is labelled right. If that is too good to be true, {cure}."
        warnings.warn(perfect, DataWarning, stacklevel=2)
    histories = {
        name: model.history_ if isinstance(model, AlignedClassifier) else []
        for name, model in models.items()
    }
    found = findings(
        list(models.values()),
        dataset.labels,
        tested,
        metric=arguments["--metric"],
        counts=about["rows_per_class"],
        notes=[PREVIEW, *warned] if arguments["--quick"] else warned,
        seed=arguments["--seed"],
        seconds=seconds_to_shuffle(time_limit(arguments)),
    )
    _write_json(folder / "findings.json", asdict(found))
    content = contents(
        table,
        dataset.labels,
        about,
        histories,
        seen=was_seen(about, arguments["--test"]),
        tried=tried,
        findings=found,
    )
    result = scores(content) | met(content, dataset.labels, about)
    _write_json(folder / "history.json", histories)
    _write_json(folder / "metrics.json", result)
    (folder / REPORT).write_text(render(content, result), encoding="utf-8")
    return result


def _trained(
    folder: Path,
    checkpoints: Path,
    about: run.About,
    dataset: TrainingTable,
    parts: dict[str, Rows],
    models: dict[str, run.Model],
) -> tuple[dict[str, run.Model], TriedModels | None]:
    """Train the models and save them; return them and, of an ensemble, what it tried."""
    tried, trained = None, dict(models)
    arguments = about["arguments"]
    constrained = arguments["--constraint"] is not None
    for name, model in models.items():
        # A constraint that no rule meets is known after the training only, and groups that take a
        # class with them when they are held out.
        try:
            kind = ValueError if constrained and name == "model" else LostClass
            rows, validation = parts["training"], parts.get("validation")
            with refused(kind):
                train(model, dataset.labels, rows, validation, checkpoints / name)
        except Infeasible as error:
            del trained[name]
            text = f"The baseline is left out, as it does not meet the constraint. {error}"
            warnings.warn(text, DataWarning, stacklevel=2)
            continue
        if isinstance(model, AlignedClassifier):
            network = model.network_
            about["folds"] = len(network.networks) if isinstance(network, Folds) else 0
        else:
            about["baseline"] = run.strongest(model)
            asked = arguments["--model"]
            if asked in (AUTO, BLEND) and len(model.weights_) == 1:
                about["called"] = f"{asked} ({', '.join(model.weights_)})"
            trained |= run.with_baseline(model, about)
            tried = tried_models(model)
            _write_json(folder / "candidates.json", asdict(tried))
        model.set_params(verbose=0).save(folder / name)
    return trained, tried


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
