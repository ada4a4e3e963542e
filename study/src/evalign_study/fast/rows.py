"""The papers' networks for tables, many at once: one stacked network, each member with its own run.

Small networks, trained one by one, keep no GPU busy. Here their weights are stacked along a first
dimension, and a step of all of them is one batched computation; on a GPU, one CUDA graph. Each
member is trained, and ends, as `protocols.east.train` does it, but for the noise of dropout, which
the stack draws for all.
"""

import copy
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.adamw import adamw

from evalign_study.protocols import east
from evalign_study.protocols.east import Run
from evalign_study.records.journal import Record, scores_of_each

# What members may differ in; the rest they share.
OWN = (
    *("loss", "betas", "heaviside", "start", "rate", "patience", "coolings", "reading"),
    *("learning_rate", "dropout", "seed", "decisions", "curve"),
)
MEMBERS = 64  # at most in a stack
WIDEST = 2**26  # numbers in the widest layer, for a block of validation rows
WARM = 3  # steps before a graph is captured: libraries set themselves up in the first

State = dict[str, Tensor]


def units(runs: Iterable[Run]) -> list[list[Run]]:
    """Group runs that can train in one stack."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        usual = {field.name: field.default for field in dataclasses.fields(run)}
        shared = run.but(**{name: usual[name] for name in OWN if name in usual})
        found.setdefault(run if alone(run) else shared, []).append(run)
    return [
        group[i : i + MEMBERS] for group in found.values() for i in range(0, len(group), MEMBERS)
    ]


def alone(run: Run) -> bool:
    """Whether a run cannot be stacked: a network with batch statistics, a loss of one's own."""
    return run.network not in ("mlp", "mlp32") or ":" in run.loss or run.loss == "wmw"


def train(
    runs: Sequence[Run], device: str | None = None, *, compiled: bool = False
) -> Iterator[Record]:
    """Train the runs of one unit; give each record as soon as its member has finished.

    `compiled` fuses the steps of networks that are not stacked.
    """
    if alone(runs[0]):
        for run in runs:
            torch.compiler.reset()  # what was compiled for another run is not guarded against
            yield protocol_of(run).train(run, device, compiled=compiled)
        return
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    protocol = protocol_of(runs[0])
    rows = protocol.rows_of(runs[0], device)
    with east.seeded(runs[0].seed), east.products(runs[0].precision, device) as context:
        stack = Stack(protocol, runs, rows, device)
        torch.manual_seed(runs[0].seed)  # for the noise of dropout
        while stack.alive:
            for m in stack.epoch():
                yield stack.record(m, context)


def protocol_of(run: Run) -> Any:
    """The module that a run is defined in."""
    return sys.modules[type(run).__module__]


class Group(NamedTuple):
    """Members whose losses differ in their temperature alone."""

    loss: nn.Module
    places: slice
    state: State


