"""What the factor of the metric's gradient brings with many classes (`CountedLoss`).

    EVALIGN_DATA=FOLDER python study/benchmarks/metric_share.py --out OUT.json

Among k undecided classes the gradient of the metric is 1/k of that of cross-entropy, and the factor
makes it what it is between two classes. It made no difference, and the library does not have it.
The same splits, seeds and trainer with the factor and without it, for macro-F1 and MCC: the CLIP
features of Caltech-256 (257 classes), or with `--images` CIFAR-10 with a long tail (10 classes,
1:100), on a GPU. Scores are of test rows, by argmax and by the expected rule, which needs no
labels. Results are written after every split.
"""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from evalign_study.records.made import made
from evalign_study.records.run import Run
from evalign_study.refuted.counted import CountedLoss
from evalign_study.suite import plan
from evalign_study.trainers import recipe, tailed

from evalign.core.arrays import safe_ratio

GOALS = ("f1", "mcc")


class Scaled(CountedLoss):
    """The loss with the factor: ½ over the soft accuracy, between 1 and half the classes."""

    def loss_from_sums(self, sums: Any) -> torch.Tensor:
        loss = super().loss_from_sums(sums)
        if not self.learns() or sums[-1].multilabel:
            return loss
        c = sums[-1].detach()
        factor = 0.5 / safe_ratio(c.tp.sum(), c.total).clamp(1 / c.num_classes, 0.5)
        metric = loss - sums[0].value()
        return loss + (factor - 1) * (metric - metric.detach())


LOSSES = {"with": Scaled, "without": CountedLoss}


def runs(images: bool, split: int) -> list[Run]:
    """List the runs of a split, of our recipe for each metric."""
    if images:
        found = plan.image_runs([("cifar10", 100)], splits=[split])
    else:
        found = plan.runs(["caltech256_clip"], splits=[split], seeds=[1], variants=["aligned"])
    wanted = {f"aligned_{goal}" for goal in GOALS}
    return [run for run in found if run.method in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--splits", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    precision = "bfloat16" if asked.images and device == "cuda" else "float32"
    scores = []
    for split in asked.splits:
        for name, loss in LOSSES.items():
            with mock.patch("evalign_study.trainers.methods.CountedLoss", loss):
                todo = runs(asked.images, split)
                records = map(tailed.train, todo) if asked.images else recipe.train(todo)
                records = list(records)
            for one in records:
                ((metric, pick),) = one["picks"].items()
                told = {rule: found["test"][metric] for rule, found in pick["decisions"].items()}
                scores.append({"split": split, "factor": name, "metric": metric, "test": told})
                print(scores[-1], flush=True)
        told = {"made": made(device, precision), "scores": scores}
        asked.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
