"""The work of `evalign fit`: from a table to a run folder."""

import platform
import shlex
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import evalign
from evalign.cli import run
from evalign.cli.dataset import TrainingTable, load, reading_of, split
from evalign.cli.errors import UsageError, refused
from evalign.cli.files import digest, replacing
from evalign.cli.findings import findings
from evalign.cli.introduction import introduce
from evalign.cli.labelled import LabelledFrame
from evalign.cli.metrics import check_metric
from evalign.cli.models import estimators, train, training_seconds
from evalign.cli.options import READING
from evalign.cli.outcome import contents, predictions, shown, tried_models, was_seen
from evalign.cli.run import NETWORK, PREDICTIONS, REPORT, write_json
from evalign.cli.terminal import Terminal, terminal
from evalign.decisions.fit_rows import check_promise
from evalign.estimator import AlignedClassifier
from evalign.estimator.constrained import check_constraint
from evalign.recipes import chosen_recipe
from evalign.report import TriedModels, render
from evalign.tables.classes import Labels
from evalign.tables.files import TableFile, writing
from evalign.tables.warnings import warn_of_perfect

QUICK_ROWS = 2500  # of a preview
PREVIEW = "This is a preview. Without --quick all rows and models are used."


def fit_table(
    data: Path,
    out: Path,
    *,
    validation: Path | None,
    test: Path | None,
    start: float,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Do the work of `evalign fit`.

    Args:
        data: the table.
        out: the run folder.
        validation: as --validation.
        test: as --test.
        start: when the command began, on the monotonic clock: a time limit counts from there.
        verbose: as --verbose.
        as_json: as --json.
        quiet: as --quiet.
        options: the other options of `commands.fit`, by their names.
    """
    with terminal(as_json=as_json, quiet=quiet) as spoken:
        options["recipe"] = chosen_recipe(options["recipe"], options["constraint"])
        files = {"data": data, "--validation": validation, "--test": test}
        arguments: run.About = {
            "evalign": evalign.__version__,
            **{f"--{name}": value for name, value in options.items()},
            **{name: path and digest(path) for name, path in files.items()},
        }
        if done := run.finished(out, arguments):
            spoken.note(f"{out} is complete: this command has run before.")
            with done.reading("metrics.json"):
                _show(spoken, out, done.read("metrics.json"))
            return
        metric, network = options["metric"], options["model"] == NETWORK
        check_metric(metric)
        if options["time"] is not None and network:
            cure = "Use --epochs for one network."
            raise UsageError(f"--time must be left out with --model {NETWORK}. {cure}")

        roles = {name: options[name] for name in ("target", "group", "weight", "positive", "seed")}
        reading = reading_of({name: options[name] for name in READING})
        source, most = TableFile(data, reading), QUICK_ROWS if options["quick"] else None
        dataset = load(source, **roles, drop=options["drop"] or [], most=most)
        labels = dataset.labels
        check_metric(metric, len(labels.values))
        constraint, decision = options["constraint"], options["decision"]
        with refused():
            check_promise("evalign fit", decision, constraint, options["confidence"])
            if constraint is not None:
                check_constraint("evalign fit", metric, decision, constraint, labels.names)
        parts = split(dataset, test, validation, most, options["seed"], inner=network)
        introduce(spoken, dataset, verbose=verbose)

        limit = training_seconds(arguments, start)
        models = estimators(arguments, labels, limit, 0 if quiet else 1)
        with run.building(out, arguments) as (folder, checkpoints, about):
            about |= _about(dataset, data.name, parts)
            with refused():
                models, tried = _trained(folder, checkpoints, about, labels, parts, models)
            result = _tested(folder, about, labels, parts["test"], models, tried, spoken.warned)
        _show(spoken, out, result)


def _trained(
    folder: Path,
    checkpoints: Path,
    about: run.About,
    labels: Labels,
    parts: dict[str, LabelledFrame],
    models: dict[str, run.Model],
) -> tuple[dict[str, run.Model], TriedModels | None]:
    """Train the models and save them; return them and the candidates of an ensemble."""
    tried, trained = None, dict(models)
    for name, model in models.items():
        train(model, labels, parts["training"], parts.get("validation"), checkpoints / name)
        if not isinstance(model, AlignedClassifier):
            about["baseline"] = run.strongest(model)
            trained |= run.with_baseline(model, about)
            tried = tried_models(model)
            write_json(folder / "candidates.json", asdict(tried))
        model.set_params(verbose=0).save(folder / name)
    return trained, tried


def _tested(
    folder: Path,
    about: run.About,
    labels: Labels,
    tested: LabelledFrame,
    models: dict[str, run.Model],
    tried: TriedModels | None,
    warned: list[str],
) -> dict[str, Any]:
    """Write the files about the test rows and the report; return the scores."""
    arguments, rule = about["arguments"], models["model"].rule_
    about |= {"slacks": list((rule.slacks or {}).values()), "promised": rule.promised}
    table = predictions(tested, labels, models)
    path = folder / PREDICTIONS
    with replacing(path) as aside, writing(aside, path) as write:
        write(table)
    warn_of_perfect(table, labels.names)
    histories = {name: getattr(model, "history_", []) for name, model in models.items()}
    found = findings(
        list(models.values()),
        labels,
        tested,
        counts=about["rows_per_class"],
        notes=[PREVIEW, *warned] if arguments["--quick"] else warned,
        seed=arguments["--seed"],
    )
    seen = was_seen(about, arguments["--test"])
    content, result = contents(
        table, labels, about, histories, seen=seen, tried=tried, findings=found
    )
    write_json(folder / "findings.json", asdict(found))
    write_json(folder / "history.json", histories)
    write_json(folder / "metrics.json", result)
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
