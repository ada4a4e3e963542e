"""What `evalign fit` trains: the models for its options, and their share of its time."""

from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from evalign.cli.dataset import Rows
from evalign.cli.labels import Labels
from evalign.cli.run import NETWORK, About, Model
from evalign.ensemble import AlignedEnsemble
from evalign.ensemble.candidates import AUTO, BLEND, DEFAULT, network_candidate
from evalign.estimator import AlignedClassifier

# A preview: folds, seconds for the training (loading the libraries is not part of them), and how a
# network is trained.
QUICK_FOLDS, QUICK_TIME = 2, 6.0
QUICK_TRAINING = {"epochs": 10, "batch_size": 256}
# Of a time limit: what the report may take in seconds, the share of telling which columns matter,
# which also has a limit of its own; and what is left for the training, however long it took to load
# the libraries and to read the table.
REPORT_TAKES, SHUFFLING_SHARE, SHUFFLING, AT_LEAST = 1.0, 0.1, 20.0, 1.0


def seconds_left(limit: float, start: float) -> float:
    """Seconds for the training, of a limit that counts from the start."""
    import_module("skops.io")  # saves what is trained, and takes seconds to load
    used = monotonic() - start + REPORT_TAKES + seconds_to_shuffle(limit)
    return max(AT_LEAST, limit - used)


def time_limit(arguments: About) -> float | None:
    """Seconds for the whole command or, of a preview, for its training, if they are limited."""
    asked = arguments["--time"]
    return QUICK_TIME if arguments["--quick"] and asked is None else asked


def seconds_to_shuffle(limit: float | None) -> float:
    """Seconds for telling which columns matter."""
    return SHUFFLING if limit is None else min(SHUFFLING, SHUFFLING_SHARE * limit)


def estimators(
    arguments: About, labels: Labels, limit: float | None, verbose: int
) -> dict[str, Model]:
    """What is trained for the options of a command, within a limit of seconds."""
    metric, model, quick = (arguments[name] for name in ("--metric", "--model", "--quick"))
    seed, recipe, epochs = (arguments[name] for name in ("--seed", "--recipe", "--epochs"))
    usual = {"decision": arguments["--decision"], "random_state": seed, "verbose": verbose}
    usual |= {name: arguments[f"--{name}"] for name in ("constraint", "confidence")}
    usual["pos_label"] = labels.positive
    trained: dict[str, Any] = QUICK_TRAINING if quick and epochs is None else {"epochs": epochs}
    if model == NETWORK:
        recipes = {"model": recipe}
        if arguments["--baseline"] and not quick and recipe != "cross_entropy":
            recipes["baseline"] = "cross_entropy"
        return {
            name: AlignedClassifier(metric, recipe=kind, **trained, **usual)
            for name, kind in recipes.items()
        }
    network = network_candidate(metric, recipe, seed)
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
    model: Model, labels: Labels, training: Rows, validated: Rows | None, checkpoint: Path
) -> None:
    """Fit to folds of the training rows, or to these alone where validation rows are given."""
    rows, known = training, labels.array
    given: dict[str, Any] = {"checkpoint": checkpoint}
    if isinstance(model, AlignedClassifier):
        if validated is not None:
            given["validation_data"] = (validated.X, known[validated.y], validated.weight)
    elif validated is not None:
        rows = training.followed_by(validated)
        parts = np.split(np.arange(len(rows.y)), [len(training.y)])
        model.set_params(cv=[tuple(parts)])
    model.fit(rows.X, known[rows.y], rows.weight, groups=rows.groups, **given)
