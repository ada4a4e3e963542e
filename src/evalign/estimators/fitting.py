"""Train a network on labelled rows."""

import os
from typing import Any

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
from evalign.training.recipes import chosen_recipe, ingredients, training_of, usual_steps


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
) -> tuple[nn.Module, QuantileNormal, History, Tensor, Tensor | None]:
    """Train, and choose the best epoch on the validation rows.

    The network, the scaling before it and its history, then the logits of the validation rows and
    the offsets of the loss.

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
    patience = arguments["patience"]
    loss, annealing = ingredients(name, metric, task, patience, classes)
    steps = chosen(arguments, len(rows[0]), device, usual_steps(name))
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
            settings=Settings(**steps._asdict(), **training_of(name, patience), seed=seed),
            sample_weight=rows[2] if len(rows) > 2 else None,
            annealing=annealing,
            undecayed=network.undecayed if several and name != "east" else (),
            on_epoch=on_epoch,
            checkpoint=checkpoint,
            resume=True,
        )
    return network, scaler, history, blockwise(network, held_out[0], device), offsets_of(loss)
