"""SurF's experiments on images, from the pixels to the record of a run: read it downwards.

N. Lee, H. Yang, H. Yoo, "A Surrogate Loss Function for Optimization of Fβ Score in Binary
Classification with Imbalanced Data". Numbers in brackets are its sections. One class of ten against
the others, ResNets trained by SGD for 120 epochs; what counts is the curve over the epochs.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

import evalign
from evalign_study import data, networks
from evalign_study.data.split import hold_out
from evalign_study.own_loss import own_loss
from evalign_study.protocols import east
from evalign_study.protocols.east import Task, batches, counted, one_of, products, seeded, thinned
from evalign_study.records.journal import Record, key_of, scores_of, stamped, triples

NAME = "surf"
VERSION = 1  # raise it where a change of this file changes numbers
BETAS = (0.5, 1.0, 2.0, 3.0)  # of the Fβ in a curve
METRICS = ("f1", "accuracy", "matthews_corrcoef")
DECISIONS = {"paper": ("argmax",)}
PADDING, SIZE = 4, 32


# 1. What is run (5.1).


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """All that the result of a training depends on, except the machine."""

    protocol: ClassVar[str] = NAME
    version: ClassVar[int] = VERSION

    # The publisher's test part; of the rest a tenth, drawn anew in each repetition, validates.
    dataset: str
    validation: float = 0.1
    split_seed: int = 1
    rows: int | None = None  # at most so many in each part, for a quick look

    network: str = "resnet18"  # for Fashion-MNIST; "resnet34" for CIFAR-10

    # "surrogate" is SurF's (eq. 20; eq. 25 with q > 0), "macro_soft" eq. 24, "mae" and "bce"
    # baselines. All but SurF's own are weighted by the inverse frequency of the classes (5.2).
    loss: str = "surrogate"
    beta: float = 1.0
    q: float = 0.0

    batch_size: int = 100
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    epochs: int = 120
    seed: int = 1
    precision: str = "bfloat16"

    @property
    def key(self) -> str:
        """Identifies the run."""
        return key_of(NAME, VERSION, self)

    def but(self, **changes: Any) -> Self:
        """Copy the run with changes."""
        return dataclasses.replace(self, **changes)


# 2. The pixels (5.1): padded by 4 on each side, cut at random and mirrored; the mean of each pixel
# is taken away. Grey becomes three equal colours.


class Images(NamedTuple):
    """Padded images as bytes (N, height, width, 3), their labels, and the rows of each part."""

    pixels: Tensor
    y: Tensor
    training: Tensor
    validation: Tensor
    test: Tensor
    center: Tensor

    def cut(self, rows: Tensor, order: torch.Generator | None = None) -> Tensor:
        """Images (rows, 3, 32, 32): parts at random, half of them mirrored; or their middles."""
        height, width = self.pixels.shape[1:3]
        device = rows.device
        along = torch.arange(SIZE, device=device).expand(len(rows), SIZE)
        across = along
        top: Any = (height - SIZE) // 2
        left: Any = (width - SIZE) // 2
        if order is not None:
            draw = partial(torch.randint, size=(len(rows), 1), generator=order, device=device)
            top = draw(0, height - SIZE + 1)
            left = draw(0, width - SIZE + 1)
            across = torch.where(draw(0, 2) == 1, SIZE - 1 - along, along)
        index = rows[:, None, None], (top + along)[:, :, None], (left + across)[:, None, :]
        return self.pixels[index].permute(0, 3, 1, 2) / 255 - self.center


def images_of(run: Run, device: str) -> Images:
    """Prepare the images of a run."""
    return _prepared(run.dataset, run.validation, run.split_seed, run.rows, device)


@lru_cache(maxsize=2)
def _prepared(
    dataset: str, validation: float, split_seed: int, most: int | None, device: str
) -> Images:
    loaded = data.load(dataset, preparation="paper")
    assert loaded.split is not None
    X = loaded.X if loaded.X.ndim == 4 else np.repeat(loaded.X[..., None], 3, -1)
    sides = (PADDING, PADDING)
    pixels = torch.as_tensor(np.pad(X, [(0, 0), sides, sides, (0, 0)]), device=device)
    rest, test = (np.flatnonzero(loaded.split == part) for part in ("train", "test"))
    kept, held_out = hold_out(loaded.y[rest], fraction=validation, seed=split_seed)
    parts = (part[thinned(loaded.y[part], most)] for part in (rest[kept], rest[held_out], test))
    rows = [torch.as_tensor(part, device=device) for part in parts]
    images = Images(
        pixels,
        torch.as_tensor(loaded.y, device=device),
        *rows,
        center=torch.zeros((), device=device),
    )
    sums = [images.cut(block).double().sum(0) for block in rows[0].split(2000)]
    return images._replace(center=(torch.stack(sums).sum(0) / len(rows[0])).float())


# 3. The network and the loss (5.1, 5.2).


def network_of(run: Run) -> nn.Module:
    """Build the network, with logits (N, 2)."""
    makers = {"resnet18": networks.resnet18, "resnet34": networks.resnet34}
    return one_of(makers, "network", run.network, NAME)(2)


class Balanced(nn.Module):
    """A loss in which rows weigh by the inverse frequency of their class."""

    weight: Tensor

    def __init__(self, loss: nn.Module, weight: Tensor) -> None:
        super().__init__()
        self.loss = loss
        self.register_buffer("weight", weight)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.loss(logits, target, sample_weight=self.weight[target])


def loss_of(run: Run, task: Task) -> nn.Module:
    """Make the loss, of logits (N, 2) and class codes (N,)."""
    if ":" in run.loss:
        return own_loss(run.loss, task)
    counts = task.counts.double().cpu()
    share = (counts[1] / counts.sum()).item()
    weight = evalign.losses.inverse_frequency_weights(counts)
    losses = evalign.losses
    soft = partial(losses.SoftFBetaLoss, run.beta, average="binary", task="binary")
    makers: dict[str, Callable[[], nn.Module]] = {
        "surrogate": lambda: losses.SurrogateFBetaLoss(
            share, beta=run.beta, q=run.q, task="binary"
        ),
        "macro_soft": lambda: Balanced(soft(), weight),
        "macro_soft_unweighted": soft,
        "mae": lambda: losses.MAELoss(class_weight=weight, task="multiclass"),
        "bce": lambda: losses.FocalLoss(0.0, class_weight=weight, task="multiclass"),
    }
    return one_of(makers, "loss", run.loss, NAME)()


# 4. The training: 120 epochs of SGD, without early stopping. A record holds the whole curve, and
# the test rows' confusion matrices at the lowest validation loss and at the end.


def train(run: Run, device: str | None = None, *, compiled: bool = False) -> Record:
    """Train a network, and make the record of the run; `compiled` is for speed alone."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    images = images_of(run, device)
    rows, y = images.training, images.y
    with seeded(run.seed), products(run.precision, device) as context:
        network = network_of(run).to(device)
        network = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        counts = y[rows].bincount(minlength=2)
        loss = loss_of(run, Task(counts, run.dataset)).to(device)
        optimizer = torch.optim.SGD(
            network.parameters(),
            run.learning_rate,
            momentum=run.momentum,
            weight_decay=run.weight_decay,
            fused=True,
        )
        forward = torch.compile(network, dynamic=False) if compiled else network
        order = torch.Generator(device).manual_seed(run.seed)
        curve: list[dict[str, float]] = []
        picks: dict[str, dict[str, Any]] = {}
        lowest = math.inf
        for epoch in range(1, run.epochs + 1):
            network.train()
            loss.train()
            matrix = torch.zeros(2, 2, device=device)
            total = torch.zeros((), device=device)
            shuffled = batches(len(rows), run.batch_size, order)
            for batch in shuffled:
                target = y[rows[batch]]
                optimizer.zero_grad()
                with context():
                    logits = forward(images.cut(rows[batch], order)).float()
                value = loss(logits, target)
                value.backward()
                optimizer.step()
                total += value.detach()
                matrix += counted(logits.detach(), target)
            loss.eval()
            known = logits_of(network, images, images.validation, context)
            unseen = logits_of(network, images, images.test, context)
            with torch.no_grad():
                validation_loss = loss(known, y[images.validation]).item()
            scores = scores_of(counted(known, y[images.validation]), METRICS)
            tested = counted(unseen, y[images.test])
            fbeta = scores_of(matrix, [f"f{beta:g}" for beta in BETAS])
            curve.append(
                {
                    "epoch": epoch,
                    "train_loss": total.item() / len(shuffled),
                    **{f"train_{name}": score for name, score in fbeta.items()},
                    "validation_loss": validation_loss,
                    "validation_f1": scores["f1"],
                    "test_accuracy": scores_of(tested, ["accuracy"])["accuracy"],
                }
            )
            pick = {
                "epoch": epoch,
                "validation_loss": validation_loss,
                "validation": scores,
                "decisions": {"argmax": {"matrix": triples(tested)}},
            }
            picks["last"] = pick
            if validation_loss < lowest:
                lowest = validation_loss
                picks["loss"] = pick
    return stamped(
        run,
        protocol=NAME,
        version=VERSION,
        device=device,
        precision=run.precision if device == "cuda" else "float32",
        epochs=run.epochs,
        cap=run.epochs,
        capped=False,  # the paper trains as long, without early stopping
        diverged="loss" not in picks,
        seconds=time.perf_counter() - start,
        picks=picks,
        curve=curve,
    )


