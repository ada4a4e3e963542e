"""Time and memory of a loss's forward and backward pass, compared with cross-entropy.

    python benchmarks/loss_speed.py --out benchmarks/results/loss_speed_cpu.json
    python benchmarks/loss_speed.py --device cuda --out benchmarks/results/loss_speed_cuda.json
    python benchmarks/loss_speed.py --table benchmarks/results/loss_speed_cuda.json

The last one writes the table of earlier results into docs/evidence/speed.md.

Cross-entropy is `F.cross_entropy` called eagerly, for one logit and for labels
`F.binary_cross_entropy_with_logits`. It and the losses of a line take turns, round after round, so
that a disturbance meets all of them. A round is a batch of calls without a wait in between, as in
training. Modes: "eager", "captured" in a CUDA graph and replayed, "compiled" by `torch.compile`,
and whole training steps. Peak memory is what one call holds at most beyond logits and targets: on a
GPU by torch's allocator, on a CPU by the running sum of what torch's profiler sees it allocate and
free. Both are the same in every run.
"""

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from evalign import AlignedLoss, MetricLoss
from evalign.losses import DiceLoss, FocalLoss, LovaszSoftmaxLoss

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "speed.md"
ROUNDS = 20
BATCH = 0.01  # seconds of calls in a round, one call at least
BASE = "cross-entropy"

Run = Callable[[], Any]
LossFunction = Callable[[Tensor, Tensor], Tensor]

LOSSES: dict[str, Callable[..., nn.Module]] = {
    "MetricLoss": MetricLoss,
    "MCC": lambda metric: MetricLoss("matthews_corrcoef"),
    "running": lambda metric: MetricLoss(metric, momentum=0.1),
    "AlignedLoss": AlignedLoss,
    "DiceLoss": lambda metric: DiceLoss(),
    "FocalLoss": lambda metric: FocalLoss(),
    "LovaszSoftmaxLoss": lambda metric: LovaszSoftmaxLoss(),
}
OURS = ("MetricLoss", "MCC", "running", "AlignedLoss")  # those with goals
BOTH = ("MetricLoss", "AlignedLoss")
SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "per image": {"per_image": True},
    "label smoothing": {"label_smoothing": 0.1},
}


@dataclass(frozen=True)
class Line:
    """What is measured together: logits of one shape, or the step of one network.

    Args:
        goal: the largest allowed ratio to the median of cross-entropy, None for no goal.
        memory_goal: whether the peak may be cross-entropy's and one tensor of logits.
        how: which of `SETTINGS` the losses have.
    """

    mode: str
    shape: tuple[int, ...]
    goal: float | None = None
    losses: tuple[str, ...] = OURS
    metric: str = "f1_macro"
    labels: bool = False
    channels_last: bool = False
    memory_goal: bool = False
    how: str = ""

    @property
    def name(self) -> str:
        shape = " × ".join(f"{n:,}" for n in self.shape)
        if self.mode.endswith("step"):
            return f"{shape} inputs"
        kind = "binary " if len(self.shape) == 1 else "multilabel " if self.labels else ""
        layout = "channels_last" if self.channels_last else ""
        return ", ".join(filter(None, (f"{kind}{shape}", layout, self.how)))

    def make(self, loss: str, device: str) -> LossFunction:
        return LOSSES[loss](self.metric, **SETTINGS[self.how]).to(device)


SMOOTHED = ("AlignedLoss",)
_DENSE = (*BOTH, "DiceLoss", "FocalLoss", "LovaszSoftmaxLoss")
LINES = {
    "cuda": [
        Line("eager", (128, 10), 2.5),
        Line("eager", (1024, 10), 2.5),
        Line("eager", (65_536, 10), 2.5),
        Line("eager", (4096, 1000), 2.5),
        Line("eager", (65_536, 1000), 1.1),
        Line("eager", (4096,), 2.5, BOTH, "f1"),
        Line("eager", (4096, 80), 2.5, BOTH, labels=True),
        Line("eager", (8, 21, 512, 512), 1.5, _DENSE, "jaccard_macro"),
        Line("eager", (8, 21, 512, 512), 1.5, _DENSE, "jaccard_macro", channels_last=True),
        Line("captured", (1024, 10), 1.5),
        Line("captured", (1_048_576, 10), 0.5),
        Line("captured", (65_536, 1000), 0.8),
        Line("MLP step", (1024, 30), 1.2, BOTH),
        Line("ResNet-18 step", (128, 3, 32, 32), 1.02, BOTH),
        Line("compiled", (1024, 10), None, BOTH),
    ],
    "cpu": [
        Line("eager", (8192, 10), 3.0),
        Line("eager", (8192, 100), 3.0),
        Line("eager", (2048, 1000), 3.0),
        Line(
            "eager",
            (4, 21, 256, 256),
            3.0,
            (*OURS, "DiceLoss", "FocalLoss", "LovaszSoftmaxLoss"),
            "jaccard_macro",
            memory_goal=True,
        ),
        Line("eager", (4, 21, 256, 256), 3.0, BOTH, "jaccard_macro", how="per image"),
        Line(
            "eager",
            (4, 21, 256, 256),
            2.0,
            ("AlignedLoss",),
            "jaccard_macro",
            how="label smoothing",
        ),
        Line("eager", (4096, 50), 2.0, BOTH, labels=True),
        Line("MLP step", (1024, 30), 1.15, BOTH),
    ],
}


