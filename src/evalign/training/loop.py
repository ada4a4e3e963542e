"""The fit loop: AdamW over shuffled mini-batches, the best epoch by the true metric, resumable."""

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from evalign.core.checks import require
from evalign.core.errors import TrainingWarning
from evalign.core.metrics import MetricFunction, resolve
from evalign.store import archive
from evalign.training.advice import new_advice
from evalign.training.annealing import TemperatureAnnealing, part_with_temperature
from evalign.training.averaging import offsets_of, set_offsets
from evalign.training.batches import Rows, check_rows, generators, shuffled
from evalign.training.checkpoint import Saver
from evalign.training.early_stopping import EarlyStopping
from evalign.training.run import History, TrainingRun
from evalign.training.settings import Settings
from evalign.training.validation import loss_of, validate


def fit(
    network: nn.Module,
    loss: Callable[..., Tensor],
    X: Tensor,
    y: Tensor,
    *,
    validation: Rows,
    metric: str | MetricFunction,
    score: Callable[..., Tensor] | None = None,
    settings: Settings | None = None,
    sample_weight: Tensor | None = None,
    annealing: TemperatureAnnealing | None = None,
    undecayed: Iterable[nn.Parameter] = (),
    on_epoch: Callable[[dict[str, Any]], object] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    resume: bool = False,
) -> History:
    """Train `network` in place; afterwards it holds the weights of the best epoch, in eval mode.

    The `offsets` of an `AlignedLoss` are then those of that epoch too. They are averaged over the
    steps as the weights are.

    Args:
        network: any module from rows to logits.
        loss: called as loss(logits, target), with sample_weight=... if there are weights. A
            module's state (temperature, running statistics) is part of the checkpoint; the module
            is in eval mode for the validation rows.
        X: the training rows, on the network's device.
        y: their targets.
        validation: the validation rows, as (X, y) or (X, y, sample_weight).
        metric: a name, or a function of a `Confusion`; evaluated on labels (argmax; logit > 0).
        score: scores an epoch in place of the metric. It is called with the logits, the targets
            and, if there are any, the weights of all validation rows.
        settings: how to train; None for the defaults.
        sample_weight: a weight per training row.
        annealing: stepped with the watched score after each epoch; training ends with it.
        undecayed: the parameters of the network without weight decay.
        on_epoch: called with each record of the history. Its changes to the loss or the network
            are part of the checkpoint.
        checkpoint: file to save to after the first epoch, then every `checkpoint_every`
            seconds, at the end and, as of the last whole epoch, on Ctrl-C or an error.
        checkpoint_every: seconds; 0 saves after every epoch.
        resume: continue from `checkpoint` if it exists. All other arguments must be as before: a
            loss, metric or network with other settings is refused. On the CPU the weights are, to
            the bit, those of a run that was never stopped.

    Returns:
        A record per epoch: "epoch" (from 1), "seconds", "learning_rate", "temperature", "loss",
        "gradient_norm" (mean, before clipping), "validation_loss", "validation_metric",
        "collapsed" (all rows predicted as one class), "best" (so far), "warnings" (kinds).

    Examples:
        >>> X = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (X[:, 0] > 0.5).long()
        >>> rows, held_out = (X[:192], y[:192]), (X[192:], y[192:])
        >>> network, loss = nn.Linear(4, 2), nn.CrossEntropyLoss()
        >>> settings = Settings(epochs=20, batch_size=32, learning_rate=0.1)
        >>> history = fit(network, loss, *rows, validation=held_out, metric="f1", settings=settings)
        >>> max(record["validation_metric"] for record in history) > 0.9
        True
    """
    settings = settings or Settings()
    metric = resolve(metric, owner="fit")
    parameters = [p for p in network.parameters() if p.requires_grad]
    require(bool(parameters), "fit", "network", "have parameters to train", "none")
    device = parameters[0].device
    data = check_rows("X", (X, y) if sample_weight is None else (X, y, sample_weight))
    validation = check_rows("validation", validation)
    batches = math.ceil(len(X) / settings.batch_size)
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(settings.precision)
    fused = device.type in ("cpu", "cuda")
    left_alone = set(undecayed)
    by_decay: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p not in left_alone]},
        {"params": [p for p in parameters if p in left_alone], "weight_decay": 0.0},
    ]
    run = TrainingRun(
        settings,
        network,
        averaged=copy.deepcopy(network).requires_grad_(False) if settings.ema_decay else network,
        optimizer=torch.optim.AdamW(by_decay, weight_decay=settings.weight_decay, fused=fused),
        scaler=torch.amp.GradScaler(device.type, enabled=half == torch.float16),
        loss=loss,
        stopping=EarlyStopping(
            {"metric": metric.greater_is_better, "loss": False},
            epochs=settings.epochs,
            watch=settings.watch,
            patience=settings.patience,
            annealing=annealing,
        ),
        generators=generators(device),
    )
    if checkpoint is not None:
        run.describe(batches, metric, score, data, validation)
    history = run.history

    def predict(network: nn.Module, x: Tensor) -> Tensor:
        if half is None:
            return network(x)
        with torch.autocast(device.type, half):
            return network(x).float()

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for source in run.generators.values():
            source.manual_seed(settings.seed)
        if resume and checkpoint is not None and Path(checkpoint).exists():
            run.load_state_dict(archive.load(checkpoint, archive.CHECKPOINT))
        saver = Saver(checkpoint, checkpoint_every)
        try:
            while not run.stopping.finished:
                start, cooled = time.perf_counter(), part_with_temperature(loss)
                temperature = None if cooled is None else cooled.temperature.item()

                _set_mode(True, network, loss)
                rate, loss_sum, norm_sum = _train(run, predict, parameters, data, batches)
                _set_mode(False, run.averaged, loss)
                current = copy.deepcopy(offsets_of(loss))
                set_offsets(run.offsets, loss, run.averaged)
                checked = validate(
                    lambda x: predict(run.averaged, x),
                    loss,
                    metric,
                    validation,
                    settings.batch_size,
                    score,
                )
                set_offsets(current, loss)
                record: dict[str, Any] = {
                    "epoch": len(history) + 1,
                    "seconds": time.perf_counter() - start,
                    "learning_rate": rate,
                    "temperature": temperature,
                    "loss": loss_sum.item() / batches,
                    "gradient_norm": norm_sum.item() / batches,
                    "validation_loss": checked.loss.item(),
                    "validation_metric": checked.metric.item(),
                    "collapsed": bool(checked.collapsed),
                }
                diverged = not math.isfinite(record["validation_loss"])
                watched = {settings.watch: record[f"validation_{settings.watch}"]}
                record["best"] = bool(run.stopping.note(watched, diverged=diverged))
                if record["best"]:
                    run.keep_best()
                history.append(record)
                found = new_advice(history)
                record["warnings"] = sorted(found)
                for kind in record["warnings"]:
                    warnings.warn(found[kind], TrainingWarning, stacklevel=2)
                if on_epoch is not None:
                    on_epoch(record)
                saver.give(run.state_dict)
        finally:  # also on Ctrl-C and after an error
            if run.best:
                network.load_state_dict(run.best["network"])
                set_offsets(run.best["offsets"], loss)
            _set_mode(False, network)
            _set_mode(True, loss)
            saver.close()  # last: the disk may be full
    return history


