"""The parts of `AlignedLoss` against each other and against opponents, on the development suite.

    python study/benchmarks/following.py --part tables --data FOLDER --out OUT.jsonl --processes 8
    python study/benchmarks/following.py --part camvid --data FOLDER --out OUT.jsonl --side 6
    python study/benchmarks/following.py --summary --out OUT.jsonl

Criterion, written before the first run: one default per task, the form with the best mean of argmax
scores over data sets on the development seeds. A part of the loss stays if leaving it out costs
more than 0.2 points on average on one task and helps by no more than 0.2 on any other.

| part       | data and network                                | metric   | files of FOLDER        |
| ---------- | ----------------------------------------------- | -------- | ---------------------- |
| tables     | 9 small tables, the estimator's MLP             | F1,      | extras, mammography,   |
|            |                                                 | macro-F1 | cocktailparty (2.5 MB) |
| tail       | Fashion-MNIST 1:100 without augmentation, which | macro-F1 | fashion_mnist (31 MB)  |
|            | a ResNet-18 memorises; judged at the last epoch |          |                        |
| camvid     | CamVid, a small U-Net                           | mIoU     | dense/camvid* (10 MB)  |
| membrane   | sections of membranes, a small U-Net            | F1       | dense/membrane* (2 MB) |
| multilabel | 6 tables, the estimator's MLP                   | macro-F1 | multilabel (4 MB)      |

Each run is one line of OUT as it ends: scores of the test rows by argmax and by a rule that is
tuned on validation rows; of `tail` also the share of training rows that argmax labels correctly.
What the file holds is not trained again. Processes that run side by side take `--share 0/2` and
`--share 1/2`, and may write to one file.

A seed "3" is split 3 and training seed 4, "0:7" is split 0 and training seed 7. Methods are
"cross_entropy", "counted" (offsets from class counts, `CountedLoss`) and those of
`evalign_study.trainers.following`, such as "following_w0.3_m0.02"; for pixels also "ce_dice", for
membranes "bce_dice", and "counted_unweighted" and "..._unweighted" without 1/√counts.

It needs numpy, pandas, scikit-learn, torch, safetensors and pillow, and of the library's other
requirements copies on the path: narwhals, tabm and rtdl_num_embeddings.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # else streams share eight queues

import pandas as pd
import torch
from evalign_study.data import VOID
from evalign_study.records.made import made
from evalign_study.records.run import Run
from evalign_study.refuted.counted import CountedLoss
from evalign_study.suite.plan import DEVELOPED
from evalign_study.tasks.plan import MULTILABEL
from evalign_study.trainers import multilabel, pixel_methods, tailed
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.crops import Images
from evalign_study.trainers.decisions import Pick, decide
from evalign_study.trainers.dense import DenseTraining, fitted, score
from evalign_study.trainers.following import FOLLOWING
from evalign_study.trainers.images import prepare as prepare_images
from evalign_study.trainers.images import seeded
from evalign_study.trainers.many import Member, fit_many
from evalign_study.trainers.methods import NETWORKS, Method, Problem, make
from evalign_study.trainers.picks import finite
from evalign_study.trainers.pixel_methods import Combined, Pixels
from evalign_study.trainers.prepared import prepare
from evalign_study.trainers.recipe import USUAL
from evalign_study.trainers.scheduled import ScheduledLearner
from evalign_study.trainers.side_by_side import train_side_by_side
from evalign_study.trainers.stacks import best_epochs, logits_of, tf32
from torch import Tensor, nn

from evalign.losses import DiceLoss
from evalign.training import Settings

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEIGHTS = [f"{FOLLOWING}_w{weight}_m0.1" for weight in ("0", "0.3", "1", "2")]
MOMENTA = [f"{FOLLOWING}_w0.3_m{momentum}" for momentum in ("0.02", "0.3")]
COMMON = ["cross_entropy", "counted", *WEIGHTS, *MOMENTA]
UNWEIGHTED = [f"{name}_unweighted" for name in ("counted", *WEIGHTS[:3])]
KEY = ("part", "set", "split", "seed", "epochs", "rows", "method")
FEW = 40  # rows or images of each part of a quick look


class Part(NamedTuple):
    """What is compared.

    Args:
        sets: the data sets.
        methods: those that are compared unless others are asked for.
        seeds: those by which the default is chosen.
        epochs: of every training.
        settings: further fields of a `Run`.
    """

    sets: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[str]
    epochs: int
    settings: dict[str, Any]


PIXELS = {"network": "unet", "learning_rate": 2e-3}
PARTS = {
    "tables": Part(DEVELOPED, COMMON, ("0", "1", "2"), 60, {"learning_rate": USUAL.learning_rate}),
    "tail": Part(
        ("fashion_mnist",),
        COMMON,
        ("0", "1", "2"),
        40,
        {"network": "resnet18", "learning_rate": USUAL.learning_rate, "imbalance": 100.0},
    ),
    "camvid": Part(
        ("camvid",),
        [*COMMON, "ce_dice", *UNWEIGHTED],
        ("1", "3", "4"),
        45,
        {**PIXELS, "batch_size": 12},
    ),
    "membrane": Part(
        ("membrane",),
        [*COMMON, "ce_dice", "bce_dice", *UNWEIGHTED],
        ("0", "1", "2"),
        200,
        {**PIXELS, "batch_size": 6},
    ),
    "multilabel": Part(MULTILABEL[::-1], COMMON, ("0", "1", "2"), 60, {}),
}


# Tables: all methods of a split are one stack of networks.


def train_tables(part: str, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Train the runs of one split; keep the best epoch by the metric of the validation rows."""
    start, first = time.perf_counter(), runs[0]
    rows = prepare(first.dataset, first.variant, first.split_seed).thinned(first.rows)
    metric = Problem(rows.counts, first.dataset).fbeta()
    names = {"counted": "aligned_f1", "cross_entropy": "cross_entropy"}
    methods = [make(names.get(run.method, f"{run.method}_f1"), rows.counts) for run in runs]
    build = partial(NETWORKS["mlp"], rows.training[0].shape[1], rows.classes, 0.0)
    here = rows.to(DEVICE)
    with tf32(DEVICE):
        trained = fit_many(
            build,
            [
                Member(method.loss, run.learning_rate, run.seed, USUAL.dropout)
                for run, method in zip(runs, methods, strict=True)
            ],
            *here.training,
            validation=here.validation,
            metric=metric,
            settings=Settings(
                epochs=first.epochs,
                batch_size=usual_batch_size(len(rows.training[1])),
                weight_decay=USUAL.weight_decay,
                ema_decay=USUAL.ema_decay,
                patience=None,
            ),
        )
    seconds, lines = (time.perf_counter() - start) / len(runs), []
    network = build().to(DEVICE).eval()
    for run, method, one in zip(runs, methods, trained, strict=True):
        pick = Pick.constant(len(rows.validation[1]), len(rows.test[1]), rows.classes)
        if best := best_epochs(one):
            known, unseen = (finite(logits_of(network, one.weights, X)) for X, _ in here[1:3])
            now = one.offsets.get("metric")
            pick = Pick(best["metric"]["epoch"], known, unseen, offsets=now)
        scores = decided(pick, method, rows.validation[1], rows.test[1], metric)
        lines.append(line(part, run, metric, seconds, epoch=pick.epoch, **scores))
    return lines


