"""Many models at once: one stacked network, each member with its own loss, seed and end.

A grid of small networks keeps neither a GPU nor a CPU busy one by one. Here their weights are
stacked along a first dimension and a step of all is one batched computation; every member is
trained as `fit` would train it alone.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import MetricFunction, resolve
from evalign.losses.base import SoftSetLoss
from evalign.statistics import RunningConfusion
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.settings import Settings
from evalign.training.state import History

State = dict[str, Tensor]
BETAS, EPS = (0.9, 0.999), 1e-8  # AdamW's defaults
VALIDATED = 2**22  # numbers in the logits of a block of validation rows


class Member(NamedTuple):
    """One model of the stack.

    Args:
        loss: called as loss(logits, target). Members with the same object are computed together;
            its state (temperature, running statistics) is each member's own.
        learning_rate: AdamW's, at its highest.
        seed: of the initial weights and of the order of the rows.
        dropout: of all dropout layers of the network.
        annealing: arguments of `TemperatureAnnealing`, or None for a constant temperature.
    """

    loss: nn.Module
    learning_rate: float = 1e-3
    seed: int = 0
    dropout: float = 0.0
    annealing: dict[str, Any] | None = None


class Trained(NamedTuple):
    """The weights of the best epoch, and the records of `fit` that make sense for many at once."""

    weights: State
    history: History


def fit_many(
    build: Callable[[], nn.Module],
    members: Sequence[Member],
    X: Tensor,
    y: Tensor,
    *,
    validation: tuple[Tensor, Tensor],
    metric: str | MetricFunction,
    settings: Settings | None = None,
) -> list[Trained]:
    """Train a network for every member; with dropout off, as `fit` trains it alone (to rounding).

    Args:
        build: makes a network, from rows to logits, without batch statistics.
        members: what differs.
        X: the training rows, on the device to train on.
        y: their targets.
        validation: (X, y) of the validation rows.
        metric: a name, or a function of a `Confusion`; of labels (argmax).
        settings: what the members share; its learning rate and seed are not looked at.
    """
    settings = settings or Settings()
    plain = settings.precision == "float32" and settings.averaging is None
    allowed = "have float32 precision and no averaging: many models know neither"
    require(plain, "fit_many", "settings", allowed, settings)
    metric = resolve(metric, owner="fit_many") if isinstance(metric, str) else metric
    stack = _Stack(build, members, X.device, X.dtype, settings, metric)
    batches = math.ceil(len(X) / settings.batch_size)
    while stack.alive:
        start = time.perf_counter()
        losses = stack.epoch(X, y, batches)
        stack.check(*validation, losses, start)
    return [
        Trained(best, history) for best, history in zip(stack.best, stack.histories, strict=True)
    ]


class _Stack:
    """The members that still train (`alive`, indices), and what all have come to."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        members: Sequence[Member],
        device: torch.device,
        dtype: torch.dtype,
        settings: Settings,
        metric: MetricFunction,
    ) -> None:
        self.settings, self.metric, self.members = settings, metric, members
        greater = getattr(metric, "greater_is_better", True) and settings.watch == "metric"
        self.sign = 1 if greater else -1
        networks, self.orders = [], []
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            for member in members:
                torch.manual_seed(member.seed)
                networks.append(_with_own_dropout(build(), member.dropout).to(device, dtype))
                self.orders.append(torch.Generator(device).manual_seed(member.seed))
        self.network = copy.deepcopy(networks[0]).to("meta")
        weights, self.buffers = stack_module_state(networks)
        self.weights = {name: w.detach().requires_grad_() for name, w in weights.items()}
        self.moments = {
            name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in weights.items()
        }
        self.losses = [copy.deepcopy(member.loss).to(device) for member in members]
        self.annealings = [
            None
            if member.annealing is None
            else TemperatureAnnealing(
                _soft(loss), **({"greater_is_better": greater} | member.annealing)
            )
            for member, loss in zip(members, self.losses, strict=True)
        ]
        self.rates = torch.tensor([m.learning_rate for m in members], device=device, dtype=dtype)
        self.alive = list(range(len(members)))
        self.best: list[State] = [{} for _ in members]
        self.histories: list[History] = [[] for _ in members]
        self.step = 0

    def epoch(self, X: Tensor, y: Tensor, batches: int) -> Tensor:
        """One pass over the rows for every living member. Returns their mean losses."""
        self.network.train()
        order = torch.stack(
            [torch.randperm(len(X), generator=self.orders[m], device=X.device) for m in self.alive]
        )
        if self.step == 0:
            self._size_statistics(X[:1], y[:1])
        groups = self._groups(training=True)
        total = torch.zeros(len(self.alive), device=X.device, dtype=torch.float64)
        for rows in order.tensor_split(batches, dim=1):
            logits = self._logits(X[rows])
            values = self._values(groups, logits, y[rows])
            weights = list(self.weights.values())
            gradients = torch.autograd.grad(values.sum(), weights)
            self._update(gradients, batches)
            total += values.detach()
        self._keep(groups)
        return total / batches

    @torch.no_grad()
    def check(self, X: Tensor, y: Tensor, losses: Tensor, start: float) -> None:
        """Validate, note the best epochs, cool, and let go of the members that are done."""
        self.network.eval()
        count = len(self.alive)
        logits = torch.cat(
            [
                self._logits(x.expand(count, *x.shape))
                for x in X.split(max(1, VALIDATED // (count * 8)))
            ],
            dim=1,
        )
        values = self._values(self._groups(training=False), logits, y.expand(count, *y.shape))
        metrics = self._metrics(logits.argmax(2), y, logits.shape[2])
        seconds = time.perf_counter() - start
        table = torch.stack([losses, values.double(), metrics.double()]).tolist()
        keep = []
        for i, m in enumerate(self.alive):
            history, annealing = self.histories[m], self.annealings[m]
            record = {
                "epoch": len(history) + 1,
                "seconds": seconds,
                "temperature": _temperature(self.losses[m]),
                "loss": table[0][i],
                "validation_loss": table[1][i],
                "validation_metric": table[2][i],
            }
            watched = record[f"validation_{self.settings.watch}"]
            scores = [self.sign * past["watched"] for past in history if past["best"]]
            record["watched"] = watched
            record["best"] = self.sign * watched > max(scores, default=-math.inf)
            if record["best"]:
                self.best[m] = {name: w[i].clone() for name, w in self.weights.items()}
            if annealing is not None:
                annealing.step(watched)
            history.append(record)
            if not self._done(m):
                keep.append(i)
        if len(keep) < count:
            self._narrow(keep)

    def _logits(self, x: Tensor) -> Tensor:
        def one(weights: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.network, (weights, buffers), (x,))

        return vmap(one, randomness="different")(self.weights, self.buffers, x)

    def _groups(self, *, training: bool) -> list[tuple[nn.Module, list[int], State]]:
        """(loss, its members' places among the living, their states stacked)."""
        shared: dict[int, list[int]] = {}
        for i, m in enumerate(self.alive):
            shared.setdefault(id(self.members[m].loss), []).append(i)
        groups = []
        for places in shared.values():
            losses = [self.losses[self.alive[i]].train(training) for i in places]
            groups.append((losses[0], places, stack_module_state(losses)[1]))
        return groups

    def _values(self, groups: list[Any], logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every living member."""
        values = torch.empty(len(logits), device=logits.device, dtype=torch.float64)
        for loss, places, state in groups:

            def one(state: State, z: Tensor, target: Tensor, loss: nn.Module = loss) -> Tensor:
                return functional_call(loss, state, (z, target))

            found = (
                vmap(one)(state, logits[places], y[places])
                if state
                else vmap(loss)(logits[places], y[places])
            )
            values = values.index_put((torch.tensor(places, device=values.device),), found.double())
        return values

    def _size_statistics(self, x: Tensor, y: Tensor) -> None:
        """Running statistics take their size from a first batch, and are then made empty again."""
        logits = self._logits(x.expand(len(self.alive), *x.shape)).detach().requires_grad_()
        for loss, z in zip(self.losses, logits, strict=True):
            for part in loss.modules():
                if isinstance(part, RunningConfusion):
                    loss(z, y)
                    for buffer in part.buffers():
                        buffer.zero_()

    def _keep(self, groups: list[Any]) -> None:
        """Give each loss back what the epoch has changed in its state (running statistics)."""
        for _, places, state in groups:
            for k, i in enumerate(places):
                own = self.losses[self.alive[i]].state_dict()
                for name in own.keys() & state.keys():
                    own[name].copy_(state[name][k])

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor], batches: int) -> None:
        """AdamW, with a learning rate and a gradient norm for each member."""
        settings, steps = self.settings, self.settings.epochs * batches
        rates = self.rates * (settings.rate(self.step, steps) / settings.learning_rate)
        self.step += 1
        scale = torch.ones_like(rates)
        if settings.clip_norm is not None:
            norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
            scale = (settings.clip_norm / (norm + 1e-6)).clamp(max=1)  # as clip_grad_norm_ does
        first, second = (1 - beta**self.step for beta in BETAS)
        for (name, w), g in zip(self.weights.items(), gradients, strict=True):
            shape = (-1,) + (1,) * (w.ndim - 1)
            rate, g = rates.view(shape), g * scale.view(shape)
            mean, square = self.moments[name]
            w.mul_(1 - rate * settings.weight_decay)
            mean.lerp_(g, 1 - BETAS[0])
            square.lerp_(g * g, 1 - BETAS[1])
            w.sub_(rate / first * mean / ((square / second).sqrt() + EPS))

    def _metrics(self, predicted: Tensor, y: Tensor, classes: int) -> Tensor:
        cells = (y * classes + predicted) + classes**2 * torch.arange(
            len(predicted), device=y.device
        ).unsqueeze(1)
        counts = torch.bincount(cells.flatten(), minlength=len(predicted) * classes**2)
        matrices = counts.view(-1, classes, classes).double()
        return vmap(lambda matrix: self.metric(Confusion.from_matrix(matrix)))(matrices)

    def _done(self, m: int) -> bool:
        history, annealing = self.histories[m], self.annealings[m]
        best = max((record["epoch"] for record in history if record["best"]), default=0)
        return (
            len(history) >= self.settings.epochs
            or len(history) - best >= (self.settings.patience or math.inf)
            or not math.isfinite(history[-1]["validation_loss"])
            or (annealing is not None and annealing.finished)
        )

    def _narrow(self, keep: list[int]) -> None:
        index = torch.tensor(keep, device=self.rates.device, dtype=torch.int64)
        self.alive = [self.alive[i] for i in keep]
        self.rates = self.rates[index]
        self.weights = {k: w.detach()[index].requires_grad_() for k, w in self.weights.items()}
        self.buffers = {k: b[index] for k, b in self.buffers.items()}
        self.moments = {k: (a[index], b[index]) for k, (a, b) in self.moments.items()}


class _Dropout(nn.Module):
    """Dropout whose probability is a buffer, so that stacked networks may differ in it."""

    p: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(p))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return torch.where(torch.rand_like(x) < self.p, 0, x / (1 - self.p))


def _with_own_dropout(network: nn.Module, p: float) -> nn.Module:
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Dropout):
                setattr(parent, name, _Dropout(p))
    return network


def _soft(loss: nn.Module) -> SoftSetLoss:
    return next(m for m in loss.modules() if isinstance(m, SoftSetLoss))


def _temperature(loss: nn.Module) -> float | None:
    soft = (m for m in loss.modules() if isinstance(m, SoftSetLoss))
    return next((m.temperature.item() for m in soft), None)
