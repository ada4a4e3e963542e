"""The work of `evalign fit`: from a table to a run folder."""

import platform
import shlex
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
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
    own_rule,
    predictions,
    shown,
    tried_models,
)
from evalign.cli.terminal import Terminal
from evalign.core import stairs
from evalign.estimators import AlignedEnsemble
from evalign.estimators.candidates import BLEND, DEFAULT
from evalign.report import render
from evalign.store.files import digest
from evalign.tables.files import writing
from evalign.tables.labels import Labels
from evalign.tables.warnings import warn_of_perfect

# Seconds of a time limit that are reserved for the report, and the least for training.
REPORT_TIME, LEAST_TIME = 3.0, 1.0
# Options that a run does not name: those that do not change it, and those that stand for files.
OTHERS = ("out", "as_json", "quiet", "show_help", "start", "reading", "data", "test")


def fit_table(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign fit`."""
    other = "time" if given.model == run.NETWORK else "epochs"
    if getattr(given, other) is not None:
        whose = f"--epochs is for --model {run.NETWORK}, --time for all others"
        raise UsageError(f"--{other} must be left out with --model {given.model}: {whose}.")
    if given.model == run.NETWORK and not stairs.has_torch():
        raise stairs.needs_torch(f"--model {run.NETWORK}")
    files = {"data": given.data, "--test": given.test}
    arguments: run.About = {
        "evalign": evalign.__version__,
        **{f"--{name}": value for name, value in vars(given).items() if name not in OTHERS},
        **{name: path and digest(path) for name, path in files.items()},
    }
    dataset = load(given)
    labels = dataset.labels
    training, test = split(dataset, given)
    dataset.introduce(spoken)

    about = {"arguments": arguments, **_about(dataset, given, training, test)}
    del dataset  # the parts are a copy of its rows
    limit = given.time  # of the command, from its start
    if limit is not None:
        limit = max(LEAST_TIME, limit - (monotonic() - given.start) - REPORT_TIME)
    with run.building(given.out, about) as new:
        model, y = estimator(given, labels, limit), labels.array[training.y]
        with refused():
            model.fit(
                training.X,
                y,
                training.weight,
                groups=training.groups,
                constraint_groups=training.constraint_groups,
            )
        model.set_params(verbose=0)
        # To pack a model takes long and keeps one core busy, while the test rows are predicted.
        with ThreadPoolExecutor(1) as beside:
            saved = beside.submit(model.save, new / "model")
            result = _tested(new, about, labels, test, model, spoken.warned)
            saved.result()
    spoken.result({"run": str(given.out), **result}, *shown(result))
    again = f"evalign predict {shlex.quote(str(given.out))} new.csv --out scored.csv"
    spoken.note(f"Look at {given.out / run.REPORT}. Next: {again}")


def estimator(given: Namespace, labels: Labels, limit: float | None) -> run.Model:
    """The model to train for the options of a command, within a limit of seconds."""
    usual = {name: getattr(given, name) for name in ("decision", "constraint", "confidence")}
    usual |= {"pos_label": labels.positive, "random_state": given.seed}
    usual["classes"] = labels.order
    usual["verbose"] = 0 if given.quiet else 1
    if given.model == run.NETWORK:
        network = stairs.aligned_classifier()
        return network(given.metric, epochs=given.epochs, **usual)
    candidates = DEFAULT if given.model == BLEND else (given.model,)
    return AlignedEnsemble(given.metric, candidates=candidates, time_limit=limit, **usual)


def _tested(
    folder: Path,
    about: run.About,
    labels: Labels,
    tested: LabelledFrame,
    model: run.Model,
    notes: list[str],
) -> dict[str, Any]:
    """Write the files about the test rows and the report; return the scores."""
    arguments, rule, tried = about["arguments"], model.rule_, None
    about["baseline"] = run.strongest(model)
    about |= {"slacks": list((rule.slacks or {}).values()), "promised": rule.promised}
    if isinstance(model, AlignedEnsemble):
        found = model.cv_results_, model.gain_, model.left_out_
        tried = tried_models(*found, arguments["--metric"])
    models = run.with_baseline(model, about)
    table, path = predictions(tested, labels, models), folder / run.PREDICTIONS
    with writing(path, path) as write:
        write(table)
    warn_of_perfect(table, labels.names)
    columns, rows = importance(model, labels, tested, arguments["--seed"])
    details = {
        "candidates": tried,
        "findings": {
            "notes": notes,
            "rules": [str(own_rule(each)) for each in models.values()],
            "columns": columns,
            "rows": rows,
        },
    }
    content, result = contents(table, labels, about, arguments["--test"], details)
    run.dump(folder / run.DETAILS, details)
    run.dump(folder / run.METRICS, result)
    (folder / run.REPORT).write_text(render(content, result), encoding="utf-8")
    return result


def _about(
    dataset: TrainingTable, given: Namespace, training: LabelledFrame, test: LabelledFrame
) -> run.About:
    labels = dataset.labels
    packages = ["evalign", "scikit-learn", "numpy"]
    if given.model == run.NETWORK:
        packages.append("torch")
    counts = np.bincount(dataset.rows.y, minlength=len(labels.values))
    return {
        "file": given.data.name,
        "columns": asdict(dataset.columns),
        "classes": list(labels.values),
        "rows_per_class": counts.tolist(),
        "rows": {"training": len(training.y), "test": len(test.y)},
        "versions": {
            "Python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
    }
