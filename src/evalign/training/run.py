"""The state of a run of `fit`: everything that a checkpoint holds."""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from evalign.store.files import UNEXPECTED, StoreError
from evalign.training.annealing import part_with_temperature
from evalign.training.batches import Data
from evalign.training.configuration import checksum, configuration
from evalign.training.early_stopping import EarlyStopping
from evalign.training.settings import Settings

History = list[dict[str, Any]]


@dataclass
class TrainingRun:
    """The moving parts of `fit`.

    Args:
        settings: how to train.
        network: the network being trained.
        averaged: the average of its weights; the network itself if none is kept.
        optimizer: AdamW, with two groups of parameters: with and without weight decay.
        scaler: of float16 gradients.
        loss: a module's state dict is part of the run's.
        stopping: the best epoch, the stop and the annealing.
        generators: every source of randomness.
        call: besides the settings, everything that must be the same when the run is resumed.
        history: a record per epoch.
        best: the weights of the best epoch.
    """

    settings: Settings
    network: nn.Module
    averaged: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    loss: Callable[..., Tensor]
    stopping: EarlyStopping
    generators: dict[str, torch.Generator]
    call: dict[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)

    def describe(self, batches: int, metric: object, score: object, *data: Data) -> None:
        """Describe the call before the first step: a resumed run must have the same description."""
        annealing = self.stopping.annealing
        cooled = {} if annealing is None else annealing.settings
        sharp = part_with_temperature(self.loss) if annealing is None else None
        named = [*self.network.named_parameters()]
        undecayed = {*self.optimizer.param_groups[1]["params"]}
        rows = [part for part in data if not isinstance(part, DataLoader)]  # loaders are not read
        self.call = {
            "batches per epoch": batches,
            # Compared before the loss: other rows may also mean other class weights.
            "the checksum of the rows": checksum(*(tensor for part in rows for tensor in part)),
            **configuration("loss", self.loss),
            **configuration("metric", metric),
            **configuration("score", score),
            "annealing": annealing and type(annealing).__name__,
            **{f"annealing.{name}": value for name, value in cooled.items()},
            # An annealing lowers the temperature that was asked for, which is its `start`.
            "loss.temperature": sharp and sharp.temperature.item(),
            **configuration("network", self.network),
            # The optimizer knows the parameters by their places, which follow from these two.
            "undecayed": [name for name, p in named if p in undecayed],
            "frozen": [name for name, p in named if not p.requires_grad],
            "generators": sorted(self.generators),
        }

    def keep_best(self) -> None:
        """Keep a copy of the present weights as the best so far."""
        self.best = {name: w.clone() for name, w in self.averaged.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state, because training goes on in place."""
        live: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        live["optimizer"] = {str(k): v for k, v in self.optimizer.state_dict()["state"].items()}
        live["rng"] = {name: source.get_state() for name, source in self.generators.items()}
        never_changed = {"history": list(self.history), "best": self.best}
        call = asdict(self.settings) | self.call
        return {"call": call, **copy.deepcopy(live), **never_changed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken, or say what differs from then."""
        try:
            self._load(state)
        except StoreError:
            raise
        except UNEXPECTED as error:
            text = f"The checkpoint does not hold this run: {type(error).__name__}: {error}"
            raise StoreError(text) from error

    def _load(self, state: dict[str, Any]) -> None:
        now, then = asdict(self.settings) | self.call, state["call"]
        for name in {**then, **now}:
            if now.get(name) != then.get(name):
                got = f"{name} was {then.get(name)!r} and is now {now.get(name)!r}"
                cure = "Resume with the same call, or delete the checkpoint to start afresh."
                raise StoreError(f"The checkpoint belongs to another run: {got}. {cure}")
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        slots = {int(k): v for k, v in state["optimizer"].items()}
        places = [p for group in self.optimizer.param_groups for p in group["params"]]
        for place, slot in slots.items():  # the fused optimizer would write beyond shorter ones
            if any(slot[name].shape != places[place].shape for name in ("exp_avg", "exp_avg_sq")):
                raise ValueError(f"parameter {place} has moments of another shape")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for name, source in self.generators.items():
            source.set_state(state["rng"][name])
        self.history.extend(state["history"])
        self.best = state["best"]

    def _parts(self) -> dict[str, Any]:
        """The parts that have a state dict."""
        parts = {"network": self.network, "scaler": self.scaler, "stopping": self.stopping}
        if self.averaged is not self.network:
            parts["averaged"] = self.averaged
        if isinstance(self.loss, nn.Module):
            parts["loss"] = self.loss
        return parts
