"""Distance of a batch's gradient from that of all rows, with and without running statistics.

    python benchmarks/batch_gradient.py --data creditcard.npz \\
        --out benchmarks/results/batch_gradient.json

On credit card fraud (0.17% positives), a small network is trained with cross-entropy for some
epochs and then frozen. The gradient of 1 − F1 over all training rows is exact (`exact_backward`).
Batches of each size are drawn at random, and the gradient g of each is compared with the exact G:

    bias      ‖mean of g − G‖ / ‖G‖      what a thousand steps would add up to
    spread    √(mean ‖g − mean g‖²) / ‖G‖  the noise of one step
"""

import argparse
import json
import platform
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from evalign import MetricLoss, exact_backward

SIZES = [128, 512, 2048, 8192]
BATCHES = 1000
WARMUP = 200  # batches after which the running average has forgotten its start
METHODS = {"batch": {}, "running 0.1": {"momentum": 0.1}, "running 0.03": {"momentum": 0.03}}


def gradient(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in network.parameters()]).double()


def trained(X: torch.Tensor, y: torch.Tensor) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(3):
        for rows in torch.randperm(len(y)).split(2048):
            optimizer.zero_grad()
            logits = network(X[rows]).squeeze(1)
            F.binary_cross_entropy_with_logits(logits, y[rows].float()).backward()
            optimizer.step()
    return network


def study(network: nn.Module, X: torch.Tensor, y: torch.Tensor) -> list[dict]:
    exact_backward(MetricLoss("f1"), network, list(zip(X.split(8192), y.split(8192), strict=True)))
    exact = gradient(network)
    records = []
    for size in SIZES:
        for method, arguments in METHODS.items():
            loss = MetricLoss("f1", **arguments)
            generator = torch.Generator().manual_seed(size)
            mean, square, empty = torch.zeros_like(exact), 0.0, 0
            for step in range(WARMUP + BATCHES):
                rows = torch.randint(len(y), (size,), generator=generator)
                network.zero_grad()
                loss(network(X[rows]), y[rows]).backward()
                if step < WARMUP:
                    continue
                found = gradient(network)
                mean += found / BATCHES
                square += found.square().sum().item() / BATCHES
                empty += int(y[rows].sum() == 0)
            spread = max(0.0, square - mean.square().sum().item()) ** 0.5
            cosine = F.cosine_similarity(mean, exact, dim=0).item()
            records.append(
                {
                    "method": method,
                    "batch_size": size,
                    "without_positives": empty / BATCHES,
                    "bias": ((mean - exact).norm() / exact.norm()).item(),
                    "cosine_of_mean": cosine,
                    "spread": spread / exact.norm().item(),
                    # The error that chance alone gives the mean of so many noisy gradients.
                    "bias_by_chance": spread / exact.norm().item() / BATCHES**0.5,
                }
            )
            print(records[-1], flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="creditcard.npz with X and y")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # for such small products two threads are slower
    with np.load(arguments.data) as file:
        X, y = torch.from_numpy(file["X"]).float(), torch.from_numpy(file["y"].astype(np.int64))
    X = (X - X.mean(0)) / X.std(0)
    result = {
        "data": "creditcard",
        "rows": len(y),
        "positives": int(y.sum()),
        "metric": "f1",
        "temperature": 0.2,
        "batches": BATCHES,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "records": study(trained(X, y), X, y),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
