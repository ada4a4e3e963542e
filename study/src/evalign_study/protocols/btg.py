"""BtG's experiments on tables and images: read it downwards, beside `east`.

N. Tsoi, K. Candon, D. Li, Y. Milkessa, M. Vázquez, "Bridging the Gap: Unifying the Training and
Evaluation of Neural Network Binary Classifiers". Numbers in brackets are its sections. Two classes;
soft sets at a fixed threshold and a constant temperature. Rows, early stopping, grid and choice are
those of `east`: the supplement, which has BtG's own, is not at hand, and EAST took over its four
tables. What differs stands here: the network of one logit, the losses, and scores over thresholds.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import evalign
from evalign_study import networks
from evalign_study.own_loss import own_loss
from evalign_study.protocols import east
from evalign_study.protocols.east import (
    EarlyStopping,
    Progress,
    Task,
    batches,
    chosen,
    counted,
    goal_of,
    grid,
    logits_of,
    metrics_of,
    one_of,
    products,
    rows_of,
    seeded,
    trials,
)
from evalign_study.records.journal import Record, scores_of
from evalign_study.refusals import require

__all__ = ["Task", "chosen", "goal_of", "grid", "metrics_of", "trials"]

NAME = "btg"
VERSION = (
    1  # raise it where a change of this file, or of what it takes from `east`, changes numbers
)

# "The mean of results evaluated over threshold values T = {0.1, ..., 0.9}" (5).
THRESHOLDS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9")
DECISIONS = {"paper": THRESHOLDS, "strict": ("tuned",)}


# 1. What is run: the settings of EAST, and these.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(east.Run):
    """All that the result of a training depends on, except the machine."""

    protocol: ClassVar[str] = NAME
    version: ClassVar[int] = VERSION

    network: str = "mlp32"  # 32 and 16 units, one logit (supplement 4.2, as EAST quotes it)
    # "f1", "f2", "f3", "accuracy", "auroc" are BtG's (3.2); "wmw" and "bce" are baselines.
    loss: str = "f1"
    average: str = "positive class"
    heaviside: str = "linear"  # eq. 5; "sigmoid" is eq. 4
    patience: int = 100
    decisions: tuple[str, ...] = THRESHOLDS


# 2. The network: one logit z, as two logits (0, z) with the same probabilities.


class Pair(nn.Sequential):
    """A network of one logit, as two."""

    def forward(self, input: Tensor) -> Tensor:
        z = super().forward(input)
        return torch.cat([torch.zeros_like(z), z], 1)


def network_of(run: Run, features: int, classes: int) -> nn.Module:
    """Build the network, with logits (N, 2)."""
    require(classes == 2, NAME, "classes", "be two", classes)
    makers: dict[str, Callable[[], nn.Module]] = {
        "mlp32": lambda: networks.mlp(features, 1, hidden=(32, 16), dropout=run.dropout),
        "mlp": lambda: networks.mlp(features, 1, dropout=run.dropout),
        "tiny_darknet": lambda: networks.tiny_darknet(1, dropout=run.dropout),
    }
    return Pair(one_of(makers, "network", run.network, NAME)())


# 3. The loss (3.1, 3.2), at τ = ½, where labels change; the paper names no threshold for training.


def loss_of(run: Run, task: Task) -> nn.Module:
    """Make the loss, of logits (N, 2) and class codes (N,)."""
    if ":" in run.loss:
        return own_loss(run.loss, task)
    soft: dict[str, Any] = {"temperature": run.start, "heaviside": run.heaviside, "task": "binary"}
    metric = partial(evalign.MetricLoss, threshold=0.5, ranks="own", **soft)
    makers: dict[str, Callable[[], nn.Module]] = {
        "f1": lambda: metric("f1"),
        "f2": lambda: metric("f2"),
        "f3": lambda: metric("f3"),
        "accuracy": lambda: metric("accuracy"),
        "auroc": lambda: evalign.losses.AUROCLoss(**soft),
        "wmw": lambda: evalign.losses.WMWLoss(task="binary"),
        "bce": nn.CrossEntropyLoss,  # of (0, z) it is binary cross-entropy of z
    }
    return one_of(makers, "loss", run.loss, NAME)()


def stopping_of(run: Run, loss: nn.Module) -> EarlyStopping:
    """Early stopping by the validation loss; nothing is cooled."""
    require(run.rate == 1, NAME, "rate", "be 1: BtG does not cool", run.rate)
    return EarlyStopping(run.patience)


# 4. The training of one network.


def train(run: Run, device: str | None = None, *, compiled: bool = False) -> Record:
    """Train a network, and make the record of the run; `compiled` is for speed alone."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    rows = rows_of(run, device)
    (X, y), (X_known, y_known) = rows.training, rows.validation
    with seeded(run.seed), products(run.precision, device) as context:
        network = network_of(run, X.shape[1], rows.classes).to(device)
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
                # A loss over pairs of rows takes a batch of them at a time.
                size = run.batch_size if run.loss == "wmw" else len(logits)
                parts = zip(logits.split(size), y_known.split(size), strict=True)
                validation_loss = torch.stack([loss(*part) for part in parts]).mean().item()
            scores = scores_of(counted(logits, y_known), progress.metrics)
            best = progress.note(validation_loss, scores, stopping)
            progress.keep(best, network.state_dict)
        return progress.record(network, rows, device, context, time.perf_counter() - start)


def run_from(values: Mapping[str, Any]) -> Run:
    """A run from plain values, as JSON and TOML hold them."""
    return Run(**settings(values))


settings = partial(east.settings, kind=Run)