def _train(
    run: TrainingRun,
    predict: Callable[[nn.Module, Tensor], Tensor],
    parameters: list[nn.Parameter],
    rows: Rows,
    batches: int,
) -> tuple[float, Tensor, Tensor]:
    """Train for one epoch; return the learning rate, and the sums of losses and gradient norms."""
    settings, device = run.settings, parameters[0].device
    step, rate = len(run.history) * batches, 0.0
    # Sums stay on the device and are read once per epoch, because a read waits for the device.
    loss_sum = norm_sum = torch.zeros((), device=device)
    for x, target, *weight in shuffled(rows, batches, run.generators["order"]):
        rate = settings.rate(step, settings.epochs * batches)
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        value = loss_of(run.loss, predict(run.network, x), target, *weight)
        run.optimizer.zero_grad()
        run.scaler.scale(value).backward()
        run.scaler.unscale_(run.optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, settings.clip_norm or math.inf)
        run.scaler.step(run.optimizer)
        run.scaler.update()
        run.average(settings.decay(step))
        loss_sum, norm_sum = loss_sum + value.detach(), norm_sum + norm
        step += 1
    return rate, loss_sum, norm_sum


def _set_mode(training: bool, *modules: object) -> None:
    for module in modules:
        if isinstance(module, nn.Module):
            module.train(training)
