"""Rows per second of training, compared in one run with a bare PyTorch loop and skorch.

    python benchmarks/loop_speed.py --data creditcard.npz --out loop_speed.json

All train the same network (MLP 512-256-128 with dropout) with AdamW on batches of 2048 rows of the
credit card data, and validate after every epoch. The bare loop is what a careful person would
write: tensors on the device, batches by slices of a permutation, no gradient norm. skorch iterates
as it does by default. The time of AlignedClassifier includes all that its `fit` does: reading,
splitting, standardising and fitting the decision rule.

A round times each once. The order rotates from round to round, and medians are reported, since the
load of the machine varies. Rows per second are given for wall time and for processor time, which
other programs disturb less; with several threads processor time includes their waiting.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.dataset import Dataset
from skorch.helper import predefined_split
from torch import Tensor, nn
from torch.nn import functional as F

import evalign
from evalign import AlignedClassifier
from evalign.losses import AlignedLoss
from evalign.training import Settings, fit, holdout_split

BATCH, RATE, DECAY = 2048, 1e-3, 1e-4
METRIC = "f1"
Rows = tuple[Tensor, Tensor]


def network(device: torch.device, features: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(features, 512), nn.ReLU(), nn.Dropout(0.2)]
    layers += [nn.Linear(512, 256), nn.ReLU(), nn.Dropout(0.2)]
    layers += [nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 2)]
    return nn.Sequential(*layers).to(device)


def bare_loop(model: nn.Module, rows: Rows, held_out: Rows, epochs: int) -> list[Any]:
    X, y = rows
    X_validation, y_validation = held_out
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    history = []
    for _ in range(epochs):
        model.train()
        for index in torch.randperm(len(X), device=X.device).split(BATCH):
            loss = F.cross_entropy(model(X[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = torch.cat([model(x) for x in X_validation.split(4 * BATCH)])
            loss = F.cross_entropy(logits, y_validation)
            predicted = logits.argmax(1)
            hits = (predicted * y_validation).sum()
            f1 = 2 * hits / (predicted.sum() + y_validation.sum())
            history.append((loss.item(), f1.item()))
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="creditcard.npz with X and y")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.data.is_file():
        sys.exit(f"--data must name creditcard.npz. Got {arguments.data}.")
    torch.set_num_threads(arguments.threads)
    device, epochs = torch.device(arguments.device), arguments.epochs

    with np.load(arguments.data) as data:
        table, labels = data["X"], data["y"].astype(np.int64)
    kept, held = holdout_split(labels)
    X, y = torch.from_numpy(table), torch.from_numpy(labels)
    mean, deviation = X[kept].mean(0), X[kept].std(0)
    rows = ((X[kept] - mean) / deviation).to(device), y[kept].to(device)
    held_out = ((X[held] - mean) / deviation).to(device), y[held].to(device)
    settings = Settings(epochs, BATCH, RATE, DECAY, patience=None)

    def training(loss: nn.Module) -> None:
        model = network(device, X.shape[1])
        fit(model, loss.to(device), *rows, validation=held_out, metric=METRIC, settings=settings)

    def estimator(recipe: str) -> None:
        AlignedClassifier(
            METRIC,
            recipe=recipe,
            network=lambda features, classes: network(torch.device("cpu"), features),
            epochs=epochs,
            batch_size=BATCH,
            learning_rate=RATE,
            patience=None,
            device=arguments.device,
            random_state=0,
        ).fit(table, labels)

    def skorch() -> None:
        NeuralNetClassifier(
            network(device, X.shape[1]),
            criterion=nn.CrossEntropyLoss,
            optimizer=torch.optim.AdamW,
            optimizer__weight_decay=DECAY,
            optimizer__fused=True,
            lr=RATE,
            max_epochs=epochs,
            batch_size=BATCH,
            iterator_train__shuffle=True,
            train_split=predefined_split(Dataset(*(part.cpu() for part in held_out))),
            verbose=0,
            device=arguments.device,
        ).fit(*(part.cpu().numpy() for part in rows))

    contestants: dict[str, Callable[[], Any]] = {
        "bare loop": lambda: bare_loop(network(device, X.shape[1]), rows, held_out, epochs),
        "training.fit": lambda: training(nn.CrossEntropyLoss()),
        "training.fit, aligned": lambda: training(AlignedLoss(METRIC)),
        "AlignedClassifier": lambda: estimator("cross_entropy"),
        "AlignedClassifier, aligned": lambda: estimator("aligned"),
        "skorch": skorch,
    }
    # Not timed, as the first optimiser of a process loads torch's compiler.
    bare_loop(
        network(device, X.shape[1]), *((a[:BATCH], b[:BATCH]) for a, b in (rows, held_out)), 1
    )
    clocks = {"rows_per_second": time.perf_counter, "rows_per_cpu_second": time.process_time}
    took: dict[str, dict[str, list[float]]] = {c: {n: [] for n in contestants} for c in clocks}
    names = list(contestants)
    for turn in range(arguments.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = {clock: now() for clock, now in clocks.items()}
            contestants[name]()
            for clock, now in clocks.items():
                took[clock][name].append(epochs * len(rows[0]) / (now() - start[clock]))
            print(f"{name}: {took['rows_per_second'][name][-1]:,.0f} rows/s", file=sys.stderr)

    median = {
        clock: {name: statistics.median(rates) for name, rates in by_name.items()}
        for clock, by_name in took.items()
    }
    result: dict[str, Any] = {
        "rows": len(rows[0]),
        "validation_rows": len(held),
        "batch_size": BATCH,
        "epochs": epochs,
        "rounds": arguments.rounds,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": arguments.threads,
        "cpus": os.cpu_count(),
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "skorch")},
        "evalign": evalign.__version__,
        "all_rounds": took,
        "median": median,
        "ratio": {
            clock: {
                f"{ours} / {theirs}": speed[ours] / speed[theirs]
                for ours in ("training.fit", "AlignedClassifier", "bare loop")
                for theirs in ("bare loop", "skorch")
                if ours != theirs
            }
            for clock, speed in median.items()
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