def decided(
    pick: Pick, method: Method, known: Tensor, unseen: Tensor, metric: str, **how: Any
) -> dict[str, float]:
    """Score argmax and the tuned rule on the test rows."""
    given = method.offsets if isinstance(method.offsets, Tensor) else None
    rules = {"names": [metric], "decisions": ("argmax", "tuned"), "matrix": False}
    found = decide(pick, known, unseen, metric, offsets=given, **rules, **how)["decisions"]
    return {name: rule["test"][metric] for name, rule in found.items()}


# Multilabel tables: one network at a time, on a core.


def train_labels(part: str, runs: Sequence[Run]) -> list[dict[str, Any]]:
    names = {"counted": "aligned_macro", "cross_entropy": "binary_cross_entropy"}
    lines = []
    for run in runs:
        start = time.perf_counter()
        trained = multilabel.train_network(run.but(method=names.get(run.method, run.method)))
        seconds = time.perf_counter() - start
        found = multilabel.decided(multilabel.MACRO, *trained[:5])
        scores: dict[str, Any] = {
            name: found[name]["test"][multilabel.MACRO] for name in ("argmax", "tuned")
        }
        lines.append(line(part, run, multilabel.MACRO, seconds, epoch=trained.best, **scores))
    return lines


# Images with a long tail, without augmentation, so that the training rows are memorised.


class _MemorisingLearner(ScheduledLearner[Images]):
    def _batch(self) -> tuple[Tensor, Tensor]:
        return self.images.crops(self.rows), self.images.y[self.rows]


