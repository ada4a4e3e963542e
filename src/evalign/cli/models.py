"""The models that `evalign fit` trains for its options, and their share of its time."""

from argparse import Namespace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from evalign.cli.dataset import LabelledFrame
from evalign.cli.run import NETWORK, Model
from evalign.ensemble import AlignedEnsemble
from evalign.ensemble.candidates import AUTO, BLEND, DEFAULT, network_candidate
from evalign.estimator import AlignedClassifier
from evalign.tables.labels import Labels

# A preview: folds, seconds of training, and how a network is trained.
QUICK_FOLDS, QUICK_TIME = 2, 6.0
QUICK_TRAINING = {"epochs": 10, "batch_size": 256}
# Seconds that the report may take of a time limit, and the least that is left for training.
REPORT, LEAST = 3.0, 1.0


def training_seconds(given: Namespace) -> float | None:
    """Seconds for training, if they are limited; --time counts from the start of the command."""
    if given.time is None:
        return QUICK_TIME if given.quick else None
    return max(LEAST, given.time - (monotonic() - given.start) - REPORT)


def estimators(given: Namespace, labels: Labels, limit: float | None) -> dict[str, Model]:
    """The models to train for the options of a command, within a limit of seconds."""
    metric, model, quick, recipe = given.metric, given.model, given.quick, given.recipe
    usual = {name: getattr(given, name) for name in ("decision", "constraint", "confidence")}
    usual |= {"pos_label": labels.positive, "random_state": given.seed}
    usual["verbose"] = 0 if given.quiet else 1
    epochs: dict[str, Any] = {"epochs": given.epochs}
    trained = QUICK_TRAINING if quick and given.epochs is None else epochs
    if model == NETWORK:
        recipes = {"model": recipe}
        if given.baseline and not quick and recipe != "cross_entropy":
            recipes["baseline"] = "cross_entropy"
        return {
            name: AlignedClassifier(metric, recipe=kind, **trained, **usual)
            for name, kind in recipes.items()
        }
    network = network_candidate(metric, recipe, given.seed)
    network.set_params(pos_label=labels.positive, **trained)
    names = DEFAULT if model in (AUTO, BLEND) else (model,)
    ensemble = AlignedEnsemble(
        metric,
        candidates=[(name, network) if name == NETWORK else name for name in names],
        choose=AUTO if model == AUTO else BLEND,
        cv=QUICK_FOLDS if quick else None,
        time_limit=limit,
        **usual,
    )
    return {"model": ensemble}


def train(
    model: Model,
    labels: Labels,
    training: LabelledFrame,
    validated: LabelledFrame | None,
    checkpoint: Path,
) -> None:
    """Fit to folds of the training rows, or to all of them where validation rows are given."""
    rows, known = training, labels.array
    given: dict[str, Any] = {"checkpoint": checkpoint}
    if isinstance(model, AlignedClassifier) and validated is not None:
        given["validation_data"] = (validated.X, known[validated.y], validated.weight)
    elif validated is not None:
        rows = training.followed_by(validated)
        parts = np.split(np.arange(len(rows.y)), [len(training.y)])
        model.set_params(cv=[tuple(parts)])
    model.fit(rows.X, known[rows.y], rows.weight, groups=rows.groups, **given)
