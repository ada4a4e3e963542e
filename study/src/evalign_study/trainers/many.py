"""Many models at once: one stacked network, each member with its own loss, seed and end.

A grid of small networks keeps neither a GPU nor a CPU busy one by one. Here their weights are
stacked along a first dimension and a step of all is one batched computation; every member is
trained as `fit` would train it alone, but for the noise of its dropout, which is the stack's.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from evalign.aggregation import RunningConfusion
from evalign.core.checks import require
from evalign.core.confusion import Confusion
from evalign.core.metrics import Metric, MetricFunction, resolve
from evalign.losses import WMWLoss
from evalign.losses.temperature import HasTemperature
from evalign.training.annealing import TemperatureAnnealing
from evalign.training.settings import Settings
from evalign.training.state import History
from evalign_study.trainers.stacked import Stacked, State, runs, with_own_dropout

VALIDATED = 2**26  # numbers in the widest layer, for a block of validation rows
LOSS, METRIC = "loss", "metric"  # criteria, as `Settings.watch` has them
WARM = 3  # steps before CUDA graphs are made: libraries set themselves up in the first


class Member(NamedTuple):
    """One model of the stack.

    Args:
        loss: called as loss(logits, target). Members whose losses differ in buffers alone are
            computed together; temperature, running statistics and the like are each member's own.
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
    """What has become of a member.

    Args:
        weights: of the best epoch; empty if there was none.
        history: the records of `fit` that make sense for many at once, and in each "also", the
            further metrics, and "best_of", the names of `best` for which the epoch was a new best.
        best: the weights of the best epochs by every criterion: "loss" and "metric", of the
            validation rows, and the further metrics. The last record that names a criterion is its
            epoch. An epoch without a finite loss is at most the best by what is watched.
    """

    weights: State
    history: History
    best: dict[str, State]


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
    """Train a network for every member; with dropout off, as `fit` trains it alone (to rounding).

    Equal calls give equal results, and the caller's random numbers are left alone.

    Args:
        build: makes a network, from rows to logits (N, C), without batch statistics.
        members: what differs.
        X: the training rows, on the device to train on.
        y: their targets.
        validation: (X, y) of the validation rows.
        metric: a name, or a function of a `Confusion`; of labels (argmax).
        settings: what the members share; its learning rate and seed are not looked at.
        also: further metrics, by any name, whose best epochs are kept too. When to cool and when to
            end does not depend on them.
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
        torch.manual_seed(members[0].seed)  # of the noise of dropout
        while stack.alive:
            start = time.perf_counter()
            losses = stack.epoch(X, y)
            stack.check(*validation, losses, start)
    return [stack.trained(m) for m in range(len(members))]


class _Group(NamedTuple):
    """Members of alike losses, where they stand by loss, and the losses' states, stacked."""

    loss: nn.Module
    places: slice
    state: State