def loss_runs(line: Line, device: str) -> Iterator[tuple[str, Run]]:
    """Yield each loss's name and a call of it, forward and backward, on the same numbers."""
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(line.shape, generator=generator, device=device)
    if line.channels_last:
        logits = logits.to(memory_format=torch.channels_last)
    if line.labels or logits.ndim == 1:
        target = torch.randint(2, line.shape, generator=generator, device=device).float()
        base: LossFunction = F.binary_cross_entropy_with_logits
    else:
        rows = line.shape[:1] + line.shape[2:]
        target = torch.randint(line.shape[1], rows, generator=generator, device=device)
        base = F.cross_entropy

    def run_of(loss: LossFunction) -> Run:
        leaf = logits.detach().requires_grad_()

        def run() -> None:
            loss(leaf, target).backward()
            leaf.grad = None

        return run

    yield BASE, run_of(base)
    for name in line.losses:
        loss = line.make(name, device)
        if line.mode == "compiled":
            loss = torch.compile(loss, fullgraph=True, dynamic=False)
        yield name, captured(run_of(loss)) if line.mode == "captured" else run_of(loss)


def captured(run: Run) -> Run:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(_kept: Run = run) -> None:  # the graph reads tensors that the call holds
        graph.replay()

    return replay


def step_runs(line: Line, device: str) -> Iterator[tuple[str, Run]]:
    """Yield each loss's name and a step of training with it, each of a network of its own."""
    x = torch.randn(line.shape, device=device)
    target = torch.randint(10, line.shape[:1], device=device)
    images = len(line.shape) == 4

    def run_of(loss: LossFunction) -> Run:
        torch.manual_seed(0)
        network = (_resnet() if images else _mlp(line.shape[1])).to(device)
        if images:
            optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        else:
            optimizer = torch.optim.AdamW(network.parameters(), fused=True)

        def run() -> None:
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=images):
                value = loss(network(x), target)
            value.backward()
            optimizer.step()

        return run

    yield BASE, run_of(F.cross_entropy)
    for name in line.losses:
        yield name, run_of(line.make(name, device))


def _mlp(features: int) -> nn.Module:
    sizes = itertools.pairwise((features, 512, 256, 128))
    hidden = [layer for pair in sizes for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(128, 10))


def _resnet() -> nn.Module:
    from evalign_study.networks.resnet import resnet18  # the study is not needed on a CPU

    return resnet18(10)


def percentiles(runs: dict[str, Run], device: str, rounds: int) -> dict[str, dict[str, float]]:
    """Compute percentiles of the milliseconds of a call, over rounds in which all take turns."""
    calls = {name: calls_in_a_batch(run, device) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _, (name, run) in itertools.product(range(rounds), runs.items()):
        times[name].append(milliseconds(run, calls[name], device) / calls[name])
    q = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    found = {}
    for name, values in times.items():
        quantiles = torch.tensor(values, dtype=torch.float64).quantile(q).tolist()
        found[name] = {p: rounded(v) for p, v in zip(("p20", "p50", "p80"), quantiles, strict=True)}
    return found


def calls_in_a_batch(run: Run, device: str) -> int:
    for _ in range(3):  # compiles at first use
        run()
    seconds = milliseconds(run, 3, device) / 3000
    return max(1, min(200, math.ceil(BATCH / seconds)))


def milliseconds(run: Run, calls: int, device: str) -> float:
    """Time a batch of calls; on a GPU by events, behind a call that fills its queue."""
    if device == "cpu":
        started = time.perf_counter()
        for _ in range(calls):
            run()
        return 1000 * (time.perf_counter() - started)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    run()
    start.record()
    for _ in range(calls):
        run()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop)


