"""Long-tailed images, in which later classes are rarer, trained as by `AlignedClassifier`.

The publisher's training part is thinned to the profile n_j = n_max · ratio^(−j/(K−1)). The rest is
a sample of a population with so long a tail; 80% of it is for training, 20% for validation.
Thinning the test part in the same way would leave ten images of the rarest class, and they would
decide the metric. So the whole test part is used, and each class is weighted by its share of the
profile. That estimates the metric of the long-tailed population from as many rare images as there
are. Records keep the plain counts. No image occurs twice in either data set.

Methods, trainer and picks are those of `recipe`; images are cropped and mirrored as in `images`.
"""

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from evalign.tables.split import holdout_split
from evalign.training import Settings
from evalign.training.early_stopping import EarlyStopping
from evalign_study.data import Dataset
from evalign_study.records.made import Record, record
from evalign_study.records.run import Run, scores, triples
from evalign_study.trainers.batch_size import usual_batch_size
from evalign_study.trainers.crops import Images
from evalign_study.trainers.decisions import Pick, decide
from evalign_study.trainers.images import Parts, prepare
from evalign_study.trainers.methods import OPPONENTS, Problem, make
from evalign_study.trainers.picks import finite
from evalign_study.trainers.recipe import USUAL, decided_as, metrics
from evalign_study.trainers.scheduled import ScheduledLearner


def profile(most: int, ratio: float, classes: int) -> np.ndarray:
    """Count the images of each class, rounded down as by Cao et al. (NeurIPS 2019, CIFAR-10-LT).

    Examples:
        >>> profile(5000, 100, 10)
        array([5000, 2997, 1796, 1077,  645,  387,  232,  139,   83,   50])
    """
    return (most * ratio ** (-np.arange(classes) / (classes - 1))).astype(int)


def split(dataset: Dataset, run: Run) -> Parts:
    """Thin and split the publisher's training part; take all of the test part."""
    assert dataset.split is not None
    assert run.imbalance is not None
    known, test = (dataset.split == part for part in ("train", "test"))
    of_class = [np.flatnonzero(known & (dataset.y == c)) for c in range(len(dataset.classes))]
    counts = profile(min(map(len, of_class)), run.imbalance, len(of_class))
    draw = np.random.default_rng(run.split_seed).choice
    drawn = [draw(rows, n, replace=False) for rows, n in zip(of_class, counts, strict=True)]
    rows = np.sort(np.concatenate(drawn))
    training, validation = holdout_split(dataset.y[rows], seed=run.split_seed)
    return rows[training], rows[validation], np.flatnonzero(test)


def weights(images: Images) -> Tensor:
    """Compute the weight of a test image of each class: the class's share of the training and
    validation images, over its share of the test images.
    """
    drawn, tested = (
        images.y[rows].bincount(minlength=images.classes).double().cpu() / len(rows)
        for rows in (torch.cat([images.training, images.validation]), images.test)
    )
    return drawn / tested


def train(run: Run) -> Record:
    """Train a run, on a GPU if there is one, and record it as `recipe.train` does."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = prepare(run, device, split)
    counts = images.y[images.training].bincount(minlength=images.classes)
    method = make(run.method, counts, run.dataset)
    assert isinstance(method.target, str)
    names = metrics(Problem(counts, run.dataset)) if run.method in OPPONENTS else [method.target]
    start = time.perf_counter()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(run.seed)
        training = _TailedLearner(run, images, method.loss.to(device))
        epochs, best = _best_epochs(training, run.epochs, names)
    seconds = time.perf_counter() - start
    known, unseen = (images.y[rows].cpu() for rows in (images.validation, images.test))
    how = {**decided_as(run.method, method, counts.cpu()), "weights": weights(images)}
    constant = Pick.constant(len(known), len(unseen), images.classes)
    return record(
        run,
        epochs=epochs,
        capped=False,  # the last epoch is the planned end of the schedule
        seconds=seconds,
        picks={
            name: decide(best.get(name, constant), known, unseen, name, names=[name], **how)
            for name in names
        },
        diverged=not best,
        batch_size=len(training.rows),
        device=device.type,
        precision="bfloat16" if device.type == "cuda" else "float32",
    )


def _best_epochs(
    training: "_TailedLearner", epochs: int, names: Sequence[str]
) -> tuple[int, dict[str, Pick]]:
    """Train; return the number of epochs, and the best ones by these metrics.

    A loss that is not finite ends the training.
    """
    images = training.images
    known = images.y[images.validation]
    best: dict[str, Pick] = {}
    progress = EarlyStopping(dict.fromkeys(names, True), epochs=epochs)
    while not progress.finished:
        training.epoch()
        logits = training.logits(images.validation)
        if not math.isfinite(training.loss_of(logits, known)):
            progress.note({}, diverged=True)
            continue
        logits = finite(logits)
        matrix = triples(logits.argmax(1), known.cpu())
        if better := progress.note(scores(matrix, images.classes, tuple(names))):
            now = training.offsets
            now = None if now is None else now.float().cpu()
            tested = finite(training.logits(images.test))
            pick = Pick(progress.epoch, logits, tested, offsets=now)
            best |= dict.fromkeys(better, pick)
    return progress.epoch, best


class _TailedLearner(ScheduledLearner[Images]):
    """Trains on augmented images, with a batch size that depends on their number."""

    def __init__(self, run: Run, images: Images, loss: nn.Module) -> None:
        rows = len(images.training)
        settings = Settings(
            epochs=run.epochs,
            learning_rate=run.learning_rate,
            weight_decay=USUAL.weight_decay,
            ema_decay=USUAL.ema_decay,
        )
        batches = math.ceil(rows / usual_batch_size(rows))
        super().__init__(run, images, loss, rows // batches, settings)

    def _batch(self) -> tuple[Tensor, Tensor]:
        places = self.images.draw(len(self.rows))
        return self.images.crops(self.rows, places), self.images.y[self.rows]
