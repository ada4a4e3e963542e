"""The losses of stacked networks; similar ones are computed together."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from evalign.aggregation import RunningConfusion
from evalign.losses import AlignedLoss, WMWLoss
from evalign_study.trainers.following import forget
from evalign_study.trainers.stacked import State, average_weights, runs

AVERAGED = "averaged"  # a buffer of a loss: the average of its offsets


class _Group(NamedTuple):
    """Similar losses: one of them, the places of all, and their stacked states."""

    loss: nn.Module
    places: slice
    state: State


class StackedLosses:
    """Copies of the members' losses. `arrange` sets which members are computed, and their order.

    The state of a copy (its temperature, its running statistics) is a view into a stacked state, so
    that a change to one changes the other.

    Args:
        losses: one loss for each member. Losses that differ only in the values of buffers are
            similar.
        device: where they are computed.
        batch_size: the rows that a loss over pairs takes at a time.
    """

    def __init__(
        self, losses: Sequence[nn.Module], device: torch.device, *, batch_size: int
    ) -> None:
        kinds: list[nn.Module] = []  # one loss of each kind
        self.kind: list[int] = []
        for loss in losses:
            alike = (k for k, known in enumerate(kinds) if _alike(loss, known))
            self.kind.append(next(alike, len(kinds)))
            if self.kind[-1] == len(kinds):
                kinds.append(loss)
        self.each = [copy.deepcopy(loss).to(device) for loss in losses]
        self.device = device
        self.batch_size = batch_size
        self.groups: list[_Group] = []

    def size_statistics(self, logits: Tensor) -> None:
        """Give running statistics the size that a first batch would give them, but leave them
        empty.
        """
        target = torch.zeros(len(logits), dtype=torch.int64, device=self.device)
        for loss in self.each:
            if any(isinstance(part, RunningConfusion) for part in loss.modules()):
                loss(logits, target)
                forget(loss)
            if isinstance(loss, AlignedLoss):
                loss.register_buffer(AVERAGED, loss.offsets.clone())

    def average(self, decay: Tensor) -> None:
        """Average the offsets that change, as weights are."""
        for group in self.groups:
            if AVERAGED in group.state:
                average_weights([group.state[AVERAGED]], [group.state["offsets"]], decay)

    def offsets(self, member: int) -> Tensor | None:
        """The average of a member's offsets; None where they do not change."""
        return dict(self.each[member].named_buffers(recurse=False)).get(AVERAGED)

    def arrange(self, members: Sequence[int]) -> None:
        """Stack the states of these members' losses; each loss then sees its own part."""
        order = sorted(range(len(members)), key=lambda i: self.kind[members[i]])
        self.by_loss = torch.tensor(order, device=self.device, dtype=torch.int64)
        self.back = self.by_loss.argsort()
        self.groups = []
        for part in runs([self.kind[members[i]] for i in order]):
            losses = [self.each[members[i]].train() for i in order[part]]
            state = stack_module_state(losses)[1]
            for k, loss in enumerate(losses):
                for name, stacked in state.items():
                    owner, _, own = name.rpartition(".")
                    loss.get_submodule(owner)._buffers[own] = stacked[k]
            self.groups.append(_Group(losses[0], part, state))

    def values(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute all members' losses.

        As in `fit`, a loss over pairs is a mean over batches, and offsets that change are their
        averages in evaluation.
        """
        values = []
        logits, y = logits.index_select(0, self.by_loss), y.index_select(0, self.by_loss)
        for loss, part, state in self.groups:
            if AVERAGED in state and not loss.training:
                state = state | {"offsets": state[AVERAGED]}

            def one(state: State, z: Tensor, target: Tensor, loss: nn.Module = loss) -> Tensor:
                return functional_call(loss, state, (z, target))

            pairwise = any(isinstance(module, WMWLoss) for module in loss.modules())
            size = self.batch_size if pairwise else y.shape[1]
            batches = zip(logits[part].split(size, 1), y[part].split(size, 1), strict=True)
            found = [vmap(one)(state, z, target) for z, target in batches]
            values.append(torch.stack(found).mean(0))
        return torch.cat(values).index_select(0, self.back).double()

    def train(self, mode: bool) -> None:
        """Set the training mode of the losses in use."""
        for group in self.groups:
            group.loss.train(mode)


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Tell whether two losses are the same, or differ only in the values of their buffers."""
    if one is other:
        return True
    parts = list(one.modules()), list(other.modules())
    if len(parts[0]) != len(parts[1]) or any(True for _ in one.parameters()):
        return False
    pairs = zip(*parts, strict=True)
    try:
        return all(type(a) is type(b) and _settings(a) == _settings(b) for a, b in pairs)
    except (RuntimeError, ValueError):  # arrays do not compare to a single truth value
        return False


def _settings(loss: nn.Module) -> dict[str, Any]:
    """Return what a loss is made with, and the sizes of its buffers."""
    made_with = {k: v for k, v in vars(loss).items() if k not in vars(nn.Module())}
    return made_with | {k: (v.shape, v.dtype) for k, v in loss.named_buffers(recurse=False)}