def peak_mib(run: Run, device: str) -> float:
    """Measure what one call holds at most, its gradient included."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    assert seen.profiler is not None
    events: Any = seen.profiler.kineto_results
    memory = [event for event in events.events() if event.name() == "[memory]"]
    memory.sort(key=lambda event: event.start_ns())
    return round(max(itertools.accumulate(event.nbytes() for event in memory)) / 2**20, 1)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def measure(line: Line, device: str, rounds: int) -> dict[str, Any]:
    """Measure a line; a loss with a goal comes with its goal."""
    if line.mode == "compiled":
        torch._dynamo.reset()
    runs = dict((step_runs if line.mode.endswith("step") else loss_runs)(line, device))
    times = percentiles(runs, device, rounds)
    found: dict[str, Any] = {"mode": line.mode, "name": line.name, "goal": line.goal, "losses": {}}
    for name, run in runs.items():
        entry: dict[str, Any] = {"ms": times[name]}
        if name != BASE:
            entry["ratio"] = rounded(times[name]["p50"] / times[BASE]["p50"])
        if line.mode == "eager":
            entry["peak_mib"] = peak_mib(run, device)
        found["losses"][name] = entry
    if line.memory_goal:
        logits = 4 * math.prod(line.shape) / 2**20
        found["memory_goal_mib"] = found["losses"][BASE]["peak_mib"] + logits
    return found


def benchmark(
    device: str, threads: int, rounds: int, busy: bool, keep: Callable[[dict[str, Any]], None]
) -> None:
    """Measure all lines, and give what there is to `keep` after every one."""
    torch.set_num_threads(threads)
    result: dict[str, Any] = {
        "kind": device,
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "host": _processor(),
        "cpus": os.cpu_count(),
        "threads": threads,
        "busy": busy,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton") if device == "cuda" else None,
        "rounds": rounds,
        "lines": [],
    }
    for line in LINES[device]:
        result["lines"].append(measure(line, device, rounds))
        keep(result)
        if device == "cuda":
            torch.cuda.empty_cache()  # the graphs of a line have pools of their own


def _processor() -> str:
    """The processor's name, which Python itself knows on few systems."""
    said = (
        subprocess.run(["lscpu"], capture_output=True, text=True).stdout if which("lscpu") else ""
    )
    names = [line.split(":")[1].strip() for line in said.splitlines() if "Model name" in line]
    return ", ".join([platform.machine(), *names[:1]])


def targets(result: dict[str, Any]) -> str:
    """Write the ratios to cross-entropy and the goals as Markdown."""
    lines = [
        f"| mode | logits | {' | '.join(OURS)} | at most | met |",
        f"|{' --- |' * (len(OURS) + 4)}",
    ]
    for line in result["lines"]:
        ratios = {name: line["losses"].get(name, {}).get("ratio") for name in OURS}
        cells = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios.values()]
        cells += _verdict([r for r in ratios.values() if r is not None], line["goal"], "g")
        lines.append(f"| {line['mode']} | {line['name']} | {' | '.join(cells)} |")
        if "memory_goal_mib" in line:
            peaks = [line["losses"][name]["peak_mib"] for name in OURS]
            cells = [*(f"{x:.1f}" for x in peaks), *_verdict(peaks, line["memory_goal_mib"], ".1f")]
            lines.append(f"| peak MiB | {line['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(values: list[float], goal: float | None, form: str) -> list[str]:
    if goal is None:
        return ["", ""]
    met = sum(value <= goal for value in values)
    said = "yes" if met == len(values) else f"{met} of {len(values)}" if met else "no"
    return [format(goal, form), said]


def section(result: dict[str, Any]) -> str:
    """Write the part of the page that shows these results."""
    threads = f"threads: {result['threads']}" if result["kind"] == "cpu" else ""
    triton = f"triton {result['triton']}" if result["triton"] else ""
    busy = "others used the machine too" if result["busy"] else ""
    facts = result["device"], threads, f"torch {result['torch']}", triton, busy
    said = "; ".join(fact for fact in facts if fact)
    return f"\n{said}.\n\n{targets(result)}\n\n"


def sections(page: str) -> dict[str, str]:
    """The text between the marks of every kind of device."""
    return {
        kind: page.split(f"<!-- {kind} -->\n")[1].split(f"<!-- /{kind} -->")[0] for kind in LINES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(LINES), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--busy", action="store_true", help="note that others use the machine too")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="write earlier results into the page")
    arguments = parser.parse_args()
    if arguments.table is not None:
        result = json.loads(arguments.table.read_text(encoding="utf-8"))
        page, kind = PAGE.read_text(encoding="utf-8"), result["kind"]
        old, new = (f"<!-- {kind} -->\n{x}" for x in (sections(page)[kind], section(result)))
        PAGE.write_text(page.replace(old, new), encoding="utf-8")
        print(section(result))
        return

    def keep(result: dict[str, Any]) -> None:
        print(json.dumps(result["lines"][-1]), flush=True)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    settings = arguments.device, arguments.threads, arguments.rounds, arguments.busy
    benchmark(*settings, keep)


if __name__ == "__main__":
    main()
