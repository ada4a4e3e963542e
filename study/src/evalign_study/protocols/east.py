"""EAST's experiments, from the rows of a data set to the record of a run: read it downwards.

D. Li, T. D. Lee, M. Vázquez, N. Tsoi, "Aligning Multiclass Neural Network Classifier Criterion with
Task Performance Metrics". Numbers in brackets are its sections. MC-Fβ, its first version, is the
same at a constant temperature (`rate=1`) with a patience of 100.

Here one network is trained at a time, in plain PyTorch. This is the reference: `evalign_study.fast`
trains many at once, and is tested to give the same, member by member. Which runs a table of the
paper needs stands in `evalign_study/tables`, as data.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

import evalign
from evalign_study import data, networks
from evalign_study.data.own import load_csv
from evalign_study.data.split import three_way
from evalign_study.data.standardizer import Standardizer
from evalign_study.own_loss import own_loss
from evalign_study.records.journal import Record, key_of, scores_of, stamped, triples
from evalign_study.refusals import nearest, require

NAME = "east"
VERSION = 1  # raise it where a change of this file changes numbers: old records then do not count


# 1. What is run. The defaults are the paper's, where it says something.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """All that the result of a training depends on, except the machine."""

    protocol: ClassVar[str] = NAME
    version: ClassVar[int] = VERSION

    # The rows. EAST splits every data set at random into 64%, 16% and 20% (E.1).
    dataset: str  # a name of `evalign_study.data`, or a CSV file with a `target`
    target: str = ""
    content: str = ""  # the checksum of such a file
    features: str = "paper"  # "sound": categories as a column each, not as codes
    split: str = "random"  # "groups": equal rows, or rows of one frame, stay on one side
    split_seed: int = 0
    rows: int | None = None  # at most so many in each part, for a quick look

    # The network (E.3): an MLP of 512, 256 and 128 units for tables, Darknet-19 for images.
    network: str = "mlp"
    dropout: float = 0.25  # of {0.25, 0.5} (E.4)

    # The loss: "f1", "accuracy", "mcc" are EAST's (4); "cross_entropy" and "dice" its baselines;
    # "package.module:factory" is a function (task) -> Module of your own, see `Task`.
    loss: str = "f1"
    # What the F-score is a mean of: "all classes" is equation 2, its 1 / d over all d classes;
    # "present classes" counts a class that a batch lacks by its soft predicted rows alone;
    # "positive class" is the F-score of class 1 of two. It says, too, which F1 is reported.
    average: str = "all classes"
    betas: tuple[tuple[int, float], ...] = ()  # (class, β) where β is not 1 (F.3)

    # The annealing (4.3): T_k = T_0 r^k. A rate of 1 is a constant temperature.
    start: float = 0.2
    rate: float = 1.0  # of {0.8, 0.9} (E.4)
    # Early stopping, "up to 50 epochs without decreasing validation set loss" (E.1).
    patience: int = 50
    # "A number of temperature decreases" in vain end the training; the paper leaves it open.
    coolings: int = 3
    # Whether patience begins again at each temperature, or is shared by the coolings.
    reading: str = "each temperature"

    # AdamW (E.1), of torch's defaults, at a constant rate: nothing else is mentioned.
    batch_size: int = 256
    learning_rate: float = 1e-3  # of {0.01, 0.001, 0.0001} (E.4)
    epochs: int = 2000  # a cap far above early stopping, because the paper names none
    seed: int = 1  # of the initial weights, the order of the rows and the dropout

    # Of products on a GPU: "float32", "tf32" or "bfloat16" (autocast). A CPU computes in float32.
    precision: str = "tf32"
    # From probabilities to labels: argmax as in the paper (3); "tuned" rules are our addition.
    decisions: tuple[str, ...] = ("argmax",)
    curve: bool = False  # whether the record holds the validation loss of every epoch

    @property
    def key(self) -> str:
        """Identifies the run. A training that ended by itself is the same under every cap."""
        unused = ("coolings", "reading") if self.rate == 1 else ()
        return key_of(self.protocol, self.version, self, without=("epochs", *unused))

    def but(self, **changes: Any) -> Self:
        """Copy the run with changes."""
        return dataclasses.replace(self, **changes)


# 2. The rows (C, D, E.1): read, split, standardised by the training rows; nothing is augmented.


class Rows(NamedTuple):
    """The three parts, each (X, y), on one device."""

    training: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int

    @property
    def counts(self) -> Tensor:
        """The training rows of each class."""
        return self.training[1].bincount(minlength=self.classes)

    def to(self, device: str) -> "Rows":
        training, validation, test = ((X.to(device), y.to(device)) for X, y in self[:3])
        return Rows(training, validation, test, self.classes)


def rows_of(run: Run, device: str) -> Rows:
    """Prepare the rows of a run."""
    about = ("dataset", "target", "content", "features", "split", "split_seed", "rows")
    return _prepared(Run(**{name: getattr(run, name) for name in about}), device)


@lru_cache(maxsize=2)
def _prepared(run: Run, device: str) -> Rows:
    if run.target:
        loaded = load_csv(Path(run.dataset), run.target)
    else:
        loaded = data.load(run.dataset, preparation=run.features)
    groups = one_of({"random": None, "groups": loaded.groups}, "split", run.split)
    parts = three_way(loaded.y, groups=groups, seed=run.split_seed)
    training, validation, test = (part[thinned(loaded.y[part], run.rows)] for part in parts)
    X = torch.from_numpy(loaded.X)
    y = torch.from_numpy(loaded.y)
    scale = colours(X[training]) if X.ndim == 4 else Standardizer(X[training])
    rows = [(scale(X[part]), y[part]) for part in (training, validation, test)]
    return Rows(rows[0], rows[1], rows[2], len(loaded.classes)).to(device)


def colours(images: Tensor) -> Callable[[Tensor], Tensor]:
    """Standardise each colour of images (N, height, width, 3), and put the colours first."""
    counts = torch.stack([images[..., c].flatten().bincount(minlength=256) for c in range(3)])
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = shares @ values
    spread = (shares @ values.square() - mean.square()).sqrt()
    shift, factor = mean.float(), spread.float()
    return lambda x: ((x.float() / 255 - shift) / factor).permute(0, 3, 1, 2).contiguous()


def thinned(y: np.ndarray, most: int | None) -> np.ndarray:
    """Choose the places of at most `most` labels, keeping the shares of the classes."""
    order = np.argsort(y, kind="stable")
    count = len(y) if most is None else min(most, len(y))
    return np.sort(order[np.linspace(0, len(y) - 1, count).astype(int)])


# 3. The network (E.3).


def network_of(run: Run, features: int, classes: int) -> nn.Module:
    """Build the network, with logits (N, classes)."""
    makers: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: networks.mlp(features, classes, dropout=run.dropout),
        "darknet19": lambda: networks.darknet19(classes, dropout=run.dropout),
        "tiny_darknet": lambda: networks.tiny_darknet(classes, dropout=run.dropout),
        "resnet18": lambda: networks.resnet18(classes),
        "resnet34": lambda: networks.resnet34(classes),
    }
    return one_of(makers, "network", run.network)()


# 4. The loss (3, 4.1, 4.2).


class Task(NamedTuple):
    """What a loss may depend on: the training rows of each class, and the name of the data set."""

    counts: Tensor
    dataset: str


def loss_of(run: Run, task: Task) -> nn.Module:
    """Make the loss, of logits (N, classes) and class codes (N,)."""
    classes = len(task.counts)
    if ":" in run.loss:
        return own_loss(run.loss, task)
    baselines: dict[str, Callable[[], nn.Module]] = {
        "cross_entropy": nn.CrossEntropyLoss,
        "dice": lambda: evalign.losses.DiceLoss(task="binary" if classes == 2 else "multiclass"),
    }
    if run.loss in baselines:
        return baselines[run.loss]()
    metrics: dict[str, Callable[[], Any]] = {
        "f1": lambda: f_score(run, classes),
        "accuracy": evalign.metrics.Accuracy,
        "mcc": evalign.metrics.MatthewsCorrcoef,
    }
    known = [*metrics, *baselines, "package.module:factory"]
    allowed = f"be one of {', '.join(known)}"
    require(run.loss in metrics, NAME, "loss", allowed, repr(run.loss), nearest(run.loss, known))
    metric = metrics[run.loss]()
    return evalign.MetricLoss(metric, temperature=run.start, ranks="own", task="multiclass")


def f_score(run: Run, classes: int) -> Any:
    """The F-score that is trained for: equation 2, or another mean (`Run.average`)."""
    beta: Any = 1.0
    if run.betas:
        beta = [dict(run.betas).get(number, 1.0) for number in range(classes)]
    means: dict[str, dict[str, Any]] = {
        "all classes": {"average": "macro", "labels": range(classes)},
        "present classes": {"average": "macro"},
        "positive class": {"average": "binary"},
    }
    return evalign.metrics.FBeta(beta=beta, **one_of(means, "average", run.average))


# 5. When training stops (4.3, E.1).


class Stopping(Protocol):
    """Takes the validation loss of each epoch; `cooled` counts the coolings so far."""

    finished: bool
    cooled: int

    def step(self, *, loss: float) -> bool: ...


class EarlyStopping:
    """Stops after `patience` epochs without a new lowest validation loss."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.lowest = math.inf
        self.waited = 0
        self.cooled = 0
        self.finished = False

    def step(self, *, loss: float) -> bool:
        """Whether this is the lowest loss so far."""
        is_best = loss < self.lowest
        self.lowest = min(loss, self.lowest)
        self.waited = 0 if is_best else self.waited + 1
        self.finished = self.waited >= self.patience
        return is_best


