"""Time to train many models at once (`fit_many`) and one after the other (`fit`), in one run.

    python study/benchmarks/many_speed.py --device cuda --batch-sizes 128 2048 \\
        --out study/benchmarks/results/many_speed_cuda.json

The members are those of the papers' grid for one batch size: five losses, three learning rates,
two dropouts, and two cooling rates for three of the losses: 48 networks (MLP 512-256-128) on made
rows of the size of the Adult data. `fit_many` trains all of them. `fit` trains a few, with every
loss among them, and the mean time of one is reported.
"""

import argparse
import itertools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from evalign_study.networks import mlp
from evalign_study.trainers.many import Member, fit_many
from torch import nn

from evalign import MetricLoss, TemperatureAnnealing
from evalign.losses import DiceLoss
from evalign.training import Settings, fit

ROWS, HELD_OUT, FEATURES = 31_000, 8_000, 13


def members() -> list[Member]:
    soft = [MetricLoss(name, task="multiclass") for name in ("f1", "accuracy", "matthews_corrcoef")]
    plain = [DiceLoss(task="multiclass"), nn.CrossEntropyLoss()]
    ways = [(loss, {"rate": rate}) for loss in soft for rate in (0.8, 0.9)]
    ways += [(loss, None) for loss in plain]
    return [
        Member(loss, learning_rate=rate, dropout=dropout, annealing=annealing)
        for (loss, annealing), rate, dropout in itertools.product(
            ways, (0.01, 0.001, 0.0001), (0.25, 0.5)
        )
    ]


def seconds(run: Callable[[], Any], device: str) -> float:
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device, grid = arguments.device, members()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    random = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS + HELD_OUT, FEATURES, generator=random).to(device)
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 1).long()
    rows, held_out = (X[:ROWS], y[:ROWS]), (X[ROWS:], y[ROWS:])

    def together(settings: Settings) -> None:
        fit_many(build, grid, *rows, validation=held_out, metric="f1", settings=settings)

    def alone(member: Member, settings: Settings) -> None:
        network = mlp(FEATURES, 2, dropout=member.dropout).to(device)
        annealing = member.annealing and TemperatureAnnealing(member.loss, **member.annealing)
        fit(
            network,
            member.loss.to(device),
            *rows,
            validation=held_out,
            metric="f1",
            annealing=annealing,
            settings=settings,
        )

    def build() -> nn.Module:
        return mlp(FEATURES, 2)

    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "cpus": os.cpu_count(),
        "threads": arguments.threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "members": len(grid),
        "epochs": arguments.epochs,
        "batch_sizes": {},
    }
    few = grid[:: len(grid) // 8]
    for batch in arguments.batch_sizes:
        settings = Settings(
            arguments.epochs, batch, patience=None, schedule="constant", warmup=0, clip_norm=None
        )
        first = Settings(1, batch, patience=None, schedule="constant", warmup=0, clip_norm=None)
        # Not timed: libraries set themselves up.
        seconds(lambda first=first: alone(few[0], first), device)
        one = [seconds(lambda m=m, s=settings: alone(m, s), device) for m in few]
        many = seconds(lambda s=settings: together(s), device)
        mean = sum(one) / len(one)
        result["batch_sizes"][batch] = {
            "seconds_of_one": round(mean, 3),
            "seconds_of_all_together": round(many, 3),
            "speed_up": round(mean * len(grid) / many, 1),
        }
        print(batch, result["batch_sizes"][batch], flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