class TailTraining:
    """A training on rows that are seen unchanged in every epoch, judged after the last one."""

    def __init__(self, part: str, run: Run) -> None:
        start, self.part, self.run = time.perf_counter(), part, run
        self.images = images = prepare_images(run, torch.device(DEVICE), tailed.split)
        counts = images.y[images.training].bincount(minlength=images.classes)
        names = {"counted": "aligned_f1", "cross_entropy": "cross_entropy"}
        self.method = make(names.get(run.method, f"{run.method}_f1"), counts)
        size = min(usual_batch_size(len(images.training)), len(images.training))
        settings = Settings(
            epochs=run.epochs,
            learning_rate=run.learning_rate,
            weight_decay=USUAL.weight_decay,
            ema_decay=USUAL.ema_decay,
        )
        with seeded(run.seed):
            loss = self.method.loss.to(DEVICE)
            self.learner = _MemorisingLearner(run, images, loss, size, settings)
        self.epochs, self.seconds = 0, time.perf_counter() - start

    @property
    def finished(self) -> bool:
        return self.epochs == self.run.epochs

    def epoch(self) -> None:
        start = time.perf_counter()
        self.learner.epoch()
        self.epochs, self.seconds = self.epochs + 1, self.seconds + time.perf_counter() - start

    def record(self, assessors: Executor) -> dict[str, Any]:
        images, now = self.images, self.learner.offsets
        parts = images.training, images.validation, images.test
        trained, known, unseen = (finite(self.learner.logits(rows)) for rows in parts)
        labels = [images.y[rows].cpu() for rows in parts]
        pick = Pick(self.epochs, known, unseen, offsets=None if now is None else now.float().cpu())
        method = self.method._replace(loss=nn.Identity())
        weights = tailed.weights(images)
        scores = assessors.submit(
            decided, pick, method, *labels[1:], str(method.target), weights=weights
        ).result()
        right = (trained.argmax(1) == labels[0]).double().mean().item()
        scores |= {"epoch": self.epochs, "training_accuracy": right}
        return line(self.part, self.run, str(method.target), self.seconds, **scores)


# A class for each pixel.


def pixel_method(metric: str, name: str, pixels: Pixels) -> Method:
    if name.startswith(FOLLOWING):
        return pixel_methods.make(f"{name}_{metric}", pixels)
    if name.startswith("counted"):
        weight = None if name.endswith("_unweighted") else "auto"
        given = {"class_weight": weight, "task": "multiclass", "ignore_index": VOID}
        loss = CountedLoss(metric, pixels.counts, **given)
        return Method(loss, False, metric, loss.offsets.float())
    if name == "bce_dice":
        entropy = nn.CrossEntropyLoss(
            ignore_index=VOID
        )  # of two logits, as BCE of their difference
        dice = DiceLoss(task="binary", ignore_index=VOID)  # of the second class alone
        return Method(Combined([entropy, dice], [1, 1]), False, metric)
    return pixel_methods.make({"ce_dice": "dice"}.get(name, name), pixels)


class PixelTraining(DenseTraining):
    """A training whose epoch is chosen by the metric of all validation pixels."""

    def __init__(self, part: str, run: Run) -> None:
        metric = "f1" if part == "membrane" else pixel_methods.TARGET
        super().__init__(run, metric, partial(pixel_method, metric))
        self.part = part

    def _by_image(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {}

    def record(self, assessors: Executor) -> dict[str, Any]:
        self.learner.kept.load_state_dict(self.weights)
        metric, images = self.metric, self.images
        sampled = self.sampled(images.validation)
        rules = assessors.submit(fitted, *sampled, self.offsets, {metric: metric}).result()
        counts = self.counted(images.test, rules)
        scores: dict[str, Any] = {
            name: score(metric, counts[f"{metric} {name}"]) for name in ("argmax", "tuned")
        }
        scores |= {"epoch": self.curve.index(self.best) + 1, "offsets": self.offsets.tolist()}
        return line(self.part, self.run, metric, self.seconds, **scores)


# The runs, the file, and the order in which they are made.


def line(part: str, run: Run, metric: str, seconds: float, **found: Any) -> dict[str, Any]:
    half = DEVICE == "cuda" and part not in ("tables", "multilabel")
    return {
        **dict(zip(KEY, key(part, run), strict=True)),
        "metric": metric,
        **found,
        "seconds": round(seconds, 2),
        "made": made("cpu" if part == "multilabel" else DEVICE, "bfloat16" if half else "float32"),
    }


def key(part: str, run: Run) -> tuple[Any, ...]:
    """What tells runs apart, in the order of `KEY`."""
    return part, run.dataset, run.split_seed, run.seed, run.epochs, run.rows, run.method


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.open()] if path.exists() else []


