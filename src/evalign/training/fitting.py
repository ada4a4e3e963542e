"""Train a network on labelled rows."""

import os
from typing import Any

import numpy as np
from torch import Tensor, nn

from evalign.core.metrics import Metric
from evalign.estimators.candidates import chosen_recipe
from evalign.estimators.progress import narrated
from evalign.estimators.rows import LabelledRows
from evalign.tables.features import Features
from evalign.training.averaging import offsets_of
from evalign.training.classifier_rows import dense, tensors
from evalign.training.loop import fit
from evalign.training.members import Members, MembersAsRows
from evalign.training.network import (
    blockwise,
    build,
    check_logits,
    chosen,
    find_device,
    size_of_members,
)
from evalign.training.recipes import ingredients, training_of, usual_steps
from evalign.training.run import History
from evalign.training.scaling import QuantileNormal
from evalign.training.settings import Settings


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
    rows, held_out = (tensors(part, scaler, device, unit) for part in (training, validation))
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


def epoch_line(title: str, metric: str, epochs: int, record: dict[str, Any]) -> str:
    """The record of an epoch in words; a star marks the best so far."""
    temperature = record["temperature"]
    cooled = "" if temperature is None else f"temperature {temperature:.3g}  "
    score = f"{metric} {record['validation_metric']:.4f}{'*' if record['best'] else ''}"
    loss = f"loss {record['validation_loss']:.4f}"
    return f"{title}: epoch {record['epoch']}/{epochs}  {cooled}{loss}  {score}"
