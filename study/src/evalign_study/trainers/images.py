"""Networks for images, trained as the papers say, with the data on the device.

Darknets follow EAST (E.1 and E.4; BtG 5.2 has the same set-up): AdamW at a constant learning rate,
early stopping, colours standardised; no augmentation, as none is mentioned. ResNets follow SurF
(5.1): SGD, random crops and flips, the mean of each pixel taken away.
`Learner` is what they share with `tailed`.
"""

import copy
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Generic

import numpy as np
import torch
from torch import Tensor, nn

from evalign import Confusion
from evalign.metrics import resolve
from evalign.training import holdout_split, three_way_split
from evalign.training.early_stopping import EarlyStopping
from evalign_study.data import Dataset, load
from evalign_study.records.made import Record, record
from evalign_study.records.run import LOSS, Run
from evalign_study.trainers.crops import SIZE, Images, Stored
from evalign_study.trainers.following import forget, offsets_now
from evalign_study.trainers.methods import NETWORKS, SURF_BETAS, make
from evalign_study.trainers.picks import Picks, annealing
from evalign_study.trainers.prepared import thin

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # row numbers (training, validation, test)

PADDING = 4  # on each side, before a crop
SURF = ("resnet18", "resnet34")
BLOCK = 2000  # images evaluated at a time
WARM_UP = 3  # steps before a CUDA graph is captured


def split(dataset: Dataset, run: Run) -> Parts:
    """Split as the papers do.

    SurF tests on the publisher's test part and validates on a tenth of the rest. EAST counts the
    60,000 images of CIFAR-10 and splits every data set into 64%, 16% and 20% (E.1); the variant of
    the run makes no difference.
    """
    if run.network not in SURF:
        return three_way_split(dataset.y, seed=run.split_seed)
    assert dataset.split is not None
    rest, test = (np.flatnonzero(dataset.split == part) for part in ("train", "test"))
    training, validation = holdout_split(dataset.y[rest], fraction=0.1, seed=run.split_seed)
    return rest[training], rest[validation], test


def prepare(
    run: Run, device: torch.device, parts_of: Callable[[Dataset, Run], Parts] = split
) -> Images:
    """Prepare the data of a run."""
    dataset, pixels, y = _stored(run.dataset, device)
    parts = (part[thin(dataset.y[part], run.rows)] for part in parts_of(dataset, run))
    training, validation, test = (torch.as_tensor(part, device=device) for part in parts)
    images = Images(pixels, y, training, validation, test, len(dataset.classes))

    total = squares = torch.zeros(3, SIZE, SIZE, device=device, dtype=torch.float64)
    for block in training.split(BLOCK):
        x = images.crops(block).double()
        total, squares = total + x.sum(0), squares + x.square().sum(0)
    mean, square = total / len(training), squares / len(training)
    if run.network in SURF:
        return images._replace(center=mean.float())
    mean, square = (moment.mean((1, 2), keepdim=True) for moment in (mean, square))
    return images._replace(center=mean.float(), scale=(square - mean**2).sqrt().float())


@lru_cache(maxsize=2)
def _stored(name: str, device: torch.device) -> tuple[Dataset, Tensor, Tensor]:
    """Keep padded pixels and labels once for all runs. Grey becomes three equal colours."""
    dataset = load(name)
    X = dataset.X if dataset.X.ndim == 4 else np.repeat(dataset.X[..., None], 3, -1)
    sides = (PADDING, PADDING)
    pixels = torch.as_tensor(np.pad(X, [(0, 0), sides, sides, (0, 0)]), device=device)
    return dataset, pixels, torch.as_tensor(dataset.y, device=device)


def train_image(run: Run) -> Record:
    """Train a network for images, on a GPU if there is one."""
    with seeded(run.seed):  # for dropout; `ImageTraining` sees to all else
        training = ImageTraining(run)
        while not training.finished:
            training.epoch()
    with ThreadPoolExecutor(1) as here:
        return training.record(here)


