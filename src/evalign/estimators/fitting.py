"""Train a network on labelled rows and fit its decision rule."""

import os
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.metrics import Metric
from evalign.decisions import fit_decision
from evalign.estimators.constrained import (
    ConstrainedScore,
    class_names,
    group_numbers,
    oriented_constraint,
)
from evalign.estimators.progress import EpochRecord, progress
from evalign.estimators.fitted import FittedClassifier
from evalign.estimators.folds import Folds
from evalign.estimators.members import Members, MembersAsRows
from evalign.estimators.network import (
    blockwise,
    build,
    check_logits,
    chosen,
    find_device,
    size_of_members,
)
from evalign.estimators.positive import oriented
from evalign.estimators.rows import LabelledRows, dense
from evalign.estimators.scaling import QuantileNormal, Standardizer
from evalign.estimators.recipes import RECIPES, Recipe, chosen_recipe
from evalign.tables.features import Features
from evalign.training import History, Settings, fit
from evalign.training.averaging import offsets_of


def fit_rows(
    arguments: dict[str, Any],
    training: LabelledRows,
    validation: LabelledRows,
    fold: np.ndarray | None,
    *,
    metric: Metric,
    classes: np.ndarray,
    names: list[str] | None,
    features: Features,
    seed: int,
    checkpoint: str | os.PathLike[str] | None,
) -> FittedClassifier:
    """Train, choose the best epoch on the validation rows and fit the decision rule to them.

    Args:
        arguments: of `AlignedClassifier`, checked.
        training: the rows to train on.
        validation: the rows that the epoch and the rule are chosen on.
        fold: the fold of each row if both are the same rows. A row is then validated by the
            networks that were not trained on its fold.
        metric: the metric that `arguments["metric"]` names.
        classes: the labels of the rows' codes; if multilabel, the numbers of their columns.
        names: the names of the labels if multilabel, where they have some.
        features: what was learned about the columns.
        seed: of the initial weights, shuffling and dropout.
        checkpoint: see `AlignedClassifier.fit`.
    """
    # Equal weights are left out, because the loop is faster without weights.
    equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1
    unit = None if equal else training.weight.mean()
    device, multilabel = find_device(arguments["device"]), training.y.ndim == 2
    X, kind = dense(training.X), arguments["network"]
    scaler = (
        QuantileNormal(X, features.width - features.numbers) if kind == "auto" else Standardizer(X)
    )
    folds = 0 if fold is None else int(fold.max()) + 1
    network = build(
        kind,
        scaler,
        len(classes),
        size=size_of_members(device, folds),
        folds=folds,
        dropout=chosen(arguments).dropout,
        seed=seed,
        multilabel=multilabel,
    )
    network.to(device).eval()
    rows, held_out = (part.tensors(scaler, device, unit) for part in (training, validation))
    if fold is not None:
        number = torch.from_numpy(fold).to(rows[0]).unsqueeze(1)
        rows = held_out = (torch.cat([rows[0], number], 1), *rows[1:])
    check_logits(network, held_out[0], len(classes))
    constraint, score = oriented_constraint(arguments, classes, multilabel), None
    names = names if constraint is None else class_names(classes)
    groups = group_numbers(constraint, class_names(classes), validation.groups)
    name = chosen_recipe(arguments["recipe"], constraint)
    task = "multilabel" if multilabel else "multiclass"
    recipe = RECIPES[name](metric, task, arguments["patience"])
    if constraint is not None and names is not None:
        score = ConstrainedScore(metric, constraint, tuple(names), recipe.loss, groups)
    history = _train(
        arguments, network, recipe, name, rows, held_out, metric, score, seed, checkpoint
    )
    rule = fit_decision(
        blockwise(network, held_out[0], device),
        torch.from_numpy(validation.y),
        metric=oriented(arguments["metric"], arguments["pos_label"], classes),
        decision=arguments["decision"],
        sample_weight=None if equal else torch.from_numpy(validation.weight),
        constraint=constraint,
        groups=groups,
        confidence=None if constraint is None else arguments["confidence"],
        classes=names,
        offsets=offsets_of(recipe.loss),
        task="multilabel" if multilabel else None,
    )
    return FittedClassifier(network, scaler, rule, classes, features, history, seed, kind)


def _train(
    arguments: dict[str, Any],
    network: nn.Module,
    recipe: Recipe,
    name: str,
    rows: tuple[Tensor, ...],
    held_out: tuple[Tensor, ...],
    metric: Metric,
    score: ConstrainedScore | None,
    seed: int,
    checkpoint: str | os.PathLike[str] | None,
) -> History:
    how = chosen(arguments, len(rows[0]), rows[0].device)
    several = isinstance(network, Members | Folds)
    loss = MembersAsRows(recipe.loss) if several else recipe.loss
    parts = [part for part in network.modules() if isinstance(part, Members)]
    show_bar = progress(name, metric.name, how.epochs)
    with show_bar if arguments["verbose"] else nullcontext() as show:
        listeners = [each for each in (show, arguments["on_epoch"]) if each is not None]

        def on_epoch(record: EpochRecord) -> None:
            for listener in listeners:
                listener(record)

        return fit(
            network,
            loss.to(held_out[0].device),
            *rows[:2],
            sample_weight=rows[2] if len(rows) > 2 else None,
            validation=held_out,
            metric=metric,
            score=score,
            settings=Settings(
                epochs=how.epochs,
                batch_size=how.batch_size,
                learning_rate=how.learning_rate,
                weight_decay=how.weight_decay,
                ema_decay=arguments["ema_decay"],
                patience=None if recipe.annealing else arguments["patience"],
                seed=seed,
            ),
            annealing=recipe.annealing,
            undecayed=[p for part in parts for p in part.undecayed],
            on_epoch=on_epoch,
            checkpoint=checkpoint,
            resume=True,
        )
