"""Networks for images, trained as the papers say, with the data on the device.

Darknets follow EAST (E.1 and E.4; BtG 5.2 has the same set-up): AdamW at a constant learning rate,
early stopping, standardised colours, and no augmentation, as the papers mention none. ResNets
follow SurF (5.1): SGD, random crops and flips, the mean of each pixel taken away, and a curve over
the epochs. `Learner` is what they share with `tailed`.
"""

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evalign.aggregation import RunningConfusion
from evalign.core.confusion import Confusion
from evalign.core.metrics import resolve
from evalign.training.progress import Progress
from evalign.training.split import holdout_split, three_way_split
from evalign_study.data import Dataset, load
from evalign_study.records.made import Record, record
from evalign_study.records.run import LOSS, Run
from evalign_study.trainers.methods import NETWORKS, SURF_BETAS, make
from evalign_study.trainers.picks import Picks, annealing
from evalign_study.trainers.prepared import thin

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # row numbers (training, validation, test)

SIZE = 32  # pixels on each side of the images that networks see
PADDING = 4  # pixels on each side, before a crop
SURF = ("resnet18", "resnet34")
BLOCK = 2000  # images evaluated at a time
WARM_UP = 3  # steps before a CUDA graph is captured


class Images(NamedTuple):
    """A data set on a device.

    Args:
        pixels: bytes (N, height, width, 3), padded.
        y: a class for each image.
        training: row numbers, as are `validation` and `test`.
        classes: the number of classes.
        center: what is subtracted from pixels between 0 and 1: (3, 1, 1), or a number for each
            pixel.
        scale: what the difference is divided by.
    """

    pixels: Tensor
    y: Tensor
    training: Tensor
    validation: Tensor
    test: Tensor
    classes: int
    center: Tensor | float = 0.0
    scale: Tensor | float = 1.0

    def crops(self, rows: Tensor, *, random: bool = False) -> Tensor:
        """Cut images (rows, 3, SIZE, SIZE): the middle, or a random part, mirrored with probability
        ½.
        """
        height, width = self.pixels.shape[1:3]
        count, device = len(rows), rows.device
        along = torch.arange(SIZE, device=device).expand(count, SIZE)
        top, left = (height - SIZE) // 2, (width - SIZE) // 2
        across = along
        if random:
            top = torch.randint(height - SIZE + 1, (count, 1), device=device)
            left = torch.randint(width - SIZE + 1, (count, 1), device=device)
            mirrored = torch.rand(count, 1, device=device) < 0.5
            across = torch.where(mirrored, SIZE - 1 - along, along)
        # One gather picks, crops and mirrors; channels stay last in memory, as convolutions want
        # them.
        index = rows[:, None, None], (top + along)[:, :, None], (left + across)[:, None, :]
        return (self.pixels[index].permute(0, 3, 1, 2) / 255 - self.center) / self.scale


def split(dataset: Dataset, run: Run) -> Parts:
    """Split as the papers do.

    SurF tests on the publisher's test part and validates on a tenth of the rest. EAST counts 60,000
    images of CIFAR-10 and splits every data set into 64%, 16% and 20% (E.1). The variant of the run
    makes no difference.
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
    """Load padded pixels and labels once for all runs. Grey becomes three equal colours."""
    dataset = load(name)
    X = dataset.X if dataset.X.ndim == 4 else np.repeat(dataset.X[..., None], 3, -1)
    sides = (PADDING, PADDING)
    pixels = torch.as_tensor(np.pad(X, [(0, 0), sides, sides, (0, 0)]), device=device)
    return dataset, pixels, torch.as_tensor(dataset.y, device=device)


def train_image(run: Run) -> Record:
    """Train a network for images, on a GPU if there is one.

    The record of a ResNet has a "curve": for each epoch the loss and F-beta of its training
    batches, the F1 of the validation rows, and the accuracy of the test rows.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = prepare(run, device)
    counts = images.y[images.training].bincount(minlength=images.classes)
    method = make(run.method, counts, run.dataset)
    known, unseen = images.y[images.validation], images.y[images.test]
    picks = Picks(known, unseen, images.classes, method.offsets)
    progress = Progress(
        {LOSS: False},
        epochs=run.epochs,
        watch=LOSS,
        patience=run.patience,
        annealing=annealing(run, method),
    )
    curve: list[dict[str, float]] = []
    start = time.perf_counter()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(run.seed)
        training = _PaperLearner(run, images, method.loss.to(device))
        while not progress.finished:
            epoch = progress.epoch + 1
            test = cache(partial(training.logits, images.test))
            trained = training.epoch()
            validation = training.logits(images.validation)
            loss = training.loss_of(validation, known)
            metrics = picks.tell(epoch, loss, validation, test)
            if run.network in SURF:
                labels = (test() + torch.as_tensor(method.offsets, device=device)).argmax(1)
                accuracy = (labels == unseen).double().mean().item()
                values = {"validation_f1": metrics["f1"], "test_accuracy": accuracy}
                curve.append({"epoch": epoch} | trained | values)
            progress.note({LOSS: loss})
    return record(
        run,
        epochs=progress.epoch,
        capped=run.capped(progress.epoch, picks.epoch),
        seconds=time.perf_counter() - start,
        picks=picks.assessed(method.target),
        diverged=picks.diverged,
        device=device.type,
        precision="bfloat16" if device.type == "cuda" else "float32",
        **({"curve": curve} if curve else {}),
    )


