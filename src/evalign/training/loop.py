"""The fit loop: AdamW over shuffled mini-batches, the best epoch by the true metric, resumable."""

import copy
import math
import time
import warnings
from collections.abc import Callable
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from torch.utils.data import DataLoader

from evalign.core.checks import require
from evalign.core.metrics import MetricFunction, resolve
from evalign.losses.temperature import HasTemperature
from evalign.training import checkpoint as checkpoints
from evalign.training.advice import TrainingWarning, advice, batch_advice
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.batches import Data, check_data, generators, in_order, shuffled
from evalign.training.settings import Settings
from evalign.training.state import History, RunState, describe, fingerprint
from evalign.training.validation import loss_of, validate


def fit(
    network: nn.Module,
    loss: Callable[..., Tensor],
    X: Tensor | DataLoader,
    y: Tensor | None = None,
    *,
    validation: Data,
    metric: str | MetricFunction,
    settings: Settings | None = None,
    sample_weight: Tensor | None = None,
    annealing: TemperatureAnnealing | None = None,
    on_epoch: Callable[[dict[str, Any]], object] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    resume: bool = False,
) -> History:
    """Train `network` in place; afterwards it holds the weights of the best epoch, in eval mode.

    Args:
        network: any module from rows to logits.
        loss: called as loss(logits, target), with sample_weight=... where there are weights. A
            module's state (temperature, running statistics) is part of the checkpoint; it is in
            eval mode while the validation rows are looked at.
        X: the training rows, on the network's device; or a DataLoader that yields (x, y) or
            (x, y, sample_weight), for data that does not fit, and sets the batch size itself.
        y: their targets; None with a DataLoader.
        validation: (X, y) or (X, y, sample_weight) of the validation rows, or a DataLoader.
        metric: a name, or a function of a `Confusion`; evaluated on labels (argmax; logit > 0).
        settings: how to train; None for the defaults.
        sample_weight: a weight per training row.
        annealing: stepped with the watched score after each epoch; training ends with it.
        on_epoch: called with each record of the history. What it changes in the loss or the
            network is part of the checkpoint.
        checkpoint: folder to save to after the first epoch, then every `checkpoint_every`
            seconds, at the end and, as of the last whole epoch, on Ctrl-C or an error.
        checkpoint_every: seconds; 0 saves after every epoch.
        resume: go on from `checkpoint` if it exists. All other arguments must be as they were; on
            the CPU the weights are then, to the bit, those of a run that was never stopped.

    Returns:
        A record per epoch: "epoch" (from 1), "seconds", "learning_rate", "temperature", "loss",
        "gradient_norm" (mean, before clipping), "validation_loss", "validation_metric",
        "collapsed" (one class predicted for all rows), "best" (so far), "warnings" (kinds).

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
    watched = f"validation_{settings.watch}"
    sign = 1 if metric.greater_is_better and settings.watch == "metric" else -1
    if annealing is not None:
        allowed, got = f"be {sign > 0} for the watched {settings.watch}", sign < 0
        same = annealing.greater_is_better == (sign > 0)
        require(same, "annealing", "greater_is_better", allowed, got)
    parameters = [p for p in network.parameters() if p.requires_grad]
    require(bool(parameters), "fit", "network", "have parameters to train", "none")
    device = parameters[0].device
    data = check_data("X", X if y is None else (X, y), device)
    if sample_weight is not None:
        data = check_data("sample_weight", (X, y, sample_weight), device)
    validation = check_data("validation", validation, device)
    whole = isinstance(data, tuple)
    batches = math.ceil(len(data[0]) / settings.batch_size) if whole else len(data)
    steps = settings.epochs * batches

    fused = device.type in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(parameters, weight_decay=settings.weight_decay, fused=fused)
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(settings.precision)
    scaler = torch.amp.GradScaler(device.type, enabled=half == torch.float16)
    averaged = copy.deepcopy(network).requires_grad_(False) if settings.ema_decay else network
    sources = generators(data, device)
    call: dict[str, Any] = {"batches per epoch": batches}
    if checkpoint is not None:
        call |= {"loss": describe(loss), "metric": describe(metric)}
        call["the fingerprint of the rows"] = fingerprint(data, validation)
    run = RunState(settings, call, network, averaged, optimizer, scaler, loss, annealing, sources)
    history = run.history
    unsaved: dict[str, Any] | None = None
    next_save = 0.0

    def predict(network: nn.Module, x: Tensor) -> Tensor:
        if half is None:
            return network(x)
        with torch.autocast(device.type, half):
            return network(x).float()

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for name in sources.keys() - {"loader"}:  # the loader's is the caller's
            sources[name].manual_seed(settings.seed)
        if resume and checkpoint is not None and checkpoints.exists(checkpoint):
            run.load_state_dict(checkpoints.load(checkpoint))
        if whole and not history and (text := batch_advice(loss, data[1], settings.batch_size)):
            warnings.warn(text, TrainingWarning, stacklevel=2)
        try:
            while not _finished(history, settings, annealing):
                start = time.perf_counter()
                step = len(history) * batches
                temperature = _temperature(loss)
                rate = 0.0
                # Summed on the device and read once per epoch: a read waits for the device.
                loss_sum = norm_sum = torch.zeros((), device=device)
                _set_mode(True, network, loss)
                for x, target, *weight in shuffled(data, batches, sources["order"], device):
                    rate = settings.rate(step, steps)
                    for group in optimizer.param_groups:
                        group["lr"] = rate
                    value = loss_of(loss, predict(network, x), target, *weight)
                    optimizer.zero_grad()
                    scaler.scale(value).backward()
                    scaler.unscale_(optimizer)
                    norm = nn.utils.clip_grad_norm_(parameters, settings.clip_norm or math.inf)
                    scaler.step(optimizer)
                    scaler.update()
                    if settings.ema_decay:
                        _average(averaged, network, settings.decay(step))
                    loss_sum, norm_sum = loss_sum + value.detach(), norm_sum + norm
                    step += 1

                _set_mode(False, averaged, loss)
                rows = in_order(validation, 4 * settings.batch_size, device)
                checked = validate(
                    lambda x: predict(averaged, x), loss, metric, rows, settings.batch_size
                )
                record = {
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
                score = sign * record[watched]
                scores = [sign * past[watched] for past in history if past["best"]]
                record["best"] = score > max(scores, default=-math.inf)  # never for NaN
                if record["best"]:
                    weights = averaged.state_dict()
                    run.best = {name: weight.clone() for name, weight in weights.items()}
                if annealing is not None:
                    annealing.step(record[watched])

                history.append(record)
                said = {kind for past in history[:-1] for kind in past["warnings"]}
                found = dict(advice(history, greater_is_better=metric.greater_is_better))
                record["warnings"] = sorted(found.keys() - said)
                for kind in record["warnings"]:
                    warnings.warn(found[kind], TrainingWarning, stacklevel=2)
                if on_epoch is not None:
                    on_epoch(record)
                if checkpoint is not None:
                    unsaved = run.state_dict()
                    if time.monotonic() >= next_save:
                        checkpoints.save(checkpoint, unsaved)
                        unsaved = None
                        next_save = time.monotonic() + checkpoint_every
        finally:  # Ctrl-C and errors come by here too
            if checkpoint is not None and unsaved is not None:
                checkpoints.save(checkpoint, unsaved)
            if run.best:
                network.load_state_dict(run.best)
            _set_mode(False, network)
            _set_mode(True, loss)
    return history


def _finished(history: History, settings: Settings, annealing: TemperatureAnnealing | None) -> bool:
    if not history:
        return False
    best = max((record["epoch"] for record in history if record["best"]), default=0)
    return (
        len(history) >= settings.epochs
        or len(history) - best >= (settings.patience or math.inf)
        or not math.isfinite(history[-1]["validation_loss"])  # diverged
        or (annealing is not None and annealing.finished)
    )


def _set_mode(training: bool, *modules: object) -> None:
    for module in modules:
        if isinstance(module, nn.Module):
            module.train(training)


def _temperature(loss: object) -> float | None:
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    return next((m.temperature.item() for m in modules if isinstance(m, HasTemperature)), None)


def _average(averaged: nn.Module, network: nn.Module, decay: float) -> None:
    average = get_ema_multi_avg_fn(decay)
    average(list(averaged.parameters()), list(network.parameters()), 0)
    for mean, buffer in zip(averaged.buffers(), network.buffers(), strict=True):
        mean.copy_(buffer)