class ImageTraining:
    """A training of a network for images, an epoch at a time, on a GPU if there is one.

    Its record has a "curve", for each epoch: the loss of its batches as they were trained on, the
    share of their rows whose logits had a gradient of exactly 0, the loss and F1 of the validation
    rows, and the temperature where it is cooled; for a ResNet also F-beta of the batches, and the
    accuracy of the test rows.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.device = device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.images = images = prepare(run, device)
        counts = images.y[images.training].bincount(minlength=images.classes)
        self.method = method = make(run.method, counts, run.dataset)
        self.known, self.unseen = images.y[images.validation], images.y[images.test]
        self.picks = Picks(self.known, self.unseen, images.classes, method.offsets)
        self.progress = EarlyStopping(
            {LOSS: False},
            epochs=run.epochs,
            watch=LOSS,
            patience=run.patience,
            annealing=annealing(run, method),
        )
        self.curve: list[dict[str, float]] = []
        start = time.perf_counter()
        with seeded(run.seed):
            self.learner = _PaperLearner(run, images, method.loss.to(device))
        self.seconds = time.perf_counter() - start

    @property
    def finished(self) -> bool:
        return self.progress.finished

    def epoch(self) -> None:
        """Train for one more."""
        start, number, learner = time.perf_counter(), self.progress.epoch + 1, self.learner
        test = cache(partial(learner.logits, self.images.test))
        point = {"epoch": number} | learner.epoch(number <= self.run.cross_entropy_first)
        validation = learner.logits(self.images.validation)
        loss = learner.loss_of(validation, self.known)
        metrics = self.picks.tell(number, loss, validation, test, learner.offsets)
        f1 = self.picks.names[0]
        point |= {"validation_loss": loss, f"validation_{f1}": metrics[f1]}
        if self.run.network in SURF:
            now = self.method.offsets if learner.offsets is None else learner.offsets
            labels = (test() + torch.as_tensor(now, device=self.device)).argmax(1)
            point["test_accuracy"] = (labels == self.unseen).double().mean().item()
        if self.progress.annealing is not None:
            point["temperature"] = self.progress.annealing.temperature
        self.curve.append(point)
        self.progress.note({LOSS: loss})
        self.seconds += time.perf_counter() - start

    def record(self, assessors: Executor) -> Record:
        """Choose the decisions, which takes a core for some seconds, and make the record."""
        picks = assessors.submit(self.picks.assessed, self.method.target).result()
        epochs = self.progress.epoch
        return record(
            self.run,
            epochs=epochs,
            capped=self.run.capped(epochs, self.picks.epoch),
            seconds=self.seconds,
            picks=picks,
            diverged=self.picks.diverged,
            device=self.device.type,
            precision="bfloat16" if self.device.type == "cuda" else "float32",
            curve=self.curve,
        )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, and afterwards put its generators back."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        yield


class Learner(Generic[Stored]):
    """A network for images and how it is trained, a batch at a time.

    All batches of an epoch have one size. The rows that fill none are left out of it; which ones,
    the shuffling decides. What a step is, subclasses say, and with which optimiser.
    """

    optimizer: torch.optim.Optimizer

    def __init__(self, run: Run, images: Stored, loss: nn.Module, batch_size: int) -> None:
        self.images: Stored = images
        self.loss = loss
        device = images.y.device
        self.cuda = device.type == "cuda"
        network = NETWORKS[run.network](3, images.classes, run.dropout)
        last = torch.channels_last
        self.network = network.to(device, memory_format=last)  # pyright: ignore[reportCallIssue]
        self.kept = self.network  # whose logits count: the network, or an average over its steps
        self.order = torch.Generator(device).manual_seed(run.seed)
        self.rows = images.training[:batch_size].clone()

    @property
    def offsets(self) -> Tensor | None:
        """The offsets of the loss, if they change; None if not."""
        return offsets_now(self.loss)

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        """Compute the logits of images as they are."""
        self._set_mode(False)
        blocks = rows.split(BLOCK)
        return torch.cat([self._forward(self.kept, self.images.crops(block)) for block in blocks])

    @torch.no_grad()
    def loss_of(self, logits: Tensor, target: Tensor) -> float:
        """Compute the loss, and leave its running statistics alone."""
        self._set_mode(False)
        return self.loss(logits, target).item()

    def _batches(self) -> tuple[Tensor, ...]:
        """Shuffle the row numbers of an epoch into batches."""
        rows, size = self.images.training, len(self.rows)
        order = torch.randperm(len(rows), generator=self.order, device=rows.device)
        return rows[order[: len(rows) // size * size]].split(size)

    def _set_mode(self, training: bool) -> None:
        self.network.train(training)
        self.loss.train(training)

    def _forward(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.cuda):
            return network(x).float()

    def _prepared(self, step: Callable[[], None]) -> Callable[[], None]:
        """A step, which learns from the images `rows`; on a GPU as one CUDA graph.

        Launching its hundreds of small kernels would take longer than they do. A capture needs some
        steps before it; what they taught is undone.
        """
        if not self.cuda:
            return step
        self._set_mode(True)
        before = copy.deepcopy(self.network.state_dict())
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            # Else graphs that run side by side would write into one workspace.
            torch._C._cuda_clearCublasWorkspaces()
            # What other threads do, such as giving memory back, is no part of it.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step()
            torch._C._cuda_clearCublasWorkspaces()
        self._restart(before)
        return graph.replay

    def _restart(self, weights: dict[str, Tensor]) -> None:
        """From these weights, with nothing else learned. In place, where a graph looks for it."""
        self.network.load_state_dict(weights)
        forget(self.loss)
        for state in self.optimizer.state.values():  # a momentum of 0 is that of the first step
            for tensor in state.values():
                tensor.zero_()


class _PaperLearner(Learner[Images]):
    """Trains as the papers do."""

    def __init__(self, run: Run, images: Images, loss: nn.Module) -> None:
        super().__init__(run, images, loss, run.batch_size)
        self.surf = run.network in SURF
        parameters, rate = self.network.parameters(), run.learning_rate
        self.optimizer = (
            torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=1e-4, fused=True)
            if self.surf
            else torch.optim.AdamW(parameters, rate, fused=True, capturable=self.cuda)
        )
        # Fused, normalisation and activation move fewer bytes. Evaluation is left as it is: another
        # mode is another compilation.
        self.fused = torch.compile(self.network) if self.cuda else self.network
        self.identity = torch.eye(images.classes, device=images.y.device)
        self.matrix = torch.zeros_like(self.identity)
        self.total = torch.zeros((), device=images.y.device)
        self.zero = torch.zeros_like(self.total)
        # Drawn before a step with a generator of its own: trainings side by side share the usual.
        self.places = images.draw(run.batch_size, self.order) if self.surf else None
        self.step = self._prepared(partial(self._step, loss))
        if run.cross_entropy_first:
            self.first_step = self._prepared(partial(self._step, nn.CrossEntropyLoss()))

    def epoch(self, by_cross_entropy: bool = False) -> dict[str, float]:
        """Train on all batches; tell their part of a curve."""
        step = self.first_step if by_cross_entropy else self.step
        self._set_mode(True)
        for total in (self.matrix, self.total, self.zero):
            total.zero_()
        batches = self._batches()
        for batch in batches:
            self.rows.copy_(batch)
            if self.places is not None:
                drawn = self.images.draw(len(batch), self.order)
                for place, new in zip(self.places, drawn, strict=True):
                    place.copy_(new)
            step()
        totals = {"train_loss": self.total, "zero_gradients": self.zero}
        values = {name: total.item() / len(batches) for name, total in totals.items()}
        if self.surf:
            confusion = Confusion.from_matrix(self.matrix.double().cpu())
            for name in (f"f{beta:g}" for beta in SURF_BETAS):
                values[f"train_{name}"] = float(resolve(name)(confusion))
        return values

    def _step(self, loss_function: nn.Module) -> None:
        target = self.images.y[self.rows]
        logits = self._forward(self.fused, self.images.crops(self.rows, self.places))
        logits.retain_grad()
        loss = loss_function(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.total += loss.detach()
        assert logits.grad is not None
        self.zero += (logits.grad == 0).all(1).float().mean()
        self.matrix += self.identity[target].T @ self.identity[logits.argmax(1)]