class Learner(ABC):
    """A network for images, and how a batch trains it.

    All batches of an epoch have the same size. Rows that do not fill a batch are left out of the
    epoch, and the shuffling decides which. Subclasses define the step and the optimiser.
    """

    optimizer: torch.optim.Optimizer

    def __init__(self, run: Run, images: Images, loss: nn.Module, batch_size: int) -> None:
        self.images, self.loss = images, loss
        device = images.y.device
        self.cuda = device.type == "cuda"
        network = NETWORKS[run.network](3, images.classes, run.dropout)
        last = torch.channels_last
        self.network = network.to(device, memory_format=last)  # pyright: ignore[reportCallIssue]
        self.kept = self.network  # evaluated: the network, or its average over steps
        self.order = torch.Generator(device).manual_seed(run.seed)
        self.rows = images.training[:batch_size].clone()

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        """Compute the logits of images without augmentation."""
        self._set_mode(False)
        blocks = rows.split(BLOCK)
        return torch.cat([self._forward(self.kept, self.images.crops(block)) for block in blocks])

    @torch.no_grad()
    def loss_of(self, logits: Tensor, target: Tensor) -> float:
        """Compute the loss without changing its running statistics."""
        self._set_mode(False)
        return self.loss(logits, target).item()

    def _batches(self) -> tuple[Tensor, ...]:
        """Shuffle the row numbers of an epoch and divide them into batches."""
        rows, size = self.images.training, len(self.rows)
        order = torch.randperm(len(rows), generator=self.order, device=rows.device)
        return rows[order[: len(rows) // size * size]].split(size)

    def _set_mode(self, training: bool) -> None:
        self.network.train(training)
        self.loss.train(training)

    def _forward(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.cuda):
            return network(x).float()

    @abstractmethod
    def _step(self) -> None:
        """Take a step on the images `rows`."""

    def _captured(self) -> Callable[[], None]:
        """Return the step as one CUDA graph, as launching its hundreds of small kernels takes
        longer than running them. A capture needs some steps before it, whose effect is undone.
        """
        self._set_mode(True)
        before = copy.deepcopy(self.network.state_dict())
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                self._step()
        self._restart(before)
        return graph.replay

    def _restart(self, weights: dict[str, Tensor]) -> None:
        """Set the weights and reset the optimiser, in place, as a graph keeps their addresses."""
        self.network.load_state_dict(weights)
        for part in self.loss.modules():
            if isinstance(part, RunningConfusion):
                part.empty()
        for state in self.optimizer.state.values():  # a momentum of 0 acts as at the first step
            for tensor in state.values():
                tensor.zero_()


class _PaperLearner(Learner):
    """A learner that trains as the papers do."""

    def __init__(self, run: Run, images: Images, loss: nn.Module) -> None:
        super().__init__(run, images, loss, run.batch_size)
        self.surf = run.network in SURF
        parameters, rate = self.network.parameters(), run.learning_rate
        self.optimizer = (
            torch.optim.SGD(parameters, rate, momentum=0.9, weight_decay=1e-4, fused=True)
            if self.surf
            else torch.optim.AdamW(parameters, rate, fused=True, capturable=self.cuda)
        )
        # Fusing normalisation and activation moves fewer bytes. Evaluation is not compiled, as each
        # mode costs a compilation of its own.
        self.fused = torch.compile(self.network) if self.cuda else self.network
        self.identity = torch.eye(images.classes, device=images.y.device)
        self.matrix = torch.zeros_like(self.identity)
        self.total = torch.zeros((), device=images.y.device)
        self.step = self._captured() if self.cuda else self._step

    def epoch(self) -> dict[str, float]:
        """Train on all batches; return their mean loss, and the F-beta of all of them together."""
        self._set_mode(True)
        self.matrix.zero_()
        self.total.zero_()
        batches = self._batches()
        for batch in batches:
            self.rows.copy_(batch)
            self.step()
        values = {"train_loss": self.total.item() / len(batches)}
        if self.surf:
            confusion = Confusion.from_matrix(self.matrix.double().cpu())
            for name in (f"f{beta:g}" for beta in SURF_BETAS):
                values[f"train_{name}"] = float(resolve(name)(confusion))
        return values

    def _step(self) -> None:
        target = self.images.y[self.rows]
        logits = self._forward(self.fused, self.images.crops(self.rows, random=self.surf))
        loss = self.loss(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.total += loss.detach()
        self.matrix += self.identity[target].T @ self.identity[logits.argmax(1)]
