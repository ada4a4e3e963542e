"""Train many models at once: one stacked network, whose members have their own loss and seed.

Small networks, trained one by one, keep neither a GPU nor a CPU busy. Here their weights are
stacked along a first dimension, and a step of all is one batched computation. Every member is
trained, and ends, as if `fit` trained it alone, except for the noise of its dropout, which the
stack shares.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import vmap

from evalign import Confusion
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.training import History
from evalign.training.annealing import TemperatureAnnealing, part_with_temperature
from evalign.training.early_stopping import EarlyStopping
from evalign.training.settings import Settings
from evalign_study.refusals import require
from evalign_study.trainers.stacked import Stacked, State, with_own_dropout
from evalign_study.trainers.stacked_losses import StackedLosses

VALIDATED = 2**26  # the most numbers in the widest layer, for a block of validation rows
LOSS, METRIC = "loss", "metric"  # criteria, as `Settings.watch` has them
WARM = 3  # steps before CUDA graphs are made: libraries set themselves up in the first


class Member(NamedTuple):
    """One model of the stack.

    Args:
        loss: called as loss(logits, target). Members whose losses differ in buffers alone are
            computed together; temperature, running statistics and the like are each member's own.
        learning_rate: the highest learning rate of AdamW's schedule.
        seed: the seed of the initial weights and of the order of the rows.
        dropout: the probability of all dropout layers of the network.
        annealing: arguments of `TemperatureAnnealing`, or None for a constant temperature.
    """

    loss: nn.Module
    learning_rate: float = 1e-3
    seed: int = 0
    dropout: float = 0.0
    annealing: dict[str, Any] | None = None


class Trained(NamedTuple):
    """The result of training a member.

    Args:
        weights: the weights of the best epoch; empty if there was none.
        history: the entries of `fit`'s history that make sense for a stack. Each also has "also",
            the further metrics, and "best_of", the criteria of `best` by which the epoch was a new
            best.
        best: the weights of the best epochs by every criterion: "loss" and "metric", of the
            validation rows, and the further metrics. The last record that names a criterion is its
            epoch. An epoch without a finite loss can be the best only by the watched criterion.
        offsets: those of the loss at these epochs, averaged as the weights are, where they change
            (`AlignedLoss`); else empty.
    """

    weights: State
    history: History
    best: dict[str, State]
    offsets: dict[str, Tensor]


def fit_many(
    build: Callable[[], nn.Module],
    members: Sequence[Member],
    X: Tensor,
    y: Tensor,
    *,
    validation: tuple[Tensor, Tensor],
    metric: str | MetricFunction,
    settings: Settings | None = None,
    also: Mapping[str, MetricFunction] | None = None,
) -> list[Trained]:
    """Train a network for every member; without dropout the result is `fit`'s, up to rounding.

    Equal calls give equal results, and the caller's random state is not changed.

    Args:
        build: makes a network, from rows to logits (N, C), without batch statistics.
        members: what differs between the networks.
        X: the training rows, on the device to train on.
        y: their targets.
        validation: (X, y) of the validation rows.
        metric: a name, or a function of a `Confusion`; labels are by argmax.
        settings: what the members share; its learning rate and seed are ignored.
        also: further metrics, by any name, whose best epochs are kept too. Cooling and early
            stopping do not depend on them.
    """
    settings, also = settings or Settings(), also or {}
    allowed = "have float32 precision: many models know no other"
    require(settings.precision == "float32", "fit_many", "settings", allowed, settings)
    free = not also.keys() & {LOSS, METRIC}
    require(free, "fit_many", "also", f"not name a metric {LOSS!r} or {METRIC!r}", list(also))
    metrics = {
        name: resolve(given, owner="fit_many") for name, given in {METRIC: metric, **also}.items()
    }
    with torch.random.fork_rng([X.device] if X.is_cuda else []):
        stack = _Stack(build, members, X, settings, metrics)
        torch.manual_seed(members[0].seed)  # for the noise of dropout
        while stack.alive:
            start = time.perf_counter()
            losses = stack.epoch(X, y)
            stack.check(*validation, losses, start)
    return [stack.trained(m) for m in range(len(members))]


class _Stack:
    """The stacked members, and the results of all of them.

    `places` lists the indices of the members in the stack. Those of one learning rate
    stand side by side, so that AdamW takes few steps for all of them. A member that has finished
    leaves its place when the stack is next narrowed.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        members: Sequence[Member],
        X: Tensor,
        settings: Settings,
        metrics: dict[str, Metric],
    ) -> None:
        self.settings, self.metrics, self.device = settings, metrics, X.device
        losses = [member.loss for member in members]
        self.losses = StackedLosses(losses, X.device, batch_size=settings.batch_size)
        self.places = sorted(range(len(members)), key=lambda m: members[m].learning_rate)
        self.alive = set(self.places)
        networks, self.orders = [], []
        for member in members:
            torch.manual_seed(member.seed)
            networks.append(with_own_dropout(build(), member.dropout).to(X))
            self.orders.append(torch.Generator(X.device).manual_seed(member.seed))
        rates = [members[m].learning_rate for m in self.places]
        averaged = settings.ema_decay is not None
        self.networks = Stacked([networks[m] for m in self.places], rates, averaged=averaged)
        greater_is_better = {LOSS: False} | {
            name: metric.greater_is_better for name, metric in metrics.items()
        }
        self.progress = [
            EarlyStopping(
                greater_is_better,
                epochs=settings.epochs,
                watch=settings.watch,
                patience=settings.patience,
                annealing=_annealing(member, loss, greater_is_better[settings.watch]),
            )
            for member, loss in zip(members, self.losses.each, strict=True)
        ]
        self.temperatures = [_temperature(loss) for loss in self.losses.each]
        self.best = {
            name: {key: torch.empty_like(w) for key, w in self.networks.weights.items()}
            for name in greater_is_better
        }
        self.offsets: list[dict[str, Tensor]] = [{} for _ in members]
        self.histories: list[History] = [[] for _ in members]
        self.step = 0
        one_row = X[:1].expand(len(self.places), 1, *X.shape[1:])
        self.losses.size_statistics(self.networks.logits(one_row)[0].detach().requires_grad_())
        self.graphed = X.is_cuda
        self._arrange()

    def epoch(self, X: Tensor, y: Tensor) -> Tensor:
        """Train every member for one pass over the rows; return their mean losses."""
        self._train(True)
        order = torch.stack(
            [torch.randperm(len(X), generator=self.orders[m], device=X.device) for m in self.places]
        )
        settings, batches = self.settings, math.ceil(len(X) / self.settings.batch_size)
        self.total.zero_()
        for rows in order.tensor_split(batches, dim=1):
            rate = settings.rate(self.step, settings.epochs * batches)
            self.networks.factor.fill_(rate / settings.learning_rate)
            self.networks.decay.fill_(settings.decay(self.step))
            given = self.given.setdefault(rows.shape[1], torch.empty_like(rows)).copy_(rows)
            self._run(rows.shape[1], lambda given=given: self._advance(X, y, given))
            self.step += 1
        return self.total / batches

    def _advance(self, X: Tensor, y: Tensor, rows: Tensor) -> None:
        values = self.losses.values(self.networks.logits(X[rows]), y[rows])
        self.networks.step(values.sum(), self.settings.weight_decay, self.settings.clip_norm)
        self.losses.average(self.networks.decay)
        self.total += values.detach()

    def _run(self, key: int | str, compute: Callable[[], Any]) -> Any:
        """Run the function; with graphs, one launch replaces a thousand small ones."""
        if not self.graphed or self.step < WARM:
            return compute()
        if key not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self.graphs[key] = graph, compute()
        graph, result = self.graphs[key]
        graph.replay()
        return result

    @torch.no_grad()
    def check(self, X: Tensor, y: Tensor, losses: Tensor, start: float) -> None:
        """Validate, note the best epochs, cool, and drop the members that have finished."""
        self._train(False)
        validated = self._run("validation", lambda: self._validate(X, y))
        table = torch.cat([losses.unsqueeze(0), validated]).T.tolist()
        seconds = time.perf_counter() - start
        improved: dict[str, list[int]] = {name: [] for name in self.best}
        for i, m in enumerate(self.places):
            if m not in self.alive:
                continue
            loss, *found = table[i]
            scores = dict(zip([LOSS, *self.metrics], found, strict=True))
            watched, annealing = scores[self.settings.watch], self.progress[m].annealing
            temperature = annealing.temperature if annealing else self.temperatures[m]
            diverged = not math.isfinite(scores[LOSS])
            # Labels of a network that has diverged may have a score, but it means nothing.
            counted = {self.settings.watch: watched} if diverged else scores
            better = self.progress[m].note(counted, diverged=diverged)
            for name in better:
                improved[name].append(i)
            self.histories[m].append(
                {
                    "epoch": self.progress[m].epoch,
                    "seconds": seconds,
                    "temperature": temperature,
                    "loss": loss,
                    "validation_loss": scores[LOSS],
                    "validation_metric": scores[METRIC],
                    "watched": watched,
                    "best": self.settings.watch in better,
                    "also": {k: score for k, score in scores.items() if k not in (LOSS, METRIC)},
                    "best_of": better,
                }
            )
            if self.progress[m].finished:
                self.alive.remove(m)
        self._keep(improved)
        # A narrower stack is less work, but its graphs have to be made anew.
        if len(self.alive) < len(self.places) * (0.5 if self.graphed else 1):
            self._narrow()

    def trained(self, m: int) -> Trained:
        """Return the result of member `m`."""
        ever = self.progress[m].best
        best = {
            name: {key: w[m] for key, w in weights.items()} if name in ever else {}
            for name, weights in self.best.items()
        }
        offsets = {name: x.float().cpu() for name, x in self.offsets[m].items()}
        return Trained(best[self.settings.watch], self.histories[m], best, offsets)

    def _arrange(self) -> None:
        """Lay out all tensors with a part for each place, and drop the graphs of the old layout."""
        self.losses.arrange(self.places)
        self.total = torch.zeros(len(self.places), device=self.device, dtype=torch.float64)
        self.given: dict[int, Tensor] = {}  # the rows of a step, at an address that its graph keeps
        self.graphs: dict[int | str, tuple[Any, Any]] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.graphed else None

    def _validate(self, X: Tensor, y: Tensor) -> Tensor:
        """Compute the loss on these rows and every metric, with a column for each member."""
        count = len(self.places)
        widest = max(w.shape[1] for w in self.networks.weights.values())
        blocks = X.split(max(1, VALIDATED // (count * widest)))
        kept = self.networks.kept
        parts = [self.networks.logits(x.expand(count, *x.shape), kept) for x in blocks]
        logits = torch.cat(parts, dim=1)
        classes = logits.shape[2]
        cells = y * classes + logits.argmax(2)
        zeros = torch.zeros(count, classes**2, dtype=torch.float64, device=y.device)
        counts = zeros.scatter_add(1, cells, torch.ones_like(cells, dtype=zeros.dtype))
        matrices = counts.view(count, classes, classes)
        scores = [
            vmap(lambda matrix, metric=metric: metric(Confusion.from_matrix(matrix)))(matrices)
            for metric in self.metrics.values()
        ]
        return torch.stack([self.losses.values(logits, y.expand(count, *y.shape)), *scores])

    def _keep(self, improved: dict[str, list[int]]) -> None:
        """Keep the weights of these members, which are the best so far, and their offsets."""
        for name, places in improved.items():
            if not places:
                continue
            now = self._index(places)
            then = self._index([self.places[i] for i in places])
            for key, w in self.networks.kept.items():
                self.best[name][key].index_copy_(0, then, w.detach()[now])
            for m in (self.places[i] for i in places):
                if (offsets := self.losses.offsets(m)) is not None:
                    self.offsets[m][name] = offsets.clone()

    def _narrow(self) -> None:
        """Continue with the unfinished members only."""
        places = [i for i, m in enumerate(self.places) if m in self.alive]
        self.places = [self.places[i] for i in places]
        if places:
            self.networks.narrow(places, self.step)
            self._arrange()

    def _train(self, mode: bool) -> None:
        self.networks.network.train(mode)
        self.losses.train(mode)

    def _index(self, places: list[int]) -> Tensor:
        return torch.tensor(places, device=self.device, dtype=torch.int64)


def _annealing(
    member: Member, loss: nn.Module, greater_is_better: bool
) -> TemperatureAnnealing | None:
    """Make the annealing of a member's own loss."""
    if member.annealing is None:
        return None
    soft = part_with_temperature(loss)
    assert soft is not None, "a member without a temperature cannot be cooled"
    settings: dict[str, Any] = {"greater_is_better": greater_is_better, **member.annealing}
    return TemperatureAnnealing(soft, **settings)


def _temperature(loss: nn.Module) -> float | None:
    soft = part_with_temperature(loss)
    return None if soft is None else soft.temperature.item()
