"""The state of a run: everything that the rest of it depends on, which a checkpoint holds."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from evalign.training.batches import Data
from evalign.training.checkpoint import WRONG_TREE, CheckpointError
from evalign.training.configuration import configuration
from evalign.training.progress import Progress
from evalign.training.settings import Settings

History = list[dict[str, Any]]


def fingerprint(*data: Data) -> str:
    """A checksum of all rows. The rows of a loader are not read."""
    digest = hashlib.blake2b(digest_size=16)
    for part in data:
        for tensor in () if isinstance(part, DataLoader) else part:
            digest.update(
                tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
            )
    return digest.hexdigest()


@dataclass
class RunState:
    """The moving parts of `fit`.

    Args:
        settings: how to train.
        network: what is trained.
        averaged: the average of its weights; the network itself where none is kept.
        optimizer: with its moments.
        scaler: of float16 gradients.
        loss: a module's state dict is part of this state.
        progress: the best epoch, the stop, and the annealing.
        generators: every source of randomness.
        call: what must be the same when the run is resumed, besides the settings.
        history: a record per epoch.
        best: the weights of the best epoch.
    """

    settings: Settings
    network: nn.Module
    averaged: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    loss: Callable[..., Tensor]
    progress: Progress
    generators: dict[str, torch.Generator]
    call: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def note_call(self, batches: int, metric: object, score: object, *data: Data) -> None:
        """Write down, before the first step, what a resumed run is compared with."""
        annealing = self.progress.annealing
        cooled = {} if annealing is None else annealing.settings
        named = [*self.network.named_parameters()]
        undecayed = {*self.optimizer.param_groups[1]["params"]}
        self.call = {
            "batches per epoch": batches,
            # Compared before the loss: other rows may also mean other class weights.
            "the fingerprint of the rows": fingerprint(*data),
            **configuration("loss", self.loss),
            **configuration("metric", metric),
            **({} if score is None else configuration("score", score)),
            "annealing": annealing and type(annealing).__name__,
            **{f"annealing.{name}": value for name, value in cooled.items()},
            **configuration("network", self.network),
            # The optimizer knows the parameters by their places, which follow from these two.
            "undecayed": [name for name, p in named if p in undecayed],
            "frozen": [name for name, p in named if not p.requires_grad],
            "parts": sorted(self._parts()),
            "generators": sorted(self.generators),
        }

    def keep_best(self) -> None:
        """Keep a copy of the weights, which are the best so far."""
        self.best = {name: w.clone() for name, w in self.averaged.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state: training goes on in place."""
        live: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        live["optimizer"] = {str(k): v for k, v in self.optimizer.state_dict()["state"].items()}
        live["rng"] = {name: source.get_state() for name, source in self.generators.items()}
        never_changed = {"history": list(self.history), "best": self.best}
        call = asdict(self.settings) | self.call
        return {"call": call, **copy.deepcopy(live), **never_changed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where the state was taken, or say what is not as it was."""
        try:
            self._load(state)
        except CheckpointError:
            raise
        except WRONG_TREE as error:
            text = f"The checkpoint is not of a training: {type(error).__name__}: {error}"
            raise CheckpointError(text) from error

    def _load(self, state: dict[str, Any]) -> None:
        now, then = asdict(self.settings) | self.call, state["call"]
        for name in {**then, **now}:
            if now.get(name) != then.get(name):
                got = f"{name} was {then.get(name)!r} and is now {now.get(name)!r}"
                cure = "Resume with the same call, or delete the checkpoint to start afresh."
                raise CheckpointError(f"The checkpoint belongs to another run: {got}. {cure}")
        try:
            for name, part in self._parts().items():
                part.load_state_dict(state[name])
        except RuntimeError as error:
            raise CheckpointError(f"The checkpoint belongs to another network: {error}") from error
        slots = {int(k): v for k, v in state["optimizer"].items()}
        places = [p for group in self.optimizer.param_groups for p in group["params"]]
        for place, slot in slots.items():  # the fused optimizer would write beyond shorter ones
            if any(
                slot[moment].shape != places[place].shape for moment in ("exp_avg", "exp_avg_sq")
            ):
                raise ValueError(f"parameter {place} has moments of another shape")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for name, source in self.generators.items():
            source.set_state(state["rng"][name])
        self.history.extend(state["history"])
        self.best = state["best"]

    def _parts(self) -> dict[str, Any]:
        """The parts that have a state dict."""
        parts = {"network": self.network, "scaler": self.scaler, "progress": self.progress}
        if self.averaged is not self.network:
            parts["averaged"] = self.averaged
        if isinstance(self.loss, nn.Module):
            parts["loss"] = self.loss
        return parts
