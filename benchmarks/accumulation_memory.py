"""Memory of a batch of a million rows: `exact_backward` in micro-batches and plain backward.

    python benchmarks/accumulation_memory.py --out benchmarks/results/accumulation_memory.json

Each method runs in a process of its own. Its memory is the peak minus what it held before the first
row, measured on a GPU by torch's allocator and on a CPU by the system's high-water mark. Rows are
made on demand, so they do not count.
"""

import argparse
import itertools
import json
import multiprocessing
import platform
import resource
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from evalign import MetricLoss, exact_backward

ROWS, MICRO, FEATURES, CLASSES = 1_048_576, 4_096, 64, 10


class Rows:
    """Micro-batches of made rows, the same every time they are read."""

    def __init__(self, rows: int, size: int, device: str) -> None:
        self.rows, self.size, self.device = rows, size, device

    def __len__(self) -> int:
        return self.rows // self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index >= len(self):
            raise IndexError(index)
        generator = torch.Generator(self.device).manual_seed(index)
        settings: dict[str, Any] = {"generator": generator, "device": self.device}
        x = torch.randn(self.size, FEATURES, **settings)
        return x, torch.randint(CLASSES, (self.size,), **settings)


def peak(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(method: str, device: str, results: Any) -> None:
    torch.manual_seed(0)
    widths = FEATURES, 512, 256, 128
    layers = [
        layer
        for pair in itertools.pairwise(widths)
        for layer in (nn.Linear(*pair), nn.ReLU(), nn.Dropout(0.1))
    ]
    model = nn.Sequential(*layers, nn.Linear(128, CLASSES)).to(device)
    loss = MetricLoss("f1_macro").to(device)
    x, y = Rows(64, 64, device)[0]
    loss(model(x), y).backward()  # not measured: the first call loads libraries
    model.zero_grad()
    before, start = peak(device), time.perf_counter()
    if method == "exact":
        exact_backward(loss, model, Rows(ROWS, MICRO, device))
    else:
        rows = ROWS if method == "whole" else MICRO
        x, y = Rows(rows, rows, device)[0]
        loss(model(x), y).backward()
    if device == "cuda":
        torch.cuda.synchronize()
    results.put((peak(device) - before, time.perf_counter() - start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    device = "cuda" if torch.cuda.is_available() else "cpu"
    context = multiprocessing.get_context("spawn")
    found = {}
    for method in ("whole", "exact", "one micro-batch"):
        results = context.Queue()
        process = context.Process(target=measure, args=(method, device, results))
        process.start()
        memory, seconds = results.get(timeout=900)
        process.join()
        found[method] = {"peak_bytes": memory, "seconds": seconds}
        print(method, found[method], flush=True)
    peaks = {name: value["peak_bytes"] for name, value in found.items()}
    result = {
        "rows": ROWS,
        "micro_batch": MICRO,
        "metric": "f1_macro",
        "network": f"MLP {FEATURES}-512-256-128-{CLASSES}",
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "methods": found,
        "exact_over_micro_batch": peaks["exact"] / peaks["one micro-batch"],
        "whole_over_exact": peaks["whole"] / peaks["exact"],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
