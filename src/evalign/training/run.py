"""The state of a training run, all of which a checkpoint holds."""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from evalign.store.files import StoreError
from evalign.training.annealing import part_with_temperature
from evalign.training.averaging import average_network, offsets_of
from evalign.training.batches import Rows
from evalign.training.configuration import checksum, configuration
from evalign.training.early_stopping import EarlyStopping
from evalign.training.settings import Settings

History = list[dict[str, Any]]


@dataclass
class TrainingRun:
    """Everything that changes while `fit` runs.

    Args:
        settings: how to train.
        network: the network being trained.
        averaged: a copy whose weights are a moving average; without averaging, the network itself.
        optimizer: AdamW with two parameter groups, with and without weight decay.
        scaler: scales float16 gradients.
        loss: the loss; if it is a module, its state dict is saved too.
        stopping: early stopping and annealing.
        generators: all sources of randomness.
        call: everything besides the settings that must not change when the run is resumed.
        history: one record per epoch.
        offsets: moving average of the loss's offsets; None if it has none.
        best: the network's state dict and the offsets at the best epoch.
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
    offsets: Tensor | None = None
    best: dict[str, Any] = field(default_factory=dict)

    def describe(self, batches: int, metric: object, score: object, *data: Rows) -> None:
        """Describe the call before the first step, to compare with when the run is resumed."""
        annealing = self.stopping.annealing
        cooled = {} if annealing is None else annealing.settings
        sharp = part_with_temperature(self.loss) if annealing is None else None
        named = [*self.network.named_parameters()]
        undecayed = {*self.optimizer.param_groups[1]["params"]}
        self.call = {
            "batches per epoch": batches,
            # Compared before the loss, because class weights may depend on the rows.
            "the checksum of the rows": checksum(*(tensor for rows in data for tensor in rows)),
            **configuration("loss", self.loss),
            **configuration("metric", metric),
            **configuration("score", score),
            "annealing": annealing and type(annealing).__name__,
            **{f"annealing.{name}": value for name, value in cooled.items()},
            # An annealing lowers the temperature that was asked for, which is its `start`.
            "loss.temperature": sharp and sharp.temperature.item(),
            **configuration("network", self.network),
            # The optimizer identifies parameters by position, which these two determine.
            "undecayed": [name for name, p in named if p in undecayed],
            "frozen": [name for name, p in named if not p.requires_grad],
            "generators": sorted(self.generators),
        }

    def average(self, decay: float) -> None:
        """Update the averages of weights and offsets after a step; a decay of 0 copies."""
        if self.averaged is not self.network:
            average_network(self.averaged, self.network, decay)
        new = offsets_of(self.loss)
        if new is not None:
            before = new if self.offsets is None else self.offsets.to(new)
            self.offsets = torch.lerp(new, before, decay)

    def keep_best(self) -> None:
        """Keep a copy of the averaged weights and offsets as the best so far."""
        weights = {name: w.clone() for name, w in self.averaged.state_dict().items()}
        self.best = {"network": weights, "offsets": self.offsets}

    def state_dict(self) -> dict[str, Any]:
        """Copy the state, which training changes in place."""
        live: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        live["optimizer"] = {str(k): v for k, v in self.optimizer.state_dict()["state"].items()}
        live["rng"] = {name: source.get_state() for name, source in self.generators.items()}
        replaced = {"history": list(self.history), "offsets": self.offsets, "best": self.best}
        call = asdict(self.settings) | self.call
        return {"call": call, **copy.deepcopy(live), **replaced}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state exactly, or say how this call differs from the saved one."""
        try:
            self._load(state)
        except StoreError:
            raise
        except Exception as error:
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
        for place, slot in slots.items():  # the fused optimizer would write out of bounds
            if any(slot[name].shape != places[place].shape for name in ("exp_avg", "exp_avg_sq")):
                raise ValueError(f"parameter {place} has moments of another shape")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        for name, source in self.generators.items():
            source.set_state(state["rng"][name])
        self.history.extend(state["history"])
        self.offsets, self.best = state["offsets"], state["best"]

    def _parts(self) -> dict[str, Any]:
        """The parts that have a state dict."""
        parts = {"network": self.network, "scaler": self.scaler, "stopping": self.stopping}
        if self.averaged is not self.network:
            parts["averaged"] = self.averaged
        if isinstance(self.loss, nn.Module):
            parts["loss"] = self.loss
        return parts
