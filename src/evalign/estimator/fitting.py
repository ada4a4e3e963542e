"""Make a `Fitted` of labelled rows: train a network and fit the decision rule."""

import copy
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.core.metrics import Metric
from evalign.decisions import DecisionRule, fit_decision
from evalign.estimator.constrained import (
    ConstrainedScore,
    class_names,
    group_numbers,
    oriented_constraint,
)
from evalign.estimator.folds import Folds
from evalign.estimator.frames import Features
from evalign.estimator.members import Members, MembersAsRows
from evalign.estimator.network import (
    blockwise,
    build,
    check_logits,
    chosen,
    find_device,
    size_of_members,
)
from evalign.estimator.positive import oriented
from evalign.estimator.progress import EpochRecord, progress
from evalign.estimator.quantiles import QuantileNormal
from evalign.estimator.rows import OWNER, LabelledRows, dense
from evalign.estimator.state import Fitted
from evalign.recipes import RECIPES, Aim, Recipe
from evalign.training import History, Settings, Standardizer, fit


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
    before: Fitted | None,
    checkpoint: str | os.PathLike[str] | None,
) -> Fitted:
    """Train, choose the best epoch on the validation rows and fit the decision rule on them.

    Args:
        arguments: of `AlignedClassifier`, checked.
        training: the rows to learn from.
        validation: the rows to choose on.
        fold: of each row, where both are the same rows: it is chosen on what the networks of other
            folds say of it.
        metric: what `arguments["metric"]` stands for.
        classes: the labels of the rows' codes; of many labels a row, the numbers of their columns.
        names: of many labels a row, where they have some.
        features: what was learnt of the columns.
        seed: of the initial weights, the shuffling and dropout.
        before: the fit that a warm start continues from.
        checkpoint: see `AlignedClassifier.fit`.
    """
    # Equal weights are left out, because the loop is quicker without weights.
    equal = len(np.unique(np.concatenate([training.weight, validation.weight]))) == 1
    unit = None if equal else training.weight.mean()
    device, many = find_device(arguments["device"]), training.y.ndim == 2
    if before is None:
        X, kind = dense(training.X), arguments["network"]
        scaler = (
            QuantileNormal(X, features.width - features.numbers)
            if kind == "auto"
            else Standardizer(X)
        )
        folds = 0 if fold is None else int(fold.max()) + 1
        size, dropout = size_of_members(device, folds), chosen(arguments).dropout
        about = {"size": size, "folds": folds, "dropout": dropout, "seed": seed}
        network = build(kind, scaler, len(classes), **about, multilabel=many)
    else:
        allowed = f"be that of the last fit for warm_start, {before.kind!r}"
        got, cure = arguments["network"], "Set it back, or fit without warm_start."
        require(got == before.kind, OWNER, "network", allowed, repr(got), cure)
        # A copy, so that what was fitted stays whole if this training is stopped.
        scaler, network, kind = before.scaler, copy.deepcopy(before.network), before.kind
    network.to(device).eval()
    past = [] if before is None else before.history
    if len(classes) == 1:  # nothing to learn
        rule = DecisionRule(torch.eye(1).double(), "argmax", "argmax")
        return Fitted(network, scaler, rule, classes, features, past, seed, kind)

    rows, held_out = (part.tensors(scaler, device, unit) for part in (training, validation))
    if fold is not None:
        number = torch.from_numpy(fold).to(rows[0]).unsqueeze(1)
        rows = held_out = (torch.cat([rows[0], number], 1), *rows[1:])
    check_logits(network, held_out[0], len(classes))
    counts = training.class_counts(len(classes))
    constraint = oriented_constraint(arguments, classes, many)
    names = names if constraint is None else class_names(classes)
    numbers = group_numbers(constraint, class_names(classes), training, validation)
    aim = Aim(metric, counts, arguments["patience"], constraint, names)
    recipe = RECIPES[arguments["recipe"]](aim)
    for part in network.modules():
        if isinstance(part, Members | Folds):
            part.offsets.copy_(recipe.offsets)
    apart = None if numbers is None else numbers[1]
    history = _train(arguments, network, recipe, rows, held_out, apart, aim, seed, past, checkpoint)
    rule = fit_decision(
        blockwise(network, held_out[0], device),
        torch.from_numpy(validation.y),
        metric=oriented(arguments["metric"], arguments["pos_label"], classes),
        decision=arguments["decision"],
        sample_weight=None if equal else torch.from_numpy(validation.weight),
        constraint=constraint,
        groups=apart,
        confidence=None if constraint is None else arguments["confidence"],
        classes=names,
        offsets=recipe.offsets,
        task="multilabel" if many else None,
    )
    history = [*past, *(_after(past, record) for record in history)]
    return Fitted(network, scaler, rule, classes, features, history, seed, kind)


def _train(
    arguments: dict[str, Any],
    network: nn.Module,
    recipe: Recipe,
    rows: tuple[Tensor, ...],
    held_out: tuple[Tensor, ...],
    apart: np.ndarray | None,
    aim: Aim,
    seed: int,
    past: History,
    checkpoint: str | os.PathLike[str] | None,
) -> History:
    how = chosen(arguments, len(rows[0]), rows[0].device)
    score = None
    if aim.constraint is not None and aim.classes is not None:
        offsets = tuple(recipe.offsets.tolist())
        score = ConstrainedScore(aim.metric, aim.constraint, tuple(aim.classes), offsets, apart)
    several = isinstance(network, Members | Folds)
    loss = MembersAsRows(recipe.loss) if several else recipe.loss
    parts = [part for part in network.modules() if isinstance(part, Members)]
    show_bar = progress(arguments["recipe"], aim.metric.name, len(past) + how.epochs)
    with show_bar if arguments["verbose"] else nullcontext() as show:
        told: list[Callable[[EpochRecord], object] | None] = [show, arguments["on_epoch"]]

        def on_epoch(record: EpochRecord) -> None:
            for tell in told:
                if tell is not None:
                    tell(_after(past, record))

        return fit(
            network,
            loss.to(held_out[0].device),
            *rows[:2],
            sample_weight=rows[2] if len(rows) > 2 else None,
            validation=held_out,
            metric=aim.metric,
            score=score,
            settings=Settings(
                epochs=how.epochs,
                batch_size=how.batch_size,
                learning_rate=how.learning_rate,
                weight_decay=how.weight_decay,
                ema_decay=arguments["ema_decay"],
                patience=None if recipe.annealing else arguments["patience"],
                seed=(seed + len(past)) % 2**31,
            ),
            annealing=recipe.annealing,
            undecayed=[p for part in parts for p in part.undecayed],
            on_epoch=on_epoch,
            checkpoint=checkpoint,
            resume=True,
        )


def _after(past: History, record: EpochRecord) -> EpochRecord:
    """The record of an epoch, counted from the first fit on."""
    return record | {"epoch": record["epoch"] + len(past)}