def planned(asked: argparse.Namespace) -> list[Run]:
    """List the runs that the file does not hold: split by split, so that comparisons are even."""
    part = PARTS[asked.part]
    there = {tuple(each[name] for name in KEY) for each in recorded(asked.out)}
    epochs = asked.epochs or (2 if asked.quick else part.epochs)
    splits = [tuple(map(int, seed.split(":"))) for seed in asked.seeds or part.seeds]
    runs = [
        Run(
            dataset=dataset,
            variant="sound",
            method=method,
            epochs=epochs,
            split_seed=split,
            seed=seed[0] if seed else split + 1,
            rows=FEW if asked.quick else None,
            **part.settings,
        )
        for split, *seed in splits
        for dataset in asked.sets or part.sets
        for method in asked.methods or part.methods
    ]
    return [run for run in runs if key(asked.part, run) not in there]


def units(part: str, runs: Iterable[Run]) -> list[list[Run]]:
    """Group what trains together: the methods of a split of a table, else each run by itself."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(key(part, run)[: -1 if part == "tables" else None], []).append(run)
    return list(found.values())


def results(asked: argparse.Namespace, todo: list[list[Run]]) -> Iterator[dict[str, Any]]:
    """Train in processes, until the time is up."""
    end = time.monotonic() + asked.seconds
    train = train_tables if asked.part == "tables" else train_labels
    one_thread = {"initializer": torch.set_num_threads, "initargs": (1,)}
    units, running = iter(todo), set()
    with ProcessPoolExecutor(asked.processes, get_context("spawn"), **one_thread) as pool:
        while True:
            while len(running) < asked.processes and time.monotonic() < end:
                if (unit := next(units, None)) is None:
                    break
                running.add(pool.submit(train, asked.part, unit))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield from future.result()


def summary(path: Path) -> str:
    """The mean scores of each part by method, over sets and seeds that all its methods have."""
    told = []
    for part, lines in pd.DataFrame(recorded(path)).groupby("part", sort=False):
        wide = lines.pivot_table(
            index=["set", "split", "seed", "epochs"], columns="method", values=["argmax", "tuned"]
        ).dropna()
        by_set = 100 * wide.groupby("set").mean().mean().unstack(0)
        if part == "tail":
            by_set["training"] = 100 * lines.groupby("method")["training_accuracy"].mean()
        told.append(f"{part}: {len(wide)} trainings of a method\n{by_set.round(2).to_string()}")
    return "\n\n".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--seeds", nargs="*", help="splits, or pairs split:seed")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--out", type=Path, required=True, help="a file of lines, which grows")
    parser.add_argument("--data", type=Path, help="the folder of the data")
    parser.add_argument("--processes", type=int, default=2, help="for tables and multilabel")
    parser.add_argument("--side", type=int, default=1, help="trainings of images at a time")
    parser.add_argument("--seconds", type=float, default=540, help="nothing begins after them")
    parser.add_argument("--share", default="0/1", help="which of how many processes this one is")
    parser.add_argument("--quick", action="store_true", help="few rows and epochs, to try it out")
    parser.add_argument("--summary", action="store_true", help="print the means, train nothing")
    asked = parser.parse_args()
    if asked.summary:
        print(summary(asked.out))
        return
    if asked.data is not None:
        os.environ["EVALIGN_DATA"] = str(asked.data)
    start = time.monotonic()
    mine, of = map(int, asked.share.split("/"))
    todo = units(asked.part, planned(asked))[mine::of]
    print(f"{sum(map(len, todo))} runs", flush=True)

    def keep(lines: Iterable[dict[str, Any]]) -> None:
        for each in lines:
            with asked.out.open("a") as file:
                file.write(json.dumps(each) + "\n")
            scores = {
                name: each[name]
                for name in ("argmax", "tuned", "training_accuracy")
                if name in each
            }
            told = " ".join(f"{name} {100 * x:.2f}" for name, x in scores.items())
            where = each["set"], each["split"], each["seed"], each["method"]
            print(
                f"{time.monotonic() - start:.0f}",
                *where,
                told,
                f"{each['seconds']:.0f} s",
                flush=True,
            )

    if asked.part in ("tables", "multilabel"):
        for each in results(asked, todo):
            keep([each])
        return
    with ProcessPoolExecutor(4, get_context("spawn")) as assessors:
        left = train_side_by_side(
            partial(TailTraining if asked.part == "tail" else PixelTraining, asked.part),
            [run for unit in todo for run in unit],
            keep,
            side=asked.side,
            seconds=asked.seconds,
            assessors=assessors,
        )
    print(f"{len(left)} not finished, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
