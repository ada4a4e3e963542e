"""The work of `evalign compare`."""

import warnings
from argparse import Namespace
from typing import Any

from evalign.cli.dataset import load
from evalign.cli.errors import refused
from evalign.cli.outcome import tried_models
from evalign.cli.terminal import Terminal, grid
from evalign.core import stairs
from evalign.core.metrics import resolve
from evalign.estimators import AlignedEnsemble
from evalign.estimators.candidates import DEFAULT, RECIPES
from evalign.report import TriedModels
from evalign.report.words import number, span, verdict_of_tried
from evalign.tables.labels import Labels
from evalign.tables.warnings import FEW_ROWS, DataWarning

EAST_EPOCHS = 30


def compare_methods(spoken: Terminal, given: Namespace) -> None:
    """Do the work of `evalign compare`."""
    dataset = load(given)
    labels, rows = dataset.labels, dataset.rows
    dataset.introduce(spoken)
    ensemble = AlignedEnsemble(
        given.metric,
        candidates=[*DEFAULT, *networks(spoken, given, labels)],
        cv=given.folds,
        pos_label=labels.positive,
        classes=labels.order,
        random_state=0,
        verbose=0 if spoken.quiet else 1,
    )
    y = labels.array[rows.y]
    with refused(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", FEW_ROWS, DataWarning)  # in a fold
        ensemble.fit(rows.X, y, rows.weight, groups=rows.groups)
    name, gain = given.metric, ensemble.gain_
    tried = tried_models(ensemble.cv_results_, gain, {}, name)
    sentence = verdict_of_tried(TriedModels(**tried), constrained=False)
    greater, folds = resolve(name).greater_is_better, len(ensemble.models_[gain["against"]])
    data = {"metric": name, "greater_is_better": greater, "rows": len(y), "folds": folds}
    data |= {"candidates": tried["rows"], "gain": gain, "verdict": sentence}
    explained = (
        f"{name}{'' if greater else ' (less is better)'} on held-out rows, {folds} folds: "
        "with a rule and by argmax, with 95% intervals."
    )
    headings = ["candidate", "with a rule", "95% interval", "argmax", "95% interval", "seconds"]
    spoken.result(data, grid(headings, map(_cells, tried["rows"])), explained, "", sentence)


def networks(spoken: Terminal, given: Namespace, labels: Labels) -> list[tuple[str, Any]]:
    """A network of each recipe, by its name; none without PyTorch."""
    if not stairs.has_torch():
        if given.epochs is not None:
            raise stairs.needs_torch("--epochs")
        spoken.note(f"No network is compared. {stairs.needs_torch('It')}")
        return []
    network = stairs.aligned_classifier()
    # Candidates are given codes.
    roles: dict[str, Any] = {}
    if labels.positive is not None:
        roles["pos_label"] = labels.columns.index(labels.positive)
    if labels.order is not None:
        roles["classes"] = [labels.columns.index(label) for label in labels.order]
    # EAST's own rule ends it after hundreds of epochs, for which nobody waits here.
    epochs = dict.fromkeys(RECIPES, given.epochs) | {"east": given.epochs or EAST_EPOCHS}
    return [
        (name, network(given.metric, recipe=name, random_state=0, epochs=epochs[name], **roles))
        for name in RECIPES
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    """A candidate for a person."""
    shown = [row["candidate"]]
    for stem in ("rule_score", "argmax_score"):
        shown += [number(row[stem]), span({end: row[f"{stem}_{end}"] for end in ("low", "high")})]
    return [*shown, "" if row["seconds"] is None else f"{row['seconds']:.1f}"]
