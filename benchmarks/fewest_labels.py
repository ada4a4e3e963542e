"""How many labels it takes until a tuned decision is not behind argmax, on made data.

    python benchmarks/fewest_labels.py --out fewest_labels.json

Scores are logits of two or three classes whose most frequent one has nine tenths of the rows. They
are the true posterior, or off as those of real classifiers are: too sure of themselves, or made for
even classes, where argmax gives a rare class to too many rows. Rules are tuned on few rows that are
not of the most frequent class, each number with many draws, and scored on fresh rows.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from evalign import Confusion, fit_decision
from evalign.metrics import resolve

COUNTS = (2, 5, 10, 20, 50, 100)  # rows outside of the most frequent class
FRESH = 10_000
KINDS = ("posterior", "too sure", "even classes")


def drawn(
    y: torch.Tensor, prior: torch.Tensor, strength: float, kind: str, generator: torch.Generator
) -> torch.Tensor:
    """Make the logits of rows with these classes."""
    x = torch.randn(len(y), len(prior), generator=generator, dtype=torch.float64)
    x[torch.arange(len(y)), y] += strength
    logits = strength * x + (0 if kind == "even classes" else prior.log())
    return 2 * logits if kind == "too sure" else logits


def gain(classes: int, kind: str, strength: float, count: int, seed: int) -> float:
    """What a rule tuned on `count` rows outside of the first class gains over argmax."""
    generator = torch.Generator().manual_seed(seed)
    rare = 0.1 / (classes - 1)
    prior = torch.tensor([0.9, *[rare] * (classes - 1)], dtype=torch.float64)
    y = torch.cat([torch.zeros(9 * count), torch.arange(count) % (classes - 1) + 1]).long()
    fresh = torch.multinomial(prior, FRESH, replacement=True, generator=generator)
    logits, new = (drawn(each, prior, strength, kind, generator) for each in (y, fresh))
    metric = resolve("f1" if classes == 2 else "f1_macro")
    rule = fit_decision(logits, y, metric=metric)
    scores = [
        metric(Confusion.from_predictions(labels, fresh, num_classes=classes)).item()
        for labels in (rule(new), new.argmax(1))
    ]
    return scores[0] - scores[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result = {"draws": arguments.draws, "gain": {}}
    for classes in (2, 3):
        for kind in KINDS:
            for count in COUNTS:
                gains = 100 * np.array(
                    [
                        gain(classes, kind, strength, count, seed)
                        for strength in (1.0, 2.0, 3.0)
                        for seed in range(arguments.draws)
                    ]
                )
                found = {
                    "mean": gains.mean(),
                    "error": gains.std() / len(gains) ** 0.5,
                    "worst tenth": float(np.quantile(gains, 0.1)),
                }
                result["gain"][f"{classes} classes, {kind}, {count} rows"] = found
                shown = ", ".join(f"{name} {value:+.1f}" for name, value in found.items())
                print(f"{classes} classes, {kind:12}, {count:3} rows: {shown}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