@torch.no_grad()
def logits_of(
    network: nn.Module, images: Images, rows: Tensor, context: Callable[[], Any]
) -> Tensor:
    """Compute the logits of images as they are."""
    network.eval()
    with context():
        return torch.cat([network(images.cut(block)).float() for block in rows.split(2000)])


# 5. What is read from a curve.


def of_curve(record: Record, name: str) -> float:
    """A number of a curve; NaN where it has none.

    "last:KEY" is its end; "correlation:β" is that of −loss with Fβ over the epochs, on the training
    rows (Figures 3, 4, 6, 7).
    """
    kind, _, key = name.partition(":")
    curve = record["curve"]
    if kind == "last":
        return curve[-1][key]
    pairs = [(point["train_loss"], point[f"train_f{key}"]) for point in curve]
    loss, score = np.array([pair for pair in pairs if None not in pair], float).reshape(-1, 2).T
    if len(loss) == 0 or np.ptp(loss) == 0 or np.ptp(score) < 0.01:
        return math.nan  # it learns nothing, and a correlation would be noise
    return float(np.corrcoef(-loss, score)[0, 1])


def metrics_of(run: Run) -> tuple[str, ...]:
    """The metrics of the tables."""
    return METRICS


def goal_of(run: Run) -> str:
    """The metric that a run trains for."""
    return "f1"


def run_from(values: Mapping[str, Any]) -> Run:
    """A run from plain values, as JSON and TOML hold them."""
    return Run(**settings(values))


grid, chosen, trials = east.grid, east.chosen, east.trials
settings = partial(east.settings, kind=Run)  # pyright: ignore[reportArgumentType]