def stopping_of(run: Run, loss: Any) -> Stopping:
    """EAST's annealing; plain early stopping for a constant temperature, and without one."""
    if run.rate == 1:
        return EarlyStopping(run.patience)
    cools = hasattr(loss, "set_temperature")
    cure = "Set rate=1 for a loss without a temperature."
    require(cools, NAME, "rate", f"be 1 for the loss {run.loss}", run.rate, cure)
    return evalign.TemperatureAnnealing(
        loss,
        start=run.start,
        rate=run.rate,
        patience=run.patience,
        coolings=run.coolings,
        reading=run.reading,  # pyright: ignore[reportArgumentType]
    )


# 6. The training of one network.


def train(run: Run, device: str | None = None, *, compiled: bool = False) -> Record:
    """Train a network, and make the record of the run.

    `compiled` fuses the kernels of a training step on a GPU, for speed alone.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    rows = rows_of(run, device)
    (X, y), (X_known, y_known) = rows.training, rows.validation
    with seeded(run.seed), products(run.precision, device) as context:
        network = network_of(run, X.shape[1], rows.classes).to(device)
        if X.ndim == 4:
            network = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        loss = loss_of(run, Task(rows.counts, run.dataset)).to(device)
        stopping = stopping_of(run, loss)
        optimizer = torch.optim.AdamW(network.parameters(), run.learning_rate, fused=True)
        forward = torch.compile(network, dynamic=False) if compiled else network
        order = torch.Generator(device).manual_seed(run.seed)
        progress = Progress(run)
        while not progress.ended(stopping):
            network.train()
            loss.train()
            for batch in batches(len(X), run.batch_size, order):
                optimizer.zero_grad()
                with context():
                    logits = forward(X[batch]).to(X.dtype)
                loss(logits, y[batch]).backward()
                optimizer.step()
            loss.eval()
            logits = logits_of(network, X_known, context)
            with torch.no_grad():
                validation_loss = loss(logits, y_known).item()
            scores = scores_of(counted(logits, y_known), progress.metrics)
            best = progress.note(validation_loss, scores, stopping)
            progress.keep(best, network.state_dict)
        return progress.record(network, rows, device, context, time.perf_counter() - start)


def batches(rows: int, size: int, order: torch.Generator) -> tuple[Tensor, ...]:
    """Shuffle row numbers into the batches of an epoch, whose sizes differ by one at most."""
    places = torch.randperm(rows, generator=order, device=order.device)
    return places.tensor_split(math.ceil(rows / size))


@torch.no_grad()
def logits_of(network: nn.Module, X: Tensor, context: Callable[[], Any]) -> Tensor:
    """Compute logits block by block."""
    network.eval()
    with context():
        return torch.cat([network(block).to(X.dtype) for block in X.split(4096)])


def counted(logits: Tensor, y: Tensor) -> Tensor:
    """The confusion matrix of argmax, rows true."""
    classes = logits.shape[1]
    cells = y * classes + logits.argmax(1)
    return cells.bincount(minlength=classes**2).view(classes, classes)


class Progress:
    """What a training has shown so far: the best epochs, the coolings, the end.

    The paper selects the epoch of the lowest validation loss. The best epochs by the metrics of
    the validation rows are kept beside it, for the strict comparison.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.metrics = metrics_of(run)
        self.epoch = 0
        self.diverged = False
        self.finished = False
        self.coolings: list[int] = []
        self.best: dict[str, dict[str, Any]] = {}  # by criterion
        self.weights: dict[str, dict[str, Tensor]] = {}
        self.curve: list[float] = []

    def ended(self, stopping: Stopping) -> bool:
        self.finished = stopping.finished
        return stopping.finished or self.diverged or self.epoch >= self.run.epochs

    def note(self, loss: float, scores: Mapping[str, float], stopping: Stopping) -> list[str]:
        """Take the validation of an epoch; return the criteria by which it is the best so far."""
        self.epoch += 1
        self.curve.append(loss)
        if not math.isfinite(loss):
            self.diverged = True
            return []
        cooled = stopping.cooled
        is_lowest = stopping.step(loss=loss)
        if stopping.cooled > cooled:
            self.coolings.append(self.epoch)
        better = ["loss"] if is_lowest else []
        for name in self.metrics:
            if name not in self.best or scores[name] > self.best[name]["validation"][name]:
                better.append(name)
        told = {"epoch": self.epoch, "validation_loss": loss, "validation": dict(scores)}
        self.best |= dict.fromkeys(better, told)
        return better

    def keep(self, criteria: Sequence[str], weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Copy the weights of an epoch that is the best by these criteria."""
        if criteria:
            copied = {name: weight.detach().clone() for name, weight in weights().items()}
            self.weights |= dict.fromkeys(criteria, copied)

    def record(
        self,
        network: nn.Module,
        rows: Rows,
        device: str,
        context: Callable[[], Any],
        seconds: float,
    ) -> Record:
        """Score the best epochs on the test rows, and make the record."""
        run = self.run
        capped = not self.finished and not self.diverged
        picks = {}
        for criterion, told in self.best.items():
            network.load_state_dict(self.weights[criterion])
            known = logits_of(network, rows.validation[0], context)
            unseen = logits_of(network, rows.test[0], context)
            goal = goal_of(run) if criterion == "loss" else criterion
            picks[criterion] = told | {
                "decisions": {
                    decision: {"matrix": decided(decision, goal, known, unseen, rows)}
                    for decision in run.decisions
                }
            }
        return stamped(
            run,
            protocol=run.protocol,
            version=run.version,
            device=device,
            precision=run.precision if device == "cuda" else "float32",
            epochs=self.epoch,
            cap=run.epochs,
            capped=capped,
            coolings=self.coolings,
            last_temperature=run.start * run.rate ** len(self.coolings),
            diverged=self.diverged,
            seconds=seconds,
            picks=picks,
            **({"curve": self.curve} if run.curve else {}),
        )


@contextmanager
def products(precision: str, device: str) -> Iterator[Callable[[], Any]]:
    """Set the precision of products on a GPU; yield the context of a forward pass."""
    known: dict[str, str] = {"float32": "highest", "tf32": "high", "bfloat16": "high"}
    coarse = one_of(known, "precision", precision)
    half = precision == "bfloat16" and device == "cuda"
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision(coarse if device == "cuda" else "highest")
    torch.backends.cudnn.benchmark = True  # all batches have one shape or two
    try:
        yield lambda: torch.autocast("cuda", torch.bfloat16, enabled=half)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, and afterwards put its generators back."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        yield


# 7. The scores (6.1): F1, accuracy and MCC of the test rows.

# By which decisions the tables are scored; over several of them, by their mean.
DECISIONS = {"paper": ("argmax",), "strict": ("tuned",)}


def metrics_of(run: Run) -> tuple[str, ...]:
    """The metrics of the tables. F1 is macro but for the positive class of two."""
    f1 = "f1" if run.average == "positive class" else "f1_macro"
    return (f1, "accuracy", "matthews_corrcoef")


def goal_of(run: Run) -> str:
    """The metric that a run trains for; F1 where its loss trains for none."""
    f1, accuracy, mcc = metrics_of(run)
    return {"accuracy": accuracy, "mcc": mcc}.get(run.loss, f1)


def decided(
    decision: str, metric: str, known: Tensor, unseen: Tensor, rows: Rows
) -> list[list[int]]:
    """The confusion matrix of the test rows under a decision.

    It is "argmax", "tuned", "expected", or a threshold on the probability of class 1 of two.
    """
    y_known, y_unseen = rows.validation[1], rows.test[1]
    if decision == "argmax":
        return triples(counted(unseen, y_unseen))
    if decision.startswith("0."):
        above = unseen.double().softmax(1)[:, 1] > float(decision)
        return triples(counted(nn.functional.one_hot(above.long(), 2), y_unseen))
    rule = evalign.fit_decision(
        known.cpu(),
        y_known.cpu() if decision == "tuned" else None,
        metric=metric,
        decision=decision,  # pyright: ignore[reportArgumentType]
    )
    labels = torch.as_tensor(np.asarray(rule(unseen.cpu())))
    return triples(counted(nn.functional.one_hot(labels, rows.classes), y_unseen.cpu()))


# 8. The grid, and the choice of its setting (E.1, E.4).


def grid(base: Run, axes: Mapping[str, Sequence[Any]]) -> list[Run]:
    """List the runs of all combinations."""
    points = product(*axes.values())
    return [base.but(**dict(zip(axes, point, strict=True))) for point in points]


def chosen(records: Iterable[Record], criterion: str = "loss") -> Record:
    """Choose "the hyperparameters that minimized validation-set loss" (E.1), of a whole grid.

    The record of its run is returned. With another criterion, a metric, the highest validation
    score is chosen; the strict comparison does so.
    """

    def badness(record: Record) -> float:
        pick = record["picks"].get(criterion)
        if pick is None:  # it diverged in its first epoch
            return math.inf
        return pick["validation_loss"] if criterion == "loss" else -pick["validation"][criterion]

    return min(records, key=badness)


def trials(run: Run, seeds: Iterable[int]) -> Iterator[Run]:
    """The trials "that varied the neural network random weight initialization" (E.1)."""
    return (run.but(seed=seed) for seed in seeds)


def run_from(values: Mapping[str, Any], kind: type[Run] = Run) -> Run:
    """A run from plain values, as JSON and TOML hold them."""
    return kind(**settings(values, kind))


def settings(values: Mapping[str, Any], kind: type[Run] = Run) -> dict[str, Any]:
    """Fields of a run from plain values; a name that is none is refused."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        allowed = f"be one of {', '.join(known)}"
        about = (kind.protocol, "a setting", allowed, repr(name), nearest(name, known))
        require(name in known, *about)
    found = dict(values)
    if "betas" in found:
        found["betas"] = tuple((int(one), float(beta)) for one, beta in found["betas"])
    if "decisions" in found:
        found["decisions"] = tuple(found["decisions"])
    return found


def one_of(known: Mapping[str, Any], argument: str, name: str, owner: str = NAME) -> Any:
    """Look up a name, or say which there are."""
    allowed = f"be one of {', '.join(known)}"
    require(name in known, owner, argument, allowed, repr(name), nearest(name, known))
    return known[name]
