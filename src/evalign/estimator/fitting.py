"""Make a `Fitted` of labelled rows: train a network and fit the decision rule."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.metrics import Metric
from evalign.decisions import DecisionRule, fit_decision
from evalign.estimator.frames import Features
from evalign.estimator.network import blockwise, build, check_logits, find_device
from evalign.estimator.positive import oriented
from evalign.estimator.progress import EpochRecord, progress
from evalign.estimator.rows import LabelledRows, dense
from evalign.estimator.state import Fitted
from evalign.recipes import RECIPES, Recipe
from evalign.training import History, Settings, Standardizer, fit
from evalign.training.settings import usual_batch_size


def fit_rows(
    arguments: dict[str, Any],
    training: LabelledRows,
    validation: LabelledRows,
    *,
    metric: Metric,
    classes: np.ndarray,
    features: Features,
    seed: int,
    before: Fitted | None,
    checkpoint: str | os.PathLike[str] | None,
) -> Fitted:
    """Train, choose the best epoch on the validation rows and fit the decision rule on them.

    Args:
        arguments: of `AlignedClassifier`, checked.
        training: the rows to learn from.
        validation: the rows to choose on.
        metric: what `arguments["metric"]` stands for.
        classes: the labels of the rows' codes.
        features: what was learnt of the columns.
        seed: of the initial weights, the shuffling and dropout.
        before: the fit that a warm start continues from.
        checkpoint: see `AlignedClassifier.fit`.
    """
    # Equal weights are left out, because the loop is quicker without weights.
    equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1
    unit = None if equal else training.weight.mean()
    device, width = find_device(arguments["device"]), training.X.shape[1]
    if before is None:
        standardizer = Standardizer(dense(training.X))
        dropout = arguments["dropout"]
        network = build(arguments["network"], width, len(classes), dropout=dropout, seed=seed)
    else:
        standardizer, network = before.standardizer, before.network
    network.to(device)
    past = [] if before is None else before.history
    if len(classes) == 1:  # nothing to learn
        rule = DecisionRule(torch.eye(1).double(), "argmax", "argmax")
        return Fitted(network, standardizer, rule, classes, features, past, seed)

    rows, held_out = (part.tensors(standardizer, device, unit) for part in (training, validation))
    check_logits(network, held_out[0], len(classes))
    counts = training.class_counts(len(classes))
    recipe = RECIPES[arguments["recipe"]](metric, counts, arguments["patience"])
    history = _train(arguments, network, recipe, rows, held_out, metric, seed, past, checkpoint)
    rule = fit_decision(
        blockwise(network, held_out[0], device),
        torch.from_numpy(validation.y),
        metric=oriented(arguments["metric"], arguments["pos_label"], classes),
        decision=arguments["decision"],
        sample_weight=None if equal else torch.from_numpy(validation.weight),
        offsets=recipe.offsets,
    )
    history = [*past, *(_after(past, record) for record in history)]
    return Fitted(network, standardizer, rule, classes, features, history, seed)


def _train(
    arguments: dict[str, Any],
    network: nn.Module,
    recipe: Recipe,
    rows: tuple[Tensor, ...],
    held_out: tuple[Tensor, ...],
    metric: Metric,
    seed: int,
    past: History,
    checkpoint: str | os.PathLike[str] | None,
) -> History:
    epochs = arguments["epochs"]
    show_bar = progress(arguments["recipe"], metric.name, len(past) + epochs)
    with show_bar if arguments["verbose"] else nullcontext() as show:
        told: list[Callable[[EpochRecord], object] | None] = [show, arguments["on_epoch"]]

        def on_epoch(record: EpochRecord) -> None:
            for tell in told:
                if tell is not None:
                    tell(_after(past, record))

        return fit(
            network,
            recipe.loss.to(held_out[0].device),
            *rows[:2],
            sample_weight=rows[2] if len(rows) == 3 else None,
            validation=held_out,
            metric=metric,
            settings=Settings(
                epochs=epochs,
                batch_size=arguments["batch_size"] or usual_batch_size(len(rows[0])),
                learning_rate=arguments["learning_rate"],
                weight_decay=arguments["weight_decay"],
                ema_decay=arguments["ema_decay"],
                patience=None if recipe.annealing else arguments["patience"],
                seed=(seed + len(past)) % 2**31,
            ),
            annealing=recipe.annealing,
            on_epoch=on_epoch,
            checkpoint=checkpoint,
            resume=True,
        )


def _after(past: History, record: EpochRecord) -> EpochRecord:
    """The record of an epoch, counted from the first fit on."""
    return record | {"epoch": record["epoch"] + len(past)}
