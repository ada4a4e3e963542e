"""Networks that give a class to each pixel, and the decisions that make labels of their logits.

The epoch is the best by the mIoU of the validation images, of argmax. Rules are fitted on some of
their pixels, without the test images. Each decision is scored on the test images, and on the
validation images to choose one: there by rules that were fitted on the other half of them, since a
rule is too good for the scenes that it was tuned on. Mean Dice is the mean over images, as medicine
reports it.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evalign import Confusion
from evalign.decisions import DecisionRule, fit_decision
from evalign.metrics import resolve
from evalign.training import Settings
from evalign_study.data import VOID, Dataset, load
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run
from evalign_study.refusals import installing
from evalign_study.trainers import pixel_methods
from evalign_study.trainers.crops import Scenes
from evalign_study.trainers.decisions import DECISIONS
from evalign_study.trainers.images import Parts, seeded
from evalign_study.trainers.methods import Method
from evalign_study.trainers.pixel_methods import Pixels
from evalign_study.trainers.scheduled import ScheduledLearner

MIOU, DICE = "jaccard_macro", "dice_per_image"
PER_IMAGE = "rankseg"  # the decision for each image by itself, of the package of that name
BLOCK = 64  # images evaluated at a time
SAMPLED = 60_000  # validation pixels that rules are fitted on
FIFTHS = 5
TURNED = ("membrane",)  # data sets in which no side of an image is its top


def parts_of(dataset: Dataset, split_seed: int) -> Parts:
    """Split as the publisher did; or, without that and for other splits, into stretches.

    Neighbours in a film or in a stack of sections resemble each other, so that each part is a
    stretch of the images: three fifths, a fifth and a fifth, beginning at one of eight places. The
    publisher's test images have no part in it.
    """
    known = np.arange(len(dataset.y))
    if dataset.split is not None:
        if split_seed == 0:
            names = ("train", "validation", "test")
            training, validation, test = (np.flatnonzero(dataset.split == x) for x in names)
            return training, validation, test
        known = np.flatnonzero(dataset.split != "test")
    known = np.roll(known, -(split_seed * len(known) // 8))
    fifth = len(known) // FIFTHS
    return known[2 * fifth :], known[fifth : 2 * fifth], known[:fifth]


@lru_cache(maxsize=16)
def prepare(name: str, split_seed: int, rows: int | None, device: torch.device) -> Scenes:
    """Prepare the data of runs: colours standardised by the training images."""
    dataset, pixels, y = _stored(name, device)
    parts = (part[_spread(len(part), rows)] for part in parts_of(dataset, split_seed))
    training, validation, test = (torch.as_tensor(part, device=device) for part in parts)
    x = pixels[training].double() / 255
    center, scale = x.mean((0, 1, 2)), x.std((0, 1, 2))
    return Scenes(
        pixels,
        y,
        training,
        validation,
        test,
        len(dataset.classes),
        center.float().view(3, 1, 1),
        scale.float().view(3, 1, 1),
        turned=name in TURNED,
    )


def _spread(count: int, most: int | None) -> np.ndarray:
    """Choose at most so many places, evenly."""
    return np.linspace(0, count - 1, min(count, most or count)).astype(int)


@lru_cache(maxsize=2)
def _stored(name: str, device: torch.device) -> tuple[Dataset, Tensor, Tensor]:
    """Keep the data once for all runs. Grey becomes three equal colours."""
    dataset = load(name)
    X = dataset.X if dataset.X.ndim == 4 else np.repeat(dataset.X[..., None], 3, -1)
    return dataset, torch.as_tensor(X, device=device), torch.as_tensor(dataset.y, device=device)


def train_dense(run: Run) -> Record:
    """Train a network, on a GPU if there is one."""
    training = DenseTraining(run)
    while not training.finished:
        training.epoch()
    with ThreadPoolExecutor(1) as here:
        return training.record(here)


class DenseTraining:
    """A training, an epoch at a time, on a GPU if there is one.

    Args:
        run: how to train.
        metric: by which the epoch is chosen, of the labels of argmax.
        make: makes the method of a name for the pixels of the training images.
    """

    def __init__(
        self,
        run: Run,
        metric: str = MIOU,
        make: Callable[[str, Pixels], Method] = pixel_methods.make,
    ) -> None:
        start = time.perf_counter()
        self.run, self.metric = run, metric
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.images = images = prepare(run.dataset, run.split_seed, run.rows, self.device)
        pixels = Pixels.of(images.y[images.training], images.classes)
        self.method = make(run.method, pixels)
        given = self.method.offsets
        self.offsets = (0.0 if given is None else given) + torch.zeros(images.classes)
        self.by_image = self._by_image()  # now, as it may be missing
        with seeded(run.seed):
            self.learner = _DenseLearner(run, images, self.method.loss.to(self.device))
        self.curve: list[float] = []
        self.best, self.weights = -1.0, {}
        self.seconds = time.perf_counter() - start

    @property
    def finished(self) -> bool:
        return len(self.curve) == self.run.epochs

    def epoch(self) -> None:
        """Train for one more, and keep the weights if they are the best by the metric."""
        start = time.perf_counter()
        self.learner.epoch()
        argmax = {"argmax": lambda logits: logits.argmax(1)}
        found = score(self.metric, self.counted(self.images.validation, argmax)["argmax"])
        self.curve.append(found)
        if found > self.best:
            self.best, self.weights = found, copy.deepcopy(self.learner.kept.state_dict())
            if (offsets := self.learner.offsets) is not None:
                self.offsets = offsets.float().cpu()
        self.seconds += time.perf_counter() - start

    def record(self, assessors: Executor) -> Record:
        """Fit the rules, which takes a core for some seconds, score them, and make the record."""
        start, images = time.perf_counter(), self.images
        self.learner.kept.load_state_dict(self.weights)
        first, second = images.validation.tensor_split(2)  # neighbours resemble each other
        asked = [
            assessors.submit(fitted, *self.sampled(rows), self.offsets, _metrics(images.classes))
            for rows in (second, first, images.validation)
        ]
        deciders: list[Mapping[str, Callable[[Tensor], Tensor]]] = [
            {**one.result(), **self.by_image} for one in asked
        ]
        *halves, tested = (
            self.counted(rows, rules)
            for rows, rules in zip((first, second, images.test), deciders, strict=True)
        )
        counts = {name: torch.cat([half[name] for half in halves]) for name in tested}, tested
        picks: dict[str, Any] = {}
        for name in tested:
            metric, decision = name.split()
            validation, test = (score(metric, each[name]) for each in counts)
            found = {"validation": validation, "test": {metric: test}}
            if metric == MIOU:
                found["matrix"] = counts[1][name].sum(0).long().tolist()
            picks.setdefault(metric, {"decisions": {}})["decisions"][decision] = found
        return record(
            self.run,
            epochs=len(self.curve),
            capped=False,
            seconds=self.seconds + time.perf_counter() - start,
            picks={
                metric: {"epoch": self.curve.index(self.best) + 1, **pick}
                for metric, pick in picks.items()
            },
            curve=self.curve,
            device=self.device.type,
            precision="bfloat16" if self.device.type == "cuda" else "float32",
        )

    def counted(
        self, rows: Tensor, deciders: Mapping[str, Callable[[Tensor], Tensor]]
    ) -> dict[str, Tensor]:
        """Confusion matrices (images, classes, classes) of the labels that each decider makes."""
        classes, found = self.images.classes, {name: [] for name in deciders}
        for block, logits in self._blocks(rows):
            target = self.images.labels(block)
            # The pixels without a class are counted in a cell of their own.
            first = torch.arange(len(block), device=rows.device).view(-1, 1, 1) * classes**2
            for name, decide in deciders.items():
                cell = first + target * classes + decide(logits)
                cell = torch.where(target == VOID, len(block) * classes**2, cell)
                counts = cell.flatten().bincount(minlength=len(block) * classes**2 + 1)
                found[name].append(counts[:-1].view(-1, classes, classes))
        return {name: torch.cat(counts).double().cpu() for name, counts in found.items()}

    def _blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of images, some at a time; 0 where they are not finite."""
        for block in rows.split(BLOCK):
            logits = self.learner.logits(block)
            yield block, torch.where(logits.isfinite(), logits, 0.0)

    def sampled(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The logits and classes of some pixels of images, the same for all runs of a split."""
        logits, labels = [], []
        for block, found in self._blocks(rows):
            logits.append(found.movedim(1, -1).flatten(0, -2))
            labels.append(self.images.labels(block).flatten())
        y = torch.cat(labels)
        seen = (y != VOID).nonzero().squeeze(1)
        chosen = torch.randperm(len(seen), generator=torch.Generator().manual_seed(0))[:SAMPLED]
        chosen = seen[chosen.to(seen.device)]
        return torch.cat(logits)[chosen].cpu(), y[chosen].cpu()

    def _by_image(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The rules of RankSEG. Only a quick look does without: its records are not kept."""
        try:
            from rankseg import RankSEG  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError as error:
            if self.run.rows is not None:
                return {}
            error.add_note(installing("study[dense]"))
            raise

        def decide(goal: str) -> Callable[[Tensor], Tensor]:
            def labels(logits: Tensor) -> Tensor:
                offsets = self.offsets.view(-1, 1, 1).to(self.device)
                return RankSEG(metric=goal)((logits + offsets).softmax(1))

            return labels

        return {f"{MIOU} {PER_IMAGE}": decide("IoU"), f"{DICE} {PER_IMAGE}": decide("dice")}


class _DenseLearner(ScheduledLearner[Scenes]):
    def __init__(self, run: Run, images: Scenes, loss: nn.Module) -> None:
        settings = Settings(
            epochs=run.epochs, learning_rate=run.learning_rate, weight_decay=0.01, ema_decay=0.99
        )
        size = min(run.batch_size, len(images.training))
        # Drawn before a step with a generator of its own: trainings side by side share the usual.
        self.views = images.draw(size, torch.Generator(images.y.device))
        super().__init__(run, images, loss, size, settings)

    def _draw(self) -> None:
        for kept, new in zip(self.views, self.images.draw(len(self.rows), self.order), strict=True):
            kept.copy_(new)

    def _batch(self) -> tuple[Tensor, Tensor]:
        return (
            self.images.crops(self.rows, self.views),
            self.images.labels(self.rows, self.views),
        )


def _metrics(classes: int) -> dict[str, str]:
    """The metric that rules are fitted for, for each metric of the table."""
    return {MIOU: MIOU, DICE: "f1" if classes == 2 else "f1_macro"}


def fitted(
    logits: Tensor, y: Tensor, offsets: Tensor, metrics: Mapping[str, str]
) -> dict[str, DecisionRule]:
    """Fit all rules to validation pixels, by "metric decision"; only a tuned one sees labels."""
    return {
        f"{name} {decision}": fit_decision(
            logits,
            y if decision == "tuned" else None,
            metric=metric,
            decision=decision,
            offsets=offsets,
        )
        for name, metric in metrics.items()
        for decision in DECISIONS
    }


def score(metric: str, counts: Tensor) -> float:
    """The metric of matrices (images, classes, classes): of all pixels, or Dice of each image."""
    if metric != DICE:
        return float(resolve(metric)(Confusion.from_matrix(counts.sum(0))))
    dice = resolve("f1" if counts.shape[1] == 2 else "f1_macro")
    return float(np.mean([float(dice(Confusion.from_matrix(image))) for image in counts]))
