"""Train a network on labelled rows."""

import os
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from evalign.core.metrics import Metric
from evalign.estimators.members import Members, MembersAsRows
from evalign.estimators.network import (
    blockwise,
    build,
    check_logits,
    chosen,
    find_device,
    size_of_members,
)
from evalign.estimators.progress import epoch_line, narrated
from evalign.estimators.rows import LabelledRows, dense
from evalign.estimators.scaling import QuantileNormal
from evalign.tables.features import Features
from evalign.training import History, Settings, fit
from evalign.training.averaging import offsets_of
from evalign.training.recipes import chosen_recipe, ingredients

WEIGHT_DECAY, EMA_DECAY = 3e-4, 0.995  # the weights of a network are their moving average


class TrainedNetwork(NamedTuple):
    """A trained network, the scaling before it, and what it gives for the validation rows."""

    network: nn.Module
    scaler: QuantileNormal
    history: History
    logits: Tensor
    offsets: Tensor | None


def train(
    arguments: dict[str, Any],
    training: LabelledRows,
    validation: LabelledRows,
    *,
    metric: Metric,
    classes: int,
    features: Features,
    seed: int,
    checkpoint: str | os.PathLike[str] | None,
) -> TrainedNetwork:
    """Train, and choose the best epoch on the validation rows.

    `arguments` are those of `AlignedClassifier`, checked.
    """
    # Equal weights are left out, because the loop is faster without weights.
    equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1
    unit = None if equal else training.weight.mean()
    device, multilabel = find_device(arguments["device"]), training.y.ndim == 2
    scaler = QuantileNormal(dense(training.X), features.width - features.numbers)
    how = {"size": size_of_members(device), "seed": seed, "multilabel": multilabel}
    network = build(arguments["network"], scaler, classes, **how).to(device).eval()
    rows, held_out = (part.tensors(scaler, device, unit) for part in (training, validation))
    check_logits(network, held_out[0], classes)
    name = chosen_recipe(arguments["recipe"], arguments["constraint"])
    task = "multilabel" if multilabel else "multiclass"
    loss, annealing = ingredients(name, metric, task, arguments["patience"])
    steps = chosen(arguments, len(rows[0]), device)
    several = isinstance(network, Members)
    with narrated(arguments["verbose"]) as tell:

        def on_epoch(record: dict[str, Any]) -> None:
            left = record["seconds"] * (steps.epochs - record["epoch"])
            tell(epoch_line(name, metric.name, steps.epochs, record), passing=True, left=left)
            if arguments["on_epoch"] is not None:
                arguments["on_epoch"](record)

        history = fit(
            network,
            (MembersAsRows(loss) if several else loss).to(device),
            *rows[:2],
            validation=held_out,
            metric=metric,
            settings=Settings(
                **steps._asdict(),
                weight_decay=WEIGHT_DECAY,
                ema_decay=EMA_DECAY,
                patience=None if annealing else arguments["patience"],
                seed=seed,
            ),
            sample_weight=rows[2] if len(rows) > 2 else None,
            annealing=annealing,
            undecayed=network.undecayed if several else (),
            on_epoch=on_epoch,
            checkpoint=checkpoint,
            resume=True,
        )
    return TrainedNetwork(
        network, scaler, history, blockwise(network, held_out[0], device), offsets_of(loss)
    )