class Stack:
    """The stacked members, and what each has shown so far.

    `places` lists the members that are in the stack, in the order of their learning rates, so that
    AdamW takes few steps for all of them. A member that has finished leaves its place when the
    stack is next narrowed.
    """

    def __init__(self, protocol: Any, runs: Sequence[Run], rows: east.Rows, device: str) -> None:
        self.runs, self.rows, self.device = runs, rows, device
        self.start = time.perf_counter()
        X = rows.training[0]
        built: list[nn.Module] = []
        self.losses: list[nn.Module] = []
        self.stopping: list[east.Stopping] = []
        self.progress: list[east.Progress] = []
        self.orders: list[torch.Generator] = []
        for run in runs:
            torch.manual_seed(run.seed)
            built.append(protocol.network_of(run, X.shape[1], rows.classes).to(device))
            loss = protocol.loss_of(run, protocol.Task(rows.counts, run.dataset)).to(device)
            self.losses.append(loss)
            self.stopping.append(protocol.stopping_of(run, loss))
            self.progress.append(protocol.Progress(run))
            self.orders.append(torch.Generator(device).manual_seed(run.seed))
        self.plain = copy.deepcopy(built[0])  # to score a member's weights with
        self.alive = set(range(len(runs)))
        self.places = sorted(self.alive, key=lambda m: runs[m].learning_rate)
        networks = [_with_own_dropout(built[m], runs[m].dropout) for m in self.places]
        self.network = copy.deepcopy(networks[0]).to("meta")
        weights, self.buffers = stack_module_state(networks)
        self.weights = {name: w.detach().requires_grad_() for name, w in weights.items()}
        self.means = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.squares = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.best: dict[str, State] = {
            criterion: {name: torch.empty_like(w) for name, w in weights.items()}
            for criterion in ("loss", *self.progress[0].metrics)
        }
        self.step = 0
        self._arrange()

    def epoch(self) -> list[int]:
        """Train and validate every member for one pass; return those that have finished."""
        X, y = self.rows.training
        size = self.runs[0].batch_size
        self._set_mode(training=True)
        shuffled = [
            torch.randperm(len(X), generator=self.orders[m], device=self.device)
            for m in self.places
        ]
        batches = torch.stack(shuffled).tensor_split(math.ceil(len(X) / size), dim=1)
        for batch in batches:
            number = batch.shape[1]
            kept = self.given.setdefault(number, torch.empty_like(batch)).copy_(batch)
            self._run(number, lambda kept=kept: self._advance(X, y, kept))
            self.step += 1
        return self._validate()

    def record(self, member: int, context: Callable[[], Any]) -> Record:
        """Score a member on the test rows, and make its record."""
        progress = self.progress[member]
        progress.weights = {
            criterion: {name: w[member] for name, w in self.best[criterion].items()}
            for criterion in progress.best
        }
        seconds = (time.perf_counter() - self.start) / len(self.runs)
        return progress.record(self.plain, self.rows, self.device, context, seconds)

    def _advance(self, X: Tensor, y: Tensor, batch: Tensor) -> None:
        """Take a step of every member, each on its own rows."""
        values = self._losses(self._logits(X[batch]), y[batch])
        gradients = torch.autograd.grad(values.sum(), list(self.weights.values()))
        # The fused step needs equal memory layouts, and a product's gradient may be transposed.
        gradients = [g.contiguous() for g in gradients]
        for part, rate, weights, means, squares, steps in self.parts:
            adamw(
                weights,
                [g[part] for g in gradients],
                means,
                squares,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=rate,
                weight_decay=0.01,
                eps=1e-8,
                maximize=False,
            )

    def _logits(self, x: Tensor) -> Tensor:
        """Logits (members, rows, classes); each member has rows of its own."""

        def one(weights: State, buffers: State, x: Tensor) -> Tensor:
            return functional_call(self.network, (weights, buffers), (x,))

        return vmap(one, randomness="different")(self.weights, self.buffers, x)

    def _losses(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every member."""
        found = []
        logits, y = logits.index_select(0, self.by_loss), y.index_select(0, self.by_loss)
        for loss, part, state in self.groups:

            def one(state: State, z: Tensor, target: Tensor, loss: nn.Module = loss) -> Tensor:
                return functional_call(loss, state, (z, target)).double()

            found.append(vmap(one)(state, logits[part], y[part]))
        return torch.cat(found).index_select(0, self.back)

    @torch.no_grad()
    def _validate(self) -> list[int]:
        """Note the validation of every member, cool its loss, keep its weights if they are best."""
        X, y = self.rows.validation
        self._set_mode(training=False)
        losses, matrices = self._run("validation", lambda: self._assess(X, y))
        losses = losses.tolist()
        scores = scores_of_each(matrices, self.progress[0].metrics)
        better: dict[str, list[int]] = {criterion: [] for criterion in self.best}
        finished = []
        for place, m in enumerate(self.places):
            if m not in self.alive:
                continue
            for criterion in self.progress[m].note(losses[place], scores[place], self.stopping[m]):
                better[criterion].append(place)
            if self.progress[m].ended(self.stopping[m]):
                finished.append(m)
        for criterion, places in better.items():
            now = self._index(places)
            then = self._index([self.places[place] for place in places])
            for name, kept in self.best[criterion].items() if places else ():
                kept.index_copy_(0, then, self.weights[name].detach()[now])
        self.alive -= set(finished)
        self._copy_temperatures()
        # A narrower stack is less work, but its graphs have to be captured anew.
        if len(self.alive) < len(self.places) * (0.5 if self.graphed else 1):
            self._narrow()
        return finished

    def _assess(self, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses and the confusion matrices of the validation rows."""
        count = len(self.places)
        width = max(w.shape[1] for w in self.weights.values())
        blocks = X.split(max(1, WIDEST // (count * width)))
        logits = torch.cat([self._logits(x.expand(count, *x.shape)) for x in blocks], 1)
        classes = logits.shape[2]
        cells = y * classes + logits.argmax(2)
        zeros = torch.zeros(count, classes**2, dtype=torch.float64, device=y.device)
        counts = zeros.scatter_add(1, cells, torch.ones_like(cells, dtype=zeros.dtype))
        losses = self._losses(logits, y.expand(count, *y.shape))
        return losses, counts.view(count, classes, classes)

    def _run(self, key: int | str, compute: Callable[[], Any]) -> Any:
        """Run the function; on a GPU as a graph, one launch for a thousand small ones."""
        if not self.graphed or self.step < WARM:
            return compute()
        if key not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self.graphs[key] = graph, compute()
        graph, result = self.graphs[key]
        graph.replay()
        return result

    def _arrange(self) -> None:
        """Lay out all tensors with a part for each place, and drop the graphs of the old layout."""
        self.graphed = self.device == "cuda"
        self.graphs: dict[int | str, tuple[Any, Any]] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.graphed else None
        self.given: dict[int, Tensor] = {}  # the rows of a step, at the address a graph looks at
        rates = [self.runs[m].learning_rate for m in self.places]
        self.parts = []
        for part in _neighbours(rates):
            weights, means, squares = (
                [tensor.detach()[part] for tensor in state.values()]
                for state in (self.weights, self.means, self.squares)
            )
            steps = [torch.tensor(float(self.step), device=self.device) for _ in weights]
            self.parts.append((part, rates[part.start], weights, means, squares, steps))
        kinds = [self._kind(m) for m in self.places]
        order = sorted(range(len(self.places)), key=lambda place: kinds[place])
        self.by_loss = self._index(order)
        self.back = self.by_loss.argsort()
        self.groups = []
        for part in _neighbours([kinds[place] for place in order]):
            losses = [self.losses[self.places[place]].train() for place in order[part]]
            self.groups.append(Group(losses[0], part, stack_module_state(losses)[1]))
        self.order = order

    def _kind(self, member: int) -> tuple[Any, ...]:
        run = self.runs[member]
        return run.loss, run.betas, getattr(run, "heaviside", "")

    def _copy_temperatures(self) -> None:
        """Copy what the annealings have set into the stacked losses, where a graph looks for it."""
        for _, part, state in self.groups:
            members = [self.places[place] for place in self.order[part]]
            for name, stacked in state.items():
                own = [dict(self.losses[m].named_buffers())[name] for m in members]
                stacked.copy_(torch.stack(own))

    def _narrow(self) -> None:
        """Continue with the unfinished members only."""
        places = [place for place, m in enumerate(self.places) if m in self.alive]
        self.places = [self.places[place] for place in places]
        if not places:
            return
        index = self._index(places)
        self.weights = {k: w.detach()[index].requires_grad_() for k, w in self.weights.items()}
        self.means, self.squares, self.buffers = (
            {name: tensor[index] for name, tensor in state.items()}
            for state in (self.means, self.squares, self.buffers)
        )
        self._arrange()

    def _set_mode(self, *, training: bool) -> None:
        self.network.train(training)
        for group in self.groups:
            group.loss.train(training)

    def _index(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(places, device=self.device, dtype=torch.int64)


def _neighbours(keys: Sequence[Any]) -> list[slice]:
    """The slices of equal neighbours."""
    slices, start = [], 0
    for _, same in groupby(keys):
        end = start + len(list(same))
        slices.append(slice(start, end))
        start = end
    return slices


class _Dropout(nn.Module):
    """Dropout whose probability is a buffer, so that stacked networks may differ in it."""

    p: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(p))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * ((torch.rand_like(x) >= self.p) / (1 - self.p))


def _with_own_dropout(network: nn.Module, p: float) -> nn.Module:
    """Replace the network's dropout layers by ones that a stack can hold."""
    device = next(network.parameters()).device
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Dropout):
                setattr(parent, name, _Dropout(p).to(device))
    return network
