"""Training on long-tailed classes, with each rule for classes that a batch lacks.

    python benchmarks/absent_classes.py --out benchmarks/results/absent_classes.json

A small network is trained with 1 − macro-F1 of the batch, and with `AlignedLoss`, on Gaussian blobs
whose classes grow rarer geometrically, down to 1 : ratio. The rules differ in how much a class
without true rows in the batch counts in the mean:

    always      1 if it has any soft predicted mass, as nearly all have
    rows        min(1, its soft predicted rows), taken as a constant: the library's rule
    rows slope  the same with its slope

Each row of the result is macro-F1 on balanced fresh rows of one training.
"""

import argparse
import itertools
import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from evalign import AlignedLoss, Confusion, MetricLoss, score
from evalign.core.arrays import safe_ratio
from evalign.core.metrics.averages import ClassMetric

CLASSES, RATIOS, BATCHES, SEEDS = (10, 50), (50, 200), (64, 256), range(3)
MOST, STEPS, FEATURES, TEST_ROWS = 500, 400, 16, 50
OURS = ClassMetric._counted


def always(metric: ClassMetric, c: Confusion) -> torch.Tensor:
    return (c.actual + c.predicted != 0).to(c.tp)


def with_slope(metric: ClassMetric, c: Confusion) -> torch.Tensor:
    assert c.rows is not None
    rows = safe_ratio(c.predicted * c.rows, c.total)
    return torch.where(c.actual != 0, 1, rows.clamp(max=1))


RULES = {"always": always, "rows": OURS, "rows slope": with_slope}
LOSSES = {"MetricLoss": ("always", "rows", "rows slope"), "AlignedLoss": ("always", "rows")}


@contextmanager
def counting(rule: str) -> Iterator[None]:
    ClassMetric._counted = RULES[rule]
    try:
        yield
    finally:
        ClassMetric._counted = OURS


def rows_of(counts: list[int], centres: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return centres[y] + torch.randn(len(y), FEATURES), y


def macro_f1(loss_name: str, rule: str, classes: int, ratio: int, batch: int, seed: int) -> float:
    torch.manual_seed(seed)
    counts = [max(2, round(MOST * ratio ** (-k / (classes - 1)))) for k in range(classes)]
    centres = 0.9 * torch.randn(classes, FEATURES)
    X, y = rows_of(counts, centres)
    X_test, y_test = rows_of([TEST_ROWS] * classes, centres)
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, classes))
    aligned = loss_name == "AlignedLoss"
    loss = AlignedLoss("f1_macro") if aligned else MetricLoss("f1_macro")
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for step in range(STEPS):
        rows = torch.randint(len(y), (batch,))
        logits = network(X[rows])
        # The metric alone learns little from a network that knows nothing.
        warm = step < STEPS // 6 and not aligned
        with counting(rule):
            value = F.cross_entropy(logits, y[rows]) if warm else loss(logits, y[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with torch.no_grad():
        return float(score("f1_macro", y_true=y_test, y_pred=network(X_test).argmax(1)))


def table(result: dict) -> str:
    """The table of the documentation: means over the seeds."""
    columns = [(loss, rule) for loss, rules in LOSSES.items() for rule in rules]
    lines = ["| classes | ratio | batch | " + " | ".join(f"{a}, {b}" for a, b in columns) + " |"]
    lines.append("| ---: " * (3 + len(columns)) + "|")
    for classes, ratio, batch in itertools.product(CLASSES, RATIOS, BATCHES):
        cells = [f"{classes}", f"1:{ratio}", f"{batch}"]
        for loss, rule in columns:
            wanted = {"loss": loss, "rule": rule, "classes": classes, "ratio": ratio}
            wanted["batch"] = batch
            found = [r["f1_macro"] for r in result["records"] if wanted.items() <= r.items()]
            cells.append(f"{sum(found) / len(found):.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    start, records = time.process_time(), []
    for problem in itertools.product(CLASSES, RATIOS, BATCHES, SEEDS):
        for loss_name, rules in LOSSES.items():
            for rule in rules:
                value = macro_f1(loss_name, rule, *problem)
                keys = ("classes", "ratio", "batch", "seed")
                about = dict(zip(keys, problem, strict=True))
                records.append({"loss": loss_name, "rule": rule, **about, "f1_macro": value})
                print(records[-1], flush=True)
    result = {
        "steps": STEPS,
        "cpu_seconds": round(time.process_time() - start),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "records": records,
    }
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
