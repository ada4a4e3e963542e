"""Time of a loss's forward and backward pass, compared with cross-entropy.

    python benchmarks/loss_speed.py --out benchmarks/results/loss_speed_cpu.json
    python benchmarks/loss_speed.py --device cuda --out benchmarks/results/loss_speed_cuda.json
    python benchmarks/loss_speed.py --table benchmarks/results/loss_speed_cpu.json

Modes: "eager", "compiled" (`torch.compile`), and on a GPU "captured", the eager loss replayed from
a CUDA graph. "reference" is the same loss computed by `evalign.core`. The floor is three passes
over the logits (read, read again for the gradient, write it) at the speed of a copy. Losses of
other libraries take one logit, and are measured for it if they can be imported. Install them
without their dependencies, which pin old versions.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from evalign import Confusion, MetricLoss, metrics
from evalign.losses import SigmoidF1Loss

SIZES = {
    "cpu": [(1024, 10), (8192, 10), (8192, 100), (2048, 1000)],
    "cuda": [(1024, 10), (1_048_576, 10), (65_536, 1000), (16_384, 32_768), (8192, 100_000)],
}
# The largest allowed ratio to the median of eager cross-entropy, in float32.
TARGETS = {
    "cpu": {(8192, 10): 3.0, (8192, 100): 3.0, (2048, 1000): 3.0},
    "cuda": {(1024, 10): 1.5, (1_048_576, 10): 0.5, (65_536, 1000): 0.8, (16_384, 32_768): 0.8},
}
STEP_TARGET = 1.05
METRICS = ("f1_macro", "matthews_corrcoef")
BINARY = 1024  # rows of one logit
SECONDS = 0.3  # per loss, size and mode
CLOCK = time.perf_counter

MISSING = "not installed"

LossFunction = Callable[[Tensor, Tensor], Tensor]


def reference(name: str) -> LossFunction:
    metric = metrics.resolve(name)
    return lambda logits, target: 1 - metric(Confusion.from_logits(logits, target))


def losses(device: str) -> Iterator[tuple[str, str, LossFunction]]:
    """Yield (name, mode, loss). Modules are compiled anew for every size."""
    yield "cross_entropy", "eager", F.cross_entropy
    yield "cross_entropy", "compiled", torch.compile(F.cross_entropy, dynamic=False)
    for name in METRICS:
        loss = MetricLoss(name).to(device)
        yield name, "eager", loss
        yield name, "compiled", torch.compile(loss, fullgraph=True, dynamic=False)
        if device == "cuda":
            yield name, "captured", loss
    yield "f1_macro, reference", "eager", reference("f1_macro")


def binary_losses(device: str) -> Iterator[tuple[str, LossFunction]]:
    """Yield the losses of one logit: ours, and those of other libraries that are installed."""
    yield "binary_cross_entropy", F.binary_cross_entropy_with_logits
    yield "f1", MetricLoss("f1").to(device)
    yield "sigmoid_f1", SigmoidF1Loss().to(device)
    if _version("libauc") != MISSING:
        from libauc.losses import AUCMLoss

        aucm = AUCMLoss(device=torch.device(device))
        yield "libauc AUCM", lambda logits, target: aucm(logits.sigmoid(), target)
    if _version("torch-btg") != MISSING and device == "cuda":
        from torch_btg.loss import fb_loss

        btg = fb_loss(device=device)
        yield "torch-btg F1", lambda logits, target: btg(logits.sigmoid(), target)[0]


def percentiles(run: Callable[[], Any], device: str) -> dict[str, float]:
    """Compute percentiles in milliseconds; on a GPU by events, without waits, as in training."""
    for _ in range(5):
        run()
    _wait(device)
    times: list[float] = []
    marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    end = time.perf_counter() + SECONDS
    while (time.perf_counter() < end and len(times) + len(marks) < 1000) or len(times) < 7:
        if device == "cuda":
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            stop.record()
            marks.append((start, stop))
            if len(marks) == 20:
                _wait(device)
                times += [start.elapsed_time(stop) for start, stop in marks[1:]]
                marks = []
        else:
            started = CLOCK()
            run()
            times.append(1000 * (CLOCK() - started))
    q = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    values = torch.tensor(times, dtype=torch.float64).quantile(q).tolist()
    return dict(zip(("p20", "p50", "p80"), (float(f"{v:.4g}") for v in values), strict=True))


def measure(
    loss: LossFunction, mode: str, rows: int, classes: int, dtype: torch.dtype, device: str
) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, device=device).to(dtype)
    target = torch.randint(max(2, classes), (rows,), generator=generator, device=device)
    if classes == 1:
        logits, target = logits.squeeze(1), target.float()
    logits.requires_grad_()

    def run() -> None:
        logits.grad = None
        loss(logits, target).backward()

    if mode == "captured":
        run = _captured(run)
    result = {"ms": percentiles(run, device)}
    if device == "cuda" and mode != "captured":
        logits.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        result["peak_mib"] = round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
    return result


def _captured(run: Callable[[], None]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def bandwidth(device: str) -> float:
    """Measure the bytes that a copy reads and writes per second."""
    x = torch.randn(2**28 if device == "cuda" else 2**25, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / percentiles(lambda: y.copy_(x), device)["p50"] * 1000


def step(loss: LossFunction, device: str) -> dict[str, float]:
    """Time a whole training step of the tabular network: 30 features, 2,048 rows, 10 classes."""
    torch.manual_seed(0)
    sizes = (30, 512, 256, 128)
    hidden = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    network = nn.Sequential(*hidden, nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    x = torch.randn(2048, 30, device=device)
    target = torch.randint(10, (2048,), device=device)

    def run() -> None:
        optimizer.zero_grad()
        loss(network(x), target).backward()
        optimizer.step()

    return percentiles(run, device)


def benchmark(device: str, threads: int, dtypes: list[str]) -> dict[str, Any]:
    torch.set_num_threads(threads)
    speed = bandwidth(device)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "kind": device,
        "threads": threads,
        "clock": CLOCK.__name__,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "peers": {name: _version(name) for name in ("libauc", "torch-btg")}
        | {"ap_perf": "not measured: needs numba, on the CPU, at batches of some dozen rows"},
        "copy_gb_per_s": round(speed / 1e9, 1),
        "rows": [],
        "step_ms": {},
    }
    row: dict[str, Any]
    for rows, classes in SIZES[device]:
        for dtype in (getattr(torch, name) for name in dtypes):
            floor = 3 * rows * classes * dtype.itemsize / speed * 1000
            torch._dynamo.reset()
            for name, mode, loss in losses(device):
                row = {
                    "size": [rows, classes],
                    "dtype": str(dtype).removeprefix("torch."),
                    "loss": name,
                    "mode": mode,
                }
                try:
                    row |= measure(loss, mode, rows, classes, dtype, device)
                    row["of_floor"] = round(row["ms"]["p50"] / floor, 2)
                except torch.OutOfMemoryError:
                    row["failed"] = "out of memory"
                result["rows"].append(row)
                print(json.dumps(row), flush=True)
    floor = 3 * BINARY * 4 / speed * 1000
    for name, loss in binary_losses(device):
        row = {"size": [BINARY, 1], "dtype": "float32", "loss": name, "mode": "eager"}
        row |= measure(loss, "eager", BINARY, 1, torch.float32, device)
        result["rows"].append(row | {"of_floor": round(row["ms"]["p50"] / floor, 2)})
    for name, loss in [("cross_entropy", F.cross_entropy), *((m, MetricLoss(m)) for m in METRICS)]:
        result["step_ms"][name] = step(loss.to(device) if name in METRICS else loss, device)
    return result


def table(result: dict[str, Any]) -> str:
    """Write the results as Markdown: medians, and their ratio to eager cross-entropy."""
    lines = [
        "| rows × classes | logits | loss | mode | ms (20 / 50 / 80%) | × cross-entropy | × floor "
        "| peak MiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    base = {}
    for row in result["rows"]:
        size, key = row["size"], (*row["size"], row["dtype"])
        where = f"| {size[0]:,} × {size[1]:,} | {row['dtype']} | {row['loss']} | {row['mode']} |"
        if "failed" in row:
            lines.append(f"{where} {row['failed']} | | | |")
            continue
        ms = row["ms"]
        if row["loss"].endswith("cross_entropy") and row["mode"] == "eager":
            base[key] = ms["p50"]
        ratio = f"{ms['p50'] / base[key]:.2f}"
        peak = row.get("peak_mib", "")
        times = f"{ms['p20']:.4g} / {ms['p50']:.4g} / {ms['p80']:.4g}"
        lines.append(f"{where} {times} | {ratio} | {row['of_floor']} | {peak} |")
    return "\n".join(lines)


def targets(result: dict[str, Any]) -> str:
    """Write the targets as Markdown, with what each mode reaches."""
    lines = [
        "| what | loss | at most | reached | mode | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [r for r in result["rows"] if r["dtype"] == "float32" and "ms" in r]
    for size, most in TARGETS[result["kind"]].items():
        here = [r for r in rows if tuple(r["size"]) == size]
        base = [
            r["ms"]["p50"] for r in here if (r["loss"], r["mode"]) == ("cross_entropy", "eager")
        ]
        for name in METRICS:
            ours = [(r["ms"]["p50"] / base[0], r["mode"]) for r in here if r["loss"] == name]
            for ratio, mode in sorted(ours):
                met = "yes" if ratio <= most else "no"
                what = f"{size[0]:,} × {size[1]:,}"
                lines.append(f"| {what} | {name} | {most} | {ratio:.2f} | {mode} | {met} |")
    for name in METRICS if result["kind"] == "cpu" else ():
        times = result["step_ms"]
        ratio = times[name]["p50"] / times["cross_entropy"]["p50"]
        met = "yes" if ratio <= STEP_TARGET else "no"
        lines.append(f"| training step | {name} | {STEP_TARGET} | {ratio:.2f} | eager | {met} |")
    return "\n".join(lines)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return MISSING


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--own-time",
        action="store_true",
        help="count the time of this process alone, on a CPU that others use too; with --threads 1",
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32"], help="of the logits")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="print the tables of earlier results")
    arguments = parser.parse_args()
    if arguments.table is None:
        if arguments.own_time:
            global CLOCK
            CLOCK = time.process_time
        result = benchmark(arguments.device, arguments.threads, arguments.dtypes)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    else:
        result = json.loads(arguments.table.read_text(encoding="utf-8"))
    print(targets(result), table(result), sep="\n\n")


if __name__ == "__main__":
    main()