class _Stack:
    """The stacked members (`places`, their indices), and what all have come to.

    Members of one learning rate stand side by side, so that AdamW takes few steps for all of them;
    for the losses, `by_loss` brings together those of one loss. A member that is done leaves its
    place when the stack is next narrowed.
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
        kinds: list[nn.Module] = []  # a loss of each
        self.kind: list[int] = []
        for member in members:
            alike = (k for k, known in enumerate(kinds) if _alike(member.loss, known))
            self.kind.append(next(alike, len(kinds)))
            if self.kind[-1] == len(kinds):
                kinds.append(member.loss)
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
        self.losses = [copy.deepcopy(member.loss).to(X.device) for member in members]
        self.signs = {LOSS: -1} | {
            name: 1 if metric.greater_is_better else -1 for name, metric in metrics.items()
        }
        greater = self.signs[settings.watch] > 0
        self.annealings = [
            None
            if member.annealing is None
            else TemperatureAnnealing(
                _soft(loss), **({"greater_is_better": greater} | member.annealing)
            )
            for member, loss in zip(members, self.losses, strict=True)
        ]
        self.temperatures = [_temperature(loss) for loss in self.losses]
        self.best = {
            name: {key: torch.empty_like(w) for key, w in self.networks.weights.items()}
            for name in self.signs
        }
        self.scores = {name: [-math.inf] * len(members) for name in self.best}  # of the best
        self.histories: list[History] = [[] for _ in members]
        self.step = 0
        self._size_statistics(X[:1])
        self.graphed = X.is_cuda
        self._arrange()

    def epoch(self, X: Tensor, y: Tensor) -> Tensor:
        """One pass over the rows for every member. Returns their mean losses."""
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
        values = self._values(self.networks.logits(X[rows]), y[rows])
        self.networks.step(values.sum(), self.settings.weight_decay, self.settings.clip_norm)
        self.total += values.detach()

    def _run(self, key: int | str, compute: Callable[[], Any]) -> Any:
        """Compute; where graphs are used, as one launch instead of a thousand small ones."""
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
        """Validate, note the best epochs, cool, and let go of the members that are done."""
        self._train(False)
        validated = self._run("validation", lambda: self._validate(X, y))
        table = torch.cat([losses.unsqueeze(0), validated]).T.tolist()
        seconds = time.perf_counter() - start
        improved: dict[str, list[int]] = {name: [] for name in self.best}
        for i, m in enumerate(self.places):
            if m not in self.alive:
                continue
            loss, validation_loss, *found = table[i]
            of = {LOSS: validation_loss, **dict(zip(self.metrics, found, strict=True))}
            better = [name for name in self.best if self._is_best(m, name, of)]
            for name in better:
                self.scores[name][m] = self.signs[name] * of[name]
                improved[name].append(i)
            annealing, watched = self.annealings[m], of[self.settings.watch]
            self.histories[m].append(
                {
                    "epoch": len(self.histories[m]) + 1,
                    "seconds": seconds,
                    "temperature": annealing.temperature if annealing else self.temperatures[m],
                    "loss": loss,
                    "validation_loss": validation_loss,
                    "validation_metric": of[METRIC],
                    "watched": watched,
                    "best": self.settings.watch in better,
                    "also": {name: of[name] for name in of if name not in (LOSS, METRIC)},
                    "best_of": better,
                }
            )
            if annealing is not None:
                annealing.step(watched)
            if self._done(m):
                self.alive.remove(m)
        self._keep(improved)
        # A narrower stack is less work, but its graphs have to be made anew.
        if len(self.alive) < len(self.places) * (0.5 if self.graphed else 1):
            self._narrow()

    def trained(self, m: int) -> Trained:
        ever = {name: math.isfinite(scores[m]) for name, scores in self.scores.items()}
        best = {
            name: {key: w[m] for key, w in weights.items()} if ever[name] else {}
            for name, weights in self.best.items()
        }
        return Trained(best[self.settings.watch], self.histories[m], best)

    def _arrange(self) -> None:
        """Stack the losses' states, of which each loss then sees its own part."""
        self.groups = []
        order = sorted(range(len(self.places)), key=lambda i: self.kind[self.places[i]])
        self.by_loss = self._index(order)
        self.back = self.by_loss.argsort()
        for part in runs([self.kind[self.places[i]] for i in order]):
            losses = [self.losses[self.places[i]].train() for i in order[part]]
            state = stack_module_state(losses)[1]
            for k, loss in enumerate(losses):
                for name, stacked in state.items():
                    owner, _, own = name.rpartition(".")
                    loss.get_submodule(owner)._buffers[own] = stacked[k]
            self.groups.append(_Group(losses[0], part, state))
        self.total = torch.zeros(len(self.places), device=self.device, dtype=torch.float64)
        self.given: dict[int, Tensor] = {}  # the rows of a step, where its graph looks for them
        self.graphs: dict[int | str, tuple[Any, Any]] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.graphed else None

    def _values(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every member; as in `fit` one over pairs is a mean over batches."""
        values = []
        logits, y = logits.index_select(0, self.by_loss), y.index_select(0, self.by_loss)
        for loss, part, state in self.groups:

            def one(state: State, z: Tensor, target: Tensor, loss: nn.Module = loss) -> Tensor:
                return functional_call(loss, state, (z, target))

            pairwise = any(isinstance(module, WMWLoss) for module in loss.modules())
            size = self.settings.batch_size if pairwise else y.shape[1]
            batches = zip(logits[part].split(size, 1), y[part].split(size, 1), strict=True)
            found = [vmap(one)(state, z, target) for z, target in batches]
            values.append(torch.stack(found).mean(0))
        return torch.cat(values).index_select(0, self.back).double()

    def _validate(self, X: Tensor, y: Tensor) -> Tensor:
        """A column for each member: the loss on these rows, and every metric."""
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
        return torch.stack([self._values(logits, y.expand(count, *y.shape)), *scores])

    def _size_statistics(self, x: Tensor) -> None:
        """Running statistics take their size from a first batch, and are then made empty again."""
        logits = (
            self.networks.logits(x.expand(len(self.places), *x.shape)).detach().requires_grad_()
        )
        y = torch.zeros(1, dtype=torch.int64, device=x.device)
        for loss in self.losses:
            for part in loss.modules():
                if isinstance(part, RunningConfusion):
                    loss(logits[0], y)
                    part.empty()

    def _is_best(self, m: int, name: str, of: dict[str, float]) -> bool:
        # Labels of a network that has diverged may have a score, but it is of no use.
        sane = name == self.settings.watch or math.isfinite(of[LOSS])
        return sane and self.signs[name] * of[name] > self.scores[name][m]

    def _keep(self, improved: dict[str, list[int]]) -> None:
        """The weights of these members are the best so far."""
        for name, places in improved.items():
            if not places:
                continue
            now = self._index(places)
            then = self._index([self.places[i] for i in places])
            for key, w in self.networks.kept.items():
                self.best[name][key].index_copy_(0, then, w.detach()[now])

    def _done(self, m: int) -> bool:
        history, annealing = self.histories[m], self.annealings[m]
        best = next((record["epoch"] for record in reversed(history) if record["best"]), 0)
        return (
            len(history) >= self.settings.epochs
            or len(history) - best >= (self.settings.patience or math.inf)
            or not math.isfinite(history[-1]["validation_loss"])
            or (annealing is not None and annealing.finished)
        )

    def _narrow(self) -> None:
        """Go on with the living alone."""
        places = [i for i, m in enumerate(self.places) if m in self.alive]
        self.places = [self.places[i] for i in places]
        if places:
            self.networks.narrow(places, self.step)
            self._arrange()

    def _train(self, mode: bool) -> None:
        for module in [self.networks.network, *(group.loss for group in self.groups)]:
            module.train(mode)

    def _index(self, places: list[int]) -> Tensor:
        return torch.tensor(places, device=self.device, dtype=torch.int64)


def _soft(loss: nn.Module) -> HasTemperature:
    return next(m for m in loss.modules() if isinstance(m, HasTemperature))


def _temperature(loss: nn.Module) -> float | None:
    soft = (m for m in loss.modules() if isinstance(m, HasTemperature))
    return next((m.temperature.item() for m in soft), None)


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two losses are one, or differ in nothing but the values of their buffers."""
    if one is other:
        return True
    parts = list(one.modules()), list(other.modules())
    if len(parts[0]) != len(parts[1]) or any(True for _ in one.parameters()):
        return False
    pairs = zip(*parts, strict=True)
    try:
        return all(type(a) is type(b) and _settings(a) == _settings(b) for a, b in pairs)
    except (RuntimeError, ValueError):  # arrays among them, which do not compare to one answer
        return False


def _settings(loss: nn.Module) -> dict[str, Any]:
    """What a loss is made with, and the sizes of its buffers."""
    made_with = {k: v for k, v in vars(loss).items() if k not in vars(nn.Module())}
    return made_with | {k: (v.shape, v.dtype) for k, v in loss.named_buffers(recurse=False)}
